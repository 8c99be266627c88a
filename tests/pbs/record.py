"""What a PBS says and does: recorded from real OpenPBSs, so that its double can be held against one of them.

python -m tests.pbs.record VERSION [SCENE…]   with OpenPBS on PATH: record all scenes anew, or these

VERSION is the tag or commit that it was built from, for many have the same `qsub --version`. Its folder holds
the scenes that come to something else there than in the versions before it.

Each scene is a function that runs commands on the cluster's head node and writes down what they print and
how they end. Times, numbers of jobs, nodes, folders and the like are taken out, so that a record holds
anywhere. tests/pbs/test_double.py runs the same scenes on what it has, and compares.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.cluster import HEAD
from tests.patience import until
from tests.pbs.cluster import PbsCluster

AT_ONCE = 6
"""So many scenes are played at the same time."""
RECORDS = Path(__file__).with_name("recorded")
VERSIONS = ["v23.06.06", "v23.06.06-root", "cd7ab5e-root"]
"""Those that were recorded, in this order; the double is like the first.

Its pbs_mom leaves out the processes of root (`mom_get_sample` in src/resmom/linux/mom_mach.c), so that root's
jobs end otherwise where they are killed. The last is of 2026-04-10.
"""

Entry = dict[str, Any]
"""A command, its words and its code; or a finding, and what was found."""

_TIMES = re.compile(r"[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}")
_MOMENTS = re.compile(r"[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d at \d\d:\d\d")
_COUNTERS = re.compile(
    r'("?(?:queue_rank|history_timestamp|timestamp|session_id)"?(?: = |:\s*))\d[\d.]*(?:e\+\d+)?'
)
_USED = re.compile(
    r'("?(?:resources_used\.)?(cpupercent|cput|v?mem|walltime)"?(?: = |:\s*)"?)([\d:]+(?:kb)?)'
)
_PATHS = re.compile(r'(PBS_O_PATH"?(?:=|:\s*"))[^",\n]*')
_JOBS = re.compile(r"\b(\d+)(?=(\[\d*\])?\.head\b|\[\])")
_NAMED = re.compile(r"\.([oe])(\d+)\b")
_REPORTED = re.compile(r"(line \d+): +\d+(?= \w+ {5})")
"""What bash says of a child that a signal has ended."""
_PROGRAM = re.compile(r"(?m)^\S*/(\w+: (?:invalid option|option requires|host ))")
_NODES = re.compile(r"\bn[1-4]\b(/\d+)?")
_KILLED = re.compile(r"walltime \d+ exceeded")


class Stage:
    """A folder on the head node, commands that are run there, and the record of what came of them."""

    def __init__(self, cluster: PbsCluster, folder: Path) -> None:
        self.cluster, self.folder = cluster, folder
        folder.mkdir()
        self.entries: list[Entry] = []
        self._numbers: dict[str, str] = {}
        home = {"HOME": "/root", "SHELL": "/bin/bash", "LANG": "C.UTF-8", "LOGNAME": "root"}
        self._environ = cluster.environment({"PATH": "/usr/bin:/bin", **home})

    def write(self, name: str, text: str) -> str:
        """A script of that name, which is bash's."""
        (self.folder / name).write_text(f"#!/bin/bash\n{text}\n")
        return name

    def ask(self, *words: str, **env: str) -> tuple[int, str, str]:
        """What a command comes to, and nothing written down."""
        environ = {**self._environ, "PWD": str(self.folder), **env}
        answer = self.cluster.run(HEAD, words, cwd=self.folder, env=environ)
        return answer.returncode, answer.stdout, answer.stderr

    def run(self, *words: str, **env: str) -> str:
        """Write down what a command comes to; what it prints."""
        code, output, errors = self.ask(*words, **env)
        told = {"stdout": output, "stderr": errors}
        self.entries.append(
            {
                "command": self._plain(" ".join(words)),
                "code": code,
                **{name: self._plain(text).splitlines() for name, text in told.items() if text},
            }
        )
        return output

    def submit(self, *words: str, **env: str) -> str:
        """The id of a job."""
        return self.run("qsub", *words, **env).strip()

    def found(self, what: str, value: object) -> None:
        """Write down something that was seen."""
        text = value if isinstance(value, str) else json.dumps(value)
        self.entries.append({"what": self._plain(what), "found": self._plain(text).splitlines()})

    def file(self, name: str) -> None:
        """Write down what a file holds, once it is there."""
        path = self.folder / name
        until(path.exists, name)
        self.found(name, path.read_text())

    def state(self, job: str) -> str:
        """A job's own letter; nothing for one that is not known."""
        told = re.search(r"job_state = (\w)", self.ask("qstat", "-x", "-f", job)[1])
        return told[1] if told else ""

    def wait(self, job: str, states: str = "F") -> None:
        """Until it is in one of these."""
        until(lambda: self.state(job) in states, f"{job} in {states}, which is in {self.state(job)}")

    def _plain(self, text: str) -> str:
        text = text.replace("\n\t", "" if "Job Id: " in text else "\n\t")
        text = text.replace(str(self.folder), "FOLDER")
        text = _PATHS.sub(r"\1PATH", text)
        text = _TIMES.sub("TIME", _MOMENTS.sub("MOMENT", text))
        text = _COUNTERS.sub(r"\1NUMBER", text)
        if "resources_used" in text:
            text = self._without_used(text)
        text = _KILLED.sub("walltime SECONDS exceeded", text)
        text = _JOBS.sub(lambda found: self._numbers.setdefault(found[1], f"JOB{len(self._numbers)}"), text)
        text = _NAMED.sub(lambda found: f".{found[1]}{self._numbers.get(found[2], found[2])}", text)
        text = _PROGRAM.sub(r"\1", text)
        text = text.replace(
            '"timestamp":""', '"timestamp":NUMBER'
        )  # once in 256 s, see the double's showing.py
        text = _REPORTED.sub(r"\1: PID", text)
        nodes: dict[str, str] = {}
        text = _NODES.sub(
            lambda found: nodes.setdefault(found[0][:2], f"NODE{len(nodes)}") + ("/SLOT" if found[1] else ""),
            text,
        )
        return re.sub(r"(?m)(?<=\S)  +", " ", text) if "Job id " in text else text

    @staticmethod
    def _without_used(text: str) -> str:
        """Without how much was used, and still with the limits, which look the same in JSON."""
        inside, lines = False, []
        for line in text.split("\n"):
            inside = '"resources_used"' in line or (inside and "}" not in line)
            lines.append(_USED.sub(r"\1USED", line) if inside or "resources_used." in line else line)
        return "\n".join(lines)


