"""Members that share jobs, as plans."""

from __future__ import annotations

from typing import Any

import pytest

from castoff import JobSpec, Site
from castoff.launcher.errors import InvalidInput
from castoff.launcher.planning.planner import plan


def job(**fields: Any) -> JobSpec:
    array = {"parameters": {"lr": [0.1, 1], "seed": [0, 1]}, "together": 2}
    job = {"command": ["train", "{lr}", "{seed}"], "array": array, "cores_per_rank": 1, "account": "a"}
    return JobSpec.of({**job, "walltime": "5m", **fields})


@pytest.mark.parametrize("site", ["slurm", "pbs"])
def test_members_that_share_jobs_have_their_parameters(site: str) -> None:
    made = plan(job(name="fit-{lr}", workdir="{seed}"), Site.load(site))
    assert made.sharing and made.array_count == 4 and made.parameters
    assert made.parameters.values(2) == {"lr": "1", "seed": "0"}
    assert (made.name, made.member_name, made.workdir) == ("fit", "fit-{lr}", "./{seed}")
    assert "fit" in " ".join(map(str, made.directives)) and "{" not in " ".join(map(str, made.directives))


def test_parameters_of_members_that_share_jobs_are_checked() -> None:
    array = {"parameters": {"folder": ["/a", "b"]}, "together": 2}
    with pytest.raises(InvalidInput, match="let all members' be absolute, or all relative"):
        plan(job(command=["train"], workdir="{folder}", array=array), Site.load("slurm"))
