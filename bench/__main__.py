"""``python -m bench``: every comparison side by side, into one folder.

``results.json`` holds the raw seconds of every turn, ``table.md`` the tables, ``extraction.png``
and ``.pdf`` the ratios to the bare forwards. All is written as it is measured.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from bench import extraction, machine, probes, sweep
from bench.extraction import ExtractionPerfConfig
from bench.probes import ProbesPerfConfig
from bench.sweep import SweepPerfConfig
from sally_anne.core.commands import command
from sally_anne.core.options import Natural
from sally_anne.data.items import Setting

Comparison = Literal["extraction", "probes", "sweep"]
COMPARISONS: tuple[Comparison, ...] = ("extraction", "probes", "sweep")


@dataclass(frozen=True)
class PerfConfig:
    """Run all comparisons and write one folder.

    Attributes:
        out: folder; older results in it are replaced.
        only: comparisons to run; all by default.
        models: for the extraction; the first also for the sweep.
        stories: of the 148 that are not tested, for the extraction.
        large_stories: for a model of a hundred million parameters or more.
        part_stories: for contenders that are slow; theirs is multiplied, and said so.
        batches: batches on which the model's part is measured.
        repeats: turns of each contender.
        memory_repeats: processes in which each contender's memory is measured; 0 leaves it out.
        batch_size: prompts that go through the model together.
        setting: what the model is given: multimodal, video or text.
        threads: cores and threads of every contender; all of the machine's by default.
        contenders: of the extraction, by name, beside bare and ours; all by default.
        sweep_stories: two items each, for the sweep.
        probe_layers: of the made-up activations.
        probe_heads: a layer.
        probe_samples: of the made-up activations.
        permutations: of the labels, on 32 heads; 0 leaves them out.
    """

    out: Path = Path("runs") / "perf"
    only: tuple[Comparison, ...] = COMPARISONS
    models: tuple[str, ...] = ExtractionPerfConfig.models
    stories: int = ExtractionPerfConfig.stories
    large_stories: int = ExtractionPerfConfig.large_stories
    part_stories: int = ExtractionPerfConfig.part_stories
    batches: int = ExtractionPerfConfig.batches
    repeats: int = ExtractionPerfConfig.repeats
    memory_repeats: Natural = ExtractionPerfConfig.memory_repeats
    batch_size: int = ExtractionPerfConfig.batch_size
    setting: Setting = ExtractionPerfConfig.setting
    threads: int | None = None
    contenders: tuple[str, ...] = ()
    sweep_stories: int = SweepPerfConfig.stories
    probe_layers: int = ProbesPerfConfig.layers
    probe_heads: int = ProbesPerfConfig.heads
    probe_samples: int = ProbesPerfConfig.samples
    permutations: Natural = ProbesPerfConfig.permutations

    @property
    def parts(self) -> tuple[ExtractionPerfConfig, ProbesPerfConfig, SweepPerfConfig]:
        """The options of each comparison."""
        threads = self.threads or machine.cores()
        own: tuple[str, ...] = (
            "models",
            "stories",
            "large_stories",
            "part_stories",
            "batches",
            "repeats",
        )
        own += ("memory_repeats", "batch_size", "setting", "threads", "out")
        return (
            ExtractionPerfConfig(only=self.contenders, **{n: getattr(self, n) for n in own}),
            ProbesPerfConfig(
                layers=self.probe_layers,
                heads=self.probe_heads,
                samples=self.probe_samples,
                threads=threads,
                repeats=self.repeats,
                permutations=self.permutations,
                permuted_heads=min(32, self.probe_layers * self.probe_heads),
                exact=False,
            ),
            SweepPerfConfig(
                model=self.models[0] if self.models else SweepPerfConfig.model,
                setting=self.setting,
                stories=self.sweep_stories,
                repeats=self.repeats,
                batch_size=self.batch_size,
            ),
        )


def run(config: PerfConfig) -> dict[str, Any]:
    """Measure, write and print.

    Raises:
        PerfError, ModelError, SallyAnneError: bad options, or a measurement that broke off.
    """
    from transformers.utils import logging

    from bench.errors import PerfError
    from bench.picture import draw
    from bench.results import Results
    from bench.tables import extraction_tables, probes_table, sweep_table

    if not config.models or not config.only:
        raise PerfError(f"--{'only' if config.models else 'models'} is empty: nothing to measure")
    of_extraction, of_probes, of_sweep = config.parts
    extraction.check(of_extraction)
    probes.check(of_probes)
    sweep.check(of_sweep)
    logging.disable_progress_bar()
    threads = config.threads or machine.cores()
    machine.confine(threads)
    described = machine.describe(threads)
    results = Results(config.out, {"machine": described, "config": asdict(config)})
    written: dict[str, Callable[[Any], str]] = {
        "extraction": extraction_tables,
        "probes": probes_table,
        "sweep": sweep_table,
    }

    def keep(name: str, found: Any) -> None:
        results.put(name, found)
        parts = [make(results.values[n]) for n, make in written.items() if n in results.values]
        results.table("\n\n".join(["## Measured", f"{machine.line(described)}.", *parts]))

    if "extraction" in config.only:
        found = extraction.measure(of_extraction, lambda found: results.put("extraction", found))
        keep("extraction", found)
        draw(found, config.out)
    if "probes" in config.only:
        print("probes")
        keep("probes", probes.measure(of_probes))
    if "sweep" in config.only:
        print("sweep")
        keep("sweep", sweep.measure(of_sweep))
    print(f"\n{(config.out / 'table.md').read_text()}\n{config.out}")
    return results.values


main = command("python -m bench", PerfConfig, run)


if __name__ == "__main__":
    main()
