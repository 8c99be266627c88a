"""The double's server and scheduler: python -m tests.pbs.double.server"""

from __future__ import annotations

import asyncio
import json
import os
import re
import secrets
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.cluster import NODES
from tests.pbs.double.jobs import (
    DEPENDENT,
    FAILED,
    FINISHED,
    TERMINATED,
    Attribute,
    Job,
    attributes,
    attributes_of_member,
)
from tests.pbs.double.placing import Node, place, resources, with_defaults
from tests.pbs.double.wire import (
    ARRAY_SIZE,
    BAD_STATE,
    HOMES,
    ILLEGAL_VALUE,
    JOB_FINISHED,
    LIMIT_OF_QUEUE,
    LIMIT_OF_USER,
    NO_HISTORY,
    NO_RERUN,
    PORT,
    SERVER,
    TEXTS,
    UNKNOWN_JOB,
    UNKNOWN_QUEUE,
    UNKNOWN_SIGNAL,
    Refused,
    full_id,
)
from tests.pbs.settings import (
    CPUS,
    DEBUG_NODES,
    DEBUG_WALLTIME,
    DEFAULT_QUEUE,
    GPUS,
    MAX_ARRAY_SIZE,
    NODE_FAIL_REQUEUE,
)

_SILENCE = 3.0
"""After so many seconds without a word a mom counts as lost."""
_NODE_LOST = -20
_STATUS_OF_DELETED_MEMBERS = 1
_BEFORE = {"after": "before", "afterok": "beforeok", "afternotok": "beforenotok", "afterany": "beforeany"}


