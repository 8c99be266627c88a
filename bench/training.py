"""What castoff's training costs beside a loop written by hand, Fabric, accelerate and Lightning.

Each round has a lap of every loop, in another order, in the same processes, so that a machine that
is busy slows all of them. The loop by hand is there twice: that tells how far such ratios spread by
themselves. It is the median that is held against a bar.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

CHECKOUT = Path(__file__).resolve().parents[1]
ANSWER = "laps.json"
ROUNDS = 21
STARTS = 3
"""Processes, one after another, among which rounds are divided: where a loop's memory lies is chance, too."""


class Case(NamedTuple):
    """Loops that train the same, and how much of the first one's time castoff's may take."""

    title: str
    width: int
    """Of the three layers."""
    steps: int
    """Optimizer steps of a lap."""
    bar: float | None
    """None: only the rivals' times are a bar."""
    loops: tuple[str, ...]
    """By their names in `loops.LOOPS`; castoff is the one that is judged."""
    rivals: tuple[str, ...] = ()
    """Loops behind which castoff may not be."""
    margin: float = 0.0
    """By more than this part of their time."""
    accumulation: int = 1
    ranks: int = 2


class Lap(NamedTuple):
    """Seconds that some steps took."""

    wall: float
    cpu: float
    """Of all ranks, with all of their threads."""


_ALL = ("by hand", "the same again", "castoff", "Fabric", "accelerate", "Lightning")
_RIVALS = ("Fabric", "accelerate")
ACCUMULATING = Case(
    "An optimizer step of 4 forward passes",
    width=1024,
    steps=10,
    bar=0.90,
    loops=("by hand", "the same again", "by hand, with no_sync", "castoff"),
    accumulation=4,
)
_ALONE = ("by hand", "the same again", "castoff", "Fabric")
CASES = [
    *(
        Case(title, width, steps, None, _ALONE, ("Fabric",), margin=0.02, ranks=1)
        for title, width, steps in (
            ("A short step", 256, 200),
            ("A longer step", 512, 100),
            ("A long step", 1024, 40),
        )
    ),
    Case("A short step", width=64, steps=100, bar=1.08, loops=_ALL, rivals=_RIVALS),
    Case("A longer step", width=1024, steps=50, bar=1.02, loops=_ALL, rivals=_RIVALS),
    ACCUMULATING,
]
_AS_GOOD_AS_EQUAL = 0.02
"""What the medians of two equal loops differ by where such ratios can be judged."""


class Ratio(NamedTuple):
    """Of what one loop took to what another took in the same round."""

    median: float
    low: float
    """A tenth of the rounds are below, a tenth above `high`."""
    high: float

    @classmethod
    def of(cls, ours: list[float], others: list[float]) -> Ratio:
        """From the times of the same rounds."""
        ratios = [a / b for a, b in zip(ours, others, strict=True)]
        return cls(statistics.median(ratios), *tenths(ratios))

    def __str__(self) -> str:
        return f"{self.median:5.3f} ({self.low:.2f} to {self.high:.2f})"


def tenths(values: list[float]) -> tuple[float, float]:
    """The value that a tenth of them are below, and the one that a tenth are above."""
    ordered = sorted(values)
    tenth = len(ordered) // 10
    return ordered[tenth], ordered[-1 - tenth]


def verdict(ratio: float, bar: float) -> str:
    """Whether a ratio is within its bar. How far ratios spread is shown beside it, and excuses nothing."""
    return "met" if ratio <= bar else "NOT MET"


