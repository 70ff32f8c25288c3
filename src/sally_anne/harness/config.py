"""What an evaluation and a comparison are asked to do, and options that several configs share."""

from __future__ import annotations

import json
import os
import urllib.parse
from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import tyro

from sally_anne.core.errors import HarnessError
from sally_anne.core.options import Positive, Seed, check_options, flag_name
from sally_anne.data.gridtom.samples import SplitSeed
from sally_anne.data.items import WITH_SOUND, Setting, View, Window, short_name
from sally_anne.harness.protocols import RETOLD, Prompting, ProtocolName
from sally_anne.harness.tasks import open_task
from sally_anne.models.options import ModelOptions

# Prompts that go through the model together.
DEFAULT_BATCH = 16
# Fields of an address that are no secrets; any other may be one.
_OPEN_FIELDS = frozenset({"api-version", "version", "model", "deployment"})
CHAT_PATH = "/chat/completions"
# Options that only some tasks take; a task names its own.
TASK_OPTIONS = (
    *("order", "setting", "style", "data_seed", "split_seed"),
    *("view", "window", "frames", "fps", "most_frames", "judge"),
)


@dataclass(frozen=True, kw_only=True)
class EndpointOptions:
    """A model behind an address that speaks the OpenAI chat-completions protocol.

    Attributes:
        endpoint: address of the model, such as https://host/v1, in place of --model.
        endpoint_model: its name there.
        endpoint_key: name of the environment variable that holds the key, if it wants one.
        endpoint_rate: requests a minute at most, of each endpoint.
        endpoint_limit: tokens that each endpoint of this run folder may read and write.
        endpoint_fields: further fields of each request, also of a second model's, as a JSON object;
            null leaves one out, as in {"max_tokens": null, "max_completion_tokens": 500}.
    """

    endpoint: str | None = None
    endpoint_model: str = ""
    endpoint_key: str | None = None
    endpoint_rate: Positive | None = None
    endpoint_limit: Positive | None = None
    endpoint_fields: str | None = None


@dataclass(frozen=True, kw_only=True)
class RunOptions(ModelOptions):
    """Where a run is, and what it does at once.

    Attributes:
        out: run folder; named after the options by default. An existing one is resumed.
        batch_size: prompts that go through the model together, or requests that are made to an
            endpoint at once.
    """

    out: Path | None = None
    batch_size: int = DEFAULT_BATCH

    # The folder of runs of this kind, and the options by which one is named.
    kind: ClassVar[str]
    named: ClassVar[tuple[str, ...]] = ()

    @property
    def words(self) -> list[str]:
        return []

    @property
    def folder(self) -> Path:
        name = Path(model_name(self)).name or "model"
        parts = [name, *self.words, *changed(self, *self.named, "prompt")]
        return self.out or Path("runs") / self.kind / "-".join(parts)


