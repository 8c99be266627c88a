"""The double's mom: it runs jobs on its node, and ends them at their walltime.

python -m tests.pbs.double.mom NODE
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pwd
import shutil
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.pbs.double.wire import HOMES, PORT, SERVER
from tests.pbs.settings import POLL

KILL_DELAY = 10.0
_HEARTBEAT = 0.5
_WALLTIME = -29


@dataclass
class Running:
    """A job on this node: all of it, or what pbs_tmrsh has started here."""

    told: dict[str, Any]
    environ: dict[str, str]
    began: float = field(default_factory=time.monotonic)
    sessions: set[int] = field(default_factory=set)
    leader: int | None = None
    leader_status: int | None = None
    terminating: float | None = None
    """When KILL follows, once TERM was sent."""
    over_walltime: bool = False
    over: bool = False

    @property
    def id(self) -> str:
        return str(self.told["id"])

    @property
    def walltime(self) -> float | None:
        return None if self.told["walltime"] is None else float(self.told["walltime"])


class Mom:
    """One node's."""

    def __init__(self, node: str) -> None:
        self.node, self.home = node, Path(HOMES, node)
        self.jobs: dict[str, Running] = {}
        self.server: asyncio.StreamWriter | None = None
        self.tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Serve for ever."""
        self.keep(self._watch())
        while True:
            try:
                reader, self.server = await asyncio.open_connection(SERVER, PORT, limit=1 << 26)
            except OSError:
                await asyncio.sleep(0.1)
                continue
            self.tell({"mom": self.node, "jobs": [job.id for job in self.jobs.values()]})
            beating = asyncio.create_task(self._beat())
            with contextlib.suppress(OSError):
                while line := await reader.readline():
                    self.obey(json.loads(line))
            beating.cancel()
            self.server.close()

    def keep(self, coroutine: Any) -> None:
        """Run it beside the others; its failure is this mom's."""
        task = asyncio.create_task(coroutine)
        self.tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        task.result()

    async def _beat(self) -> None:
        while True:
            self.tell({"alive": True})
            await asyncio.sleep(_HEARTBEAT)

    def tell(self, message: Mapping[str, Any]) -> None:
        if self.server is not None and not self.server.is_closing():
            self.server.write(json.dumps(message).encode() + b"\n")

    def obey(self, order: dict[str, Any]) -> None:
        match order["order"]:
            case "start":
                self.keep(self.start(order["job"]))
            case "spawn":
                self.keep(self.spawn(order))
            case "attach":
                if job := self.jobs.get(order["job"]):
                    job.sessions.add(order["session"])
            case "signal":
                if job := self.jobs.get(order["job"]):
                    self.signal(job, order["signal"])
            case "terminate":
                if job := self.jobs.get(order["job"]):
                    self.terminate(job)
            case "discard":
                if job := self.jobs.pop(order["job"], None):
                    self.signal(job, signal.SIGKILL)
                    job.over = True
                    shutil.rmtree(job.environ["TMPDIR"], ignore_errors=True)

    def _join(self, told: dict[str, Any]) -> Running:
        """The job's place on this node."""
        user = pwd.getpwnam(told["user"])
        environ = {
            "PATH": "/bin:/usr/bin",
            "LANG": "C.UTF-8",
            **dict(told["variables"]),
            "HOME": user.pw_dir,
            "LOGNAME": user.pw_name,
            "USER": user.pw_name,
            "SHELL": told["shell"] or user.pw_shell,
            "PBS_JOBNAME": told["name"],
            "PBS_JOBID": told["id"],
            "PBS_QUEUE": told["queue"],
            "PBS_JOBCOOKIE": told["cookie"],
            "PBS_NODENUM": str(told["hosts"].index(self.node)),
            "PBS_TASKNUM": "1",
            "PBS_MOMPORT": "15003",
            "OMP_NUM_THREADS": told["threads"],
            "NCPUS": told["cpus"],
            "PBS_NODEFILE": str(self.home / "aux" / told["id"]),
            "PBS_JOBDIR": user.pw_dir,
            "PBS_ENVIRONMENT": "PBS_BATCH",
            "ENVIRONMENT": "BATCH",
            "TMPDIR": f"/var/tmp/pbs.{told['id']}",
        }
        if told["account"]:
            environ["PBS_ACCOUNT"] = told["account"]
        if told["index"] is not None:
            environ |= {"PBS_ARRAY_INDEX": str(told["index"]), "PBS_ARRAY_ID": told["array"]}
        job = self.jobs[told["id"]] = Running(told, environ)
        Path(environ["PBS_NODEFILE"]).write_text("".join(f"{host}\n" for host in told["nodefile"]))
        Path(environ["TMPDIR"]).mkdir(mode=0o700, exist_ok=True)
        return job

    async def start(self, told: dict[str, Any]) -> None:
        """Run a job's script: its user's login shell reads its path, so that it runs by its first line."""
        job = self._join(told)
        script = self.home / "mom_priv" / "jobs" / f"{job.id}.SC"
        script.write_text(told["script"])
        script.chmod(0o700)
        try:
            outputs = self._outputs(told)
        except OSError:
            self._finish(job, -2)
            return
        shell = job.environ["SHELL"]
        output, error = (path.open("ab") for path in outputs)
        with output, error:
            process = await asyncio.create_subprocess_exec(
                f"-{Path(shell).name}",
                executable=shell,
                stdin=asyncio.subprocess.PIPE,
                stdout=output,
                stderr=error,
                cwd=job.environ["HOME"],
                env=job.environ,
                umask=told["umask"],
                start_new_session=True,
            )
        job.leader = process.pid
        job.sessions.add(process.pid)
        assert process.stdin is not None
        process.stdin.write(f"{script}\n".encode())
        with contextlib.suppress(OSError):
            await process.stdin.drain()
        process.stdin.close()
        code = await process.wait()
        job.leader_status = 256 - code if code < 0 else code
        if job.terminating is None or not job_processes(job):
            self._finish(job, job.leader_status)

    def _outputs(self, told: dict[str, Any]) -> tuple[Path, Path]:
        """The files that stdout and stderr go to: of the user, or those that are copied at the end."""
        output, error = (_output(told, stream, self.home) for stream in "oe")
        joined = told["join"]
        if joined == "oe":
            error = output
        elif joined == "eo":
            output = error
        for path in {output, error}:
            with open(path, "ab", opener=lambda name, flags: os.open(name, flags, 0o666 & ~told["umask"])):
                pass
        return output, error

    def _deliver(self, told: dict[str, Any]) -> bool:
        """Copy the output to where it belongs; whether that was possible."""
        delivered = True
        for stream, suffix, other in (("o", "OU", "eo"), ("e", "ER", "oe")):
            spooled = self.home / "spool" / f"{told['id']}.{suffix}"
            if told["join"] == other or not spooled.exists():
                continue
            name = f"{told['names'][stream]}"
            target = _inside(Path(told["paths"][stream]), spooled.name)
            if stream in told["keep"] and "d" not in told["keep"]:
                target = Path(pwd.getpwnam(told["user"]).pw_dir, name)
            try:
                shutil.copyfile(spooled, target)
                target.chmod(0o666 & ~told["umask"])
            except OSError:
                shutil.copy(spooled, self.home / "undelivered")
                delivered = False
            spooled.unlink()
        return delivered

    async def spawn(self, order: dict[str, Any]) -> None:
        """What pbs_tmrsh asks for: a command of a job on this node, with the output of the job."""
        told = order["job"]
        job = self.jobs.get(told["id"]) or self._join(told)
        environ = {**job.environ, "PBS_TASKNUM": str(order["task"])}
        home = Path(HOMES, told["hosts"][0])
        streams = []
        for name in ("o", "e" if told["join"] != "oe" else "o"):
            streams.append(_output(told, name, home).open("ab"))
        try:
            process = await asyncio.create_subprocess_exec(
                *order["command"],
                stdin=asyncio.subprocess.DEVNULL,
                stdout=streams[0],
                stderr=streams[1],
                cwd=job.environ["HOME"],
                env={name: value for name, value in environ.items() if not name.startswith("PBS_ARRAY_")},
                start_new_session=True,
            )
        except OSError as error:
            self.tell({"spawned": order["ticket"], "status": 254, "why": error.strerror})
            return
        finally:
            for stream in streams:
                stream.close()
        job.sessions.add(process.pid)
        code = await process.wait()
        self.tell({"spawned": order["ticket"], "status": code & 0xFF if code >= 0 else 256 - code})

    def signal(self, job: Running, number: int) -> None:
        """Signal all processes of a job on this node, children before their parents.

        But for KILL: a parent that is slow to die would tell of its child's end, and OpenPBS is quicker.
        """
        found = job_processes(job)
        for pid in reversed(found) if number == signal.SIGKILL else found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def terminate(self, job: Running) -> None:
        if job.terminating is None:
            job.terminating = time.monotonic() + KILL_DELAY
            self.signal(job, signal.SIGTERM)

    async def _watch(self) -> None:
        while True:
            for job in list(self.jobs.values()):
                self._look_at(job)
            await asyncio.sleep(0.1)

    def _look_at(self, job: Running) -> None:
        if job.over or job.leader is None:
            return
        elapsed = int(time.monotonic() - job.began)
        if job.terminating is not None:
            if time.monotonic() >= job.terminating:
                self.signal(job, signal.SIGKILL)
            if job.leader_status is not None and not job_processes(job):
                self._finish(job, job.leader_status)
        elif job.walltime is not None and elapsed > job.walltime and not elapsed % POLL:
            job.over_walltime = True
            _, error = self._outputs(job.told)
            with error.open("a") as stream:
                stream.write(f"=>> PBS: job killed: walltime {elapsed} exceeded limit {int(job.walltime)}\n")
            self.terminate(job)

    def _finish(self, job: Running, status: int) -> None:
        if job.over:
            return
        job.over = True
        self.signal(job, signal.SIGKILL)
        delivered = self._deliver(job.told)
        with contextlib.suppress(FileNotFoundError):
            (self.home / "mom_priv" / "jobs" / f"{job.id}.SC").unlink()
        with contextlib.suppress(FileNotFoundError):
            Path(job.environ["PBS_NODEFILE"]).unlink()
        shutil.rmtree(job.environ["TMPDIR"], ignore_errors=True)
        self.jobs.pop(job.id, None)
        elapsed = int(time.monotonic() - job.began)
        self.tell(
            {
                "over": job.id,
                "cookie": job.told["cookie"],
                "status": _WALLTIME if job.over_walltime else status,
                "elapsed": elapsed,
                "delivered": delivered,
            }
        )


