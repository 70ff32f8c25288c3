"""What a notebook calls: samples, figures, and a finished run that makes vectors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd

from sally_anne.core import run as saved_run
from sally_anne.core.errors import ProbingError, RecordError
from sally_anne.core.hub import at_hand, push
from sally_anne.core.options import Seed, checked
from sally_anne.core.run import HEADS, SHARED, Head, copy_run
from sally_anne.data import datasets as datasets
from sally_anne.data.gridtom.release import open_stories
from sally_anne.data.gridtom.samples import Contrast, Order, plots_of, sample_set
from sally_anne.data.items import Setting
from sally_anne.data.samples import Frames, Label, Sample, Split, paired, with_splits
from sally_anne.hooks.vector import SteeringVector
from sally_anne.steering.fit import fit_vector

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from sally_anne.probing.probes import Activations, HeadProbes

__version__ = version("sally-anne")


@checked
def gridtom(
    stories: int | None = None,
    order: Order = 1,
    contrast: Contrast = "matched",
    setting: Setting = "multimodal",
    data: str | Path | None = None,
    seed: Seed = 0,
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
        OptionError: a word or number that there is not.
        BenchmarkError: too many stories, too few for three splits, or a damaged folder.
    """
    records = open_stories(None if data is None else Path(data), plots=plots_of(contrast))
    return list(sample_set(records, order, contrast, setting, stories, seed).samples)


def samples(
    texts: Sequence[str],
    labels: Mapping[str, Sequence[Label]],
    groups: Sequence[object] | None = None,
    videos: Sequence[Path | str | Frames | None] | None = None,
    splits: Sequence[Split] | None = None,
    pairs: Sequence[str | None] | None = None,
    answers: Sequence[str | None] | None = None,
) -> list[Sample]:
    """Labelled inputs of your own; files of them are read by ``read_samples``.

    Columns are lists, arrays or pandas columns; the N-th values of all belong together, whatever
    their index says.

    Args:
        texts: N texts; activations are read at their last tokens.
        labels: name to N values, each true or false, a whole number or a text; or a table.
        groups: N names; samples of one group are never split. By default each is its own, and the
            two of a pair are one.
        videos: N videos, as files or frames ``uint8 [F, height, width, 3]``.
        splits: N of train, validation and test; drawn by group at extraction by default.
        pairs: N keys; the two samples of a key differ in one thing, and ``sa.patching`` exchanges
            heads between them.
        answers: N words that the model should say, unlike ones in a pair.

    Raises:
        RecordError: sizes that do not agree, a value of another kind, a group in two splits, or a
            pair that is none; names the argument, the sample or the pair.
    """
    if not hasattr(labels, "items"):
        raise RecordError("give a list of texts, and labels by name, such as {'fits': [True, ...]}")
    given: dict[str, Any] = {"texts": texts, **{f"labels[{n!r}]": v for n, v in labels.items()}}
    others = {"groups": groups, "videos": videos, "splits": splits, "pairs": pairs}
    others |= {"answers": answers}
    columns: dict[str, list[Any]] = {}
    for name, column in (given | others).items():
        if name in others and column is None:
            continue
        if isinstance(column, str) or not isinstance(column, Iterable):
            raise RecordError(f"{name} is {column!r:.60}: give a list with a value for each sample")
        columns[name] = list(column)
        if (count := len(columns["texts"])) != len(columns[name]):
            raise RecordError(f"{name} has {len(columns[name])} values for {count} texts")
    made = []
    for i in range(len(columns["texts"])):
        row = {name: values[i] for name, values in columns.items()}
        known = {name: row[f"labels[{name!r}]"] for name in labels}
        pair, answer = (str(row.get(name) or "") for name in ("pairs", "answers"))
        shown: Any = {"video": row.get("videos"), "split": row.get("splits")}
        shown |= {"group": row.get("groups"), "pair": pair, "answer": answer}
        made.append(Sample(f"sample-{i:05d}", row["texts"], labels=known, **shown))
    paired(made)
    if made and all(sample.split for sample in made):
        with_splits(made)
    return made


class plot:  # noqa: N801
    """Figures from what a notebook holds, which look the same wherever they are saved or shown."""

    @staticmethod
    def heatmap(
        heads: pd.DataFrame,
        label: str | Sequence[str] | None = None,
        split: str = "validation",
        title: Sequence[str] = (),
        chance: float | None = None,
    ) -> Figure:
        """Accuracy of every head's probe, layers by heads (GridToM paper, figure 5 A).

        Args:
            heads: the table of ``HeadProbes.rank``, or of a run (``Run.heads``).
            label: one label or several, a panel each; by default all by which heads are ranked.
            split: validation, test or train.
            title: what stands above, joined by dots.
            chance: accuracy at which colours part; by default each label's own, or a half.

        Raises:
            RunFolderError: the table has no accuracy of this label and split.
        """
        from sally_anne.figures import style
        from sally_anne.figures.heatmap import accuracy_table, heatmap_figure

        table = isinstance(heads, pd.DataFrame)
        ranked = saved_run.labels_of(heads) if table else ()
        labels = (label,) if isinstance(label, str) else tuple(label or ranked)
        if not (table and labels and {"layer", "head"} <= set(heads)):
            raise ProbingError("give the table of heads: probes.rank(x.validation), or run.heads")
        if not (chance is None or (isinstance(chance, float | int) and 0 <= chance <= 1)):
            raise ProbingError(f"chance must be from 0 to 1, got {chance!r}")
        with style.look():
            return heatmap_figure(accuracy_table(heads, labels, split, chance), split, None, title)

    @staticmethod
    def kde(
        activations: Activations,
        probes: HeadProbes,
        layer: int | None = None,
        head: int | None = None,
        title: Sequence[str] = (),
    ) -> Figure:
        """Density of one head's activations along its probe and off it (GridToM paper, figure 5 B).

        Args:
            activations: what is shown, e.g. ``x.validation``.
            probes: fitted on training activations, from which the plane is taken.
            layer: of the head; with ``head``. By default the best head of probes that are ranked.
            head: number in its layer.
            title: what stands above, joined by dots.

        Raises:
            ProbingError: the probes were not fitted on activations, or no head is named or ranked.
        """
        from sally_anne.figures import style
        from sally_anne.figures.kde import density_plane, kde_figure

        if layer is None or head is None:
            if not hasattr(probes, "ranked_"):
                raise ProbingError("name layer and head, or rank the heads: probes.rank(...)")
            layer, head = probes.ranked_[0]
        train, label = probes.fitted_on(), probes.label_
        if not (isinstance(activations, type(train)) and len(activations)):
            raise ProbingError("give activations of some samples, such as x.validation")
        activations.values(label)
        layers, count = probes.coef_.shape[:2]
        if layer not in range(layers) or head not in range(count):
            raise ProbingError(
                f"there is no {Head(layer, head)} in {layers} layers of {count} heads"
            )
        truth = train.values(label) == probes.classes_[-1]
        x, shown = (a.x[:, layer, head].astype(np.float64) for a in (train, activations))
        coef = probes.coef_[layer, head] if probes.binary else None
        intercept = float(probes.intercept_[layer, head]) if probes.binary else 0.0
        plane, boundary = density_plane(x, truth, coef, intercept)
        table = plane.table(shown, activations.items, label)
        with style.look():
            return kde_figure(table, label, str(Head(layer, head)), title, boundary)


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
        """Push table, probes and results to ``user/name``, as :meth:`Shared.push_to_hub` does.

        Figures and page, which may show paths, are not pushed; ``activations``, with what the
        samples say, only on demand.

        Raises:
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