Scene = Callable[[Stage], None]
SCENES: dict[str, Scene] = {}
"""Those that can go on at the same time."""
ALONE: dict[str, Scene] = {}
"""Those that change the cluster for everybody."""


def scene(play: Scene) -> Scene:
    """One of the scenes."""
    SCENES[play.__name__] = play
    return play


def alone(play: Scene) -> Scene:
    """One that must not be disturbed, nor others by it."""
    ALONE[play.__name__] = play
    return play


@scene
def refusals(stage: Stage) -> None:
    script = stage.write("job", "true")
    for words in (
        ["-q", "nowhere"],
        ["-l", "nonsense=3"],
        ["-l", "select=1:nonsense=2"],
        ["-l", "walltime=soon"],
        ["-l", "select=1", "-l", "ncpus=2"],
        ["-N", "a b"],
        ["-N", "a" * 300],
        ["-J", "0-0"],
        ["-J", "3-1"],
        ["-J", "0-1:2", "-r", "n"],
        ["-J", "0-10000"],
        ["-r", "maybe"],
        ["-k", "x"],
        ["-j", "x"],
        ["-a", "99"],
        ["-W", "depend=nonsense:1"],
        ["-W", "nonsense"],
        ["-v", "NOT_SET_AT_ALL"],
        ["-v", "A='open"],
        ["-v", 'A="it\'s"'],
        ["-I"],
        ["-Y"],
        ["-q", "debug", "-l", "walltime=2:00:00"],
        ["-q", "debug", "-l", "select=3"],
    ):
        stage.run("qsub", *words, script)
    stage.run("qsub", "no-such-script")
    stage.run("qsub", ".")
    for program in ("qstat", "qdel", "qsig"):
        stage.run(program, "99999999")
        stage.run(program, "--version")
    stage.run("qsub", "--version")
    stage.run("qdel")
    stage.run("qsig")
    stage.run("qstat", "-F", "json")
    stage.run("qstat", "-f", "-F", "json", "99999999")
    stage.run("qstat", "-x", "99999999[]")


