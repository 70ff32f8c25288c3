"""How far a transcript is from another: words and speakers, as in MoMentS' appendix A.4."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence

import numpy as np
from scipy.optimize import linear_sum_assignment

from sally_anne.data.transcripts import Utterance

_MARKS = re.compile(r"[^\w\s]")


def words_of(said: Iterable[Utterance]) -> list[str]:
    """All words in order, in lower case and without punctuation ("it's" is "its")."""
    return _MARKS.sub("", " ".join(one.text for one in said).casefold()).split()


def word_errors(reference: Sequence[str], found: Sequence[str]) -> int:
    """The fewest words put in, left out or exchanged that make ``reference`` of ``found``."""
    ids = {word: i for i, word in enumerate(dict.fromkeys([*reference, *found]))}
    columns = np.array([ids[word] for word in found], dtype=int)
    steps = np.arange(len(found) + 1)
    row = steps
    for number, word in enumerate(reference, start=1):
        best = np.concatenate(
            [[number], np.minimum(row[1:] + 1, row[:-1] + (columns != ids[word]))]
        )
        # Words put in are counted along the row: the least of all before, and one for each step.
        row = np.minimum.accumulate(best - steps) + steps
    return int(row[-1])


def speaker_errors(
    reference: Sequence[Utterance], found: Sequence[Utterance]
) -> tuple[float, float, float]:
    """Seconds of the reference's speech that are missed, given to a wrong speaker, and in all.

    Only what the reference marks as speech counts; names are mapped one to one so that most is
    right. Where fewer talk than in the reference the others are missed.
    """
    wanted, heard = _spans(reference), _spans(found)
    names = [name for name in heard if name]
    shared = np.array([[_overlap(one, heard[name]) for name in names] for one in wanted.values()])
    shared = shared.reshape(len(wanted), len(names))
    right = float(shared[linear_sum_assignment(-shared)].sum())
    total = sum(end - start for spans in wanted.values() for start, end in spans)
    missed = _missed(list(wanted.values()), list(heard.values()))
    return missed, max(0.0, total - missed - right), total


def _spans(said: Iterable[Utterance]) -> dict[str, list[tuple[float, float]]]:
    """When each speaker talks, in spans that do not touch."""
    by_name: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    for one in sorted(said, key=lambda one: one.start):
        spans = by_name[one.speaker]
        if spans and one.start <= spans[-1][1]:
            spans[-1] = (spans[-1][0], max(spans[-1][1], one.end))
        else:
            spans.append((one.start, one.end))
    return by_name


def _overlap(one: Iterable[tuple[float, float]], other: Sequence[tuple[float, float]]) -> float:
    return sum(max(0.0, min(e, end) - max(s, start)) for s, e in one for start, end in other)


def _missed(
    wanted: Sequence[Sequence[tuple[float, float]]], heard: Sequence[Sequence[tuple[float, float]]]
) -> float:
    edges = sorted({edge for spans in (*wanted, *heard) for span in spans for edge in span})
    starts, ends = np.array(edges[:-1]), np.array(edges[1:])

    def talking(speakers: Sequence[Sequence[tuple[float, float]]]) -> np.ndarray:
        counts = np.zeros(len(starts), dtype=int)
        for begin, end in (span for spans in speakers for span in spans):
            counts += (starts >= begin) & (ends <= end)
        return counts

    gaps = np.maximum(talking(wanted) - talking(heard), 0)
    return float((gaps * (ends - starts)).sum())
