"""The learning rate's share of each step, as a function of the step alone."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from castoff.trainers.configuration.config import Schedule
from castoff.trainers.optimization.schedule import factor, problems, problems_of_length

TOTAL = st.integers(2, 3000)
FLOORS = st.floats(0.0, 1.0)


def wrong(schedule: Schedule, total: int | None) -> list[str]:
    """All that is wrong with it in a training of so many steps."""
    return problems(schedule) + problems_of_length(schedule, total)


@st.composite
def schedules(draw: st.DrawFn, *types: str) -> tuple[Schedule, int]:
    """One that can be followed, and the steps of its training."""
    total = draw(TOTAL)
    kind = draw(st.sampled_from(types))
    warmup = draw(st.integers(1 if kind == "noam" else 0, total - 1))
    floor = 0.0 if kind == "constant" else draw(FLOORS)
    fields: dict[str, Any] = {"type": kind, "warmup_steps": warmup, "floor": floor}
    made = Schedule(**fields)
    assume(wrong(made, total) == [])
    return made, total


ALL = schedules("constant", "linear", "cosine", "noam")
FALLING = schedules("linear", "cosine")


@given(ALL, st.integers(0, 6000))
def test_it_is_a_share_of_the_rate_and_never_0_in_a_warmup(made: tuple[Schedule, int], step: int) -> None:
    schedule, total = made
    assert 0.0 <= factor(schedule, step, total) <= 1.0
    if step < schedule.warmup_steps or step == 0:
        assert factor(schedule, step, total) > 0.0


@given(ALL, st.integers(0, 6000))
def test_it_rises_in_the_warmup_and_falls_from_there(made: tuple[Schedule, int], step: int) -> None:
    schedule, total = made
    now, then = factor(schedule, step, total), factor(schedule, step + 1, total)
    if step + 1 < schedule.warmup_steps:
        assert now < then
    elif step >= schedule.warmup_steps:
        assert now >= then


@given(ALL)
def test_the_parts_join(made: tuple[Schedule, int]) -> None:
    schedule, total = made
    joint = schedule.warmup_steps
    if joint:
        assert factor(schedule, joint - 1, total) == 1.0
    if schedule.type == "noam":
        assert factor(schedule, joint, total) == max(math.sqrt(joint / (joint + 1)), schedule.floor)
    else:
        assert factor(schedule, joint, total) == pytest.approx(1.0)


@given(FALLING, st.integers(0, 3000))
def test_the_floor_is_reached_and_kept(made: tuple[Schedule, int], more: int) -> None:
    schedule, total = made
    assert factor(schedule, total + more, total) == schedule.floor
    rest = 1.0 - schedule.floor
    if total - 1 > schedule.warmup_steps:  # the last step has at most its share of the fall left
        share = rest / (total - schedule.warmup_steps)
        assert factor(schedule, total - 1, total) - schedule.floor <= share + 1e-9


@given(FALLING, TOTAL)
def test_its_own_steps_count_more_than_the_trainings(made: tuple[Schedule, int], other: int) -> None:
    schedule, total = made
    fields = {name: getattr(schedule, name) for name in schedule.__struct_fields__}
    own = Schedule(**{**fields, "steps": total})
    rates = [factor(own, step, other) for step in range(0, total, 7)]
    assert rates == [factor(schedule, step, total) for step in range(0, total, 7)]


def test_noam_is_that_of_the_paper() -> None:
    """Vaswani et al. 2017, equation 3, over its peak: d_model cancels."""
    schedule = Schedule(type="noam", warmup_steps=40)

    def paper(step: int) -> float:
        return float(512**-0.5 * min(step**-0.5, step * 40**-1.5))

    for step in range(400):
        assert factor(schedule, step, 0) == pytest.approx(paper(step + 1) / paper(40))


def test_some_by_hand() -> None:
    linear = Schedule(type="linear", warmup_steps=2, floor=0.5)
    assert [factor(linear, step, 6) for step in range(8)] == [0.5, 1.0, 1.0, 0.875, 0.75, 0.625, 0.5, 0.5]
    cosine = Schedule(type="cosine")
    assert [factor(cosine, step, 4) for step in (0, 2, 4)] == [1.0, pytest.approx(0.5), 0.0]


@pytest.mark.parametrize(
    ("fields", "total", "says"),
    [
        ({"type": "noam"}, 100, r"warmup_steps: is 0, but noam has its peak there"),
        (
            {"type": "cosine", "warmup_steps": 100},
            100,
            r"warmup_steps: is 100, but the training has 100 steps",
        ),
        ({"warmup_steps": 200}, 100, r"warmup_steps: is 200, but the training has 100 steps"),
        ({"type": "noam", "warmup_steps": 200}, 100, r"is 200, but the training has 100 steps"),
        ({"type": "linear", "warmup_steps": 20, "steps": 10}, 100, r"steps: is 10, but the warmup .* 20"),
        ({"type": "linear"}, None, r"steps: is missing, .* linear"),
        ({"type": "noam", "warmup_steps": 2, "steps": 10}, 100, r"steps: is 10, but noam has no end"),
        ({"steps": 10}, 100, r"steps: is 10, but constant has no end"),
        ({"floor": 0.1}, 100, r"floor: is 0\.1, but constant never falls"),
    ],
)
def test_an_impossible_schedule_is_reported(fields: dict[str, Any], total: int | None, says: str) -> None:
    (problem,) = wrong(Schedule(**fields), total)
    assert problem.startswith("training.schedule.")
    assert re.search(says, problem)


@pytest.mark.parametrize(
    ("fields", "total"),
    [
        ({}, None),
        ({"warmup_steps": 5}, None),
        ({"type": "cosine", "steps": 10}, None),
        ({"type": "cosine", "warmup_steps": 9, "steps": 10}, 5),  # the training ends within a longer plan
        ({"type": "noam", "warmup_steps": 5}, None),
    ],
)
def test_what_can(fields: dict[str, Any], total: int | None) -> None:
    assert wrong(Schedule(**fields), total) == []
