"""Kill a process at its n-th effect: before it opens a file to write, renames, starts a process …

Python announces each of these to an audit hook before it happens, so that "after one" is "before the
next"; where time passes in between, as after a fork, there is a point of its own. As a program,
`kill_at.py NUMBER JOURNAL WHO RUN_DIR` is the local scheduler under such a hook; WHO is `first` for
the process that answers `castoff submit`, `detached` for the one that goes on.
"""

from __future__ import annotations

import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_EFFECTS = {
    *("os.mkdir", "os.rename", "os.link", "os.symlink", "os.remove", "os.rmdir", "os.truncate"),
    *("os.chmod", "os.utime", "os.posix_spawn", "subprocess.Popen", "shutil.rmtree"),
    *("fcntl.flock", "os.kill"),
}


class Killer:
    """Counts this process's effects in a journal, and kills it at one of them (0: at none)."""

    def __init__(self, number: int, journal: str, counts: Callable[[], bool] = lambda: True):
        self._left = number
        self._counts = counts
        self._journal = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._busy = False

    def install(self) -> None:
        """Begin; there is no end."""
        for module, name in ((os, "fsync"), (os, "fork"), (subprocess, "_fork_exec")):
            setattr(module, name, self._around(getattr(module, name), name))
        sys.addaudithook(self._hear)

    def close(self) -> None:
        """Let go of the journal."""
        os.close(self._journal)

    def _around(self, function: Callable[..., Any], name: str) -> Callable[..., Any]:
        def wrapped(*words: Any) -> Any:
            self._point(f"before {name}")
            result = function(*words)
            self._point(f"after {name}")
            return result

        return wrapped

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = arguments
            if not isinstance(flags, int) or not flags & _WRITING or "__pycache__" in str(path):
                return
        elif event not in _EFFECTS:
            return
        self._point(f"{event} {arguments[0] if arguments else ''}")

    def _point(self, what: str) -> None:
        if self._busy or not self._counts():
            return
        self._busy = True
        os.write(self._journal, f"{what}\n".encode())
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        self._busy = False


def main() -> None:
    """Be the local scheduler, under a hook."""
    number, journal, who, run_dir = sys.argv[1:]
    me = os.getpid()
    Killer(int(number), journal, lambda: (os.getpid() == me) == (who == "first")).install()
    sys.argv = ["scheduler", run_dir]
    runpy.run_module("castoff.launcher.cli.local_scheduler", run_name="__main__")


if __name__ == "__main__":
    main()