@scene
def what_is_kept(stage: Stage) -> None:
    """Held jobs, whose attributes stay as they are."""
    script = stage.write(
        "job",
        "#PBS -N fromscript -l walltime=90\n#PBS -A of_the_script\n# a word\n\n#PBS -l select=2:ncpus=3\n"
        "#PBS -j oe\necho\n#PBS -p 7",
    )
    for words in (
        [],
        ["-N", "007", "-A", "an account", "-p", "5", "-m", "n"],
        ["-N", "1e5", "-j", "oe", "-k", "doe", "-o", "out/^array_index^", "-J", "1-5:2%2"],
        ["-N", "0.5", "-l", "select=1:mpiprocs=2:ngpus=1+2:ncpus=2", "-l", "place=scatter:excl"],
        ["-N", "inf", "-l", "filesystems=home:flare", "-W", "umask=027", "-S", "/bin/sh"],
        ["-a", "203001020304", "-o", "/tmp/", "-e", "head:/tmp/of-nobody"],
        ["-v", 'A=1,B="x,y",C=a b,D=x\\,y,E=,F=two', "-r", "n", "-k", "oe"],
        ["-v", "G=a\\b,FROM_HERE,H=last", "-q", "workq"],
    ):
        job = stage.submit("-h", *words, script, FROM_HERE="here, there")
        stage.run("qstat", "-f", job)
        stage.run("qstat", "-f", "-F", "json", job)
        stage.run("qdel", job)


@scene
def what_is_asked_for(stage: Stage) -> None:
    """Chunks, and what older clusters take in their place; attributes of script and command line together."""
    script = stage.write("job", "#PBS -W umask=027,group_list=root\ntrue")
    first = stage.submit("-h", stage.write("first", "true"))
    for words in (
        ["-W", f"depend=afterok:{first}"],
        ["-W", "umask=022"],
        ["-W", " umask = 022 , group_list = root "],
        ["-l", "ncpus=8,mem=16mb,ngpus=1"],
        ["-l", "nodes=2:ppn=4", "-l", "mem=16mb"],
        ["-l", "select=1:ncpus=2:mpiprocs=1:host=n3+2:ncpus=4:mem=16mb"],
        ["-l", "select=1:NCPUS=2"],
    ):
        job = stage.submit("-h", *words, script)
        stage.run("qstat", "-f", "-w", job)
        stage.run("qdel", job)
    stage.run("qdel", first)
    for words in (
        ["-l", "nodes=2:ppn=4", "-l", "place=scatter"],
        ["-l", "ncpus=8,ngpus=1,place=scatter"],
        ["-l", "nodes=1:nonsense=2"],
        ["-l", "select=1:ncpus=1:ncpus=2"],
        ["-l", "select=1:ncpus=1+"],
        ["-l", "select=1:host="],
        ["-W", "umask=027,"],
        ["-W", "umask"],
    ):
        stage.run("qsub", *words, script)


@scene
def endings(stage: Stage) -> None:
    """How scripts end."""
    scripts = {
        "none": "true",
        "three": "exit 3",
        "like_a_signal": "exit 143",
        "killed": "kill -KILL $$",
        "terminated": "kill -TERM $$",
        "gone": "exec /no/such/program",
    }
    jobs = [stage.submit("-j", "oe", stage.write(name, text)) for name, text in scripts.items()]
    for job in jobs:
        stage.wait(job)
        stage.run("qstat", "-x", "-f", job)
    stage.run("qstat", "-x", "-t", "-f", "-w", jobs[0], "99999999", jobs[1])
    stage.run("qstat", "-x", jobs[1])
    stage.run("qstat", jobs[1])
    stage.run("qstat", "-f", "-w", jobs[0], jobs[1])
    stage.run("qdel", jobs[1])
    stage.run("qsig", "-s", "TERM", jobs[1])
    for name, job in zip(scripts, jobs, strict=True):
        stage.file(f"{name}.o{job.partition('.')[0]}")