@dataclass(frozen=True)
class EvalConfig(EndpointOptions, RunOptions):
    """Ask a model, steered or not, the questions of a task.

    Attributes:
        task: gridtom, moments, mmtom_qa, muma_tom, mimeqa, bigtom, tomi, hi_tom, fantom, opentom,
            tombench; a file of your own questions (.jsonl); or package.module:NAME of a Benchmark.
        order: GridToM: belief of first or second order, the initial-belief questions, or where the
            participant is in reality.
        setting: GridToM: what the model is given: frames and text, frames, or text.
        view: other tasks: frames and words, frames, the film's sound, frames and sound, words, or
            the question alone; the benchmark's own by default.
        window: other tasks: the whole context or the part that the question is about.
        frames: other tasks: so many frames, spread evenly; by default as the benchmark takes them.
        fps: other tasks: frames a second, in place of --frames or the benchmark's own.
        most_frames: other tasks: of a film or window at most so many, spread evenly where there are
            more; by default as many as the benchmark's own.
        template: file with the prompt, its fields in braces.
        protocol: official asks as the benchmark's authors do, sally-anne in our own words.
        prompting: direct asks for the answer alone, cot for thoughts first, few-shot after other
            questions with their answers, simtom on what the person asked about knows alone.
        shots: examples that few-shot prompts show, each of a story that is not asked about.
        judge: who rates replies to open questions: a model's name, or the address of an endpoint.
            Without a judge they are kept, but not scored.
        judge_model: model to ask for at the endpoint.
        judge_key: name of the environment variable that holds the endpoint's key, if it wants one.
        replies: CSV with replies (item_id, reply), of people or of any program, in place of a
            model's; items without one are left out.
        human: CSV with people's verdicts on the same replies (item_id, label), with which the judge
            is compared.
        judge_template: file with the judge's prompt, its fields in braces; it asks for TRUE or
            FALSE.
        steer: folder of a steering vector, or user/name[@revision] on a hub.
        alpha: strength of the vector; its own by default.
        split: which items are asked about; auto is GridToM's test stories, and the benchmark's
            own choice for other tasks; GridToM's published is the test of its released code.
        limit: only so many stories (films, episodes), whole, spread evenly over maps or tags.
        limit_seed: draws others.
        style: GridToM: plain questions, or questions that ask for a JSON object.
        options: score the options by their probability as well.
        data: folder in the benchmark's release layout; GridToM's stories are generated if none is
            given.
        batch_size: prompts that go through the model together, or requests that are made to an
            endpoint at once; auto takes as many as fit on a GPU, and 16 elsewhere.
        max_new_tokens: length of a reply; by default as the task's replies need. It holds for both
            steps of simtom, of which the first has 256 otherwise.
        split_seed: which stories test, train and validate; or published, as of `sally-anne probe`.
        data_seed: seed of generated stories.
        dry_run: say what the run would ask and need (tokens, memory), and do nothing.
        allow_mismatch: steer a model that the vector was not fitted on.
    """

    task: str = "gridtom"
    order: Literal["1", "2", "initial", "reality"] = "1"
    setting: Setting = "multimodal"
    view: View | None = None
    window: Window | None = None
    frames: int | None = None
    fps: Positive | None = None
    most_frames: int | None = None
    template: Path | None = None
    protocol: ProtocolName = "sally-anne"
    prompting: Prompting = "direct"
    shots: int = 4
    judge: str | None = None
    judge_model: str = ""
    judge_key: str | None = None
    replies: Path | None = None
    human: Path | None = None
    judge_template: Path | None = None
    steer: Path | None = None
    alpha: float | None = None
    split: str = "auto"
    limit: int | None = None
    limit_seed: Seed = 0
    style: Literal["plain", "json"] = "plain"
    options: bool = False
    data: Path | None = None
    batch_size: int | Literal["auto"] = DEFAULT_BATCH  # type: ignore[assignment]
    max_new_tokens: int | None = None
    split_seed: SplitSeed = 0
    data_seed: Seed = 2025
    dry_run: bool = False
    allow_mismatch: bool = False

    kind = "eval"
    named = (
        *("view", "window", "frames", "fps", "most_frames", "template", "protocol", "prompting"),
        *("shots", "steer", "alpha", "split", "style", "options", "max_new_tokens", "split_seed"),
        *("data_seed", "data", "limit", "limit_seed", "max_pixels"),
    )

    @property
    def reply_tokens(self) -> int:
        return self.max_new_tokens or open_task(self.task).reply_tokens(self)

    @property
    def retold_tokens(self) -> int:
        return self.max_new_tokens or RETOLD

    @property
    def words(self) -> list[str]:
        return [short_name(self.task), *open_task(self.task).folder_words(self)]


@dataclass(frozen=True)
class CompareConfig:
    """Compare finished evaluations of the same questions: each later run against the first."""

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """Run folders of `sally-anne evaluate`; the first is what the others are compared with."""
    means: bool = False
    """Compare ways to ask: of runs that differ in their model alone the mean over models."""
    out: Path | None = None
    """Folder to write to; runs/compare/FIRST-against-SECOND if not given."""

    @property
    def folder(self) -> Path:
        if len(self.runs) < 2:
            raise HarnessError("give two run folders or more, as `sally-anne evaluate` leaves them")
        first, second, *more = (path.resolve().name for path in self.runs)
        others = f"-and-{len(more)}-more" if more else ""
        return self.out or Path("runs/compare") / f"{first}-against-{second}{others}"


def check(config: EvalConfig) -> None:
    """Raise OptionError or HarnessError, which names the option, if the options alone are wrong."""
    check_steered(config)
    check_endpoint(config)
    check_second(config, "judge")
    task = open_task(config.task)
    others = [name for name in TASK_OPTIONS if name not in task.options]
    asked = ("model", "endpoint", "steer", "options", "prompting", "dry_run")
    with_template = ("style",) if config.prompting == "few-shot" else ("style", "prompting")
    own_words = ("template", "prompting", "style")
    rules: tuple[tuple[bool, Iterable[str], str], ...] = (
        (True, others, f"other tasks than {short_name(config.task)}"),
        (config.frames is not None, ("fps", "most_frames"), "runs without --frames"),
        (config.replies is not None, asked, "models, not for --replies"),
        (config.judge is None, ("human", "judge_template"), "a judge (--judge)"),
        (config.prompting != "few-shot", ("shots",), "--prompting few-shot"),
        (config.prompting == "cot", ("options",), "other ways of --prompting than cot"),
        (
            config.endpoint is not None and config.view in WITH_SOUND,
            ("view",),
            "models opened here",
        ),
        (config.template is not None, with_template, "our own words, not those of --template"),
        (config.protocol == "official", own_words, "our own words, not the authors'"),
    )
    for applies, names, where in rules:
        if applies:
            _refuse(config, names, where)
    task.protocol(config)


