"""CPU time that a local array takes for each of its members: `python -m bench.local_array [ROUNDS]`.

All that castoff starts is counted: the scheduler, each member's script, its launcher and its rank, which is
`true`. What the submission takes falls out, as the difference of two arrays.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from castoff.launcher.launchers.local.processes import become_subreaper

CASTOFF = str(Path(sys.executable).with_name("castoff"))
ROUNDS = 5
FEW, MANY = 2, 22
BAR = 0.1
"""Seconds a member."""


def cpu(members: int) -> float:
    """Seconds of CPU time from the submission to the end of an array, whoever took them."""
    with tempfile.TemporaryDirectory() as home:
        env = {"PATH": os.environ.get("PATH", os.defpath), "HOME": home, "LANG": "C.UTF-8"}
        array = ["--set", f"array.count={members}", "--set", "array.max_concurrent=2"]
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
            "true",
        ]
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
        return took


def main(rounds: int) -> None:
    """Measure, and print what came out."""
    become_subreaper()
    each = statistics.median((cpu(MANY) - cpu(FEW)) / (MANY - FEW) for _ in range(rounds))
    print(f"\nA local array; median of {rounds} rounds, in ms of CPU time")
    verdict = "met" if each <= BAR else "NOT MET"
    print(f"{'each member':28} {each * 1e3:7.1f}, bar {BAR * 1e3:.0f}: {verdict}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS)
