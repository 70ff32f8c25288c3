"""Stage 1: a text decoder learns to look things up and to judge statements.

Both families start from this one decoder, as the full-size models start from a language model. It
has the shape of a Llama decoder; Qwen2's is the same with biases, which then start at zero.
"""

from __future__ import annotations

import random
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from experiments.train_tiny import documents
from experiments.train_tiny.batches import encode, score_text
from experiments.train_tiny.documents import Maker
from experiments.train_tiny.trainer import Batch, Level, Settings, train
from experiments.train_tiny.vocabulary import SIZE

LAYERS, HEADS, KV_HEADS, HEAD_DIM, HIDDEN, MLP = 6, 8, 4, 16, 128, 384
ROPE_THETA = 10_000.0
# Stories in a batch, and the token after which a document is cut; two cores pay for every token.
STORIES, LONGEST = 20, 300


def decoder_config() -> LlamaConfig:
    """The text decoder's shape: 6 layers x 8 heads x 16."""
    return LlamaConfig(
        vocab_size=SIZE,
        hidden_size=HIDDEN,
        intermediate_size=MLP,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        head_dim=HEAD_DIM,
        max_position_embeddings=2048,
        rope_parameters={"rope_type": "default", "rope_theta": ROPE_THETA},
        tie_word_embeddings=True,
        bos_token_id=2,
        eos_token_id=3,
        pad_token_id=0,
        use_cache=False,
    )


def levels(tokenizer: PreTrainedTokenizerFast) -> list[Level]:
    """Short facts of six levels, then stories: looking up, judging, all together."""

    def level(name: str, make: Maker, size: int, goal: float, most: int) -> Level:
        def batch(rng: random.Random) -> Batch:
            encoded = encode(tokenizer, [make(rng) for _ in range(size)], LONGEST)
            return {"input_ids": encoded.ids}, score_text(encoded)

        return Level(name, batch, goal, most)

    def facts(number: int) -> Maker:
        return lambda rng: documents.facts(rng, number)

    # Batch, goal and most steps of each level; the caps keep the whole within two hours.
    plan = (
        (256, 0.2, 2500),
        (256, 0.2, 2500),
        (256, 0.2, 2500),
        (96, 0.2, 780),
        (96, 0.25, 150),
        (48, 0.25, 200),
    )
    return [
        *(level(f"facts-{i}", facts(i), *numbers) for i, numbers in enumerate(plan)),
        level("looking-up", documents.looking_up, STORIES, 0.12, 110),
        level("completing", documents.completing, STORIES, 0.15, 251),
        level("roles", documents.roles, STORIES, 0.15, 300),
        level("judging", documents.judging, STORIES, 0.15, 208),
        level("reasoning", documents.reasoning, STORIES, 0.12, 900),
        level("everything", documents.everything, STORIES, 0.0, 280),
    ]


def train_decoder(
    tokenizer: PreTrainedTokenizerFast, folder: Path, settings: Settings
) -> LlamaForCausalLM:
    """Train the decoder, or finish or load it if ``folder`` holds it already."""
    torch.manual_seed(settings.seed)
    model = LlamaForCausalLM(decoder_config())
    train(model, levels(tokenizer), folder, settings, "decoder")
    return model