class Server:
    """All jobs, and the moms that run them."""

    def __init__(self) -> None:
        self.jobs: dict[str, Job] = {}
        self.number = 0
        self.history = True
        self.nodes = {name: Node(name, {"ncpus": CPUS, "ngpus": GPUS}) for name in NODES}
        self.moms: dict[str, asyncio.StreamWriter] = {}
        self.spawned: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self.lost: dict[str, asyncio.TimerHandle] = {}

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection: a command's, or a mom's."""
        try:
            line = await reader.readline()
            if not line:
                return
            said = json.loads(line)
            if "mom" in said:
                await self.hear(said, reader, writer)
                return
            try:
                answer = await self.answer(said)
            except Refused as refused:
                answer = {"code": refused.code, "text": refused.text}
            writer.write(json.dumps(answer).encode() + b"\n")
            await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()

    # Moms

    async def hear(
        self, said: dict[str, Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """A mom's words, until it is lost."""
        node = self.nodes[said["mom"]]
        self.moms[node.name], node.up = writer, True
        if node.name in self.lost:
            self.lost.pop(node.name).cancel()
        there = set(said["jobs"])
        for job in self.running():
            if node.name == job.hosts[0] and job.id not in there:
                self.lose(job)
            there.discard(job.id)
        for job_id in there:
            self.order(node.name, {"order": "discard", "job": job_id})
        self.schedule()
        try:
            while line := await asyncio.wait_for(reader.readline(), _SILENCE):
                self.learn(json.loads(line))
        except (TimeoutError, asyncio.TimeoutError, OSError):
            pass
        if self.moms.get(node.name) is writer:
            del self.moms[node.name]
            node.up = False
            later = asyncio.get_running_loop().call_later(NODE_FAIL_REQUEUE, self.lose_all, node.name)
            self.lost[node.name] = later

    def learn(self, said: dict[str, Any]) -> None:
        """What a mom tells of a job."""
        if "spawned" in said:
            self.spawned.pop(said["spawned"]).set_result(said)
            return
        job = self.jobs.get(said.get("over", ""))
        if job is None or job.ended or job.state not in "RE":
            return
        if said["cookie"] == job.submitted["cookie"]:
            used = {
                "ncpus": job.resources.get("ncpus", "1"),
                "vmem": "0kb",
                "walltime": _duration(said["elapsed"]),
            }
            job.used = {"cpupercent": "0", "cput": "00:00:00", "mem": "0kb", **used}
            job.jobdir, job.delivered = self._home(job), int(said["delivered"])
            self.end(job, said["status"])

    def order(self, node: str, order: dict[str, Any]) -> None:
        if node in self.moms:
            self.moms[node].write(json.dumps(order).encode() + b"\n")

    def running(self) -> list[Job]:
        return [job for job in self.jobs.values() if job.state == "R" and job.hosts]

    def lose_all(self, name: str) -> None:
        """A node has been gone for long enough: its jobs are."""
        for job in self.running():
            if job.hosts[0] == name:
                self.lose(job)
        self.schedule()

    def lose(self, job: Job) -> None:
        """A job whose first node is gone begins again, or ends."""
        job.exit_status, job.obittime = _NODE_LOST, time.time()
        if not job.rerunnable:
            self.release(job)
            self.finish(job, FAILED)
            return
        self.requeue(job)

    def requeue(self, job: Job) -> None:
        for name in set(job.hosts[1:]):
            self.order(name, {"order": "discard", "job": job.id})
        self.release(job)
        job.exec_host = job.exec_vnode = job.jobdir = ""
        job.hosts, job.stime = [], None
        job.set_state("Q")

    # Jobs

    def schedule(self) -> None:
        """Start what there is room for, first come, first served."""
        for job in list(self.jobs.values()):
            if job.state in "QB" and not job.ended:
                if job.is_array:
                    self._begin_members(job)
                elif job.parent is None or job.state == "Q":
                    self._begin(job)

    def _begin_members(self, array: Job) -> None:
        most = int(array.submitted["at_most"] or len(array.members))
        for index, member in array.members.items():
            active = sum(isinstance(one, Job) and not one.ended for one in array.members.values())
            if member != "Q":
                continue
            if active >= most:
                return
            job = Job(_member_id(array.id, index), dict(array.submitted), parent=array, index=index)
            job.ctime, job.etime = array.ctime, array.etime
            if not self._begin(job):
                return
            self.jobs[job.id] = array.members[index] = job
            if array.state == "Q":
                array.stime = time.time()
                array.comment = f"Job Array Began at {_at(array.stime)}"
                array.set_state("B")

    def _begin(self, job: Job) -> bool:
        placed = place(job.chunks, job.resources["place"], list(self.nodes.values()))
        if placed is None:
            what = "host " if any(chunk.host for chunk in job.chunks) else "ncpus"
            job.comment = f"Not Running: Insufficient amount of resource: {what}"
            return False
        where, vnodes = [], []
        for node, chunk in placed:
            node.used_by.setdefault(job.id, []).append(chunk)
            node.exclusive = "excl" in job.resources["place"]
            taken = {slot for slots in node.slots.values() for slot in slots}
            slot = next(number for number in range(len(taken) + 1) if number not in taken)
            node.slots.setdefault(job.id, []).append(slot)
            cpus = chunk.count("ncpus")
            where.append(f"{node.name}/{slot}" + (f"*{cpus}" if cpus > 1 else ""))
            counted = [f"{name}={chunk.count(name)}" for name in chunk.asked if name in ("ncpus", "ngpus")]
            vnodes.append(f"({node.name}:{':'.join(counted)})")
        job.hosts = list(dict.fromkeys(node.name for node, _ in placed))
        job.exec_host, job.exec_vnode = "+".join(where), "+".join(vnodes)
        job.stime = time.time()
        job.comment = f"Job run at {_at(job.stime)} on {job.exec_vnode}"
        job.run_count += 1
        job.set_state("R", 41)
        job.submitted["cookie"] = secrets.token_hex(16).upper()
        self.order(job.hosts[0], {"order": "start", "job": self._for_mom(job, placed)})
        self._met(job, "after")
        return True

    def _for_mom(self, job: Job, placed: list[tuple[Node, Any]]) -> dict[str, Any]:
        said, first = job.submitted, placed[0][1]
        index = "" if job.index is None else f".{job.index}"
        variables = [(name, _decoded(value)) for name, value in said["variables"]]
        said["nodefile"] = [node.name for node, chunk in placed for _ in range(chunk.processes)]
        said["threads"], said["cpus"] = first.threads, first.asked["ncpus"]
        return {
            **{
                key: said[key]
                for key in ("user", "name", "queue", "account", "shell", "join", "keep", "script")
            },
            **{key: said[key] for key in ("cookie", "nodefile", "threads", "cpus")},
            "id": job.id,
            "index": job.index,
            "array": job.parent.id if job.parent else None,
            "hosts": job.hosts,
            "variables": variables,
            "walltime": _seconds(job.resources["walltime"]) if "walltime" in job.resources else None,
            "umask": int(said["umask"] or "77", 8),
            "paths": {"o": job.path("o"), "e": job.path("e")},
            "names": {stream: f"{said['name']}.{stream}{job.number}{index}" for stream in "oe"},
        }

    def release(self, job: Job) -> None:
        """Give back what a job has had of its nodes."""
        for node in self.nodes.values():
            if job.id in node.used_by:
                del node.used_by[job.id], node.slots[job.id]
                node.exclusive = False

    def end(self, job: Job, status: int) -> None:
        """A job's script is over."""
        job.obittime = time.time()
        job.exit_status = status
        for name in job.hosts[1:]:
            self.order(name, {"order": "discard", "job": job.id})
        self.release(job)
        if job.deleted_by:
            job.comment += f" and terminated by {job.deleted_by}"
            self.finish(job, TERMINATED)
        elif status == -29:
            job.comment += " and exceeded resource walltime"
            self.finish(job, FAILED)
        else:
            job.comment += " and finished" if status == 0 else " and failed"
            self.finish(job, FAILED if status else FINISHED)
        self.schedule()

    def finish(self, job: Job, substate: int) -> None:
        """Make history of a job that runs no more, and let those that wait for it know."""
        job.ended, job.finished = True, time.time()
        job.set_state("X" if job.parent and not job.parent.ended else "F", substate)
        if (not job.is_array and job.parent is None) or job.is_array:
            status = job.exit_status
            if status is not None:
                self._met(job, "afterany")
                self._met(job, "afterok" if status == 0 else "afternotok")
            self._failed(job)
            if not self.history:
                self._forget(job)
        elif job.parent is not None:
            job.parent.deleted_by = job.parent.deleted_by or job.deleted_by
            self._count(job.parent, job.exit_status or 0)

    def _count(self, array: Job, status: int) -> None:
        """A member of an array is over: the last one's code is the array's."""
        array.exit_status, array.delivered = int(status != 0), 1
        members = list(array.members.values())
        if any(member == "Q" or (isinstance(member, Job) and not member.ended) for member in members):
            return
        array.ended = True
        for member in members:
            if isinstance(member, Job):
                member.set_state("F", member.substate)
        if array.stime is None:  # it has never begun
            array.exit_status = array.delivered = None
            self.finish(array, TERMINATED)
            return
        array.obittime = time.time()
        failed = FAILED if array.exit_status else FINISHED
        words = "terminated" if array.deleted_by else "failed" if array.exit_status else "finished"
        array.comment += f" and {words}"
        self.finish(array, TERMINATED if array.deleted_by else failed)

    def _forget(self, job: Job) -> None:
        for member in (job, *job.members.values()):
            if isinstance(member, Job):
                self.jobs.pop(member.id, None)

    # Dependencies

    def _met(self, job: Job, kind: str) -> None:
        """Release the jobs that wait for this to have happened."""
        for other in list(self.jobs.values()):
            if (kind, job.id) in other.waits:
                other.waits.remove((kind, job.id))
                if not other.waits:
                    other.holds.discard("s")
                    if not other.holds and other.state == "H":
                        other.etime = time.time()
                        other.set_state("Q")

    def _failed(self, job: Job) -> None:
        """Remove the jobs that still wait for something of one that is over."""
        for other in list(self.jobs.values()):
            if not other.ended and any(target == job.id for _, target in other.waits):
                self.abort(other)

    def abort(self, job: Job) -> None:
        """End a job that has never run."""
        self.finish(job, TERMINATED if job.deleted_by else FINISHED)

    # Requests

    async def answer(self, said: dict[str, Any]) -> dict[str, Any]:
        request = said.pop("request")
        if request == "spawn":
            return await self.spawn(said)
        if request == "attach":
            self.order(said["node"], {"order": "attach", "job": said["job"], "session": said["session"]})
            return {}
        handlers: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            "submit": self.submit,
            "jobs": self.show,
            "select": self.select,
            "delete": self.delete,
            "signal": self.signal,
            "hold": self.hold,
            "rerun": self.rerun,
            "nodes": self.show_nodes,
            "set": self.set,
        }
        answer = handlers[request](said)
        self.schedule()
        return answer

    def submit(self, said: dict[str, Any]) -> dict[str, Any]:
        """A new job.

        Raises:
            Refused: its limits do not allow it.
        """
        number, self.number = self.number, self.number + 1
        said["queue"] = said["queue"] or DEFAULT_QUEUE
        asked = dict(said["asked"])
        if "walltime" in asked:
            asked["walltime"] = _duration(_seconds(asked["walltime"]))
        said["resources"] = resources(asked)
        if said["queue"] not in (DEFAULT_QUEUE, "debug"):
            raise Refused(UNKNOWN_QUEUE)
        said["schedselect"] = with_defaults(said["resources"]["select"])
        count = 1
        if said["array"]:
            first, last, step = (int(word or 1) for word in _span(said["array"]))
            said["indices"] = (first, last, step)
            count = len(range(first, last + 1, step))
            if count > MAX_ARRAY_SIZE:
                raise Refused(ARRAY_SIZE)
        if said["queue"] == "debug":
            self._limits_of_debug(said, count)
        said["variables"] += [["PBS_O_QUEUE", said["queue"]], ["PBS_O_HOST", said["host"]]]
        job = Job(f"{number}{'[]' if said['array'] else ''}.{SERVER}", said)
        if said["array"]:
            first, last, step = said["indices"]
            job.members = dict.fromkeys(range(first, last + 1, step), "Q")
        self.jobs[job.id] = job
        if said["held"]:
            job.holds.add("u")
        gone = self._depend(job, said["depend"])
        if job.holds:
            job.set_state("H", DEPENDENT if job.waits else None)
        elif said["after"] is not None and said["after"] > time.time():
            job.set_state("W")
            asyncio.get_running_loop().call_later(said["after"] - time.time(), self._wake, job)
        else:
            job.etime = job.ctime
        if gone:
            self.abort(job)
        return {"job": job.id}

    def _limits_of_debug(self, said: dict[str, Any], count: int) -> None:
        walltime = said["resources"].setdefault("walltime", DEBUG_WALLTIME)
        if _seconds(walltime) > _seconds(DEBUG_WALLTIME) or int(said["resources"]["nodect"]) > DEBUG_NODES:
            raise Refused(LIMIT_OF_QUEUE)
        same = [job for job in self.jobs.values() if job.queue == "debug" and job.parent is None]
        mine = sum(job.unfinished() for job in same if job.submitted["user"] == said["user"])
        if mine + count > 1:
            refused = Refused(LIMIT_OF_USER)
            refused.text = "would exceed queue generic's per-user limit"
            raise refused

    def _wake(self, job: Job) -> None:
        if job.state == "W":
            job.etime = time.time()
            job.set_state("Q")
            self.schedule()

    def _depend(self, job: Job, dependencies: list[tuple[str, str]]) -> bool:
        """Register what it waits for; whether something of it can never be."""
        impossible = False
        for kind, target in dependencies:
            other = self.jobs.get(full_id(target))
            if other is None:
                job.waits.append((kind, full_id(target)))
                impossible = True
            elif other.ended:
                status = other.exit_status
                met = status is not None and (
                    kind in ("after", "afterany") or (kind == "afterok") == (status == 0)
                )
                if not met:
                    job.waits.append((kind, other.id))
                    impossible = True
            elif not (kind == "after" and other.run_count):
                job.waits.append((kind, other.id))
                other.awaited.append((_BEFORE[kind], job.id))
        if job.waits:
            job.holds.add("s")
        return impossible

    def find(self, job_id: str, *, history: bool) -> tuple[Job, int | None]:
        """A job, or of an array that has such a member the array and the index.

        Raises:
            Refused: there is none, or it is history.
        """
        whole = full_id(job_id)
        job = self.jobs.get(whole)
        index = None
        if job is None and (found := re.fullmatch(r"(\d+)\[(\d+)\](.*)", whole)):
            job = self.jobs.get(f"{found[1]}[]{found[3]}")
            index = int(found[2])
            if job is not None and index not in job.members:
                job = None
        if job is None:
            raise Refused(UNKNOWN_JOB, whole)
        over = job.parent.ended if job.parent else job.ended
        if over and not history:
            raise Refused(JOB_FINISHED)
        return job, index

    def show(self, said: dict[str, Any]) -> dict[str, Any]:
        """What qstat asks for: a job, or all.

        Raises:
            Refused: there is no such job, or no history to look at.
        """
        if said["history"] and not self.history:
            raise Refused(NO_HISTORY)
        if said["job"] is None:
            found = [
                job for job in self.jobs.values() if job.parent is None and (said["history"] or not job.ended)
            ]
            told = [one for job in found for one in self._told(job, said["members"])]
        else:
            job, index = self.find(said["job"], history=said["history"])
            if index is not None:
                told = [(_member_id(job.id, index), attributes_of_member(job, index, among_others=False))]
            else:
                told = list(self._told(job, said["members"]))
        return {"jobs": told}

    def _told(self, job: Job, members: bool) -> Iterator[tuple[str, list[Attribute]]]:
        yield job.id, attributes(job)
        if members and job.is_array:
            for index, member in job.members.items():
                if isinstance(member, Job):
                    yield member.id, attributes(member)
                else:
                    yield _member_id(job.id, index), attributes_of_member(job, index, among_others=True)

    def select(self, said: dict[str, Any]) -> dict[str, Any]:
        """The ids that qselect asks for.

        Raises:
            Refused: there is no history to look at.
        """
        if said["history"] and not self.history:
            raise Refused(NO_HISTORY)
        found = []
        for job in self.jobs.values():
            if job.parent is not None or (job.ended and not said["history"]):
                continue
            wanted = {
                "user": job.submitted["user"],
                "name": job.submitted["name"],
                "queue": job.queue,
                "account": job.submitted["account"],
            }
            if any(said[key] is not None and said[key] != value for key, value in wanted.items()):
                continue
            if said["states"] is None or job.state in said["states"]:
                found.append(job.id)
        return {"jobs": found}

    def delete(self, said: dict[str, Any]) -> dict[str, Any]:
        """qdel of one job.

        Raises:
            Refused: there is none, or it is over.
        """
        try:
            job, index = self.find(said["job"], history=said["purge"])
        except Refused as refused:
            refused.text = f"{TEXTS[refused.code]} {said['job']}"
            raise
        by = f"{said['user']}@{said['host']}"
        if job.ended and said["purge"]:
            self._forget(job)
        elif index is not None:
            if job.members[index] == "X":
                raise Refused(JOB_FINISHED, said["job"])
            job.members[index] = "X"
            self._count(job, _STATUS_OF_DELETED_MEMBERS)
            job.deleted_by = by
        elif job.ended:
            raise Refused(JOB_FINISHED, said["job"])
        elif job.is_array:
            job.deleted_by = by
            for number, member in list(job.members.items()):
                if member == "Q":
                    job.members[number] = "X"
                elif isinstance(member, Job) and not member.ended:
                    self._delete(member, by, said["force"])
            if job.stime is None:
                self._count(job, _STATUS_OF_DELETED_MEMBERS)
        else:
            self._delete(job, by, said["force"])
        return {}

    def _delete(self, job: Job, by: str, force: bool) -> None:
        if job.state == "R":
            job.deleted_by = by
            job.submitted["terminated"] = True
            self.order(job.hosts[0], {"order": "terminate", "job": job.id})
            if force:
                for name in job.hosts:
                    self.order(name, {"order": "discard", "job": job.id})
                self.end(job, 265)
        else:
            job.deleted_by = by
            self.abort(job)

    def signal(self, said: dict[str, Any]) -> dict[str, Any]:
        """qsig.

        Raises:
            Refused: no such job, or it does not run, or no such signal.
        """
        job, index = self.find(said["job"], history=False)
        name = said["signal"].removeprefix("SIG")
        number = int(name) if name.isdigit() else getattr(signal, f"SIG{name}", None)
        if index is not None or (job.state != "R" and not job.is_array):
            raise Refused(BAD_STATE, full_id(said["job"]))
        if number is None:
            raise Refused(UNKNOWN_SIGNAL, full_id(said["job"]))
        for one in [job, *(member for member in job.members.values() if isinstance(member, Job))]:
            if one.state == "R":
                self.order(one.hosts[0], {"order": "signal", "job": one.id, "signal": int(number)})
        return {}

    def hold(self, said: dict[str, Any]) -> dict[str, Any]:
        """qhold and qrls.

        Raises:
            Refused: no such job, or it runs.
        """
        job, _ = self.find(said["job"], history=False)
        if job.state in "RE":
            raise Refused(BAD_STATE)
        if said["release"]:
            job.holds.discard("u")
            if not job.holds and job.state == "H":
                job.etime = time.time()
                job.set_state("Q")
        else:
            job.holds.add("u")
            job.set_state("H", DEPENDENT if job.waits else None)
        return {}

    def rerun(self, said: dict[str, Any]) -> dict[str, Any]:
        """qrerun.

        Raises:
            Refused: no such job, or it does not run, or may not begin again.
        """
        job, _ = self.find(said["job"], history=False)
        if job.state != "R":
            raise Refused(BAD_STATE)
        if not job.rerunnable:
            raise Refused(NO_RERUN)
        self.order(job.hosts[0], {"order": "discard", "job": job.id})
        self.requeue(job)
        return {}

    def show_nodes(self, said: dict[str, Any]) -> dict[str, Any]:
        """What pbsnodes asks for."""
        states = {}
        for node in self.nodes.values():
            busy = node.exclusive or not node.free("ncpus")
            states[node.name] = "down" if not node.up else "job-busy" if busy else "free"
        return {"nodes": states}

    def set(self, said: dict[str, Any]) -> dict[str, Any]:
        """qmgr's set server."""
        if said["name"] != "job_history_enable":
            raise Refused(ILLEGAL_VALUE, said["name"])
        self.history = said["value"].lower() in ("true", "t", "1", "y")
        if not self.history:
            for job in [job for job in self.jobs.values() if job.ended]:
                self._forget(job)
        return {}

    async def spawn(self, said: dict[str, Any]) -> dict[str, Any]:
        """A command of a job on one of its nodes, to its end."""
        job, _ = self.find(said["job"], history=False)
        if said["node"] not in job.hosts or said["node"] not in self.moms:
            return {"status": None, "job": job.id}
        ticket = secrets.randbits(60)
        future = self.spawned[ticket] = asyncio.get_running_loop().create_future()
        told = self._for_mom(
            job,
            [
                (self.nodes[name.partition("/")[0]], chunk)
                for name, chunk in zip(job.exec_host.split("+"), job.chunks, strict=True)
            ],
        )
        self.order(
            said["node"],
            {
                "order": "spawn",
                "ticket": ticket,
                "job": told,
                "command": said["command"],
                "task": ticket % 1000,
            },
        )
        told_back: dict[str, Any] = await future
        return told_back

    @staticmethod
    def _home(job: Job) -> str:
        import pwd

        return pwd.getpwnam(job.submitted["user"]).pw_dir


