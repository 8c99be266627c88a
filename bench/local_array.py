"""What a local array takes for each of its members, of one second: `python -m bench.local_array [ROUNDS]`.

All that castoff starts is counted: the scheduler, each member's script, its launcher and its rank, which is
`sleep 1`. What the submission takes falls out, as the difference of two arrays.
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

from castoff.launcher.launchers.local.processes import become_subreaper

CASTOFF = str(Path(sys.executable).with_name("castoff"))
ROUNDS = 5
FEW, MANY = 2, 22
SIDE_BY_SIDE = 2
BAR = 0.1
"""Seconds a member, of wall time beyond its own and of CPU time."""


class Cost(NamedTuple):
    """Seconds from the submission to the end of an array, of wall time beyond its members' own, and of CPU
    time, whoever took it.
    """

    wall: float
    cpu: float


def cost(members: int) -> Cost:
    """Run an array, and measure what it takes."""
    with tempfile.TemporaryDirectory() as home:
        env = {"PATH": os.environ.get("PATH", os.defpath), "HOME": home, "LANG": "C.UTF-8"}
        array = ["--set", f"array.count={members}", "--set", f"array.max_concurrent={SIDE_BY_SIDE}"]
        words = [
            CASTOFF,
            "submit",
            "--site",
            "local",
            "--ranks",
            "1",
            *array,
            "--name",
            "bench",
            "--",
            "sleep",
            "1",
        ]
        began = time.monotonic()
        subprocess.Popen(words, cwd=home, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        took = 0.0
        while True:  # the scheduler, too, whose parent has ended
            try:
                _, status, usage = os.wait3(0)
            except ChildProcessError:
                break
            if status:
                raise SystemExit(f"{' '.join(words)} ended with {status}")
            took += usage.ru_utime + usage.ru_stime
        endings = [*Path(home).glob("castoff-runs/*/attempts/*/ending.json")]
        if len(endings) != members:
            raise SystemExit(f"of {members} members {len(endings)} have ended")
        return Cost(time.monotonic() - began - members / SIDE_BY_SIDE, took)


def main(rounds: int) -> None:
    """Measure, and print what came out."""
    become_subreaper()
    found = [
        [(many - few) / (MANY - FEW) for many, few in zip(cost(MANY), cost(FEW), strict=True)]
        for _ in range(rounds)
    ]
    print(f"\nA local array, {SIDE_BY_SIDE} at a time; medians of {rounds} rounds, in ms for each member")
    for name, each in zip(("wall time beyond its second", "CPU time"), zip(*found, strict=True), strict=True):
        middle = statistics.median(each)
        verdict = "met" if middle <= BAR else "NOT MET"
        spread = f"({min(each) * 1e3:.1f} to {max(each) * 1e3:.1f})"
        print(f"{name:28} {middle * 1e3:7.1f} {spread}, bar {BAR * 1e3:.0f}: {verdict}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS)
