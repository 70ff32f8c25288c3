"""Batch sizes that are found by trying."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from hooks.batch_size import fitting, most_that_fit
from hooks.processes import ALONE


def needs_memory(room: int, tried: list[int]):
    """A trial that runs out of memory above ``room`` inputs."""

    def trial(size: int) -> None:
        tried.append(size)
        if size > room:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")

    return trial


@pytest.mark.parametrize(("room", "found"), [(1000, 64), (64, 64), (63, 32), (9, 8), (1, 1)])
def test_the_largest_half_that_fits_is_taken(room: int, found: int) -> None:
    tried: list[int] = []
    assert most_that_fit(needs_memory(room, tried)) == found
    assert tried == [64 >> i for i in range(len(tried))]
    assert tried[-1] == found


def test_not_even_one_input_fits() -> None:
    with pytest.raises(torch.OutOfMemoryError):
        most_that_fit(needs_memory(0, []))


def test_other_errors_are_not_taken_for_want_of_memory() -> None:
    tried: list[int] = []

    def broken(size: int) -> None:
        tried.append(size)
        raise RuntimeError("shapes do not fit")

    with pytest.raises(RuntimeError, match="shapes"):
        most_that_fit(broken)
    assert tried == [64]


def test_a_cpu_uses_its_fixed_size_and_tries_nothing() -> None:
    model = nn.Linear(2, 2)
    assert fitting(model, lambda size: pytest.fail("tried"), 8, ALONE) == 8


def test_off_the_cpu_sizes_are_tried() -> None:
    with torch.device("meta"):
        model = nn.Linear(2, 2)
    assert fitting(model, needs_memory(20, []), 8, ALONE) == 16