def _output(told: dict[str, Any], stream: str, home: Path) -> Path:
    """The file of a job's stdout (o) or stderr (e): the user's, or one that is copied at the end."""
    name = f"{told['id']}.{'OU' if stream == 'o' else 'ER'}"
    if "d" in told["keep"] and stream in told["keep"]:
        return _inside(Path(told["paths"][stream]), name)
    return home / "spool" / name


def _inside(path: Path, name: str) -> Path:
    """The path, or a file of that name where it is a folder."""
    return path / name if path.is_dir() else path


def job_processes(job: Running) -> list[int]:
    """All processes in the job's sessions, children first."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) in job.sessions and fields[0] != "Z":
            parents[int(entry.name)] = int(fields[1])

    def depth(pid: int) -> int:
        return 1 + depth(parents[pid]) if pid in parents else 0

    return sorted(parents, key=depth, reverse=True)


def main(node: str) -> None:
    """Become the node's mom, in the background once it runs."""
    if os.fork():
        os._exit(0)
    os.setsid()
    home = Path(HOMES, node)
    for folder in ("aux", "spool", "undelivered", "mom_priv/jobs"):
        (home / folder).mkdir(parents=True, exist_ok=True)
    (home / "mom_priv" / "mom.lock").write_text(f"{os.getpid()}\n")
    asyncio.run(Mom(node).run())


if __name__ == "__main__":
    main(sys.argv[1])
