"""What the jobs of executors do on a cluster, and what is expected of them whatever the scheduler."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
import submitit
from submitit.core import utils
from submitit.helpers import Checkpointable, DelayedSubmission

import castoff
from castoff.launcher.executors.function_job import FunctionJob
from tests.cluster import HEAD
from tests.cluster.base import Cluster
from tests.patience import until

Jobs = dict[str, FunctionJob[Any]]


@contextlib.contextmanager
def by_value(*names: str) -> Iterator[None]:
    """Have the functions of this module, and of these, reach jobs that know nothing of them."""
    modules = [sys.modules[name] for name in (__name__, *names)]
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    yield
    for module in modules:
        cloudpickle.unregister_pickle_by_value(module)


@contextlib.contextmanager
def login(cluster: Cluster, folder: Path, commands: Sequence[str]) -> Iterator[Path]:
    """Make this process one on the cluster's head node, as far as these commands go; its folder."""
    (folder / "bin").mkdir()
    for name in commands:
        *enter, _, _ = cluster.hosts.enter(HEAD)
        program, real = folder / "bin" / name, shutil.which(name, path=cluster.environment()["PATH"])
        inside = f'[ "$(hostname)" = {HEAD} ] && exec {real} "$@"'
        program.write_text(f'#!/bin/sh\n{inside}\nexec {" ".join(enter)} --wd="$PWD" -- {real} "$@"\n')
        program.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{folder / 'bin'}:{os.environ['PATH']}")
        patch.setenv("HOME", str(folder))
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        patch.chdir(folder)
        yield folder


def place() -> dict[str, Any]:
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "NODE_RANK", "MASTER_ADDR", "CASTOFF_LAUNCHER")
    here = submitit.JobEnvironment()
    shown = ("job_id", "num_tasks", "num_nodes", "node", "global_rank", "local_rank", "hostnames")
    return {
        **{name: os.environ.get(name) for name in names},
        **{name: getattr(here, name) for name in shown},
        "hostname": socket.gethostname(),
    }


def number(index: int) -> tuple[int, str, str]:
    return index, os.environ["CASTOFF_ARRAY_INDEX"], submitit.JobEnvironment().job_id


def fail(rank: int) -> None:
    if int(os.environ["RANK"]) == rank:
        raise ValueError("no such luck")
    time.sleep(600)


def sleep(seconds: float) -> str:
    print("sleeps", flush=True)
    time.sleep(seconds)
    return "rested"


def nested(site: str, folder: str) -> tuple[str, str]:
    job = castoff.executor({}, site, folder).submit(place)
    return job.job_id, job.result()["job_id"]


class Train(Checkpointable):
    """Ranks that add up their ones until they have been asked to stop once, and then as often again."""

    def __init__(self) -> None:
        self.steps = 0
        self.before = 0

    def __call__(self) -> dict[str, Any]:
        import torch
        import torch.distributed as dist

        dist.init_process_group("gloo")
        total = 0.0
        while not self.before or self.steps < self.before + 5:
            one = torch.ones(1)
            dist.all_reduce(one)
            total += float(one)
            self.steps += 1
            if self.steps == 1:
                print("trains", flush=True)
            time.sleep(0.05)
        restarts = os.environ.get("SLURM_RESTART_COUNT")
        return {
            "steps": self.steps,
            "total": total,
            "attempt": os.environ["CASTOFF_ATTEMPT"],
            "slurm": restarts,
        }

    def checkpoint(self) -> DelayedSubmission:
        self.before = self.steps
        return DelayedSubmission(self)


def check_places(job: FunctionJob[Any]) -> None:
    """Three ranks of `place` on two nodes."""
    reported = job.results()
    names = ("RANK", "LOCAL_RANK", "NODE_RANK", "WORLD_SIZE")
    assert [[rank[name] for name in names] for rank in reported] == [
        ["0", "0", "0", "3"],
        ["1", "1", "0", "3"],
        ["2", "0", "1", "3"],
    ]
    assert [(rank["global_rank"], rank["local_rank"], rank["node"]) for rank in reported] == [
        (0, 0, 0),
        (1, 1, 0),
        (2, 0, 1),
    ]
    assert {(rank["job_id"], rank["num_tasks"], rank["num_nodes"]) for rank in reported} == {
        (job.job_id, 3, 2)
    }
    hosts = reported[0]["hostnames"]
    assert [rank["hostname"] for rank in reported] == [hosts[0], hosts[0], hosts[1]]
    assert reported[0]["MASTER_ADDR"] == hosts[0]
    assert job.job_id == job.run.job


def check_first_failure(job: FunctionJob[Any]) -> None:
    """Two ranks, of which rank 1 `fail`s."""
    with pytest.raises(utils.FailedJobError, match="no such luck"):
        job.results()
    until(lambda: job.get_info()["State"] == "FAILED", "the end")
    assert "rank 1 on " in job.get_info()["Failure"]
    assert "ValueError: no such luck" in str(job.task(0).exception())


def check_training(job: FunctionJob[Any]) -> dict[str, Any]:
    """Two ranks that `Train`, are asked to stop, and go on; what each returned."""
    reported: dict[str, Any]
    reported, second = job.results()
    assert reported == second
    records = [path.read_text() for path in sorted(job.run.path.glob("attempts/*/*.json"))]
    assert reported["attempt"] == "1", records
    saved = vars(job.submission().function)
    assert saved["before"] == saved["steps"] > 0
    assert (reported["steps"], reported["total"]) == (saved["steps"] + 5, 10.0)
    assert (job.run.path / "attempts/0.0/outcome").read_text() == "resume\n"
    assert not (job.run.path / "attempts/0.0/failure.json").exists()
    assert "calling checkpoint()" in (job.stdout() or "")
    return reported


def cancel_second_alone(first: FunctionJob[Any], second: FunctionJob[Any]) -> None:
    """Cancel the second of two that `sleep` in one array."""
    second.cancel()
    until(lambda: second.done(force_check=True), "the end of what was cancelled")
    assert second.state == "CANCELLED" and not first.done(force_check=True)
