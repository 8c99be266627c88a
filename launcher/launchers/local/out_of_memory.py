"""Detects that the kernel killed a rank because memory ran out."""

from __future__ import annotations

import contextlib
from pathlib import Path


def oom_kills(root: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> int:
    """Count the processes in this process's control group that the kernel has killed because memory ran out.

    The kernel's count is in memory.events (version 2 of cgroups(7)) or memory.oom_control (version 1); 0 if
    there is neither.
    """
    with contextlib.suppress(OSError, ValueError):
        for line in own.read_text().splitlines():
            _, kind, name = line.split(":", 2)
            counts = {"": f".{name}/memory.events", "memory": f"memory{name}/memory.oom_control"}.get(kind)
            if counts is not None and (root / counts).exists():
                events = dict(pair.split() for pair in (root / counts).read_text().splitlines())
                return int(events.get("oom_kill", 0))
    return 0