@scene
def environment(stage: Stage) -> None:
    """What a job sees."""
    names = "ENVIRONMENT|HOME|LANG|LOGNAME|NCPUS|OMP_NUM_THREADS|SHELL|TMPDIR|USER|MINE.*|PBS_.*"
    script = stage.write(
        "job",
        f"env | grep -E '^({names})=' | sed 's/COOKIE=.*/COOKIE=/' | sort >$PBS_O_WORKDIR/seen.$MINE\n"
        'cat "$PBS_NODEFILE" >$PBS_O_WORKDIR/nodes.$MINE\n'
        "exec >$PBS_O_WORKDIR/rest.$MINE\n"
        "pwd; umask; echo ${0##*/}; tr '\\0' ' ' </proc/$PPID/cmdline; echo; id -un",
    )
    for number, words in enumerate(
        (
            ["-A", "acc"],
            ["-l", "select=2:ncpus=2:mpiprocs=2", "-l", "place=scatter", "-W", "umask=022"],
            ["-l", "select=1:ncpus=4:mpiprocs=3+1:ompthreads=2", "-J", "4-5:2", "-N", "named"],
            ["-l", "select=3", "-S", "/bin/sh", "-q", "workq"],
        )
    ):
        said = f'MINE={number},MINE_2="x,y",MINE_3=a b,MINE_4=,MINE_5=a\\b'
        job = stage.submit("-v", said, *words, script)
        stage.wait(job)
        for name in ("seen", "nodes", "rest"):
            stage.file(f"{name}.{number}")


@scene
def where_output_goes(stage: Stage) -> None:
    script = stage.write("job", "echo to stdout; echo to stderr >&2")
    (stage.folder / "made").mkdir()
    for words in (
        [],
        ["-j", "eo"],
        ["-o", "named.out", "-e", "named.err"],
        ["-o", "made/", "-j", "oe"],
        ["-k", "doe", "-o", "made/", "-e", "direct.err"],
        ["-k", "doe", "-j", "oe", "-o", "made/^array_index^.log", "-J", "1-2"],
        ["-o", "made/late.^array_index^", "-j", "oe", "-J", "1-2"],
    ):
        job = stage.submit(*words, script)
        stage.wait(job)
        number = job.partition(".")[0].rstrip("[]")
        files = sorted(path for path in stage.folder.rglob("*") if path.is_file() and path.name != "job")
        for path in files:
            name = str(path.relative_to(stage.folder)).replace(number, "NUMBER")
            stage.found(f"{name} {path.stat().st_mode & 0o777:o}", path.read_text())
            path.unlink()
    job = stage.submit("-j", "oe", "-o", "not/made/x", script)
    stage.wait(job)
    stage.run("qstat", "-x", "-f", job)


@scene
def walltime(stage: Stage) -> None:
    heeds = stage.write("heeds", "trap 'echo told; exit 0' TERM\nwhile :; do read -t 0.1 <> <(:); done")
    ignores = stage.write("ignores", "trap '' TERM\nsleep 100")
    plain = stage.write("plain", "exec sleep 100")
    jobs = [stage.submit("-j", "oe", "-l", "walltime=2", one) for one in (heeds, ignores, plain)]
    for job in jobs:
        stage.wait(job)
    for job, name in zip(jobs, (heeds, ignores, plain), strict=True):
        stage.run("qstat", "-x", "-f", job)
        until((stage.folder / f"{name}.o{job.partition('.')[0]}").exists, "its output")
    stage.file(f"{ignores}.o{jobs[1].partition('.')[0]}")


