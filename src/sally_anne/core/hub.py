"""To a hub repository and back: ``user/name``, or ``user/name@revision``.

What is here goes before what is there. Only the files that a room names are fetched, none of them
is a pickle, nothing in them is run, and their checksums are those of local ones.
"""

from __future__ import annotations

import abc
import functools
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, Self

from sally_anne.core.errors import HubError, first_line

CARD = "README.md"
_REPOSITORY = re.compile(r"(\w[\w.-]*/[\w.-]+)(?:@([\w./-]+))?", re.ASCII)
# What every repository may hold besides ours.
_THEIRS = {".gitattributes", CARD}
_COMMIT = re.compile("[0-9a-f]{40}")


class Shared(abc.ABC):
    """What is saved in a folder, and pushed to a repository as it is saved."""

    # The file by which a repository is known to hold such a thing.
    SIGN: ClassVar[str]

    @abc.abstractmethod
    def save(self, folder: Path | str) -> Path:
        """Write it; gives the folder."""

    @classmethod
    @abc.abstractmethod
    def load(cls, path: Path | str) -> Self:
        """Read it from a folder, or from a repository."""

    @abc.abstractmethod
    def to_give(self) -> Self:
        """The same without paths of this machine."""

    # By the names that users of the hub know.
    def save_pretrained(self, folder: Path | str) -> Path:
        """As :meth:`save`."""
        return self.save(folder)

    @classmethod
    def from_pretrained(cls, path: Path | str, **options: Any) -> Self:
        """As :meth:`load`."""
        return cls.load(path, **options)

    def push_to_hub(self, repository: str, private: bool | None = None) -> str:
        """Push it to ``user/name``, which is made if it is not there; gives the commit's address.

        Paths of this machine are not pushed: of each its last part stays.

        Raises:
            HubError: it holds something else, or cannot be reached or written.
        """
        return push(repository, self.SIGN, self.to_give().save, private)


def at_hand(place: Path | str, names: Sequence[str]) -> Path:
    """The file or folder ``place``; or where a repository's files ``names`` are, once fetched.

    What is neither here nor the name of a repository is given back as it is.

    Raises:
        HubError: a repository that cannot be had; it is named.
    """
    found = _REPOSITORY.fullmatch(str(place))
    if found is None or Path(place).exists():
        return Path(place)
    from huggingface_hub import snapshot_download

    with _naming(f"there is no {place} here, and from the hub it cannot be had"):
        return Path(
            snapshot_download(
                found[1],
                revision=found[2],
                allow_patterns=list(names),
                local_files_only=not answers(),
            )
        )


def answers() -> bool:
    """Whether the hub can be reached, within two seconds; where not, its cache alone is read."""
    from huggingface_hub import constants

    return not constants.HF_HUB_OFFLINE and _answers(constants.ENDPOINT)


# Asked once, as the hub's own library tries each file six times, for half a minute.
@functools.cache
def _answers(address: str) -> bool:
    from huggingface_hub.utils import get_session

    try:
        get_session().head(address, timeout=2)
    # Of its HTTP library, which another version may exchange.
    except Exception:
        return False
    return True


def push(
    repository: str, sign: str, fill: Callable[[Path], object], private: bool | None = None
) -> str:
    """Push what ``fill`` writes into an empty folder, in one commit; gives the commit's address.

    What an earlier push left there goes. HubError as of :meth:`Shared.push_to_hub`; a repository
    is another's that holds files, but not ``sign``.
    """
    from huggingface_hub import HfApi

    api = HfApi()
    with TemporaryDirectory() as made:
        fill(Path(made))
        with _naming(f"{repository} cannot be pushed to"):
            name = api.create_repo(repository, private=private, exist_ok=True).repo_id
            there = set(api.list_repo_files(name)) - _THEIRS
            if there and sign not in there:
                raise HubError(
                    f"{name} holds other files ({', '.join(sorted(there)[:3])}), and was left as "
                    "it is: push to another repository"
                )
            return str(
                api.upload_folder(
                    repo_id=name,
                    folder_path=made,
                    commit_message=f"sally-anne {version('sally-anne')}",
                    delete_patterns="*",
                )
            )


def card(body: str, model: Mapping[str, Any], *tags: str) -> bytes:
    """A README for what was made of a model, with the head that hubs read.

    ``model`` says its ``model`` and ``revision``; only one of a hub is named there: a commit tells.
    """
    from huggingface_hub import ModelCard, ModelCardData

    named = _COMMIT.fullmatch(str(model.get("revision"))) and str(model.get("model"))
    data = ModelCardData(
        license="apache-2.0",
        library_name="sally-anne",
        base_model=named or None,
        tags=[*tags, "theory-of-mind", "interpretability"],
    )
    return str(ModelCard(f"---\n{data.to_yaml()}\n---\n{body}")).encode()


def without_paths(found: Any, context: Any = ()) -> Any:
    """JSON data in which of every path of this machine the last part alone is left.

    A path that stands as a text of its own, there or in what is ``context``, is also found within
    other texts.
    """
    texts = _texts([found, context])
    paths = sorted({text.rstrip("/") for text in texts if _is_path(text)}, key=len)
    # The longest first; a part of a longer name is not meant.
    either = "|".join(map(re.escape, reversed(paths)))
    stands = re.compile(rf"(?<![\w.~-])(?:{either})(?!-|\.?\w)/?")

    def cleaned(part: Any) -> Any:
        if isinstance(part, Mapping):
            return {cleaned(name): cleaned(value) for name, value in part.items()}
        if isinstance(part, list | tuple):
            return [cleaned(value) for value in part]
        if isinstance(part, Path):
            return cleaned(str(part))
        if isinstance(part, str) and paths:
            return stands.sub(lambda path: os.path.basename(path[0].rstrip("/")), part)
        return part

    return cleaned(found)


def _texts(found: Any) -> Iterator[str]:
    if isinstance(found, Mapping):
        for name, value in found.items():
            yield from (*_texts(name), *_texts(value))
    elif isinstance(found, list | tuple):
        for value in found:
            yield from _texts(value)
    elif isinstance(found, str | Path):
        yield str(found)


def _is_path(text: str) -> bool:
    """Whether a text is a path with more than a last part."""
    if "/" not in text.rstrip("/") or "\n" in text:
        return False
    return text.startswith(("/", "~/", "./", "../")) or os.path.exists(text)


@contextmanager
def _naming(what: str) -> Iterator[None]:
    """Whatever the hub's library raises is a HubError that says ``what`` could not be done."""
    try:
        yield
    except HubError:
        raise
    # Its own errors, those of its HTTP library, of wrong names and of the disk.
    except Exception as error:
        raise HubError(f"{what} ({type(error).__name__}: {first_line(error)})") from error
