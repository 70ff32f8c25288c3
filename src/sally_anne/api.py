"""What a notebook begins with: samples, and a finished run that makes vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Self

from sally_anne.core import run as saved_run
from sally_anne.core.errors import RecordError
from sally_anne.core.hub import at_hand, push
from sally_anne.core.run import HEADS, SHARED, copy_run
from sally_anne.data.gridtom.release import open_stories
from sally_anne.data.gridtom.samples import Contrast, Order, plots_of, sample_set
from sally_anne.data.items import Setting
from sally_anne.data.samples import Frames, Label, Sample, Split
from sally_anne.hooks.vector import SteeringVector
from sally_anne.steering.fit import fit_vector

__version__ = version("sally-anne")


def gridtom(
    stories: int | None = None,
    order: Order = 1,
    contrast: Contrast = "matched",
    setting: Setting = "multimodal",
    data: str | Path | None = None,
    seed: int = 0,
) -> list[Sample]:
    """Labelled statements about what agents believe, each in its split (GridToM, appendix B).

    Args:
        stories: use only so many, of the three splits in proportion; all by default.
        order: 1, where does the protagonist believe the participant is; 2, what does the
            participant think that the protagonist believes.
        contrast: matched, both sides of a pair share all but the statement; crossed, the same with
            stories in which the participant comes back; paper; or released.
        setting: multimodal, video or text.
        data: a folder in the release layout; otherwise stories are made here.
        seed: which stories test, train and validate.

    Returns:
        Four samples a story in first order, eight in second, with the labels ``y_p`` and ``y_o``.

    Raises:
        BenchmarkError: too many stories, too few for three splits, or a damaged folder.
    """
    records = open_stories(None if data is None else Path(data), plots=plots_of(contrast))
    return list(sample_set(records, order, contrast, setting, stories, seed).samples)


def samples(
    texts: Sequence[str],
    labels: Mapping[str, Sequence[Label]],
    groups: Sequence[str] | None = None,
    videos: Sequence[Path | Frames | None] | None = None,
    splits: Sequence[Split] | None = None,
) -> list[Sample]:
    """Labelled inputs of your own; files of them are read by ``read_samples``.

    Args:
        texts: N texts; activations are read at their last tokens.
        labels: name to N values, each true or false, a whole number or a text.
        groups: N names; samples of one group are never split. Each is its own by default.
        videos: N videos, as files or frames ``uint8 [F, height, width, 3]``.
        splits: N of train, validation and test; drawn by group at extraction by default.

    Raises:
        RecordError: sizes that do not agree; names the argument.
    """
    given = {"groups": groups, "videos": videos, "splits": splits}
    columns: dict[str, Sequence[object]] = {f"labels[{n!r}]": labels[n] for n in labels}
    columns |= {name: column for name, column in given.items() if column is not None}
    for name, values in columns.items():
        if len(values) != len(texts):
            raise RecordError(f"{name} has {len(values)} values for {len(texts)} texts")
    return [
        Sample(
            item_id=f"sample-{i:05d}",
            text=text,
            video=None if videos is None else videos[i],
            labels={name: values[i] for name, values in labels.items()},
            group="" if groups is None else groups[i],
            split=None if splits is None else splits[i],
        )
        for i, text in enumerate(texts)
    ]


class Run(saved_run.Run):
    """A finished probing run: ``Run.open(folder)``, then its config, heads, samples and more."""

    @classmethod
    def open(cls, folder: Path | str) -> Self:
        """Open a run folder, or a hub's repository ``user/name[@revision]``, fetched whole.

        Raises:
            HubError: there is no such folder, and no such repository can be had.
            RunFolderError: it is damaged.
        """
        return super().open(at_hand(folder, SHARED))

    def push_to_hub(
        self, repository: str, private: bool | None = None, activations: bool = False
    ) -> str:
        """Push table, probes and results to ``user/name``; gives the commit's address.

        Paths of this machine are not pushed; neither are figures and page, which may show them.

        Args:
            repository: it is made if it is not there.
            private: whether it is made so.
            activations: also the activations, and what the samples say.

        Raises:
            HubError: it holds something else, or cannot be reached or written.
            RunFolderError, StoreError: the run is damaged.
        """
        return push(repository, HEADS, lambda folder: copy_run(self, folder, activations), private)

    def vector(
        self,
        k: int,
        alpha: float = 1.0,
        label: str | None = None,
        towards: str | None = None,
        direction: str = "logistic",
    ) -> SteeringVector:
        """A steering vector on the best ``k`` heads; see :func:`steering.fit.fit_vector`."""
        return fit_vector(self, k, alpha, direction, label, towards=towards)
