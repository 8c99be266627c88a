"""Several hosts on one machine: network namespaces that vanish with whoever made them.

Each host has a network address, a name and a /dev/shm of its own; files, users and /run are shared, as
a cluster's are by its network file system. Nothing of it touches the machine: see hosts.sh.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from tests import patience

_SCRIPT = Path(__file__).with_name("hosts.sh")

_NAMESPACES = ["unshare", "--pid", "--fork", "--kill-child", "--mount", "--net"]


def why_no_hosts() -> str | None:
    """Why this user cannot make hosts on this machine; None: it works."""
    if os.geteuid() != 0:
        return "only root can make the hosts of a cluster"
    tried = subprocess.run([*_NAMESPACES, "true"], capture_output=True, text=True, check=False)
    if tried.returncode:
        return f"only root can make the hosts of a cluster, and not in this container: {tried.stderr.strip()}"
    return None


def memory_groups() -> Path | None:
    """Where control groups that limit memory can be made here: version 1's, by who may write there.

    Slurm 22.05 takes those of version 2 from systemd alone, which is not in every container.
    """
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        mount, _, kind = line.partition(" - ")
        if kind.startswith("cgroup ") and "memory" in kind.split()[-1].split(","):
            root = Path(mount.split()[4])
            own = next(
                line for line in Path("/proc/self/cgroup").read_text().splitlines() if ":memory:" in line
            )
            inside = root / own.split(":", 2)[2].lstrip("/")
            folder = inside if inside.is_dir() else root  # a container may see its own alone
            return folder if os.access(folder, os.W_OK) else None
    return None


class Doors(NamedTuple):
    """How a process outside gets to the hosts."""

    init: int
    """The first process of their namespaces, as it is seen from outside."""
    processes: dict[str, int]
    """The process that holds each host, as it is seen from inside."""

    def enter(self, host: str, folder: str | Path | None = None) -> list[str]:
        """The words in front of a command that have it run on a host, in `folder` or the working one."""
        outer = ["nsenter", f"--target={self.init}", "--pid", "--mount", "--"]
        inner = ["nsenter", f"--target={self.processes[host]}", "--net", "--uts", "--mount"]
        return [*outer, *inner, f"--wd={Path(folder or '.').resolve()}", "--"]


class Hosts:
    """Hosts by name, from their making to `close`."""

    def __init__(self, names: Sequence[str], places: Mapping[str, Path], held_by: int | None = None):
        """Make them; in each of the `places`, which exist already, a folder or file of ours stands there.

        They live as long as this process, or until a line is written to the other end of `held_by`,
        the descriptor of a FIFO.

        Raises:
            OSError: a program is missing.
            RuntimeError: this user, or this machine, cannot make them.
        """
        groups = memory_groups()
        group = "" if groups is None else str(groups / f"castoff-{uuid.uuid4().hex}")
        self.limits_memory = groups is not None
        self._held_by = held_by
        mounts = [word for place, folder in places.items() for word in (str(folder), place)]
        self._holder = subprocess.Popen(
            [*_NAMESPACES, "bash", str(_SCRIPT), group, *mounts, "--", *names],
            stdin=subprocess.PIPE if held_by is None else held_by,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # the terminal's Ctrl-C is for the tests, which then end it in order
        )
        assert self._holder.stdout is not None and self._holder.stderr is not None
        lines = [self._holder.stdout.readline() for _ in names]
        if not all(lines):
            raise RuntimeError(f"no hosts could be made: {self._holder.communicate()[1].strip()}")
        processes = dict(line.split() for line in lines)
        (init,) = psutil.Process(self._holder.pid).children()
        self.doors = Doors(init.pid, {name: int(process) for name, process in processes.items()})

    def enter(self, host: str, folder: str | Path | None = None) -> list[str]:
        """See `Doors.enter`."""
        return self.doors.enter(host, folder)

    def popen(
        self,
        host: str,
        command: Sequence[str | Path],
        *,
        cwd: str | Path | None = None,
        env: Mapping[str, str] | None = None,
        **options: Any,
    ) -> subprocess.Popen[str]:
        """Start a command on a host. A signal must go to `inside`: nsenter hands none on."""
        return subprocess.Popen(
            [*self.enter(host, cwd), *map(str, command)],
            env=None if env is None else dict(env),
            text=True,
            **{"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options},
        )

    def run(
        self,
        host: str,
        command: Sequence[str | Path],
        *,
        cwd: str | Path | None = None,
        env: Mapping[str, str] | None = None,
        input: str | None = None,
        timeout: float = patience.SECONDS,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on a host to its end; it is killed after `timeout` seconds."""
        stdin = subprocess.DEVNULL if input is None else subprocess.PIPE
        with self.popen(host, command, cwd=cwd, env=env, stdin=stdin) as process:
            try:
                output, errors = process.communicate(input, timeout=timeout)
            except BaseException:
                with contextlib.suppress(psutil.Error, ValueError):
                    self.inside(process).kill()
                process.kill()
                raise
        return subprocess.CompletedProcess(list(map(str, command)), process.returncode, output, errors)

    def inside(self, process: subprocess.Popen[str]) -> psutil.Process:
        """The process of a command that `popen` started, as it is seen from outside.

        Raises:
            ValueError: it has not begun yet, or is over.
        """
        (child,) = psutil.Process(process.pid).children()
        return child

    def remote_shell(self, path: Path) -> Path:
        """Write a program that does on the hosts what ssh would: HOST COMMAND, after flags."""
        cases = "".join(f"  {host}) process={process} ;;\n" for host, process in self.doors.processes.items())
        path.write_text(
            "#!/bin/bash\nwhile [[ $1 == -* ]]; do shift; done\ncase $1 in\n"
            f"{cases}  *) exit 255 ;;\nesac\nshift\n"
            'exec nsenter --target=$process --net --uts --mount --wd="$PWD" -- sh -c "$*"\n'
        )
        path.chmod(0o755)
        return path

    def down(self, host: str) -> None:
        """Take a host's network away, as a pulled cable does."""
        self._link(host, "down")

    def up(self, host: str) -> None:
        """Give it back."""
        self._link(host, "up")

    def _link(self, host: str, state: str) -> None:
        answer = self.run(host, ["ip", "link", "set", "eth0", state])
        assert answer.returncode == 0, answer.stderr

    def close(self) -> None:
        """End everything on the hosts, and the hosts with it."""
        # A line: no end of file comes while a program that this one has forked holds the pipe as well.
        other_end = self._held_by
        if other_end is None:
            assert self._holder.stdin is not None
            other_end = self._holder.stdin.fileno()
        with contextlib.suppress(BrokenPipeError):
            os.write(other_end, b"\n")
        with contextlib.suppress(BrokenPipeError), self._holder:  # which closes its pipes and waits
            pass
