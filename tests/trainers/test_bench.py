"""What `make bench` measures with runs, and counts right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.bench import checkpoints, training
from tests.bench.relay import Runner, Turn
from tests.bench.training import Case, Lap
from tests.trainers.toys import run
from trainers.ddp import cleanup_ddp, initialize_ddp

ROUNDS = 2


def measured(case: Case, folder: Path) -> Any:
    """On one rank: the laps, and how many reductions an accumulating step has."""
    from launcher.ranks import RankEnv
    from tests.bench import ranks

    me = RankEnv.detect()
    initialize_ddp(me.rank, me.world_size, device="cpu")
    laps = ranks.take_turns(case, ROUNDS, folder)
    counted = ranks.reductions(3, folder / "counted")
    cleanup_ddp()
    return laps, counted


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


def test_a_table_judges_by_the_ratios_of_the_same_round() -> None:
    laps = {
        "by hand": [Lap(0.1, 0.2), Lap(0.2, 0.4), Lap(0.1, 0.2)],
        "the same again": [Lap(0.1, 0.2), Lap(0.2, 0.4), Lap(0.11, 0.2)],
        "castoff": [Lap(0.105, 0.3), Lap(0.21, 0.6), Lap(0.105, 0.3)],
        "Fabric": [Lap(0.12, 0.3), Lap(0.24, 0.6), Lap(0.12, 0.3)],
    }
    case = Case("Small", width=4, steps=10, bar=1.02, loops=tuple(laps), rivals=("Fabric",))
    lines = "\n".join(training.table(case, laps))
    assert "castoff                                 10.50  1.050 (1.05 to 1.05)" in lines
    assert "castoff over by hand, bar 1.02" in lines
    assert "1.050 met within the spread" in lines
    assert "1.500 NOT MET" in lines
    assert "0.875 met " in lines


def test_the_halt_for_a_checkpoint_is_timed() -> None:
    stalls = checkpoints.measure(2, width=4)
    assert {name: len(taken) for name, taken in stalls.items()} == dict.fromkeys(stalls, 2)
    assert "castoff over torch.save" in "\n".join(checkpoints.table(stalls))
