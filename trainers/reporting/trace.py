"""What the steps of a trace spend their time on. Pure functions of the events that torch.profiler exports.

The wall time of the steps, without validations and checkpoints, is divided into four parts, each moment
counted once:

- On an accelerator, `compute` is the time in which it runs kernels or copies; `communication` that in which
  it only runs collectives; `data` that in which it is empty while the rank waits for a batch.
- On a CPU, `data` is the time in which the rank waits for a batch, or makes it; `compute` that in which one
  of its operations runs; `communication` that in which only a collective is under way.
- `idle` is the rest: Python between operations, and waiting for anything else.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

WAITING = "castoff: waiting for data"
"""The annotation of the time in which a rank waits for a batch."""

PAUSED = "castoff: between steps"
"""The annotation of validations and checkpoints."""

STEP = "ProfilerStep#"
"""The beginning of torch's annotation of a step, which ends in its number."""

PARTS = ("compute", "communication", "data", "idle")

_ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
_COLLECTIVE = re.compile(r"nccl|rccl|oneccl|gloo:|c10d::|mpi:|ucc:", re.IGNORECASE)
"""What the names of collectives contain: kernels, calls, and what a backend's own threads do."""

_CALL = "c10d::"
"""The beginning of the name of a call that begins a collective."""

Event: TypeAlias = Mapping[str, Any]
Spans: TypeAlias = list[tuple[float, float]]
"""Stretches of time, in microseconds: sorted, and none meets another."""


class Operation(NamedTuple):
    """An operation of torch, over all steps of a trace."""

    name: str
    seconds: float
    """Its time without that of the operations that it calls; of its kernels, if there is an accelerator."""
    calls: int


class Analysis(NamedTuple):
    """What the steps of a rank's trace spend their time on."""

    seconds: float
    """Wall time of all its steps together."""
    shares: dict[str, float]
    """The share of each of `PARTS` in it; their sum is 1."""
    operations: list[Operation]
    """The most expensive ones, in order."""


def analysed(events: Iterable[Event], steps: range, most: int = 10) -> Analysis:
    """Analyse the events of one rank's trace. `most`: the number of operations.

    Raises:
        ValueError: the trace has none of the steps.
    """
    timed = [event for event in events if event.get("ph") == "X" and event.get("dur") is not None]
    marks = [each for each in timed if each.get("cat") == "user_annotation"]
    names = {f"{STEP}{step}" for step in steps}
    found = [each for each in marks if each["name"] in names]
    if not found:
        raise ValueError(f"the trace has no step of {steps.start} to {steps.stop - 1}")
    begin, end = min(each["ts"] for each in found), max(each["ts"] + each["dur"] for each in found)
    whole = without([(begin, end)], _spans(marks, lambda each: each["name"] == PAUSED))
    waits = _spans(marks, lambda each: each["name"] == WAITING)
    main = found[0]["tid"]
    on_device = [each for each in timed if each.get("cat") in _ON_DEVICE]
    ops = [each for each in timed if each.get("cat") == "cpu_op"]
    ordered = _on_accelerator(on_device, waits) if on_device else _on_cpu(timed, ops, main, waits)
    total = _length(whole)
    left, shares = whole, dict.fromkeys(PARTS, 0.0)
    for name, spans in ordered.items():
        rest = without(left, spans)
        shares[name] = (_length(left) - _length(rest)) / total
        left = rest
    shares["idle"] = _length(left) / total
    inside = (begin, end)
    spent = _device_times(on_device, ops, inside) if on_device else _own_times(ops, main, inside)
    operations = [Operation(name, time / 1e6, calls) for name, (time, calls) in spent.items()]
    operations.sort(key=lambda each: each.seconds, reverse=True)
    return Analysis(total / 1e6, shares, operations[:most])


def _on_accelerator(on_device: Sequence[Event], waits: Spans) -> dict[str, Spans]:
    """The parts in the order in which they count where they overlap."""
    return {
        "compute": _spans(on_device, lambda each: not _is_collective(each)),
        "communication": _spans(on_device, _is_collective),
        "data": waits,
    }