def main(rounds: int) -> None:
    """Start the ranks, and print what they measured."""
    print(f"\nTraining on the CPU, {rounds} rounds; ratios: median (10th to 90th percentile)")
    print(f"{time.strftime('%Y-%m-%d')}, {machine()}; {versions()}")
    for ranks in sorted({case.ranks for case in CASES}):
        answers = [_answer(ranks, -(-rounds // STARTS)) for _ in range(STARTS)]
        for case, *parts in zip(cases_of(ranks), *(answer["laps"] for answer in answers), strict=True):
            laps = {name: [Lap(*lap) for part in parts for lap in part[name]] for name in case.loops}
            print("\n".join(table(case, laps)))
        if ranks == ACCUMULATING.ranks:
            counted = answers[0]["reductions"]
            print(
                f"reductions of castoff's in an optimizer step of {ACCUMULATING.accumulation} passes: "
                f"{counted:g}, bar 1: {verdict(counted, 1)}"
            )


def cases_of(ranks: int) -> list[Case]:
    """Those with so many ranks."""
    return [case for case in CASES if case.ranks == ranks]


def _answer(ranks: int, rounds: int) -> dict[str, Any]:
    """What so many ranks have measured."""
    castoff = str(Path(sys.executable).with_name("castoff"))
    with tempfile.TemporaryDirectory() as folder:
        argv = [castoff, "launch", "-n", str(ranks), "--", sys.executable, "-m", "bench.ranks"]
        watched = {"CASTOFF_STOP_FILE": f"{folder}/stop", "CASTOFF_DEADLINE": str(time.time() + 1e6)}
        # The loops run in threads. glibc's malloc has an arena for each, smaller than the main thread's,
        # in which a training allocates: they made two equal loops differ by a tenth. And what malloc gives
        # back to the system, which depends on where a loop's gradients lie, made them differ by a fifth.
        kept = {"MALLOC_ARENA_MAX": "1", "MALLOC_TRIM_THRESHOLD_": str(1 << 40)}
        kept |= {"MALLOC_MMAP_THRESHOLD_": str(32 << 20), "MALLOC_TOP_PAD_": str(64 << 20)}
        done = subprocess.run(
            [*argv, folder, str(rounds)],
            cwd=CHECKOUT,
            env={**os.environ, "OMP_NUM_THREADS": "1", **kept, **watched},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise SystemExit(f"the ranks ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        answer: dict[str, Any] = json.loads((Path(folder) / ANSWER).read_text())
    return answer


def table(case: Case, laps: dict[str, list[Lap]]) -> list[str]:
    """The lines that tell what came out."""
    first = case.loops[0]

    def over(name: str, other: str) -> tuple[Ratio, Ratio]:
        wall, cpu = (
            Ratio.of([lap[which] for lap in laps[name]], [lap[which] for lap in laps[other]])
            for which in (0, 1)
        )
        return wall, cpu

    ranks = "one rank" if case.ranks == 1 else f"{case.ranks} gloo ranks"
    columns = f"{'':38} {'ms':>6}  {'wall':28}  CPU"
    lines = [f"\n{case.title}, layers of {case.width}, {ranks}", columns]
    for name in case.loops:
        taken = statistics.median(lap.wall for lap in laps[name]) / case.steps * 1e3
        ratios = "".join(f"  {ratio!s:28}" for ratio in over(name, first)) if name != first else ""
        lines.append(f"{name:38} {taken:6.2f}{ratios}".rstrip())
    bars = dict.fromkeys(case.rivals, 1.0 + case.margin)
    if case.bar is not None:
        bars = {first: case.bar, **bars}
    for other, bar in bars.items():
        judged = (f"{ratio} {verdict(ratio.median, bar)}" for ratio in over("castoff", other))
        words = "".join(f"  {each:28}" for each in judged)
        lines.append(f"{f'castoff over {other}, bar {bar:.2f}':45}{words}".rstrip())
    for of_what, ratio in zip(("wall", "CPU"), over("the same again", first), strict=True):
        if abs(ratio.median - 1) > _AS_GOOD_AS_EQUAL:
            lines.append(
                f"Two equal loops differ by {abs(ratio.median - 1):.3f} of their {of_what} time: the machine "
                "is too busy to judge by that. Measure again, with more rounds."
            )
    return lines


def machine() -> str:
    """How many CPUs of which kind, and how busy."""
    model = "CPUs"
    if Path("/proc/cpuinfo").exists():
        named = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line]
        model = named[0].partition(":")[2].strip() if named else model
    return f"{os.cpu_count()} x {model}, load {os.getloadavg()[0]:.1f}"


def versions() -> str:
    """Of what is compared."""
    found = [f"Python {sys.version.split()[0]}"]
    for package in ("torch", "pytorch-lightning", "accelerate"):
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            found.append(f"{package} is missing")
    return ", ".join(found)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS)