def _member_id(array: str, index: int) -> str:
    return array.replace("[]", f"[{index}]")


def _span(words: str) -> tuple[str, str, str]:
    first, _, rest = words.partition("-")
    last, _, step = rest.partition(":")
    return first, last, step


def _at(when: float) -> str:
    """A time as it stands in comments."""
    return time.strftime("%a %b %d at %H:%M", time.localtime(when))


def _seconds(said: str) -> int:
    """Of a walltime.

    Raises:
        Refused: it is none.
    """
    words = said.split(":")
    if not all(word.isdigit() for word in words) or len(words) > 3:
        raise Refused(ILLEGAL_VALUE, "Resource_List.walltime")
    total = 0
    for word in words:
        total = total * 60 + int(word)
    return total


def _duration(seconds: int) -> str:
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"


def _decoded(value: str) -> str:
    return re.sub(r"\\(.)", r"\1", value)


async def serve(ready: int) -> None:
    """Serve for ever; a byte to `ready` once it does. USR1 has it refuse connections until USR2."""
    server = Server()

    async def listen() -> asyncio.Server:
        return await asyncio.start_server(server.talk, SERVER, PORT, limit=1 << 26, backlog=512)

    listening = await listen()
    os.write(ready, b"+")
    os.close(ready)
    loop = asyncio.get_running_loop()
    away, back = asyncio.Event(), asyncio.Event()
    loop.add_signal_handler(signal.SIGUSR1, away.set)
    loop.add_signal_handler(signal.SIGUSR2, back.set)
    while True:
        await away.wait()
        listening.close()
        away.clear()
        await back.wait()
        listening = await listen()
        back.clear()


def main() -> None:
    """Become the server, in the background once it listens."""
    waits, ready = os.pipe()
    if os.fork():
        os.close(ready)
        os._exit(0 if os.read(waits, 1) else 1)
    os.close(waits)
    os.setsid()
    home = Path(HOMES, SERVER)
    (home / "server_priv").mkdir(parents=True, exist_ok=True)
    (home / "server_priv" / "server.lock").write_text(f"{os.getpid()}\n")
    asyncio.run(serve(ready))


if __name__ == "__main__":
    main()
