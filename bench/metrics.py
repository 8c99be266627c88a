"""What millions of lines of metrics cost to read: `python -m bench.metrics [ROUNDS [LINES]]`.

castoff's reading, which keeps a summary, in turn with the plain one: json.loads for each line, and a list for
each metric. Each in a process of its own, whose peak memory counts.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from castoff.launcher.history.reading import STRETCHES, MetricsReader

ROUNDS, LINES = 3, 5_000_000
BAR = 6.0
"""Seconds."""
MOST = 150
"""Megabytes."""


class Cost(NamedTuple):
    """What a process took."""

    wall: float
    cpu: float
    """Seconds."""
    memory: float
    """Its peak, in megabytes."""


def write(path: Path, lines: int) -> None:
    """Write as many lines as a program that reports every step, with a validation now and then."""
    rng = random.Random(0)
    with path.open("w") as file:
        for step in range(lines):
            values = {
                "train/loss": round(1 / (1 + step / 1000) + rng.random() / 10, 6),
                "train/lr": float(f"{rng.random() / 1000:.6g}"),
                "train/grad_norm": round(rng.random(), 6),
                "train/samples_per_second": round(1000 + 10 * rng.random(), 1),
            }
            line = {"step": step, "time": round(1764230400 + step / 20, 3), **values}
            file.write(f"{json.dumps(line)}\n")
            if step % 10_000 == 9_999:
                file.write(f"{json.dumps({'step': step, 'val/loss': rng.random()})}\n")


def ours(path: Path) -> float | None:
    """The smallest loss by castoff's reading."""
    whole = MetricsReader(STRETCHES).look([path]).whole("train/loss")
    best = whole and whole.best(largest=False)
    return best and best[1]


def plain(path: Path) -> float | None:
    """The same by the plain one."""
    columns: dict[str, list[float]] = {}
    with path.open() as file:
        for text in file:
            for name, value in json.loads(text).items():
                columns.setdefault(name, []).append(value)
    return min(columns["train/loss"])


def cost(way: str, path: Path) -> tuple[Cost, str]:
    """Read a file in a new process; what that took, and the result."""
    begin = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.metrics", way, path], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    with process.stdout as stream:
        result = stream.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"{way} exited with {process.returncode}")
    took = time.perf_counter() - begin
    return Cost(took, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1000), result


def main(rounds: int, lines: int) -> None:
    """Measure, in turn, and print what came out."""
    pairs: list[tuple[Cost, Cost]] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "metrics.jsonl")
        write(path, lines)
        size = path.stat().st_size
        for _ in range(rounds):
            (mine, found), (other, expected) = cost("ours", path), cost("plain", path)
            if found != expected:
                raise SystemExit(f"castoff found {found.strip()} instead of {expected.strip()}")
            pairs.append((mine, other))
    print(f"{lines:,} lines, {size / 1e6:,.0f} MB; medians of {rounds} rounds")
    for field, unit in (("wall", "s"), ("cpu", "s"), ("memory", "MB")):
        here, there = ([getattr(one, field) for one in side] for side in zip(*pairs, strict=True))
        ratio = statistics.median(a / b for a, b in zip(here, there, strict=True))
        print(
            f"{field:6} {statistics.median(here):8.1f} {unit:2}, by json.loads"
            f" {statistics.median(there):8.1f}, ratio {ratio:.2f}"
        )
    took, memory = (
        statistics.median(getattr(mine, field) for mine, _ in pairs) for field in ("cpu", "memory")
    )
    met = "met" if took <= BAR * lines / LINES and memory <= MOST else "NOT MET"
    print(f"bars: {BAR:g} s of CPU time for {LINES:,} lines, {MOST} MB: {met}")


if __name__ == "__main__":
    ways = {"ours": ours, "plain": plain}
    if sys.argv[1:2] and sys.argv[1] in ways:
        print(ways[sys.argv[1]](Path(sys.argv[2])))
    else:
        asked = [*map(int, sys.argv[1:])]
        main(*(asked + [ROUNDS, LINES][len(asked) :]))