def _on_cpu(timed: Sequence[Event], ops: Sequence[Event], main: Any, waits: Spans) -> dict[str, Spans]:
    """The same. What makes a batch are operations, too; and a call of a collective lies inside of those that
    compute gradients.
    """
    calls = _spans(ops, lambda each: each["name"].startswith(_CALL))
    computing = _spans(ops, lambda each: each["tid"] == main and not _is_collective(each))
    return {
        "data": waits,
        "compute": without(computing, calls),
        "communication": _spans(timed, _is_collective),
    }


def _is_collective(event: Event) -> bool:
    return _COLLECTIVE.search(event["name"]) is not None


def _own_times(ops: Sequence[Event], main: Any, inside: tuple[float, float]) -> dict[str, tuple[float, int]]:
    """The time of each operation of a thread without those inside it, and its number of calls."""
    spent: dict[str, tuple[float, int]] = {}
    around: list[tuple[float, str]] = []
    """The operations that have begun and not ended: their ends and names."""
    for each in sorted(_within(ops, inside), key=lambda one: (one["ts"], -one["dur"])):
        if each["tid"] != main:
            continue
        while around and around[-1][0] <= each["ts"]:
            around.pop()
        if around:
            time, calls = spent[around[-1][1]]
            spent[around[-1][1]] = (time - each["dur"], calls)
        time, calls = spent.get(each["name"], (0.0, 0))
        spent[each["name"]] = (time + each["dur"], calls + 1)
        around.append((each["ts"] + each["dur"], each["name"]))
    return spent


def _device_times(
    on_device: Sequence[Event], ops: Sequence[Event], inside: tuple[float, float]
) -> dict[str, tuple[float, int]]:
    """The time of the kernels that each operation starts, and its number of calls; of kernels that belong to
    none, by their own name.
    """
    names: dict[Any, str] = {one: each["name"] for each in ops if (one := _id(each)) is not None}
    spent: dict[str, float] = {}
    calls: dict[str, set[Any]] = {}
    for number, each in enumerate(_within(on_device, inside)):
        one = _id(each)
        name = str(names.get(one, each["name"]))
        spent[name] = spent.get(name, 0.0) + each["dur"]
        calls.setdefault(name, set()).add(one if one in names else -1 - number)
    return {name: (time, len(calls[name])) for name, time in spent.items()}


def _id(event: Event) -> Any:
    """What an operation and its kernels share."""
    return event.get("args", {}).get("External id")


def _within(events: Iterable[Event], inside: tuple[float, float]) -> Iterable[Event]:
    begin, end = inside
    return (each for each in events if begin <= each["ts"] < end)


# --- Stretches of time --------------------------------------------------------------------------


def _spans(events: Iterable[Event], chosen: Callable[[Event], bool]) -> Spans:
    """When any of the chosen events was under way."""
    return union((each["ts"], each["ts"] + each["dur"]) for each in events if chosen(each))


def union(spans: Iterable[tuple[float, float]]) -> Spans:
    """The stretches of time in which there is any of these."""
    joined: Spans = []
    for begin, end in sorted(spans):
        if joined and begin <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        elif end > begin:
            joined.append((begin, end))
    return joined


def without(spans: Spans, removed: Spans) -> Spans:
    """The stretches of `spans` in which there is none of `removed`."""
    left: Spans = []
    at = 0
    for begin, end in spans:
        while at < len(removed) and removed[at][1] <= begin:
            at += 1
        number = at
        while number < len(removed) and removed[number][0] < end:
            if removed[number][0] > begin:
                left.append((begin, removed[number][0]))
            begin = max(begin, removed[number][1])
            number += 1
        if begin < end:
            left.append((begin, end))
    return left


def _length(spans: Spans) -> float:
    return sum(end - begin for begin, end in spans)
