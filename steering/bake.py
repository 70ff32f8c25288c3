"""``python -m steering.bake``: a checkpoint with a steering vector in its weights.

Plain transformers loads it with ``from_pretrained``. The vector acts at ALL positions there, those
of the prompt included, even if it was made for others: weights do not know where a token stands.
How they carry it, and where the KV cache grows by that, is told in :mod:`steering.baking`.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from sally_anne.core.commands import command
from sally_anne.core.errors import SteeringError
from sally_anne.models.options import DEFAULT_MODEL

if TYPE_CHECKING:
    from hooks.vector import SteeringVector
    from sally_anne.models.loading import LoadedModel


@dataclass(frozen=True)
class BakeConfig:
    """Write a checkpoint with a steering vector in its weights, which acts at all positions.

    Attributes:
        vector: folder of a steering vector.
        out: folder of the checkpoint; must be empty, or not there yet.
        model: catalogue name, hub id or folder.
        alpha: strength, in standard deviations; the vector's own by default.
        dtype: of the weights that are written: auto, float32, bfloat16 or float16.
        revision: branch, tag or commit on the hub.
        force: bake a vector that was fitted on another model.
    """

    vector: Path
    out: Path
    model: str = DEFAULT_MODEL
    alpha: float | None = None
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    revision: str | None = None
    force: bool = False


def bake(loaded: LoadedModel, vector: SteeringVector, alpha: float | None, out: Path) -> Path:
    """Write a checkpoint that acts as the model does with the vector at all positions.

    Processor, tokenizer, chat template and generation config are saved beside the weights, and
    a README.md and a ``steering.json`` that say what was baked.

    Args:
        loaded: the model; it stays as it is.
        vector: at site ``head_out``, or at ``attn_out`` for classes with a bias on o_proj. Its own
            positions play no part.
        alpha: strength; the vector's own if None.
        out: folder to write; it appears when it is whole.

    Returns:
        ``out``.

    Raises:
        OtherModelError: the vector was fitted on another model.
        SteeringError: the vector does not fit the model or cannot be baked into it, or ``out`` is
            not empty or cannot be written.
        ModelError: the weights cannot be had, or do not fit their config.
    """
    from hooks.geometry import find_geometry
    from hooks.identity import require_fitted
    from steering.baking import bake_model, carrier

    _check_free(out)
    strength = float(vector.alpha if alpha is None else alpha)
    delta = vector.delta(strength)
    where = carrier(loaded.skeleton, vector.site)
    vector.check(loaded.skeleton)
    forced = require_fitted(vector, loaded.identity)
    baked = bake_model(loaded.model, delta, vector.site)
    counts = [find_geometry(model).n_kv_heads for model in (loaded.model, baked)]
    folder = Path(loaded.source).expanduser()
    record: dict[str, Any] = {
        "model": folder.resolve().name if folder.is_dir() else loaded.source,
        "revision": loaded.revision,
        "dtype": loaded.dtype,
        "acts_at": "all",
        "carried_by": where,
        "n_kv_heads": counts[1],
        "n_kv_heads_before": counts[0],
        "vector": vector.describe() | {"alpha": strength, "fitted": dict(vector.fitted)},
    }
    if forced:
        record["forced"] = forced
    _write(out, baked, loaded.processor, record)
    return out


def run(config: BakeConfig) -> None:
    """Read model and vector, write the checkpoint, say what it does.

    Raises:
        SteeringError, ModelError, SallyAnneError: bad input, named.
    """
    _check_free(config.out)
    # Heavy libraries are imported here, so that --help answers at once.
    from hooks.vector import SteeringVector
    from hooks.vector_file import RECORD
    from sally_anne.models.loading import load_model

    vector = SteeringVector.load(config.vector, force=config.force)
    loaded = load_model(config.model, config.dtype, revision=config.revision)
    folder = bake(loaded, vector, config.alpha, config.out)
    record = json.loads((folder / RECORD).read_text(encoding="utf-8"))
    print(f"{_acts(record)}.")
    if grown := _growth(record):
        print(grown)
    print(f"the checkpoint is in {folder}")


main = command("sally-anne bake", BakeConfig, run)


def card(record: dict[str, Any]) -> str:
    """The README of a checkpoint; ``record`` is what ``steering.json`` holds."""
    vector = record["vector"]
    heads = ", ".join(f"L{layer}H{head}" for layer, head in vector["heads"])
    means = {
        "o_proj.bias": "the bias of o_proj (`attention_bias` in the config; the biases of q_proj, "
        "k_proj and v_proj that come with it are zero unless the model had them)",
        "v_proj.bias": "the bias of v_proj: attention weights sum to one, so what is added to the "
        "values of a head is added to its output",
    }
    grown = f"\n\n{_growth(record)}" if _growth(record) else ""
    return f"""---
base_model: {record["model"]}
tags: [steering-vector, theory-of-mind, interpretability]
---
# {record["model"]}, steered by its weights

{_acts(record)}.

It equals the model with the vector added by hooks at all positions, but for rounding
in {record["dtype"]}. The vector is in {means[record["carried_by"]]}.{grown}

| | |
|---|---|
| base model | {record["model"]}, revision {record["revision"]} |
| alpha | {vector["alpha"]:g} |
| direction | {vector["direction"]} |
| site | {vector["site"]} |
| K | {len(vector["heads"])} |
| heads, best first | {heads} |
| the vector's own positions, not used here | {vector["positions"]} |

`steering.json` holds all of this and what the vector was fitted on. The license is the base
model's.

## Use

```python
from transformers import AutoModelForImageTextToText, AutoProcessor

model = AutoModelForImageTextToText.from_pretrained("this/folder")
processor = AutoProcessor.from_pretrained("this/folder")
```
"""


def _acts(record: dict[str, Any]) -> str:
    positions = record["vector"]["positions"]
    own = "" if positions == "all" else f", not at {positions} alone, for which it was made"
    return (
        f"The steering vector (alpha {record['vector']['alpha']:g}) acts at ALL positions, those "
        f"of the prompt included{own}"
    )


def _growth(record: dict[str, Any]) -> str:
    before, after = record["n_kv_heads_before"], record["n_kv_heads"]
    if before == after:
        return ""
    return (
        f"Heads that shared keys and values have their own now ({after} instead of {before} a "
        f"layer): the KV cache takes {after / before:g} times the memory."
    )


def _check_free(out: Path) -> None:
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise SteeringError(f"{out} exists and is not an empty folder; give a new one with --out")


def _write(out: Path, model: Any, processor: Any, record: dict[str, Any]) -> None:
    from safetensors import SafetensorError

    from hooks.vector_file import CARD, RECORD
    from sally_anne.models.processor import forget, teach

    out = out.resolve()
    part = out.with_name(f".{out.name}.tmp")
    # What the last call padded or cut would be saved with it, and what is ours.
    forget(processor.tokenizer)
    processor.tokenizer.backend_tokenizer.no_padding()
    processor.tokenizer.backend_tokenizer.no_truncation()
    try:
        if part.exists():
            shutil.rmtree(part)
        part.mkdir(parents=True)
        model.save_pretrained(part)
        processor.save_pretrained(part)
        text = json.dumps(record, indent=2, default=dict)
        (part / RECORD).write_text(f"{text}\n", encoding="utf-8")
        (part / CARD).write_text(card(record), encoding="utf-8")
        part.replace(out)
    except (OSError, SafetensorError) as error:
        raise SteeringError(f"{out} cannot be written: {error}") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)
        teach(processor.tokenizer)


if __name__ == "__main__":
    main()
