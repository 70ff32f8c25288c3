"""One of several processes that extract together; started by ``bench.scaling``.

Under a launcher: ``python -m bench.share MODEL STORIES SETTING BATCH FOLDER``. The first
process prints the seconds from when all have their model to when all activations are stored.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import cast

from sally_anne.data.items import Setting


def main(arguments: list[str]) -> None:
    """Extract with the other processes; the first prints one line of JSON."""
    import torch

    from bench.clock import Clock
    from bench.workload import probe_set
    from sally_anne.core.processes import here
    from sally_anne.hooks.geometry import HEAD_OUT
    from sally_anne.probing.extraction import fill_store

    model, stories, setting, batch_size, folder = arguments
    processes = here()
    processes.begin()
    torch.set_num_threads(1)
    work = probe_set(model, int(stories), cast(Setting, setting), int(batch_size))
    _ = work.loaded.model
    processes.wait()
    clock = Clock()
    fill_store(work.loaded, work.samples, Path(folder), HEAD_OUT, work.batch_size, {}, processes)
    if processes.first:
        print(json.dumps({"seconds": clock.seconds(), "samples": len(work.samples)}))


if __name__ == "__main__":
    main(sys.argv[1:])
