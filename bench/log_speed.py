"""How fast `castoff logs` prints a log: `python -m bench.log_speed [ROUNDS]`.

In megabytes a second of CPU time, of the whole command but for what an empty log takes. The reference is
cat, of the same file into the same pipe.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from castoff.launcher.runs.index import Index
from castoff.launcher.runs.run import RunDirectory

from .many_runs import make_runs

CASTOFF = str(Path(sys.executable).with_name("castoff"))
ROUNDS = 5
SIZE = 64 * 1024 * 1024
RANKS = 12
TEXT = b"step 1234 loss 0.123456 lr 0.001 tokens/s 123456.7 memory 12.3 GB"
COLOURED = b"\x1b[32mstep 1234\x1b[0m loss 0.123456 lr 0.001 \x1b[1mtokens/s\x1b[0m 123456.7 memory"


class Case(NamedTuple):
    """A log to print."""

    name: str
    lines: list[bytes]
    """Repeated until there are enough."""
    merged: bool = True
    """Whether it is the script's log, in which castoff's launcher merges all ranks; else a rank's own."""
    array: bool = False
    """Whether it is of a member of an array, where each line gets another label."""
    bar: float = 15
    """Megabytes a second."""


CASES = [
    Case("ranks alternate, in an array", [b"[%d] %b" % (rank, TEXT) for rank in range(RANKS)], array=True),
    Case("ranks alternate", [b"[%d] %b" % (rank, TEXT) for rank in range(RANKS)]),
    Case("ranks alternate, in colours", [b"[%d] %b" % (rank, COLOURED) for rank in range(RANKS)]),
    Case("one rank's lines", [b"[0] " + TEXT]),
    Case("the script's lines", [TEXT]),
    Case("a log of each rank", [TEXT], merged=False),
]


def make(case: Case, folder: Path, size: int) -> tuple[RunDirectory, Path]:
    """A run that is over, and its log of so many bytes."""
    *_, run = make_runs(folder / "castoff-runs", Index.of({"HOME": str(folder)}), 100 if case.array else 1)
    script, rank = run.script_log(0), run.log_folder / "0.0" / "rank-00000.log"
    log = script if case.merged else rank
    if not case.merged:
        plan = json.loads((run.path / "plan.json").read_text())
        (run.path / "plan.json").write_text(json.dumps({**plan, "launcher": "pals"}))
        script.write_bytes(b"")
        (run.log_folder / "0.0" / "rank-00001.log").write_bytes(b"")
    block = b"".join(line + b"\n" for line in case.lines)
    log.write_bytes(block * (size // len(block)))
    return run, log


def cpu(argv: list[str], home: Path) -> float:
    """Seconds of CPU time that a program takes whose output is read and thrown away."""
    env = {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(home), "LANG": "C.UTF-8"}
    process = subprocess.Popen(argv, env=env, stdout=subprocess.PIPE)
    assert process.stdout is not None
    with process.stdout as stream:
        while stream.read(1024 * 1024):
            pass
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"{' '.join(argv)} exited with {process.returncode}")
    return usage.ru_utime + usage.ru_stime


def speeds(case: Case, rounds: int) -> Iterator[tuple[float, float]]:
    """Megabytes a second, ours and cat's, of each round."""
    with tempfile.TemporaryDirectory() as full, tempfile.TemporaryDirectory() as empty:
        run, log = make(case, Path(full), SIZE)
        nothing, _ = make(case, Path(empty), 0)
        for _ in range(rounds):
            ours = cpu([CASTOFF, "logs", str(run.path)], Path(full))
            ours -= cpu([CASTOFF, "logs", str(nothing.path)], Path(empty))
            reference = max(cpu(["cat", str(log)], Path(full)), 0.001)
            yield SIZE / 1e6 / ours, SIZE / 1e6 / reference


def main(rounds: int) -> None:
    """Measure, and print what came out."""
    print(f"\ncastoff logs, MB a second of CPU time; medians of {rounds} rounds, {SIZE // 2**20} MiB")
    for case in CASES:
        ours, reference = (statistics.median(side) for side in zip(*speeds(case, rounds), strict=True))
        verdict = "met" if ours >= case.bar else "NOT MET"
        print(f"{case.name:28} {ours:7.0f}, cat {reference:7.0f}; bar {case.bar:3.0f}: {verdict}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS)
