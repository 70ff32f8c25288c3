"""A judge on this machine: a model of its own, never steered, that chooses between two words."""

from __future__ import annotations

import math
from typing import Any

from sally_anne.core.errors import HarnessError
from sally_anne.harness.judge import WORDS, Asked, Judge, Verdict, Words
from sally_anne.harness.model import Prompt, SteeredModel
from sally_anne.models.loading import LoadedModel, load_model


class LocalJudge(Judge):
    """Compares how probable the two words' first tokens are as the beginning of its reply.

    Args:
        loaded: the judge's model. Give it one of its own: what a steering vector does to the model
            under evaluation must not reach its judge.
        words: for right and for wrong.

    Raises:
        HarnessError: the words begin with the same token, or with one that the tokenizer does not
            know.
    """

    def __init__(self, loaded: LoadedModel, words: Words = WORDS) -> None:
        super().__init__(words)
        self._model = SteeredModel(loaded)
        self._options = self._first_tokens()

    @classmethod
    def open(cls, name: str, *, words: Words = WORDS, **options: Any) -> LocalJudge:
        """A judge by its model's name; ``options`` as in :func:`load_model`."""
        return cls(load_model(name, **options), words)

    @property
    def about(self) -> dict[str, Any]:
        """What its verdicts depend on, for a journal."""
        loaded = self._model.loaded
        return {
            "judge": loaded.source,
            "judge_revision": loaded.revision,
            "judge_dtype": loaded.dtype,
            **{f"judge_{name}": value for name, value in loaded.changes.items()},
            "judge_prompt": self.prompt_hash,
        }

    def ask(self, questions: list[Asked]) -> list[Verdict]:
        """A verdict on each, in one batch; the probability is of the two words alone."""
        prompts = [Prompt(self.prompt(asked)) for asked in questions]
        verdicts = []
        for right, wrong in self._model.option_log_probs(prompts, [self._options] * len(prompts)):
            if math.isnan(wrong - right):
                verdicts.append(Verdict(right=False, invalid=True))
                continue
            probability = 1 / (1 + math.exp(min(wrong - right, 700.0)))
            verdicts.append(Verdict(right > wrong, probability, self.words[right <= wrong]))
        return verdicts

    def _first_tokens(self) -> list[str]:
        """The beginnings of the words that are one token each, or the words where there are none.

        Only the first token tells the words apart, and words of more tokens would be less probable
        by their spelling alone.
        """
        loaded = self._model.loaded
        tokenizer = loaded.processor.tokenizer
        prompt = Prompt(self.prompt(Asked("?", "?", "?")))
        tokens = self._model.continuations(prompt, self.words)
        for word, ids in zip(self.words, tokens, strict=True):
            if not ids or ids[0] == tokenizer.unk_token_id:
                raise HarnessError(
                    f"the tokenizer of {loaded.name!r} does not know the judge's word {word!r}; "
                    "take another model as judge, or other words"
                )
        if tokens[0][0] == tokens[1][0]:
            raise HarnessError(
                f"the judge's words {self.words[0]!r} and {self.words[1]!r} begin with the same "
                f"token of {loaded.name!r}; take another model as judge, or other words"
            )
        pieces = [tokenizer.decode(ids[:1]).strip() for ids in tokens]
        if all(pieces) and self._model.continuations(prompt, pieces) == [t[:1] for t in tokens]:
            return pieces
        return list(self.words)
