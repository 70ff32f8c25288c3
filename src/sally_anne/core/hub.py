"""To a hub repository and back: ``user/name``, or ``user/name@revision``.

What is here goes before what is there. Only the files that a room names are fetched, none of them
is a pickle, nothing in them is run, and their checksums are those of local ones.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, Self

from sally_anne.core.errors import FolderError, first_line

CARD = "README.md"
_REPOSITORY = re.compile(r"(\w[\w.-]*/[\w.-]+)(?:@([\w./-]+))?", re.ASCII)


class Shared:
    """What can be saved, loaded and pushed by the names that users of the hub know.

    A class has ``save`` and ``load``, of a folder, and ``to_give``: the same without paths of this
    machine. ``SIGN`` is the file by which a repository is known to hold such a thing.
    """

    SIGN: ClassVar[str]
    save: ClassVar[Any]
    load: ClassVar[Any]
    to_give: ClassVar[Any]

    def save_pretrained(self, folder: Path | str) -> Path:
        """As ``save``."""
        return self.save(folder)

    @classmethod
    def from_pretrained(cls, path: Path | str, **options: Any) -> Self:
        """As ``load``."""
        return cls.load(path, **options)

    def push_to_hub(self, repository: str, private: bool | None = None) -> str:
        """Push it to ``user/name``, which is made if it is not there; gives the commit's address.

        Paths of this machine are not pushed: of each its last part stays. A FolderError says that
        the repository holds something else, or cannot be reached or written.
        """
        return push(repository, self.SIGN, self.to_give().save, private)


def at_hand(place: Path | str, names: Sequence[str]) -> Path:
    """The file or folder ``place``, or the fetched files ``names`` of a repository of that name."""
    found = _REPOSITORY.fullmatch(str(place))
    if found is None or Path(place).exists():
        return Path(place)
    from huggingface_hub import snapshot_download

    with _naming(f"there is no {place} here, and from the hub it cannot be had"):
        how: Any = {"allow_patterns": list(names), "local_files_only": not answers()}
        return Path(snapshot_download(found[1], revision=found[2], **how))


def answers() -> bool:
    """Whether the hub can be reached, within two seconds; where not, its cache alone is read."""
    from huggingface_hub import constants

    return not constants.HF_HUB_OFFLINE and _answers(constants.ENDPOINT)


# Tried once, as the hub's own library tries each file six times, for half a minute.
@functools.cache
def _answers(address: str) -> bool:
    from huggingface_hub.utils import get_session

    try:
        get_session().head(address, timeout=2)
    except Exception:  # of its HTTP library, which another version may exchange
        return False
    return True


def push(
    repository: str, sign: str, fill: Callable[[Path], object], private: bool | None = None
) -> str:
    """Push what ``fill`` writes in one commit; an earlier push, known by ``sign``, goes."""
    from huggingface_hub import HfApi

    api = HfApi()
    with TemporaryDirectory() as made:
        fill(Path(made))
        with _naming(f"{repository} cannot be pushed to"):
            name = api.create_repo(repository, private=private, exist_ok=True).repo_id
            there = set(api.list_repo_files(name)) - {".gitattributes", CARD}
            if there and sign not in there:
                shown = ", ".join(sorted(there)[:3])
                raise FolderError(f"{name} holds other files ({shown}): push to another repository")
            said = f"sally-anne {version('sally-anne')}"
            how: Any = {"commit_message": said, "delete_patterns": "*"}
            return str(api.upload_folder(repo_id=name, folder_path=made, **how))


def card(body: str, model: Mapping[str, Any], *tags: str) -> bytes:
    """A README for what was made of a ``model`` of some ``revision``, with the head of hubs."""
    from huggingface_hub import ModelCard, ModelCardData

    # Of the hub is a model with a commit.
    named = re.fullmatch("[0-9a-f]{40}", str(model.get("revision"))) and str(model.get("model"))
    tags += ("theory-of-mind", "interpretability")
    data = ModelCardData(
        license="apache-2.0", library_name="sally-anne", base_model=named or None, tags=[*tags]
    )
    return str(ModelCard(f"---\n{data.to_yaml()}\n---\n{body}")).encode()


def without_paths(found: Any, context: Any = ()) -> Any:
    """JSON data in which of every path of this machine the last part alone is left.

    A path that is a text of its own, there or in ``context``, is also found within other texts.
    """
    texts: dict[str, str] = {}
    _mapped([found, context], lambda text: texts.setdefault(text, text))
    paths = sorted({text.rstrip("/") for text in texts if _is_path(text)}, key=len)
    # The longest first; a part of a longer name is not meant. Without any nothing is found.
    either = "|".join(map(re.escape, reversed(paths))) or "(?!)"
    stands = re.compile(rf"(?<![\w.~-])(?:{either})(?!-|\.?\w)/?")
    return _mapped(
        found, lambda text: stands.sub(lambda p: os.path.basename(p[0].rstrip("/")), text)
    )


def _mapped(part: Any, change: Callable[[str], str]) -> Any:
    """JSON data with every text of it, names too, changed."""
    if isinstance(part, Mapping):
        return {_mapped(name, change): _mapped(value, change) for name, value in part.items()}
    if isinstance(part, list | tuple):
        return [_mapped(value, change) for value in part]
    return change(str(part)) if isinstance(part, str | Path) else part


def short_name(model: object) -> str:
    """A model as titles name it: of a path its last part; of a file called model its folder's."""
    path = Path(name := str(model).rstrip("/"))
    if not _is_path(name):
        return name
    return path.parent.name if path.stem == "model" and path.parent.name else path.name


def _is_path(text: str) -> bool:
    """Whether a text is a path with more than a last part."""
    if "/" not in text.rstrip("/") or "\n" in text:
        return False
    return text.startswith(("/", "~/", "./", "../")) or os.path.exists(text)


@contextmanager
def _naming(what: str) -> Iterator[None]:
    """Whatever the hub's library raises is a FolderError that says ``what`` could not be done."""
    try:
        yield
    except FolderError:
        raise
    # Its own errors, those of its HTTP library, of wrong names and of the disk.
    except Exception as error:
        raise FolderError(f"{what} ({type(error).__name__}: {first_line(error)})") from error
