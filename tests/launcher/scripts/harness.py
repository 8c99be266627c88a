"""Rendered scripts, run for real: under real mpiexecs, and under stubs where there is no cluster."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import psutil

from castoff import JobSpec, Plan, Site, plan, render
from tests import patience

HERE = Path(__file__).parent
CHECKOUT = HERE.parents[2]
PROBE = [sys.executable, str(HERE / "probe.py")]
CASTOFF = str(Path(sys.executable).with_name("castoff"))

STALE = {
    **{"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "NODE_RANK": "7"},
    **{"MASTER_ADDR": "nowhere", "MASTER_PORT": "1", "CASTOFF_LAUNCHER": "srun", "CASTOFF_DEVICE": "9"},
    **{"PMI_RANK": "5", "PMI_SIZE": "9", "PMI_FD": "77", "MPI_LOCALRANKID": "5", "PMIX_RANK": "5"},
    **{"OMPI_COMM_WORLD_RANK": "5", "OMPI_COMM_WORLD_SIZE": "9", "OMPI_COMM_WORLD_LOCAL_RANK": "5"},
    **{"PALS_RANKID": "5", "SLURM_PROCID": "5", "SLURM_LOCALID": "5", "SLURM_STEP_NUM_TASKS": "9"},
    **{"TORCHELASTIC_RUN_ID": "old", "GROUP_RANK": "3"},
}
"""What a parent's ranks, a shell or a start-up file may have left in a job's environment."""

STALE_SLURM = {"SLURM_JOB_ID": "99", "SLURM_JOBID": "99", "SLURM_NODELIST": "gone1", "SLURM_NNODES": "1"}
"""Another scheduler's job, in a PBS job."""


class Ended(NamedTuple):
    """A script that is over."""

    code: int
    output: str
    """Both streams."""
    run_dir: Path

    def record(self, name: str, attempt: str = "0.0") -> dict[str, Any]:
        path = self.run_dir / "attempts" / attempt / f"{name}.json"
        record: dict[str, Any] = json.loads(path.read_text())
        return record

    @property
    def ending(self) -> tuple[str, int]:
        record = self.record("ending")
        return record["ending"], record["code"]