def _refuse(config: Any, names: Iterable[str], where: str) -> None:
    for name in names:
        if getattr(config, name) != getattr(type(config), name):
            raise HarnessError(f"{flag_name(name)} is for {where}")


def check_steered(config: Any) -> None:
    check_options(config)
    if config.alpha is not None and config.steer is None:
        raise HarnessError("--alpha is the strength of a vector: give one with --steer")


def changed(config: Any, *names: str) -> list[str]:
    values = {name: getattr(config, name) for name in names}
    words = []
    for name, value in values.items():
        if value != getattr(type(config), name, None):
            shown = f"-{Path(value).name}" if isinstance(value, str | Path) else str(value)
            shown = "-".join(("", *value)) if isinstance(value, tuple) else shown
            words.append(name.replace("_", "") + shown)
    return words


def model_name(config: Any) -> str:
    if (replies := getattr(config, "replies", None)) is not None:
        return str(replies.stem)
    at_endpoint = getattr(config, "endpoint", None) is not None
    return str(config.endpoint_model if at_endpoint else config.model)


def check_endpoint(config: Any) -> None:
    request_fields(config)
    if config.endpoint is None:
        _refuse(config, ("endpoint_model", "endpoint_key"), "an endpoint: give --endpoint")
        return
    _check_address(config, "endpoint")
    local = [field.name for field in fields(ModelOptions) if field.name != "max_pixels"]
    inside = [name for name in ("steer", "alpha", "options") if hasattr(config, name)]
    _refuse(config, [*local, *inside], "a model that is opened here, not for --endpoint")


def check_second(config: Any, role: str) -> None:
    """HarnessError if a run's second model (of this role: judge), is ill described."""
    if "://" in (getattr(config, role) or ""):
        _check_address(config, role)
        return
    if config.endpoint is None:
        limits = ("endpoint_rate", "endpoint_limit", "endpoint_fields")
        _refuse(config, limits, "an endpoint: give --endpoint")
    own = (f"{role}_model", f"{role}_key")
    _refuse(config, own, f"a {role} at an address: give it with {flag_name(role)}")


def _check_address(config: Any, role: str) -> None:
    """HarnessError if the address in the option ``role``, or what goes with it, is wrong."""
    model, key = f"{role}_model", f"{role}_key"
    checked_address(getattr(config, role), flag_name(role))
    if not getattr(config, model).strip():
        raise HarnessError(f"{flag_name(role)} needs {flag_name(model)}, the name of a model there")
    key_from(getattr(config, key), flag_name(key))


def request_fields(config: Any) -> dict[str, Any]:
    """What ``--endpoint-fields`` holds; HarnessError if it is no JSON object."""
    try:
        return dict(json.loads(config.endpoint_fields or "{}"))
    except (ValueError, TypeError) as error:
        raise HarnessError(f"--endpoint-fields must be a JSON object: {error}") from error


def key_from(variable: str | None, option: str) -> str:
    """The key in the environment variable that ``option`` names; empty without a name."""
    key = os.environ.get(variable, "").strip() if variable else ""
    if variable and not (key.isascii() and key.isprintable() and key and " " not in key):
        # The name is not repeated: it may be the key itself, given by mistake.
        raise HarnessError(f"{option} takes the name of an environment variable that holds a key")
    return key


def checked_address(url: str, option: str = "--endpoint") -> str:
    """The whole address to post to; HarnessError, for ``option``, if it is none, or holds a key.

    What is refused is not repeated: it may hold one.
    """
    parts = urllib.parse.urlsplit(url.strip())
    open_fields = all(name in _OPEN_FIELDS for name, _ in urllib.parse.parse_qsl(parts.query, True))
    usable = parts.scheme in ("http", "https") and url.isascii() and open_fields
    if not (usable and parts.hostname) or "@" in parts.netloc or " " in url.strip():
        raise HarnessError(
            f"{option} takes an address like https://host/v1{CHAT_PATH}, without a name, password "
            f"or key ({option}-key names the variable that holds one)"
        )
    path = parts.path.rstrip("/").removesuffix(CHAT_PATH) + CHAT_PATH
    return urllib.parse.urlunsplit(parts._replace(path=path, fragment=""))
