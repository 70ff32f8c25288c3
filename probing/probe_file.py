"""The file of a set of probes: their weights, and what is known of them.

Training samples are not kept.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sally_anne.core.errors import ProbingError
from sally_anne.core.files import write_atomic
from sally_anne.core.folder import require_own
from sally_anne.core.head import Head
from sally_anne.core.hub import CARD, at_hand, card
from sally_anne.hooks.tensor_file import TensorFile

FILE, FORMAT = "head_probes.safetensors", "sally-anne probes 1"
_WEIGHTS = ("coef_", "intercept_", "sigma_")
# What fitting and ranking leave; the last one is not there before they are ranked.
_FACTS = ("classes_", "unconverged_", "label_", "site_", "model_", "ranked_")
KEPT = (*_WEIGHTS, *_FACTS)
_FILE = TensorFile("set of probes", (FORMAT,), "probes", "HeadProbes.save", ProbingError)


def write(folder: Path | str, found: Mapping[str, Any]) -> Path:
    """Write parameters and :data:`KEPT`, by name, and a card; gives the folder."""
    folder = Path(folder)
    require_own(folder, "a set of probes", FILE)
    folder.mkdir(parents=True, exist_ok=True)
    facts = {name: fact for name, fact in found.items() if name not in _WEIGHTS}
    facts["classes_"] = facts["classes_"].tolist()
    tensors = {name: torch.from_numpy(found[name]).contiguous() for name in _WEIGHTS}
    _FILE.write(folder / FILE, facts, tensors, FORMAT)
    write_atomic(folder / CARD, _card(found))
    return folder


def read(path: Path | str, parameters: Iterable[str]) -> dict[str, Any]:
    """What was written, from a folder or a hub's repository; raises as ``HeadProbes.load``."""
    file = at_hand(path, (FILE, CARD)) / FILE
    text, tensors = _FILE.read(file)
    try:
        facts = json.loads(text)
        found = {name: facts[name] for name in (*parameters, *_FACTS[:-1])}
        found |= {name: tensors[name].numpy() for name in _WEIGHTS}
        found["classes_"] = np.array(found["classes_"])
        if "ranked_" in facts:
            found["ranked_"] = [Head(int(la), int(h)) for la, h in facts["ranked_"]]
    except (KeyError, TypeError, ValueError) as error:
        raise ProbingError(f"{file} lacks a part of a set of probes: {error}") from error
    return found


def _card(found: Mapping[str, Any]) -> bytes:
    """The README of saved probes."""
    layers, heads = found["intercept_"].shape[:2]
    best = ", ".join(str(head) for head in found.get("ranked_", ())[:10])
    body = f"""# Probes of {found["label_"]} for {found["model_"].get("model", "unknown")}

A logistic probe on the `{found["site_"]}` of each of {layers} layers x {heads} attention heads.

| | |
|---|---|
| classes | {", ".join(map(str, found["classes_"].tolist()))} |
| best heads | {best or "not ranked"} |
| c | {found["c"]:g} |

## Use

```python
import sally_anne as sa

probes = sa.HeadProbes.load("this/folder")  # or "user/name" of a hub
probes.predict(x)  # [N, {layers}, {heads}] from activations [N, {layers}, {heads}, D]
```
"""
    return card(body, found["model_"], "probes")