@scene
def deleting(stage: Stage) -> None:
    begun = "touch $PBS_O_WORKDIR/$PBS_JOBNAME.begun"
    ignores = stage.write("ignores", f"trap '' TERM\n{begun}\nsleep 100")
    plain = stage.write("plain", f"{begun}\nexec sleep 100")
    one, other = stage.submit("-N", "one", plain), stage.submit("-N", "other", ignores)
    held = stage.submit("-h", plain)
    for name in ("one", "other"):
        until((stage.folder / f"{name}.begun").exists, name)
    stage.run("qdel", one, held, "99999999")
    stage.run("qdel", other)
    ended = until(lambda: [job for job in (one, other) if stage.state(job) == "F"])
    stage.found("the first to end", "the one that heeds" if ended == [one] else "one that does not")
    stage.run("qstat", "-x", "-f", held)
    stage.wait(other)
    stage.run("qstat", "-x", "-f", other)
    stage.run("qdel", held)
    stage.run("qdel", "-x", held)
    stage.run("qstat", "-x", held)


@scene
def signals(stage: Stage) -> None:
    script = stage.write("job", "touch $PBS_O_WORKDIR/$PBS_JOBNAME.begun\nexec sleep 100")
    jobs = {name: stage.submit("-N", name, script) for name in ("USR2", "KILL", "CONT")}
    held = stage.submit("-h", script)
    for name, job in jobs.items():
        until((stage.folder / f"{name}.begun").exists, name)
        stage.run("qsig", "-s", name, job)
    stage.run("qsig", "-s", "NONSENSE", jobs["CONT"])
    stage.run("qsig", "-s", "SIGKILL", jobs["CONT"])
    stage.run("qsig", "-s", "USR1", held)
    for job in jobs.values():
        stage.wait(job)
        stage.run("qstat", "-x", "-f", job)
    stage.run("qdel", held)


@scene
def an_array(stage: Stage) -> None:
    """Its members wait for a file each."""
    script = stage.write(
        "job",
        "cd $PBS_O_WORKDIR; touch begun.$PBS_ARRAY_INDEX\n"
        "until [ -e go.$PBS_ARRAY_INDEX ]; do sleep 0.1; done",
    )

    def begun(index: int) -> None:
        until((stage.folder / f"begun.{index}").exists, f"the start of {index}")

    def go(index: int) -> None:
        (stage.folder / f"go.{index}").touch()

    array = stage.submit("-N", "007", "-h", "-J", "1-5%2", script)
    stage.run("qstat", "-t", array)
    stage.ask("qrls", array)
    begun(1)
    begun(2)

    def members() -> str:
        return "".join(line.split()[-2] for line in stage.ask("qstat", "-t", array)[1].splitlines()[3:])

    until(lambda: members() == "RRQQQ", "two members")
    one = array.replace("[]", "[1]")
    stage.run("qstat", "-t", array)
    stage.run("qstat", "-t", "-f", "-w", array)
    stage.run("qstat", one)
    stage.run("qstat", array.replace("[]", "[4]"))
    stage.run("qstat", array.replace("[]", "[9]"))
    stage.run("qstat", array.partition(".")[0])
    stage.run("qdel", array.replace("[]", "[4]"))
    stage.run("qstat", "-t", array)
    go(1)
    begun(3)
    until(lambda: members() == "XRRXQ", "the third")
    stage.run("qstat", "-t", array)
    stage.run("qstat", "-f", "-F", "json", one)
    stage.run("qdel", array.replace("[]", "[2]"))
    begun(5)
    until(lambda: members() == "XXRXR", "the fifth")
    stage.run("qstat", "-f", array)
    go(3)
    go(5)
    stage.wait(array)
    stage.run("qstat", "-t", array)
    stage.run("qstat", "-x", "-t", array)
    stage.run("qstat", "-x", "-t", "-f", "-w", array)
    stage.run("qstat", "-x", "-f", one)
    stage.run("qdel", one)
    stage.run("qdel", array)


@scene
def endings_of_arrays(stage: Stage) -> None:
    fails = stage.write("fails", "exit $PBS_ARRAY_INDEX")
    sleeps = stage.write("sleeps", "touch $PBS_O_WORKDIR/begun.$PBS_ARRAY_INDEX; exec sleep 100")
    failing, succeeding = stage.submit("-J", "0-2", fails), stage.submit("-J", "0-1:2", fails)
    deleted, queued = stage.submit("-J", "7-9%1", sleeps), stage.submit("-h", "-J", "7-9", sleeps)
    until((stage.folder / "begun.7").exists, "the first")
    stage.run("qdel", deleted, queued)
    for array in (failing, succeeding, deleted, queued):
        stage.wait(array)
        stage.run("qstat", "-x", "-f", array)
        stage.run("qstat", "-x", "-t", array)


