"""What a trace shows, worked out from made events."""

from __future__ import annotations

from typing import Any

import pytest

from castoff.trainers.reporting.trace import PAUSED, STEP, WAITING, analysed, union, without

MAIN, OTHER, DEVICE = 1, 2, 7


def event(cat: str, name: str, begin: float, end: float, tid: int = MAIN, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "ts": begin, "dur": end - begin, "tid": tid, "args": args}


def mark(name: str, begin: float, end: float) -> dict[str, Any]:
    return event("user_annotation", name, begin, end)


def test_stretches_of_time() -> None:
    assert union([(5, 6), (0, 2), (1, 3), (3, 4), (8, 8)]) == [(0, 4), (5, 6)]
    assert without([(0, 10)], [(2, 3), (5, 6), (9, 12)]) == [(0, 2), (3, 5), (6, 9)]
    assert without([(0, 2), (4, 6)], [(1, 5)]) == [(0, 1), (5, 6)]
    assert without([(0, 2)], []) == [(0, 2)]
    assert without([(1, 2)], [(0, 3)]) == []


STEPS = [mark(f"{STEP}3", 0, 50), mark(f"{STEP}4", 50, 100)]


def test_a_cpu_counts_each_moment_once() -> None:
    events = [
        *STEPS,
        mark(WAITING, 0, 10),
        event("cpu_op", "aten::stack", 2, 8),  # makes the batch
        event("cpu_op", "aten::mm", 10, 40),
        event("user_annotation", "gloo:all_reduce", 30, 60, OTHER),  # 10 of it beside mm
        event("cpu_op", "aten::mul", 70, 90),
        event("cpu_op", "aten::pin_memory", 60, 100, OTHER),  # another thread's
        {"ph": "M", "name": "thread_name"},
        {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "ts": 3, "tid": MAIN},
    ]
    found = analysed(events, range(3, 5))
    assert found.seconds == pytest.approx(100e-6)
    assert found.shares == pytest.approx({"compute": 0.5, "communication": 0.2, "data": 0.1, "idle": 0.2})


def test_a_call_of_a_collective_inside_of_an_operation_does_not_compute() -> None:
    events = [
        *STEPS,
        event("cpu_op", "autograd::engine::evaluate_function: AccumulateGrad", 0, 100),
        event("cpu_op", "c10d::allreduce_", 20, 70),
    ]
    found = analysed(events, range(3, 5))
    assert found.shares == pytest.approx({"compute": 0.5, "communication": 0.5, "data": 0, "idle": 0})


def test_an_accelerator_counts_what_the_device_does() -> None:
    events = [
        *STEPS,
        mark(WAITING, 0, 20),
        event("cpu_op", "aten::mm", 20, 22),
        event("cpu_op", "aten::stack", 30, 100),  # no work of the device
        event("gpu_user_annotation", f"{STEP}3", 5, 500, DEVICE),
        event("gpu_memcpy", "Memcpy HtoD", 10, 15, DEVICE),  # while the next batch is waited for
        event("kernel", "gemm", 20, 60, DEVICE),
        event("kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL", 40, 90, DEVICE + 1),
    ]
    found = analysed(events, range(3, 5))
    assert found.shares == pytest.approx({"compute": 0.45, "communication": 0.3, "data": 0.15, "idle": 0.1})


def test_validations_and_checkpoints_are_no_part_of_the_steps() -> None:
    events = [*STEPS, mark(PAUSED, 40, 60), event("cpu_op", "aten::mm", 35, 80)]
    found = analysed(events, range(3, 5))
    assert found.seconds == pytest.approx(80e-6)
    assert found.shares["compute"] == pytest.approx(25 / 80)


def test_only_the_asked_steps_count() -> None:
    found = analysed([*STEPS, event("cpu_op", "aten::mm", 20, 60)], range(4, 5))
    assert found.seconds == pytest.approx(50e-6)
    assert found.shares["compute"] == pytest.approx(0.2)
    assert found.operations == [], "those that begin in a step"
    with pytest.raises(ValueError, match="no step of 7 to 8"):
        analysed(STEPS, range(7, 9))


def test_an_operation_has_its_time_without_those_inside_it() -> None:
    events = [
        *STEPS,
        event("cpu_op", "aten::linear", 0, 40),
        event("cpu_op", "aten::addmm", 5, 35),
        event("cpu_op", "aten::copy_", 5, 10),
        event("cpu_op", "aten::linear", 40, 60),
        event("cpu_op", "aten::addmm", 40, 60),  # begins and ends with it
        event("cpu_op", "aten::mm", 0, 60, OTHER),
    ]
    found = analysed(events, range(3, 5)).operations
    named = {each.name: (round(each.seconds * 1e6), each.calls) for each in found}
    assert named == {"aten::addmm": (45, 2), "aten::linear": (10, 2), "aten::copy_": (5, 1)}
    assert [each.name for each in found] == ["aten::addmm", "aten::linear", "aten::copy_"]
    assert len(analysed(events, range(3, 5), most=1).operations) == 1


def test_an_operation_has_the_time_of_its_kernels() -> None:
    events = [
        *STEPS,
        event("cpu_op", "aten::mm", 0, 1, **{"External id": 5}),
        event("cpu_op", "aten::mm", 1, 2, **{"External id": 6}),
        event("kernel", "split_gemm", 3, 10, DEVICE, **{"External id": 5}),
        event("kernel", "reduce", 10, 13, DEVICE, **{"External id": 5}),
        event("kernel", "gemm", 13, 20, DEVICE, **{"External id": 6}),
        event("kernel", "of_nobody", 20, 22, DEVICE, **{"External id": 0}),
    ]
    found = analysed(events, range(3, 5)).operations
    named = {each.name: (round(each.seconds * 1e6), each.calls) for each in found}
    assert named == {"aten::mm": (17, 2), "of_nobody": (2, 1)}
