"""How long commands, submissions and training take: `make bench`, or `python -m bench [ROUNDS]`.

Each case runs in turn with a reference on the same interpreter, so that a machine that is busy slows
both. A measurement, not a test: it exits with 0 whether the bars are met or not.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from castoff.launcher.runs.index import Index

from . import functions
from .many_runs import make_runs

CHECKOUT = Path(__file__).resolve().parents[1]
CASTOFF = str(Path(sys.executable).with_name("castoff"))
BARE = [sys.executable, "-c", "pass"]
ROUNDS = 21
RUNS = 10_000
"""How many runs the user has."""


class Case(NamedTuple):
    """Something to time, what to time beside it, and how long it may take."""

    name: str
    ours: list[str]
    reference: list[list[str]]
    """Programs that are started together."""
    bar: float
    """Seconds."""
    over_reference: bool
    """Whether the bar is on what ours takes beyond the reference."""


CASES = [
    Case("castoff --help", [CASTOFF, "--help"], [BARE], 0.100, False),
    Case(
        "castoff render (aurora)",
        [CASTOFF, "render", str(CHECKOUT / "examples" / "digits.yaml"), "--site", "aurora"],
        [BARE],
        0.150,
        False,
    ),
    Case(
        "TAB after castoff submit --s",
        [
            *("env", "_CASTOFF_COMPLETE=bash_complete", "COMP_WORDS=castoff\nsubmit\n--s", "COMP_CWORD=2"),
            CASTOFF,
        ],
        [BARE],
        0.200,
        False,
    ),
    Case(
        "castoff launch -n 2 -- true",
        [CASTOFF, "launch", "-n", "2", "--", "true"],
        [["true"], ["true"]],
        0.150,
        True,
    ),
    Case(f"castoff list ({RUNS:,} runs)", [CASTOFF, "list"], [BARE], 1.0, False),
    Case(
        "import castoff.launcher.ranks",
        [sys.executable, "-c", "import castoff.launcher.ranks"],
        [BARE],
        0.015,
        True,
    ),
]


class Time(NamedTuple):
    """What a few programs took, in seconds."""

    wall: float
    """From the start of the first to the end of the last."""
    cpu: float
    """Of all of them and of what they waited for: what a busy machine changes less."""


def timed(programs: list[list[str]], folder: str) -> Time:
    """Start the programs together and wait for all."""
    env = {"PATH": os.environ.get("PATH", os.defpath), "HOME": folder, "LANG": "C.UTF-8"}
    quiet = subprocess.DEVNULL
    begin = time.perf_counter()
    started = [
        subprocess.Popen(argv, cwd=folder, env=env, stdin=quiet, stdout=quiet, stderr=subprocess.PIPE)
        for argv in programs
    ]
    cpu = 0.0
    for argv, process in zip(programs, started, strict=True):
        assert process.stderr is not None
        with process.stderr as stream:
            errors = stream.read().decode()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            raise SystemExit(f"{' '.join(argv)} exited with {process.returncode}: {errors}")
        cpu += usage.ru_utime + usage.ru_stime
    return Time(time.perf_counter() - begin, cpu)


def main(rounds: int) -> None:
    """Run all cases in turn, `rounds` times, and print what came out."""
    ours: dict[str, list[Time]] = {case.name: [] for case in CASES}
    reference: dict[str, list[Time]] = {case.name: [] for case in CASES}
    with tempfile.TemporaryDirectory() as folder:
        print(f"Making {RUNS:,} run directories ...", flush=True)
        make_runs(Path(folder) / "castoff-runs", Index.of({"HOME": folder}), RUNS)
        for number in range(rounds + 1):
            for case in CASES:
                pair = timed(case.reference, folder), timed([case.ours], folder)
                if number > 0:  # the first round fills caches
                    reference[case.name].append(pair[0])
                    ours[case.name].append(pair[1])
    print(f"Medians of {rounds} rounds in ms; Python {sys.version.split()[0]}, {os.cpu_count()} CPUs")
    print(f"{'':28} {'ours':>7} {'ref.':>7} {'ratio':>6} {'CPU':>7} {'CPU ref.':>8} {'judged':>8} {'bar':>5}")
    for case in CASES:
        pairs = list(zip(ours[case.name], reference[case.name], strict=True))
        mine, other = (statistics.median(pair[side].wall for pair in pairs) for side in (0, 1))
        busy, idle = (statistics.median(pair[side].cpu for pair in pairs) for side in (0, 1))
        judged = statistics.median(a.wall - b.wall for a, b in pairs) if case.over_reference else mine
        print(
            f"{case.name:28} {mine * 1e3:7.1f} {other * 1e3:7.1f} {mine / other:6.2f}"
            f" {busy * 1e3:7.1f} {idle * 1e3:8.1f}"
            f" {judged * 1e3:8.1f} {case.bar * 1e3:5.0f}  {'met' if judged <= case.bar else 'NOT MET'}"
        )
    print("ours, ref., ratio: wall time. judged: what the bar is on, ours or ours beyond the reference.")


if __name__ == "__main__":
    asked = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    main(asked)
    functions.main(asked)
    # Each alone: python -m bench.training
    for module in ("command_line", "log_speed", "local_array", "training", "checkpoints", "scaling"):
        subprocess.run([sys.executable, "-m", f"bench.{module}", str(asked)], cwd=CHECKOUT, check=True)