@scene
def dependencies(stage: Stage) -> None:
    good, bad, slow = (
        stage.write("good", "true"),
        stage.write("bad", "exit 3"),
        stage.write("slow", "sleep 100"),
    )
    first, second = stage.submit("-h", good), stage.submit("-h", bad)
    waiting = [
        stage.submit("-W", f"depend={kind}:{job}", good)
        for job in (first, second)
        for kind in ("after", "afterok", "afternotok", "afterany")
    ]
    # The server tells a job who waits for it a moment later, and it must be in a way that is new to it: else
    # qstat goes on telling what it told before, if anybody has asked (OpenPBS 23.06.06, register_dep).
    until(
        lambda: f":{waiting[3]}@" in stage.ask("qstat", "-f", first)[1].replace("\n\t", ""),
        f"{first} knows that {waiting[3]} waits for it",
    )
    stage.run("qstat", "-f", first)
    both = stage.submit("-W", f"depend=afterok:{first}:{second},afterany:{first}", good)
    chained = stage.submit("-W", f"depend=afterok:{waiting[5]}", good)
    stage.run("qstat", "-f", waiting[1])
    stage.run("qstat", "-f", both)
    array = stage.submit("-W", f"depend=afterok:{first}", "-J", "0-1", good)
    after_array = stage.submit("-W", f"depend=afterok:{array}", good)
    stage.run("qrls", first, second)
    all_jobs = [first, second, *waiting, both, chained, array, after_array]
    for job in all_jobs:
        stage.wait(job)
        stage.run("qstat", "-x", job)
    for job in (waiting[2], waiting[1], waiting[5], both, chained):
        stage.run("qstat", "-x", "-f", job)
    for kind in ("after", "afterok", "afternotok", "afterany"):
        late = stage.submit("-W", f"depend={kind}:{second}", good)
        stage.wait(late)
        stage.run("qstat", "-x", "-f", late)
    lost = stage.submit("-W", "depend=afterok:99999999", good)
    stage.wait(lost)
    stage.run("qstat", "-x", "-f", lost)
    running = stage.submit(slow)
    stage.wait(running, "R")
    successors = [stage.submit("-W", f"depend={kind}:{running}", good) for kind in ("afterok", "afternotok")]
    stage.run("qdel", running)
    for job in successors:
        stage.wait(job)
        stage.run("qstat", "-x", job)


@scene
def holding(stage: Stage) -> None:
    script = stage.write("job", "exec sleep 100")
    job = stage.submit("-h", script)
    stage.run("qstat", job)
    stage.run("qrls", job)
    stage.wait(job, "R")
    stage.run("qrls", "99999999")
    stage.run("qdel", job)
    stage.wait(job)
    huge = stage.submit("-l", "select=9:ncpus=12", script)
    until(lambda: "comment" in stage.ask("qstat", "-f", huge)[1], "a comment")
    stage.run("qstat", huge)
    stage.run("qhold", huge)
    stage.run("qstat", huge)
    stage.run("qdel", huge)
    soon, later = (
        time.strftime("%Y%m%d%H%M.%S", time.localtime(time.time() + seconds)) for seconds in (2, 3600)
    )
    script = stage.write("true", "true")
    _, waits, _ = stage.ask("qsub", "-a", later, script)
    stage.found("one for later", stage.state(waits.strip()))
    stage.ask("qdel", waits.strip())
    _, begins, _ = stage.ask("qsub", "-a", soon, script)
    stage.wait(begins.strip())


@scene
def selecting(stage: Stage) -> None:
    script = stage.write("job", "true")
    name = "selected-by-name"
    jobs = [stage.submit("-h", "-N", name, script), stage.submit("-N", name, script)]
    array = stage.submit("-h", "-N", name, "-J", "0-1", script)
    stage.wait(jobs[1])
    for words in (
        ["-N", name],
        ["-x", "-N", name],
        ["-x", "-u", "root", "-N", name],
        ["-u", "nobody", "-N", name],
        ["-x", "-s", "F", "-N", name],
        ["-s", "HQ", "-N", name],
        ["-N", "selected-by-nobody"],
    ):
        stage.run("qselect", *words)
    stage.run("qdel", jobs[0], array)


