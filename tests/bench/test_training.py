"""What `make bench` measures with runs, and counts right."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from bench import checkpoints, training
from bench.loops import Work
from bench.relay import Runner, Turn
from bench.training import Case, Lap
from castoff.trainers.ddp import cleanup_ddp, initialize_ddp
from tests.trainers.toys import run

ROUNDS = 2


def measured(case: Case, folder: Path) -> Any:
    """On one rank: the laps, and how many reductions an accumulating step has."""
    from bench import ranks
    from castoff.launcher.ranks import RankEnv

    me = RankEnv.detect()
    initialize_ddp(me.rank, me.world_size, device="cpu")
    laps = ranks.take_turns(case, ROUNDS, folder)
    counted = ranks.reductions(3, folder / "counted")
    cleanup_ddp()
    return laps, counted


def alone(case: Case, folder: Path) -> Any:
    """The laps of one rank without a process group."""
    from bench import ranks

    return ranks.take_turns(case, ROUNDS, folder)


def test_each_runs_as_many_passes_as_it_is_told_and_an_error_of_one_is_raised() -> None:
    made: list[str] = []

    def loop(name: str, turn: Turn) -> None:
        for number in range(6):
            turn()
            made.append(f"{name}{number}")
        raise ValueError(name)

    runners = [Runner(lambda turn, name=name: loop(name, turn)) for name in "ab"]  # type: ignore[misc]
    for runner in runners:
        runner.prepare()
    for _ in range(2):
        for runner in runners:
            runner.run(2)
    assert made == ["a0", "a1", "b0", "b1", "a2", "a3", "b2", "b3"]
    with pytest.raises(ValueError, match="a"):
        runners[0].finish()
    assert made[8:] == ["a4", "a5"]


@pytest.mark.parametrize(
    "loops",
    [
        ("by hand", "the same again", "by hand, with no_sync", "castoff"),
        pytest.param(
            ("by hand", "the same again", "castoff", "Fabric", "accelerate", "Lightning"),
            marks=pytest.mark.long,
        ),
    ],
)
def test_loops_take_turns_on_two_ranks(loops: tuple[str, ...], tmp_path: Path) -> None:
    accumulation = 2 if "by hand, with no_sync" in loops else 1
    case = Case("Small", width=4, steps=2, bar=1.0, loops=loops, accumulation=accumulation)
    laps, counted = run(
        *(measured, case, tmp_path), folder=tmp_path / "ranks", world_size=2, OMP_NUM_THREADS="1"
    )[0]
    assert {name: len(own) for name, own in laps.items()} == dict.fromkeys(loops, ROUNDS)
    assert all(lap.wall > 0 and lap.cpu > 0 for own in laps.values() for lap in own)
    assert counted == 1


def test_a_case_of_one_rank_needs_no_process_group(tmp_path: Path) -> None:
    loops = ("by hand", "the same again", "castoff")
    case = Case("Small", width=4, steps=2, bar=None, loops=loops, ranks=1)
    laps = run(alone, case, tmp_path, folder=tmp_path / "ranks", world_size=1, OMP_NUM_THREADS="1")[0]
    assert {name: len(own) for name, own in laps.items()} == dict.fromkeys(loops, ROUNDS)
    assert all(lap.wall > 0 and lap.cpu > 0 for own in laps.values() for lap in own)


def lap_times(*walls: float, cpu: float = 0.2) -> list[Lap]:
    return [Lap(wall, cpu) for wall in walls]


def test_a_table_judges_by_the_median_of_the_ratios_of_the_same_round() -> None:
    """And by it alone: how far the second loop by hand is spread excuses nothing."""
    laps = {
        "by hand": lap_times(0.1, 0.2, 0.1),
        "the same again": lap_times(0.1, 0.2, 0.15),
        "castoff": lap_times(0.105, 0.21, 0.105, cpu=0.3),
        "Fabric": lap_times(0.12, 0.24, 0.12, cpu=0.3),
    }
    case = Case("Small", width=4, steps=10, bar=1.02, loops=tuple(laps), rivals=("Fabric",))
    lines = "\n".join(training.table(case, laps))
    assert "castoff                                 10.50  1.050 (1.05 to 1.05)" in lines
    assert re.search(r"castoff over by hand, bar 1\.02 +1\.050 .* NOT MET +1\.500 .* NOT MET", lines)
    assert re.search(r"castoff over Fabric, bar 1\.00 +0\.875 .* met +1\.000 .* met", lines)
    assert "Two equal loops" not in lines


def test_a_rival_may_be_better_by_the_margin() -> None:
    laps = {
        "by hand": lap_times(0.1, 0.1, 0.1),
        "the same again": lap_times(0.11, 0.11, 0.1),
        "castoff": lap_times(0.102, 0.102, 0.102, cpu=0.206),
        "Fabric": lap_times(0.1, 0.1, 0.1),
    }
    case = Case("Small", 4, 10, None, tuple(laps), ("Fabric",), margin=0.02, ranks=1)
    lines = "\n".join(training.table(case, laps))
    assert re.search(r"castoff over Fabric, bar 1\.02 +1\.020 .* met +1\.030 .* NOT MET", lines)
    assert "castoff over by hand" not in lines
    assert "Two equal loops differ by 0.100 of their wall time" in lines


def test_the_call_that_saves_is_timed() -> None:
    halts = checkpoints.measure(2, width=4)
    assert {name: len(taken) for name, taken in halts.items()} == dict.fromkeys(
        ("castoff", "torch.save", "DCP async_save", "copying"), 2
    )
    assert all(second > 0 for taken in halts.values() for second in taken)
    assert "castoff over torch.save" in "\n".join(checkpoints.table(halts))


def test_what_passes_between_two_saves_is_not_timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps that take unequal times once made a halt shorter than copying alone."""
    now = 0.0

    def pass_time(seconds: float) -> None:
        nonlocal now
        now += seconds

    class Instant(checkpoints.Saving):
        def save(self, *state: Any) -> None:
            pass_time(0.25)

    monkeypatch.setattr(checkpoints, "perf_counter", lambda: now)
    saving = Instant(tmp_path)
    saving.run(Work(4, 2 * checkpoints.EVERY, batch_size=1), lambda: pass_time(100.0))
    assert saving.halts.taken == [0.25, 0.25]
