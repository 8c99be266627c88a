"""Copies of a training's state: the same in every way, apart from it, and in the same memory each time."""

from __future__ import annotations

import io
from collections import Counter, OrderedDict
from typing import Any

import pytest
import torch
from torch import nn

from castoff.trainers.checkpointing.staging import Staging, tensors


def written(state: Any) -> bytes:
    file = io.BytesIO()
    torch.save(state, file)
    return file.getvalue()


def state() -> dict[str, dict[str, Any]]:
    """All that a state may hold."""
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 4))
    model[2].weight = model[0].weight
    moments = {"step": torch.tensor(1.0), "exp_avg": torch.randn(4, 4), "exp_avg_sq": torch.randn(4, 4)}
    group = {"lr": 1e-3, "betas": (0.9, 0.999), "amsgrad": False, "foreach": None, "params": [0]}
    numbers = torch.arange(20.0)
    return {
        "model": model.state_dict(),
        "training": {
            "optimizer": {"state": {0: moments}, "param_groups": [group]},
            "turned": numbers.reshape(4, 5).t(),
            "part": numbers[3:7],
            "none": torch.empty(0, 3),
            "one": torch.tensor(3),
            "half": torch.ones(3, dtype=torch.bfloat16),
            "mirrored": torch.ones(3, dtype=torch.complex64).conj(),
            "sparse": torch.eye(3).to_sparse(),
            "parameter": nn.Parameter(torch.ones(2)),
            "counted": Counter({3: 2}),
            "plain": [None, True, 2, 2.5, "text", (1, {2: [3]}), {4, 5}, torch.Size([1]), torch.float16],
            "keys": {(1, "key"): torch.device("cpu")},
        },
    }


def same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one.to_dense(), other.to_dense())
    if isinstance(one, dict):
        keys = zip(one, other, strict=True)
        return all(mine == theirs and same(one[mine], other[theirs]) for mine, theirs in keys)
    if isinstance(one, (list, tuple)):
        return type(one) is type(other) and len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def test_a_copy_is_the_same_and_can_be_read() -> None:
    whole = state()
    copied = Staging().copy(whole)
    assert same(whole, copied)
    for part in copied.values():
        assert same(torch.load(io.BytesIO(written(part)), weights_only=True), part)


def test_a_module_reads_its_versions() -> None:
    """A state dict has them in an attribute, and old ones are mended by them."""
    given = nn.BatchNorm1d(3).state_dict()
    copied = Staging().copy({"model": given})["model"]
    assert type(copied) is OrderedDict
    assert copied._metadata == given._metadata  # type: ignore[attr-defined]
    assert torch.load(io.BytesIO(written(copied)), weights_only=True)._metadata[""] == {"version": 2}


def test_a_copy_has_nothing_in_common() -> None:
    whole = state()
    copied = Staging().copy(whole)
    before = written(copied)
    for _, tensor in tensors(whole, ""):
        if tensor.layout is torch.strided and tensor.numel():
            tensor.detach().zero_()
    whole["training"]["plain"].append(1)
    assert written(copied) == before


def test_what_shares_memory_shares_it_in_the_copy() -> None:
    big = torch.zeros(10_000)
    shared = {"a": big, "b": big, "part": big[10:20], "rows": big.reshape(100, 100)}
    copied = Staging().copy({"one": shared, "two": {"a": big}})
    assert len({tensor.untyped_storage().data_ptr() for _, tensor in tensors(copied, "")}) == 1
    assert len(written(copied["one"])) < 45_000


def places(copied: Any) -> set[int]:
    return {tensor.untyped_storage().data_ptr() for _, tensor in tensors(copied, "")}


def test_memory_is_taken_once() -> None:
    staging = Staging()
    whole = {"model": {str(size): torch.ones(size) for size in (1, 10, 10, 5000)}}
    first = places(staging.copy(whole))
    for tensor in whole["model"].values():
        tensor += 1
    whole["model"] = dict(reversed(whole["model"].items()))
    again = staging.copy(whole)
    assert places(again) == first
    assert same(again, whole)


def test_memory_of_another_size_is_given_back() -> None:
    staging = Staging()
    staging.copy({"model": {"w": torch.ones(10)}})
    staging.copy({"model": {"w": torch.ones(20)}})
    assert [(size, len(held)) for (size, _), held in staging._buffers.items() if held] == [(80, 1)]


class Mine:
    pass


@pytest.mark.parametrize("value", [Mine(), lambda: 1, torch.Generator()])
def test_what_could_not_be_read_is_refused_at_once(value: Any) -> None:
    with pytest.raises(TypeError, match=r"cannot hold training\.task\.1, a .*weights_only=True"):
        Staging().copy({"training": {"task": [1, value]}})


def test_a_number_of_numpy_is_refused() -> None:
    numpy = pytest.importorskip("numpy")
    with pytest.raises(TypeError, match=r"cannot hold training\.best, a numpy\.float64"):
        Staging().copy({"training": {"best": numpy.float64(1)}})


def test_names_of_tensors() -> None:
    found = [name for name, _ in tensors({"a": {"b": torch.ones(1)}, "c": [torch.ones(1)], "d": 3}, "")]
    assert found == ["a.b", "c.0"]