@scene
def the_queue_debug(stage: Stage) -> None:
    script = stage.write("job", "exec sleep 100")
    job = stage.submit("-h", "-q", "debug", script)
    stage.run("qsub", "-q", "debug", script)
    stage.run("qsub", "-q", "debug", "-J", "0-1", script)
    stage.run("qstat", "-f", job)
    stage.run("qdel", job)
    stage.run("qdel", stage.submit("-h", "-q", "debug", script))


@scene
def inside_a_job(stage: Stage) -> None:
    """qsub in a job, and commands on its other nodes."""
    child = stage.write(
        "child", 'echo "$PBS_O_HOST $PBS_O_QUEUE ${PBS_ARRAY_INDEX-none}" >$PBS_O_WORKDIR/child.seen'
    )
    parent = stage.write(
        "parent",
        f"cd $PBS_O_WORKDIR\nqsub {child} >submitted\n"
        "second=$(sed -n 2p $PBS_NODEFILE)\n"
        "pbs_tmrsh $second /bin/bash -c 'hostname >$PBS_O_WORKDIR/there; exit 5'; echo $? >code\n"
        "pbs_tmrsh $second /bin/bash -c 'echo to stdout; echo to stderr >&2'\n"
        "pbs_tmrsh $second /bin/bash -c 'env | cut -d= -f1 | grep ^PBS | sort' \n"
        "pbs_tmrsh nowhere true 2>refused; echo $? >>code\n"
        "hostname >here",
    )
    options = ["-j", "oe", "-l", "select=2", "-l", "place=scatter"]
    job = stage.submit(*options, "-J", "1-3:3", parent)
    stage.wait(job)
    for name in ("submitted", "code", "refused", "child.seen"):
        stage.file(name)
    stage.found("its output", (stage.folder / f"parent.o{job.partition('[')[0]}.1").read_text())
    stage.found("where it ran", "".join((stage.folder / name).read_text() for name in ("here", "there")))


@alone
def without_history(stage: Stage) -> None:
    script = stage.write("job", "exit 3")

    def gone(job: str) -> None:
        until(lambda: stage.ask("qstat", job)[0] == 153, f"the end of {job}")

    with stage.cluster.without_history():
        job = stage.submit(script)
        gone(job)
        for words in (["-x", job], ["-x", "-t", "-f", "-w", job], [job], ["-x"]):
            stage.run("qstat", *words)
        stage.run("qselect", "-x")
        stage.run("qdel", job)
        for kind in ("afterok", "afternotok", "afterany"):
            gone(stage.submit("-W", f"depend={kind}:{job}", script))


@alone
def a_node_fails(stage: Stage) -> None:
    script = stage.write("job", "touch $PBS_O_WORKDIR/$PBS_JOBNAME.begun.$PBS_JOBID; exec sleep 100")
    options = ["-l", "select=1:host=n4"]
    again, never = stage.submit(*options, "-N", "again", script), stage.submit(*options, "-r", "n", script)
    for job in (again, never):
        stage.wait(job, "R")
    until((stage.folder / f"again.begun.{again}").exists, "the start")
    stage.cluster.kill_mom("n4")
    stage.wait(never)
    stage.wait(again, "Q")
    stage.run("qstat", "-x", "-f", never)
    stage.run("qstat", "-x", "-f", again)
    stage.cluster.resume()
    stage.wait(again, "R")
    stage.run("qstat", "-f", again)
    stage.run("qdel", again)
    stage.wait(again)


@alone
def without_a_server(stage: Stage) -> None:
    script = stage.write("job", "true")
    with stage.cluster.without_server():
        for words in (
            ["qsub", script],
            ["qstat", "1"],
            ["qstat", "-x", "-t", "-f", "-w", "1", "2"],
            ["qstat"],
            ["qselect", "-x"],
            ["qdel", "1"],
            ["qsig", "-s", "TERM", "1"],
        ):
            stage.run(*words)
    stage.run("qstat", "99999999")