class Started:
    """A script that runs."""

    def __init__(self, bench: Bench, script: Path, words: tuple[str, ...], env: Mapping[str, str]):
        self.bench = bench
        self.mark = uuid.uuid4().hex
        environ = {**os.environ, **env, "PROBE_FOLDER": str(bench.seen), "HARNESS_MARK": self.mark}
        self.process = subprocess.Popen(
            ["bash", str(script), *words],
            cwd=bench.folder,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def wait_for(self, name: str, ranks: int) -> None:
        """Until every rank has said so."""

        def said() -> bool:
            return all((self.bench.seen / f"{name}-{rank}").exists() for rank in range(ranks))

        try:
            patience.until(lambda: said() or self.process.poll() is not None, f"{ranks} times {name}")
        finally:
            if not said():
                self.process.kill()
        assert said(), f"not all ranks said {name}:\n{self.process.communicate()[0]}"

    def end(self) -> Ended:
        """Wait for its end; nothing that it started may be left behind."""
        try:
            output, _ = self.process.communicate(timeout=patience.SECONDS)
        finally:
            if self.process.poll() is None:
                os.killpg(self.process.pid, signal.SIGKILL)
        self._nothing_left(output)
        code = self.process.returncode
        return Ended(128 - code if code < 0 else code, output, self.bench.run_dir())

    def _nothing_left(self, output: str) -> None:
        try:
            patience.until(lambda: not list(marked(self.mark)), f"something is left running:\n{output}")
        finally:
            for process in marked(self.mark):
                process.kill()


def marked(mark: str) -> Iterator[psutil.Process]:
    """Processes that began with this mark in their environment."""
    for process in psutil.process_iter():
        try:
            if process.environ().get("HARNESS_MARK") == mark and process.status() != psutil.STATUS_ZOMBIE:
                yield process
        except (psutil.Error, OSError):
            continue


class Bench:
    """A folder to submit from, and a scheduler faked around it."""

    def __init__(self, root: Path, kind: str, find: Callable[[str, str], Path], folder: str = "here"):
        self.kind = kind
        self.folder = root / folder
        self.seen = root / f"seen-{uuid.uuid4().hex[:8]}"
        self.calls_file = root / "calls"
        self.bin = root / "bin"
        for made in (self.folder, self.seen, self.bin):
            made.mkdir(exist_ok=True)
        self.calls_file.touch()
        self.site, self.hosts = self._site(find), ["here"]
        self.array_index: int | None = None
        self.env: dict[str, str] = {}
        self.nodefile: str | None = None
        self._stubs()

    def _site(self, find: Callable[[str, str], Path]) -> Site:
        if self.kind in ("hydra", "openmpi"):
            program = {"hydra": "mpiexec.mpich", "openmpi": "mpiexec.openmpi"}[self.kind]
            package = {"hydra": "mpich", "openmpi": "openmpi-bin"}[self.kind]
            mpiexec = str(find(program, package))
            flags = ["--allow-run-as-root", "--oversubscribe"] if self.kind == "openmpi" else []
            pbs = Site.load("pbs")
            return msgspec.structs.replace(
                pbs, mpiexec=mpiexec, launcher=self.kind, launcher_args=[*pbs.launcher_args, *flags]
            )
        return Site.load({"pals": "aurora", "srun": "slurm"}.get(self.kind, self.kind))

    def _stubs(self) -> None:
        for name in ("srun", "mpiexec"):
            self.stub(name, LAUNCHER)
        modules = ["module"] if any("module" in line for line in self.site.setup) else []
        for name in ("qsub", "qdel", "scontrol", "squeue", *modules):
            self.stub(name, RECORDER)
        self.stub("getent", RESOLVER)

    def stub(self, name: str, text: str) -> None:
        """A program on the job's PATH."""
        path = self.bin / name
        path.write_text(text)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def plan_of(self, **fields: Any) -> Plan:
        """The plan of a job whose program is the probe, unless it says otherwise."""
        needed: dict[str, Any] = {}
        if self.site.launcher == "pals":
            needed = {"account": "p", "walltime": "30m", "directives": {"filesystems": "home"}}
        if self.kind in ("perlmutter", "frontier"):
            needed = {"account": "p", "walltime": "30m"}
        if self.kind == "polaris":  # its default queue takes ten nodes and more
            needed["queue"] = "preemptable"
        return plan(JobSpec.of({"name": "probed", "command": PROBE, **needed, **fields}), self.site)

    def start(self, *words: str, env: Mapping[str, str] | None = None, **fields: Any) -> Started:
        """Render a job, and run its script as the scheduler would."""
        return self.start_plan(self.plan_of(**fields), *words, env=env)

    def start_plan(self, decided: Plan, *words: str, env: Mapping[str, str] | None = None) -> Started:
        """The same for a plan that is made already."""
        spare = decided.restart.spare_nodes if decided.restart else 0
        self.hosts = self._hosts(decided.nodes + spare)
        script = self.folder / "job.sh"
        draft = script.with_name(f"{uuid.uuid4().hex}.sh")
        draft.write_text(render(decided))
        draft.replace(script)  # one that was just started may still read the one before
        return Started(self, script, words, {**self.environment(), **(env or {})})

    def environment(self) -> dict[str, str]:
        """What a script finds, beside the test's own environment."""
        return {**self._scheduler(), **self.env}

    def run(self, *words: str, env: Mapping[str, str] | None = None, **fields: Any) -> Ended:
        """`start` and wait for the end."""
        return self.start(*words, env=env, **fields).end()

    def _hosts(self, nodes: int) -> list[str]:
        if self.kind in ("hydra", "openmpi", "local"):
            return [socket.gethostname()]
        suffix = ".hostmgmt2.cm.aurora.alcf.anl.gov" if self.site.launcher == "pals" else ""
        return [f"x{number}{suffix}" for number in range(nodes)]

    def _scheduler(self) -> dict[str, str]:
        """What the scheduler tells the script."""
        common = {
            "PATH": f"{self.bin}{os.pathsep}{os.environ['PATH']}",
            "STUB_CALLS": str(self.calls_file),
            "STUB_HOSTS": "\n".join(self.hosts),
        }
        if self.kind == "local":
            return {**common, "CASTOFF_COMMAND": CASTOFF}
        if self.site.scheduler == "slurm":
            return {**common, **self._slurm()}
        name = "7.head" if self.array_index is None else f"7[{self.array_index}].head"
        nodefile = self.seen.parent / "aux" / name
        nodefile.parent.mkdir(exist_ok=True)
        nodefile.write_text(self.nodefile or "".join(f"{host}\n" * 2 for host in self.hosts))
        reported = {"PBS_JOBID": name, "PBS_O_WORKDIR": str(self.folder), "PBS_NODEFILE": str(nodefile)}
        if self.array_index is not None:
            reported["PBS_ARRAY_INDEX"] = str(self.array_index)
        return {**common, **reported}

    def allocation(self, nodes: int) -> dict[str, str]:
        """What salloc or qsub -I tells its shell, beside what the probe and the stubs need."""
        self.hosts = self._hosts(nodes)
        reported = {**self._scheduler(), "PROBE_FOLDER": str(self.seen)}
        if self.kind == "srun":
            reported["SLURM_JOB_NODELIST"] = ",".join(self.hosts)
        return reported

    def _slurm(self) -> dict[str, str]:
        reported = {
            "SLURM_JOB_ID": "12",
            "SLURM_SUBMIT_DIR": str(self.folder),
            "SLURM_JOB_NODELIST": "x[0-3]",
            "SLURM_PROCID": "0",
            "SLURM_NODEID": "0",
            "SLURM_LOCALID": "0",
        }
        if self.array_index is not None:
            reported |= {"SLURM_ARRAY_JOB_ID": "12", "SLURM_ARRAY_TASK_ID": str(self.array_index)}
            reported["SLURM_JOB_ID"] = str(13 + self.array_index)
        return reported

    def run_dir(self) -> Path:
        """The run directory that a script standing alone made."""
        made = sorted(self.folder.glob("castoff-*"))
        assert len(made) == 1, made
        return made[0]

    def calls(self, name: str) -> list[list[str]]:
        """How a stub was called."""
        lines = [json.loads(line) for line in self.calls_file.read_text().splitlines()]
        return [line[1:] for line in lines if line[0] == name]

    def ranks(self) -> list[dict[str, Any]]:
        """What each rank saw, by rank."""
        files = {int(path.stem[5:]): path for path in self.seen.glob("rank-*.json")}
        return [json.loads(files[rank].read_text()) for rank in sorted(files)]


LAUNCHER = f"""#!{sys.executable}
import sys
sys.path.insert(0, {str(CHECKOUT)!r})
from tests.launcher.scripts.stub_launcher import main
sys.exit(main())
"""

RESOLVER = """#!/bin/sh
case ${STUB_UNKNOWN-} in *"|$2|"*) exit 2 ;; esac
echo "10.0.0.7        STREAM $2"
"""
"""Stands in for getent: it knows each name but those in STUB_UNKNOWN, as |a|b|."""

RECORDER = f"""#!{sys.executable}
import json, os, sys
from pathlib import Path
name = Path(sys.argv[0]).name
with open(os.environ["STUB_CALLS"], "a") as calls:
    calls.write(json.dumps([name, *sys.argv[1:]]) + "\\n")
if name == "scontrol" and sys.argv[1:3] == ["show", "hostnames"]:
    print(os.environ["STUB_HOSTS"])
elif name == "squeue":
    print(os.environ.get("STUB_END", ""))
elif name == "qsub":
    names = ("CASTOFF_ATTEMPT", "CASTOFF_RUN_DIR", "CASTOFF_FOLLOWS")
    reported = {{key: os.environ.get(key) for key in names}}
    record = json.dumps({{**reported, "cwd": os.getcwd()}})
    Path(os.environ["STUB_CALLS"]).with_name("qsub.json").write_text(record)
    if "STUB_QSUB_CODE" not in os.environ:
        print(os.environ.get("STUB_QSUB_SAYS", "8.head"))
sys.exit(int(os.environ.get("STUB_" + name.upper() + "_CODE", "0")))
"""
"""Stands in for scontrol, squeue, qsub, qdel and module: notes how it was called, and answers."""
