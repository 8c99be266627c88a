"""What ranks and the script leave behind, and what is made of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from castoff.launcher.config.job import JobSpec
from castoff.launcher.config.site import Search, Site
from castoff.launcher.diagnosis.finding import Finding, Subject
from castoff.launcher.diagnosis.node_results import findings
from castoff.launcher.runs.run import RunDirectory
from castoff.launcher.status.watch import status

ADDRESSES = {"n1": "10.0.0.1", "n2": "10.0.0.2", "n3": "10.0.0.3", "n4": "10.0.0.4"}
STAGES = ("start", "door", "reach", "torch", "rendezvous", "group", "sum", "pairs", "done")


class Job:
    """The run directory of a job on some hosts, one rank on each."""

    def __init__(self, folder: Path, hosts: list[str], scheduler: str):
        self.run = RunDirectory(folder / "castoff-doctor-1")
        self.attempt = self.run.path / "attempts" / "0.0"
        self.attempt.mkdir(parents=True, mode=0o700)
        self.run.path.chmod(0o700)
        self.hosts, self.scheduler = hosts, scheduler
        (self.attempt / "hosts").write_text("".join(f"{host}.site.org\n" for host in hosts))
        self.write(
            "plan.json", {"name": "castoff-doctor", "site": scheduler, "scheduler": "local", "ranks": 3}
        )
        self.write("attempts/0.0/start.json", {"job": "7", "host": hosts[0], "time": 1000.0})
        self.run.script.write_text("#!/bin/bash\n")
        (self.run.path / "local.lock").touch()

    def write(self, name: str, record: Any) -> None:
        (self.run.path / name).write_text(json.dumps(record))

    def rank(self, rank: int, until: str = "done", **changed: dict[str, Any]) -> None:
        """A rank that came to a stage, with what it says otherwise of some, or `stuck` or `failed`."""
        host = self.hosts[rank]
        others = {
            other: {"addresses": [ADDRESSES[other]], "wrong": False, "by": "eth0", "failure": None}
            for other in self.hosts
            if other != host
        }
        partners = {
            str(other): {"latency": 1e-4, "rate": 2e9} for other in range(len(self.hosts)) if other != rank
        }
        facts: dict[str, dict[str, Any]] = {
            "start": {"executable": "/usr/bin/python"},
            "door": {"addresses": ["127.0.0.1", ADDRESSES[host]]},
            "reach": {"hosts": others},
            "torch": {"version": "2.9.1", "backend": "gloo", "seconds": 2.0},
            "sum": {"exact": True, "seconds": {"4096": 1e-4, "1048576": 1e-3}},
            "pairs": {"partners": partners},
        }
        lines = [
            {
                "rank": rank,
                "host": host,
                "stage": stage,
                "time": 1000.0,
                **facts.get(stage, {}),
                **changed.get(stage, {}),
            }
            for stage in STAGES[: STAGES.index(until) + 1]
        ]
        lines += [
            {"rank": rank, "host": host, "stage": stage, "time": 1045.0, **changed[stage]}
            for stage in ("stuck", "failed")
            if stage in changed
        ]
        (self.attempt / "doctor").mkdir(exist_ok=True)
        text = (
            "".join(json.dumps(line) + "\n" for line in lines) + '{"rank": '
        )  # a line that is being written
        (self.attempt / "doctor" / f"rank-{rank}.jsonl").write_text(text)

    def found(self, ending: str = "done", **fields: str) -> list[Finding]:
        self.write("attempts/0.0/ending.json", {"ending": ending, "code": 0 if ending == "done" else 1})
        (self.attempt / "settled").touch()
        subject = Subject.of(
            Site.load(self.scheduler, search=Search({}, None)),
            JobSpec.of({"command": ["true"], **fields}),
            source=None,
            directory=self.run.path,
            runs=self.run.path,
            environ={},
        )
        return [*findings(self.run, status(self.run), subject)]

    def bad(self, ending: str = "failed", **fields: str) -> list[tuple[str, str, str]]:
        found = self.found(ending, **fields)
        return [(one.about, one.fact, one.remedy) for one in found if one.status != "ok"]


Make = Callable[..., Job]


@pytest.fixture
def job(tmp_path: Path) -> Make:
    def make(*hosts: str, scheduler: str = "slurm") -> Job:
        return Job(tmp_path, list(hosts) or ["n1", "n2", "n3"], scheduler)

    return make


def test_where_all_is_well(job: Make) -> None:
    one = job()
    for rank in range(3):
        one.rank(rank)
    found = one.found()
    assert {finding.status for finding in found} == {"ok"}
    facts = [finding.fact for finding in found]
    assert "3 ranks ran on n1, n2, n3 (run castoff-doctor-1)" in facts
    assert "3 hosts reach each other by their names, over eth0" in facts
    assert "torch 2.9.1 with gloo, imported in 2.0 s at most" in facts
    assert "exact on 3 ranks; 4.0 KiB in 0.10 ms, 1.0 MiB in 1.00 ms (1000.0 MiB/s)" in facts
    assert "n2: 0.10 ms and 1.9 GiB/s with another host" in facts
    assert [finding.values for finding in found if finding.about == "speed"][1] == {
        "host": "n2",
        "latency": 1e-4,
        "rate": 2e9,
    }


@pytest.mark.parametrize("slow", [{"latency": 1e-2, "rate": 2e9}, {"latency": 1e-4, "rate": 2e7}])
def test_a_slow_host_is_told_from_those_that_it_slows(job: Make, slow: dict[str, float]) -> None:
    """Its partners have others with which they are fast."""
    one, fast = job(), {"latency": 1e-4, "rate": 2e9}
    one.rank(0, pairs={"partners": {"1": slow, "2": fast}})
    one.rank(1, pairs={"partners": {"0": slow, "2": slow}})
    one.rank(2, pairs={"partners": {"0": fast, "1": slow}})
    ((about, fact, remedy),) = one.bad("done", exclude="n9")
    assert about == "speed" and fact.startswith("n2: ") and "clearly slower than the median" in fact
    assert remedy == "--exclude n9,n2, and tell your site's support"


def test_of_two_hosts_nobody_knows_which_is_slow(job: Make) -> None:
    one = job("n1", "n2")
    for rank in range(2):
        one.rank(rank, pairs={"partners": {str(1 - rank): {"latency": 1.0, "rate": 10.0}}})
    assert one.bad("done") == []


def test_a_wrong_sum(job: Make) -> None:
    one = job(scheduler="pbs")
    one.rank(0)
    one.rank(1, sum={"exact": False, "wrong": 3, "got": 12.0, "right": 15.0})
    one.rank(2)
    assert one.bad("done") == [
        (
            "all-reduce",
            "rank 1 on n2 got 12 instead of 15",
            "tell your site's support of n2; PBS cannot keep a job off it",
        )
    ]


def test_names_and_links(job: Make) -> None:
    wrong = {"addresses": ["10.9.9.9"], "wrong": True, "by": "eth0", "failure": "10.9.9.9: timed out"}
    cut = {"addresses": ["10.0.0.3"], "wrong": False, "by": "eth0", "failure": "10.0.0.3: timed out"}
    one = job()
    one.rank(0, reach={"hosts": {"n3": cut}})
    one.rank(1, reach={"hosts": {"n1": wrong, "n3": cut}})
    one.rank(2, reach={"hosts": {}})
    assert [finding[:2] for finding in one.bad("done")] == [
        ("names", "n2 resolves n1 to 10.9.9.9, but n1 has 10.0.0.1"),
        ("network", "n3 cannot be reached from n1, n2: 10.0.0.3: timed out"),
    ]


def test_a_host_where_nothing_began(job: Make) -> None:
    one = job()
    one.rank(0, "reach")
    one.rank(1, "reach")
    assert one.bad() == [
        (
            "nodes",
            "n3.site.org did not answer: no rank began there",
            "--exclude n3.site.org, and tell your site's support",
        )
    ]


def test_a_hang_names_who_was_waited_for(job: Make) -> None:
    """By where each is, and of those in one place by who says nothing of it."""
    one = job()
    one.rank(0, "torch", failed={"at": "rendezvous", "error": "DistStoreError: wait timeout after 40000ms"})
    one.rank(1, "reach", stuck={"at": "torch", "seconds": 90})
    one.rank(2, "torch")
    (found,) = one.bad()
    assert found[1] == "a hang at importing torch: n2 made no progress for 45 s, and the other hosts waited"
    assert found[2] == "--exclude n2, and tell your site's support; castoff logs castoff-doctor-1"
    one.rank(0, "group", stuck={"at": "sum", "seconds": 45})
    one.rank(1, "group")
    one.rank(2, "group", stuck={"at": "sum", "seconds": 45})
    assert (
        one.bad()[0][1] == "a hang at an all-reduce: n2 made no progress for 45 s, and the other hosts waited"
    )
    one.rank(1, "group", stuck={"at": "sum", "seconds": 45})
    (found,) = one.bad()
    assert found[1] == "a hang at an all-reduce: all hosts made no progress for 45 s"
    assert "name the interface that hosts share: `env: {GLOO_SOCKET_IFNAME: eth0}`" in found[2]


@pytest.mark.parametrize(
    ("at", "error", "remedy"),
    [
        (
            "torch",
            "ModuleNotFoundError: No module named 'torch'",
            "the job's Python is /usr/bin/python: install torch",
        ),
        ("rendezvous", "RuntimeError: Address already in use", "another job uses the port"),
        ("group", "RuntimeError: Connection refused", "name the interface that hosts share"),
    ],
)
def test_errors_of_ranks(job: Make, at: str, error: str, remedy: str) -> None:
    one = job()
    for rank in range(3):
        one.rank(rank, "reach", failed={"at": at, "error": error})
    (found,) = one.bad()
    assert found[1].startswith("n1, n2, n3 failed at ") and found[1].endswith(error)
    assert found[2].startswith(remedy)


def test_where_no_rank_wrote_anything(job: Make) -> None:
    """Its log says why, and no host is taken for dead."""
    one = job()
    one.write("attempts/0.0/failure.json", {"code": 127, "rank": 1, "host": "n2", "time": 1001.0})
    logs = one.run.log_folder / "0.0"
    logs.mkdir(parents=True)
    (logs / "rank-00001.log").write_text("python is not on PATH\n")
    (found,) = one.bad()
    assert found[1] == "rank 1 on n2 failed first: exit code 127: python is not on PATH"
    assert found[2].startswith("a job does not have your terminal's PATH: --python /path/to/env/bin/python")
    (one.attempt / "failure.json").unlink()
    (one.attempt / "hosts").unlink()
    assert one.bad()[0][1] == "the job ended as failed"


def test_the_preflight(job: Make) -> None:
    one = job()
    (one.run.path / "set-aside").mkdir()
    one.write("set-aside/n2.json", {"host": "n2", "reason": "its clock is 9 s behind", "job": "7"})
    (one.run.path / "set-aside" / "n3.json").write_text("{")
    (one.attempt / "host.sh.answers").write_text(
        '1000 {"host": "n3", "name": "n3", "time": 1000, "problem": ""}\n1000 answered n3\n'
        '1000 {"host": "n1", "name": "n1", "time": 1000, "problem": ""}\n1000 answered n1\n'
    )
    found = {finding.status: finding for finding in one.found("node-failure")}
    assert found["problem"].fact == "n2 is not fit: its clock is 9 s behind"
    assert found["problem"].remedy == "--exclude n2, and tell your site's support"
    assert found["ok"].fact == "n1, n3: devices, memory, disks, clock and network"


def test_torch_that_differs_or_is_slow(job: Make) -> None:
    one = job()
    one.rank(0)
    one.rank(1, torch={"version": "2.8.0"})
    one.rank(2, torch={"seconds": 44.0})
    facts = [fact for _, fact, _ in one.bad("done")]
    assert facts == [
        "n2 has the version 2.8.0 of torch, and others 2.9.1",
        "torch 2.9.1 with gloo, imported in 44.0 s at most, on n3, which is slow",
    ]