def play(cluster: PbsCluster, folder: Path, name: str) -> list[Entry]:
    """What a scene comes to on a cluster."""
    stage = Stage(cluster, folder / name)
    {**SCENES, **ALONE}[name](stage)
    return stage.entries


def recorded(name: str, version: str) -> list[Entry]:
    """What it came to on an OpenPBS of that version."""
    known = VERSIONS[: VERSIONS.index(version) + 1] if version in VERSIONS else VERSIONS
    paths = [RECORDS / one / f"{name}.json" for one in known]
    entries: list[Entry] = json.loads([path for path in paths if path.exists()][-1].read_text())
    return entries


def differences(name: str, entries: list[Entry], version: str) -> Iterator[str]:
    """Where entries are not what was recorded, but for what differs from time to time on one PBS, too."""
    for entry, known in itertools.zip_longest(
        _without_chance(name, entries), _without_chance(name, recorded(name, version))
    ):
        if entry != known:
            about = (known or entry).get("command") or (known or entry)["what"]
            yield f"{about}\n{_side_by_side(known, entry)}"


_BY_A_SIGNAL = re.compile(r"(Exit_status\W{1,5})(1[345]\d)\b")
_END_OF_AN_ARRAY = re.compile(r"(?<=substate = )9[123]|(?<=Exit_status = )[01]\b|(?<=MOMENT and )\w+")

_STAGED_OUT = re.compile(r"(?<=Stageout_status = )[01]\b")
_TO_ONE_THAT_ENDS = re.compile(r"qsig -s (NONSENSE|SIGKILL) ")
_AS_IT_ENDS = (0, 35, 168)
"""qsig's codes for a job that runs, has ended, and is ending."""


def _without_chance(name: str, entries: list[Entry]) -> list[Entry]:
    """Entries without what two processes race for.

    A signal ends the script's shell (256 and its number) or first what it runs (128 and its number), and an
    array ends as that of its members does which happens to end last. What root's job is sent first may end it
    before the next.
    """
    text = _BY_A_SIGNAL.sub(lambda found: f"{found[1]}{int(found[2]) + 128}", json.dumps(entries))
    if name == "endings_of_arrays":
        text = _END_OF_AN_ARRAY.sub("SOMEHOW", text)
    if name == "signals":
        text = _STAGED_OUT.sub("SOMEHOW", text)
    told: list[Entry] = json.loads(text)
    if name == "signals":
        told = [_as_it_ends(one) for one in told]
    return told


def _as_it_ends(entry: Entry) -> Entry:
    """What qsig says of a job of root's that the signal before may have ended."""
    command = entry.get("command", "")
    if _TO_ONE_THAT_ENDS.match(command) and entry["code"] in _AS_IT_ENDS:
        return {"command": command}
    return entry


def _side_by_side(known: Entry | None, entry: Entry | None) -> str:
    import difflib

    told = [json.dumps(one, indent=1, ensure_ascii=False).splitlines() for one in (known, entry)]
    return "\n".join(difflib.unified_diff(told[0], told[1], "recorded", "here", lineterm="", n=2))


def main(version: str, *names: str) -> int:
    """Record scenes."""
    folder = RECORDS / version
    with tempfile.TemporaryDirectory() as place:
        (Path(place) / "cluster").mkdir()
        cluster = PbsCluster(Path(place, "cluster"))

        def take(name: str) -> None:
            entries, path = play(cluster, Path(place), name), folder / f"{name}.json"
            path.unlink(missing_ok=True)
            if version == VERSIONS[0] or any(differences(name, entries, version)):
                folder.mkdir(exist_ok=True)
                path.write_text(json.dumps(entries, indent=1, ensure_ascii=False) + "\n")
            print(name, flush=True)

        try:
            if not cluster.is_real:
                print("this records a real OpenPBS, and there is none on PATH", file=sys.stderr)
                return 1
            with ThreadPoolExecutor(AT_ONCE) as pool:
                list(pool.map(take, [name for name in names or SCENES if name in SCENES]))
            for name in names or ALONE:
                if name in ALONE:
                    take(name)
        finally:
            cluster.close()
    return 0


if __name__ == "__main__":
    os.umask(0o22)
    sys.exit(main(*sys.argv[1:]) if sys.argv[1:] else __doc__)
