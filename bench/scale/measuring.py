"""What a command takes: seconds, bytes that it reads, and its questions to the file system."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

CASTOFF = str(Path(sys.executable).with_name("castoff"))
SOURCE = Path(__file__).with_name("slow_files.c")


class Cost(NamedTuple):
    """What a command took, with all that it waited for."""

    wall: float
    cpu: float
    read: int
    """Bytes that the command itself read, of its own code, too."""


class Questions(NamedTuple):
    """What a command asked of the file system of the runs."""

    opened: int
    looked_at: int
    listed: int
    changed: int


def cost(words: list[str], env: dict[str, str], allowed: tuple[int, ...] = (0,)) -> Cost:
    """What castoff takes for these words; it may exit with one of the `allowed` codes."""
    begin = time.perf_counter()
    program = words if words[0].startswith("/") else [CASTOFF, *words]
    process = subprocess.Popen(
        program, env=env, cwd=env["HOME"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    with process.stderr as stream:
        errors = stream.read()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # its counters are there until it is waited for
    wall = time.perf_counter() - begin
    read = int(Path(f"/proc/{process.pid}/io").read_text().split()[1])
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in allowed:
        raise SystemExit(f"{' '.join(words)} exited with {process.returncode}: {errors[-1000:]}")
    return Cost(wall, usage.ru_utime + usage.ru_stime, read)


def library(folder: Path) -> Path:
    """Compile the library that counts and delays."""
    built = folder / "slow_files.so"
    flags = ["-shared", "-fPIC", "-O2", "-Wno-nonnull-compare"]
    subprocess.run(["gcc", *flags, "-o", str(built), str(SOURCE), "-ldl"], check=True)
    return built


def asked(
    words: list[str], env: dict[str, str], built: Path, *, milliseconds: int, allowed: tuple[int, ...] = (0,)
) -> tuple[Questions, Cost]:
    """What a command asks below `castoff-runs`, where each question takes so many milliseconds."""
    counts = Path(env["HOME"]) / "counts"
    counts.unlink(missing_ok=True)
    slow = {
        "SLOW_ROOT": f"{env['HOME']}/castoff-runs",
        "SLOW_COUNTS": str(counts),
        "SLOW_MS": str(milliseconds),
    }
    took = cost(words, {**env, **slow, "LD_PRELOAD": str(built)}, allowed)
    lines = [map(int, line.split()) for line in counts.read_text().splitlines()]
    return Questions(*(sum(column) for column in zip(*lines, strict=True))), took
