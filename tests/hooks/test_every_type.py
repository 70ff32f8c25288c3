"""Small random models of every type that transformers opens, and what is right about their heads.

`python tests/hooks/test_every_type.py text image` prints what becomes of each type.
"""

from __future__ import annotations

import dataclasses
import inspect
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn
from transformers import CONFIG_MAPPING, PreTrainedConfig, PreTrainedModel
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.auto import modeling_auto as auto

from sally_anne.core.errors import HookError, first_line
from sally_anne.hooks.capture import Capture
from sally_anne.hooks.edit import Edit
from sally_anne.hooks.geometry import find_geometry, w_o

KINDS: dict[str, tuple[Any, Any]] = {
    "text": (auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, auto.AutoModelForCausalLM),
    "image": (auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES, auto.AutoModelForImageTextToText),
}
WORDS, HEADS, WIDTH = 400, 4, 16
# What a number of a config becomes at most, by its name.
SMALL = {
    name: value
    for names, value in {
        "hidden_size d_model n_embd dim embed_dim embedding_size decoder_hidden_size n_embed "
        "encoder_hidden_size word_embed_proj_dim projection_dim output_dim dim_model emb_dim "
        "hidden_size_local hidden_size_global": 64,
        "num_attention_heads n_head n_heads encoder_attention_heads decoder_attention_heads "
        "num_encoder_attention_heads num_decoder_attention_heads num_heads attention_heads "
        "linear_num_value_heads linear_num_key_heads linear_num_heads mamba_n_heads": HEADS,
        "mamba_num_heads": 8,
        "num_key_value_heads num_kv_heads": 2,
        "intermediate_size encoder_ffn_dim decoder_ffn_dim ffn_dim moe_intermediate_size n_inner "
        "d_ff mlp_dim shared_expert_intermediate_size ffn_hidden_size dim_ff": 64,
        "head_dim d_kv dim_head attention_head_size linear_head_dim": WIDTH,
        "num_hidden_layers n_layer n_layers num_layers encoder_layers decoder_layers depth "
        "num_decoder_layers num_encoder_layers": 2,
        "vocab_size vocab_size_per_layer_input": WORDS,
        "num_experts num_local_experts n_routed_experts moe_num_experts": 4,
        "num_experts_per_tok moe_topk moe_k": 2,
        "q_lora_rank kv_lora_rank": 16,
        "qk_rope_head_dim qk_nope_head_dim rotary_dim": 8,
        "v_head_dim": 12,
        "max_position_embeddings n_positions": 128,
        "topk_group n_group": 1,
    }.items()
    for name in names.split()
}
# What a type needs besides, by the class of its config.
MORE: dict[str, dict[str, Any]] = {
    "BambaConfig": {"attn_layer_indices": [1]},
    "GraniteMoeHybridConfig": {"layer_types": ["linear_attention", "full_attention"]},
    "DeepseekV2Config": {"num_experts_per_tok": 2, "topk_method": "greedy"},
    "GPTNeoConfig": {"attention_types": [[["global", "local"], 1]]},
    "Mamba2Config": {"num_heads": 8},
    "Dots1Config": {"n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2},
    "DeepseekOcr2TextConfig": {"num_experts_per_tok": 2, "mlp_layer_types": ["dense", "sparse"]},
    "Step3p7TextConfig": {"sliding_window": 4},
    "Granite4VisionConfig": {"deepstack_layer_map": [[0, 0]], "downsample_rate": "1/2"},
    "NemotronConfig": {"num_key_value_heads": 2},
    "XmodConfig": {"default_language": "en_XX"},
    "Lfm2MoeConfig": {"layer_types": ["conv", "full_attention"]},
    "LongcatFlashConfig": {"head_dim": 8, "qk_head_dim": 16, "num_key_value_heads": HEADS},
    "ChameleonConfig": {"vocabulary_map": {"<image>": 6}},
    "Emu3Config": {"vocabulary_map": {"<image>": 6}},
    "Zamba2Config": {"layers_block_type": ["linear_attention", "hybrid"], "num_hidden_layers": 2},
    "ZambaConfig": {"layers_block_type": ["linear_attention", "hybrid"], "num_hidden_layers": 2},
    "ReformerConfig": {"axial_pos_embds": False, "attn_layers": ["local", "lsh"]},
    "Gemma3nTextConfig": {"num_kv_shared_layers": 0},
    "Qwen4ExpTextConfig": {
        **{"indexer_n_heads": 4, "indexer_kv_heads": 1, "indexer_head_dim": 16},
        **{"indexer_budget": 64, "indexer_compress_ratio": 4, "ngram_vocab_size_base": 300},
    },
}


def small(cls: type[PreTrainedConfig]) -> Any:
    """A config of this class with few, narrow layers, one of each kind that the type has."""
    default = cls()
    fields = {field.name for field in dataclasses.fields(cls)}
    made: dict[str, Any] = {"is_decoder": True} if "is_decoder" in fields else {}
    for name in fields:
        try:
            value = getattr(default, name, None)
        except RuntimeError:  # a number that differs from layer to layer
            value = cls.__dataclass_fields__[name].default
        if isinstance(value, PreTrainedConfig):
            made[name] = small(type(value))
        elif name in SMALL and (type(value) is int or name == "head_dim"):
            made[name] = min(SMALL[name], value or SMALL[name])
        elif name.endswith(("token_id", "token_index")) and type(value) is int and value >= WORDS:
            made[name] = WORDS - 1 - len(name)
    if "kv_lora_rank" in fields and "num_key_value_heads" in made:
        made["num_key_value_heads"] = HEADS
    kinds = getattr(default, "layer_types", None) or []
    for name in ("num_hidden_layers", "n_layer", "num_layers"):
        if name in made and kinds:
            made[name] = min(8, max(2, *(kinds.index(kind) + 1 for kind in kinds)))
    code = Path(inspect.getfile(cls).replace("configuration_", "modeling_"))
    if "rope_parameters" in fields and code.exists() and "mrope_section" in code.read_text():
        rope = default.rope_parameters or {"rope_type": "default", "rope_theta": 1e4}
        half = int(made.get("head_dim", WIDTH) * rope.get("partial_rotary_factor", 1)) // 2
        sections = [half - 2 * (half // 3), half // 3, half // 3]
        made["rope_parameters"] = rope | {"mrope_section": sections}
    # A tower that is never shown a picture need not fit the words.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cls, "__class_validators__", [])
        return cls(**made | MORE.get(cls.__name__, {}))


def build(kind: str, model_type: str) -> nn.Module:
    torch.manual_seed(0)
    return KINDS[kind][1].from_config(small(CONFIG_MAPPING[model_type])).eval()


def check(model: nn.Module) -> str:
    """What is found in a model; an AssertionError if it is not so."""
    found = find_geometry(model)
    projections: list[Any] = [model.get_submodule(name) for name in found.o_proj_names]
    ids = torch.arange(5, 17).reshape(2, 6)
    seen: list[tuple[Tensor, Tensor]] = []
    hooks = [
        each.register_forward_hook(lambda m, a, out: seen.append((a[0], out)))
        for each in projections
    ]
    with torch.no_grad():
        plain = model(input_ids=ids).logits
        for hook in hooks:
            hook.remove()
        with Capture(model, positions="all") as capture:
            assert torch.equal(model(input_ids=ids).logits, plain)
            z = capture.take()
        for layer, (each, (read, out)) in enumerate(zip(projections, seen, strict=True)):
            assert torch.equal(z[:, :, layer].flatten(2), read)
            parts = w_o(each).unflatten(1, (found.n_heads, found.head_dim))
            total = torch.einsum("bthd,ohd->bto", z[:, :, layer], parts)
            total = total if each.bias is None else total + each.bias
            torch.testing.assert_close(total, out, atol=1e-5, rtol=1e-4)
        step = torch.zeros(z.shape[2:])
        with Edit(model, step, positions="all", heads=torch.ones(step.shape[:2])):
            assert torch.equal(model(input_ids=ids).logits, plain)
        step[0, 0] = 10.0
        with Edit(model, step, positions="all"):
            assert not torch.equal(model(input_ids=ids).logits, plain)
    check_heads(model, found.o_proj_names[-1], found.n_heads, ids[:1])
    return "works, but for layers: " + found.note if found.left_out else "works"


class Enough(Exception):
    """What comes after W_o need not run."""


def check_heads(model: nn.Module, o_proj: str, n_heads: int, ids: Tensor) -> None:
    """Some part of the attention, as a query's numbers do, reaches one head each, and all heads."""
    path = o_proj.split(".")
    w_out, reached = model.get_submodule(o_proj), set[int]()
    near = [m for n in (1, 2) for m in model.get_submodule(".".join(path[:-n])).modules()]
    widths: dict[nn.Module, int] = {}
    zs: list[Tensor] = []

    def note(part: nn.Module, args: Any, out: Any) -> None:
        if isinstance(out, Tensor) and len(out) == 1 and out.ndim > 2:
            widths[part] = out[0, 0].numel()

    def stop(module: nn.Module, args: Any) -> None:
        zs.append(args[0])
        raise Enough

    def run(rows: int, *hooks: Any) -> None:
        last = w_out.register_forward_pre_hook(stop)
        try:
            model(input_ids=ids.expand(rows, -1))
        except Enough:
            pass
        finally:
            for hook in (*hooks, last):
                hook.remove()

    inner = [m for m in dict.fromkeys(near) if not [*m.children()] and m is not w_out]
    run(1, *(part.register_forward_hook(note) for part in inner))
    for part, width in widths.items():
        columns = list(range(0, width, max(1, width // max(24, 2 * n_heads))))

        def disturb(m: Any, a: Any, out: Tensor, columns: list[int] = columns) -> Tensor:
            if len(out) != len(columns) + 1:
                return out
            changed = out.clone()
            flat = changed.view(len(columns) + 1, out.shape[1], -1)
            flat[range(1, len(columns) + 1), :, columns] += 3.0
            return changed

        run(len(columns) + 1, part.register_forward_hook(disturb))
        moved = ((zs[-1][1:] - zs[-1][:1]).abs() > 1e-6).any(1).unflatten(-1, (n_heads, -1))
        whole = moved.all(-1)
        one = (moved.any(-1) == whole).all(-1) & (whole.sum(-1) == 1)
        reached |= set(whole[one].int().argmax(-1).tolist())
        if len(reached) == n_heads:
            return
    # What computes queries may mix heads before they attend (Zaya), and a norm afterwards.
    own, parts = ALL_ATTENTION_FUNCTIONS["sdpa"], dict(near[0].named_children())
    norms = [parts.get(name) for name in ("attn_sub_norm", "inner_attn_ln")]
    with pytest.MonkeyPatch.context() as patch:
        spy = lambda *args, **more: zs.append((out := own(*args, **more))[0]) or out  # noqa: E731
        patch.setitem(ALL_ATTENTION_FUNCTIONS, "sdpa", spy)
        run(1)
    *_, put, read = zs
    assert put.shape[2] == n_heads
    for norm in filter(None, norms):
        put = norm(put.flatten(2))
    assert torch.equal(put.flatten(2), read)


def outcome(kind: str, model_type: str) -> str:
    """One line on what becomes of a type."""
    try:
        model = build(kind, model_type)
    except Exception as error:
        return f"not built small: {first_line(error)}"
    for part in ("", "language_model", "text_model", "text_decoder"):
        try:
            if isinstance(inner := model.get_submodule(part) if part else model, PreTrainedModel):
                return check(inner) + (f", as its {part}" if part else "")
        except AttributeError:
            continue
        except HookError as error:
            return f"refused: {error}"
        except AssertionError as error:
            return f"wrong: {first_line(error)}"
        except Exception as error:
            reason = first_line(error)
    return f"does not run by words alone: {reason}"


SAMPLE = {
    **dict.fromkeys(["gpt2", "gpt_neox", "bloom", "deepseek_v3", "diffllama", "xlm"], "works"),
    **dict.fromkeys(["qwen3_next", "gemma4_text", "nemotron_h"], "works, but for layers"),
    **dict.fromkeys(["mamba", "jetmoe"], "refused"),
}


@pytest.mark.integration
@pytest.mark.parametrize("model_type", SAMPLE)
def test_a_sample_of_types(model_type: str) -> None:
    assert outcome("text", model_type).startswith(SAMPLE[model_type])


@pytest.mark.every_type
@pytest.mark.parametrize(("kind", "model_type"), [(k, t) for k, v in KINDS.items() for t in v[0]])
def test_no_type_is_silently_wrong(kind: str, model_type: str) -> None:
    assert not outcome(kind, model_type).startswith("wrong")


if __name__ == "__main__":
    transformers.logging.set_verbosity_error()
    for kind in sys.argv[1:]:
        for model_type in KINDS[kind][0]:
            print(kind, model_type, outcome(kind, model_type), sep="\t", flush=True)
