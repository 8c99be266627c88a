"""A PBS on hosts of its own: OpenPBS where `qsub --version` finds one on PATH, else its double.

Tests use it as the fixture `pbs`, people as `python -m tests.pbs`. It lives in namespaces that end with the
process that started it (tests/cluster/hosts.py). Its jobs find its commands, and a mpiexec of MPICH starts
its ranks on their hosts, as on a cluster whose administrator has seen to it.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests import threads
from tests.cluster import HEAD, NODES
from tests.cluster.base import Cluster, no_start_up_files
from tests.cluster.hosts import Hosts
from tests.pbs import openpbs
from tests.pbs.settings import NODE_FAIL_REQUEUE

__all__ = ["HEAD", "NODES", "NODE_FAIL_REQUEUE", "PACKAGES", "PbsCluster"]

PACKAGES = {"mpiexec.hydra": "mpich", "ip": "iproute2"}
"""The programs that it needs, and the Debian package of each."""

_COMMANDS = [
    "qsub",
    "qstat",
    "qdel",
    "qsig",
    "qselect",
    "qhold",
    "qrls",
    "qrerun",
    "qmgr",
    "pbsnodes",
    "pbs_tmrsh",
    "pbs_attach",
]
_CHECKOUT = Path(__file__).parents[2]

_OF_THE_DOUBLE = f"""\
#!{sys.executable} -IS
import sys
sys.path.insert(0, {str(_CHECKOUT)!r})
from tests.pbs.double.commands import main
sys.exit(main({{name!r}}, sys.argv[1:]))
"""
# qsub leaves a process behind that submits for later ones; its socket lies in PBS_TMPDIR, by default where
# other clusters' lie, too, and theirs take one's jobs.
_OF_OPENPBS = f"""\
#!/bin/sh
export PBS_CONF_FILE={openpbs.CONFIGURATION} PBS_TMPDIR="{openpbs.HOMES}/$(hostname)/spool"
exec {{program}} "$@"
"""

# What Hydra calls like ssh: flags, a host, words for a shell there.
_LAUNCHER = """\
#!/bin/bash
while [[ $1 == -* ]]; do shift; done
host=$1
shift
exec {folder}/pbs_tmrsh "$host" /bin/bash -c "$*"
"""


class PbsCluster(Cluster):
    """PBS on hosts of its own, from its making to `close`."""

    title = "PBS"
    site = "pbs"
    sends = ("qsub",)
    outputs = "*.o[0-9]*"

    def __init__(self, folder: Path, held_by: int | None = None):
        """Start it, and wait until all nodes take jobs; `folder` gets its programs and logs.

        It lives as `Hosts` says of `held_by`.

        Raises:
            OSError, RuntimeError: it cannot be started here.
        """
        self._exec = openpbs.installation()
        self._programs, self.logs, profile = folder / "bin", folder / "logs", folder / "profile.d"
        for made in (self._programs, self.logs, profile):
            made.mkdir()
            made.chmod(0o755)
        self._write_programs(profile)
        places = {"/etc/profile.d": profile, **no_start_up_files(folder)}
        self.hosts = Hosts([HEAD, *NODES], places, held_by)
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    @property
    def is_real(self) -> bool:
        """Whether it is OpenPBS."""
        return self._exec is not None

    @property
    def hydra(self) -> dict[str, str]:
        """What a mpiexec of MPICH needs in its environment to reach a job's hosts; every job has it."""
        return {"HYDRA_LAUNCHER": "ssh", "HYDRA_LAUNCHER_EXEC": str(self._programs / "launcher")}

    def _write_programs(self, profile: Path) -> None:
        for name in _COMMANDS:
            program = "" if self._exec is None else shlex.quote(str(self._exec / "bin" / name))
            text = _OF_OPENPBS.format(program=program) if program else _OF_THE_DOUBLE.format(name=name)
            self._write_program(name, text)
        hydra = shutil.which("mpiexec.hydra")
        assert hydra is not None  # PACKAGES
        # The machine's own mpiexec may be another; and Hydra looks for its proxy beside itself.
        self._write_program("mpiexec", f'#!/bin/sh\nexec {shlex.quote(hydra)} "$@"\n')
        self._write_program("launcher", _LAUNCHER.format(folder=shlex.quote(str(self._programs))))
        (profile / "threads.sh").write_text(threads.for_login_shells())
        exports = {"PATH": f"{shlex.quote(str(self._programs))}:$PATH", **self.hydra}
        (profile / "pbs.sh").write_text(
            "".join(f"export {name}={value}\n" for name, value in exports.items())
        )

    def _write_program(self, name: str, text: str) -> None:
        (self._programs / name).write_text(text)
        (self._programs / name).chmod(0o755)

    def _start(self) -> None:
        if self._exec is None:
            self._start_module(HEAD, "server")
        else:
            for host in (HEAD, *NODES):
                self._must(host, openpbs.make_home(self._exec, self.logs))
            self._must(HEAD, openpbs.start_server())
        for node in NODES:
            self._start_mom(node)
        if self._exec is not None:
            answer = self.run(HEAD, ["qmgr"], input=openpbs.QMGR)
            if answer.returncode:
                raise RuntimeError(f"qmgr: {answer.stderr}; logs are in {self.logs}")
        self.wait_for_nodes()

    def _start_module(self, host: str, name: str, *words: str) -> None:
        log = shlex.quote(str(self.logs / f"{host}-{name}.log"))
        command = shlex.join(
            [sys.executable, "-ISc", _RUN, str(_CHECKOUT), f"tests.pbs.double.{name}", *words]
        )
        self._must(host, ["bash", "-c", f"exec {command} </dev/null >>{log} 2>&1"])

    def _start_mom(self, node: str) -> None:
        if self._exec is None:
            self._start_module(node, "mom", node)
        else:
            self._must(node, openpbs.start_mom(self._exec))

    def environment(self, given: Mapping[str, str] | None = None) -> dict[str, str]:
        """A user's environment on a host: the given one, or this process's, with PBS's programs on PATH."""
        environ = super().environment(given)
        path = environ.get("PATH", os.defpath).split(os.pathsep)
        if str(self._programs) not in path:
            path.insert(0, str(self._programs))
        return {**environ, "PATH": os.pathsep.join(path)}

    @contextlib.contextmanager
    def without_history(self) -> Iterator[None]:
        """A server that forgets its jobs as they end; it forgets those that have, too."""
        self._set("job_history_enable", "false")
        try:
            yield
        finally:
            self._set("job_history_enable", "true")

    def _set(self, name: str, value: str) -> None:
        answer = self.run(HEAD, ["qmgr", "-c", f"set server {name} = {value}"])
        assert answer.returncode == 0, answer.stderr

    @contextlib.contextmanager
    def stopped_server(self) -> Iterator[None]:
        """A server that accepts connections and answers none while this lasts."""
        self._signal(HEAD, "STOP", "server_priv/server.lock")
        try:
            yield
        finally:
            self._signal(HEAD, "CONT", "server_priv/server.lock")

    @contextlib.contextmanager
    def without_server(self) -> Iterator[None]:
        """No server while this lasts: connections are refused. Jobs go on."""
        self._signal(HEAD, "USR1" if self._exec is None else "TERM", "server_priv/server.lock")
        self._until(lambda: not self._answers())
        try:
            yield
        finally:
            if self._exec is None:
                self._signal(HEAD, "USR2", "server_priv/server.lock")
            else:
                self._must(HEAD, openpbs.restart_server())
            self._until(self._answers)
            self.wait_for_nodes()

    def _answers(self) -> bool:
        return self.run(HEAD, ["qstat"]).returncode == 0

    def kill_mom(self, node: str) -> None:
        """Kill a node's mom as a crash would; what it started lives on."""
        self._signal(node, "KILL", "mom_priv/mom.lock")

    def resume(self) -> None:
        """Bring back every node that is gone, and wait until all take jobs."""
        for node in NODES:
            self.hosts.up(node)
            if not self._does(
                node, ["bash", "-c", f'kill -0 "$(cat {openpbs.HOMES}/{node}/mom_priv/mom.lock)"']
            ):
                self._start_mom(node)
        self.wait_for_nodes()
        if self.is_real:  # its scheduler would look at them again in ten minutes
            self._set("scheduling", "true")

    def wait_for_nodes(self) -> None:
        """Wait until every node can take jobs, whether or not it has some."""
        self._until(lambda: all(self.state(node) in ("free", "job-busy", "job-exclusive") for node in NODES))

    def state(self, node: str) -> str:
        """A node's state in pbsnodes's words."""
        shown = self.run(HEAD, ["pbsnodes", "-a"]).stdout
        about = shown.partition(f"{node}\n")[2].partition("\n\n")[0]
        states = [
            line.partition("=")[2].strip()
            for line in about.splitlines()
            if line.strip().startswith("state =")
        ]
        return states[0] if states else ""

    def _signal(self, host: str, name: str, lock: str) -> None:
        self._must(host, ["bash", "-c", f'kill -{name} "$(cat {openpbs.HOMES}/{host}/{lock})"'])


_RUN = """\
import runpy, sys
sys.path.insert(0, sys.argv.pop(1))
runpy.run_module(sys.argv.pop(1), run_name="__main__")
"""
