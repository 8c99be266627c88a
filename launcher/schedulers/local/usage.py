"""Measures the memory and CPU time that a script and its descendants use, by samples and at the end."""

from __future__ import annotations

import os
import resource
import subprocess

import psutil

from castoff.launcher import clock
from castoff.launcher.launchers.local.processes import descendants, process_of
from castoff.launcher.runs.records import Usage

_FIRST = 1.0
_PAUSE = 5.0
"""Seconds before the first sample and between samples; each sample reads the whole process table."""


class UsageMeter:
    """Measures a process, its descendants, and ended processes that they have waited for."""

    def __init__(self, process: subprocess.Popen[bytes], cpus: int):
        """`cpus`: the number of CPUs that the process may use."""
        self._process = process
        self._cpus = cpus
        self._began = clock.now()
        self._due = self._began + _FIRST
        self._memory = 0
        self._spent: resource.struct_rusage | None = None
        self._elapsed = 0.0

    def poll(self) -> int | None:
        """Return the process's exit code, as Popen.poll does; None while it runs."""
        if self._process.returncode is None:
            try:
                pid, status, spent = os.wait4(self._process.pid, os.WNOHANG)
            except ChildProcessError:
                return self._process.poll()
            if pid:
                self._process.returncode = os.waitstatus_to_exitcode(status)
                self._spent, self._elapsed = spent, clock.now() - self._began
        return self._process.returncode

    def look(self) -> None:
        """Sample the memory of all these processes, if a sample is due."""
        now = clock.now()
        if now < self._due:
            return
        self._due = now + _PAUSE
        top = process_of(self._process.pid)
        if top is None:
            return
        total = 0
        for process in (top, *descendants(top)):
            try:
                total += process.memory_info().rss
            except psutil.Error:  # the process has just ended
                continue
        self._memory = max(total, self._memory)

    def usage(self) -> Usage | None:
        """Return what the process used, once it has ended; None if other code has waited for it."""
        if self._spent is None:
            return None
        return Usage(
            source="castoff",
            elapsed=round(self._elapsed, 3),
            cpu_seconds=round(self._spent.ru_utime + self._spent.ru_stime, 3),
            cpus=self._cpus,
            # Between two samples, only the peak of the largest process is known.
            memory=max(self._memory, self._spent.ru_maxrss * 1024),
        )
