"""``sally-anne check --model M``: what would be captured and steered in a model, before a run."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from rich.console import Console

from sally_anne.core.console import print_table
from sally_anne.core.options import check_options
from sally_anne.hooks.capture import Capture
from sally_anne.hooks.edit import Edit
from sally_anne.hooks.geometry import ATTN_OUT, find_geometry, o_projs, written
from sally_anne.models.families import FAMILIES
from sally_anne.models.loading import LoadedModel, load_model
from sally_anne.models.options import ModelOptions
from sally_anne.models.prefix import IN_PARTS
from sally_anne.models.processor import RAW, unknown_words
from sally_anne.models.prompts import encode, open_prompt, reply_prompt
from sally_anne.models.videos import video_size

TEXT = "The white agent is in the red room."
# Letters that are shown; frames, height and width of the film whose tokens are counted.
SHOWN, FILM = 60, (8, 420, 294)


def run(options: ModelOptions, console: Console | None = None) -> dict[str, str]:
    """Open a model with its weights and print what :func:`checked` finds."""
    check_options(options)
    found = checked(load_model(**options.opening()))
    print_table(console or Console(), options.model, ("what", "found"), [*found.items()])
    return found


def checked(loaded: LoadedModel) -> dict[str, str]:
    """What is read of a model, where, and whether heads add up, in plain words by their names."""
    geometry, family, model = find_geometry(loaded.skeleton), loaded.family, loaded.model
    known = "its row in the table of families" if family in FAMILIES else "what its modules say"
    opened = open_prompt(loaded, TEXT, False)
    inputs = encode(loaded, [opened], None)
    last = loaded.processor.tokenizer.convert_ids_to_tokens(inputs["input_ids"][0, -2:].tolist())
    sound = f", sounds ({loaded.processor.audio_token})" if family.hears else ""
    facts = {
        "model": f"{loaded.described}, {family.class_name}, opened by {known}",
        "heads": f"{geometry}, {geometry.n_kv_heads} of keys and values; hidden size "
        f"{geometry.hidden_size}",
        "captured": f"the input of {geometry.o_proj_names[0]} to {geometry.o_proj_names[-1]}",
        "left out": geometry.note or "no layer",
        "takes": f"text{sound}; frames {shown(loaded)}",
        "attention": loaded.attention,
        "a statement ends": f"{loaded.prompt} prompt: ...{opened[-SHOWN:]!r}; tokens {last}",
        "a reply begins": f"after ...{reply_prompt(loaded, TEXT, False)[-SHOWN:]!r}",
        **measured(loaded, inputs),
    }
    limits = {way: why for way, why in loaded.limits.items() if way != IN_PARTS}
    doubts = [f"not read with {way}: {why}" for way, why in limits.items()]
    doubts.append(unknown_words(loaded, [TEXT]).warning(loaded.name).removeprefix("warning: "))
    if next(model.parameters()).dtype == torch.float16:
        doubts.append("float16 overflows in some models: --dtype bfloat16")
    return facts | {"doubtful": "; ".join(filter(None, doubts)) or "nothing was found"}


def shown(loaded: LoadedModel) -> str:
    kind, mark, between, why = loaded.showing
    if not kind or loaded.prompt == RAW:
        return f"none: {why or 'the prompt is raw'}; run it with --setting text"
    how = "as one video" if kind == "video" else "each as a picture"
    how += f", {mark}" + (f", {between!r} between two" if between else "")
    if "frames" in loaded.limits:
        return how
    tokens = video_size(loaded, FILM)[0]
    return f"{how}; {FILM[0]} of {FILM[2]} x {FILM[1]} pixels take {tokens:,} tokens"


@torch.no_grad()
def measured(loaded: LoadedModel, inputs: Mapping[str, torch.Tensor]) -> dict[str, str]:
    """Whether heads add up to what W_o puts out, and what steps of length 0 and 1 do."""
    model = loaded.model
    plain = model(**inputs).logits
    with Capture(model) as heads, Capture(model, ATTN_OUT) as sums:
        model(**inputs)
        z, out = heads.take()[0, 0].flatten(1), sums.take()[0, 0].flatten(1).float()
    off = 0.0
    for layer, module in enumerate(o_projs(model)):
        made = written(module, z[layer]).cpu()
        off = max(off, float((made - out[layer]).abs().max() / out[layer].abs().max()))
    step = torch.zeros(1, *z.unflatten(1, (heads.geometry.n_heads, -1)).shape)
    said = []
    for size in (0.0, 1.0):
        step[:, -1] = size
        with Edit(model, step, heads=torch.ones(step.shape[:3], dtype=torch.bool)):
            said.append(float((model(**inputs).logits - plain).abs().max()))
    return {
        "heads add up": f"to the output of W_o within {off:.1e} of it",
        "a step of 0": "changes no bit" if said[0] == 0 else f"changes logits by {said[0]:.1e}",
        "a step of 1": f"in all heads of the last layer changes logits by {said[1]:.2g}",
    }
