"""A script that is imported and rendered again asks its scheduler for the same."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest

from launcher import JobSpec, Site
from launcher.importing.account import Account
from launcher.importing.head import read_head
from launcher.importing.imported import nested
from launcher.importing.script import job_of, read_script
from launcher.importing.shell import statements
from launcher.importing.writing import job_file
from launcher.planning.planner import decide
from launcher.planning.render import rendered
from launcher.schedulers.registry import readers
from launcher.typed.document import Document

from .scripts_of_tests import NAMES, text_of

ASKED = (
    "walltime",
    "account",
    "queue",
    "qos",
    "constraint",
    "memory",
    "exclusive",
    "after",
    "array",
    "inherit",
)


def asks_for(script: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a script's directives say: on each node, in fields, and those that no field has."""
    asked = read_head(script.split("\n"), statements(script), readers(), Account()).asked
    nodes = asked.nodes or 1
    tasks = asked.ranks_per_node or -(-(asked.ranks or 1) // nodes)
    found = {
        "nodes": nodes,
        "cpus": asked.node_cpus or (asked.cpus_per_rank or 1) * tasks,
        "devices": asked.node_devices or (asked.rank_devices or 0) * tasks,
    }
    return {**found, **{name: asked.fields.get(name) for name in ASKED}}, asked.directives


@pytest.mark.parametrize("name", NAMES)
def test_directives_ask_for_the_same(name: str) -> None:
    script = text_of(name)
    result = read_script(script)
    assert result.scheduler is not None
    assert result.account.of("not expressed") == []
    plan, scheduler = decide(job_of(result), Site.load(result.scheduler))
    again = rendered(plan, scheduler).text
    assert subprocess.run(["bash", "-n"], input=again, text=True, check=False).returncode == 0
    expected, raw = asks_for(script)
    found, raw_found = asks_for(again)
    assert found == expected
    assert raw.items() <= raw_found.items()


@pytest.mark.parametrize("name", NAMES)
def test_the_job_file_is_what_was_read(name: str) -> None:
    result = read_script(text_of(name))
    text = job_file(result, name, "slurm")
    assert Document.parse(text, "job.yaml").data == nested(result.fields)
    assert JobSpec.of(Document.parse(text, "job.yaml").data) == job_of(result)


LAYOUTS = {
    "ddp.sbatch": (2, 4, 1, False),
    "torchrun.sbatch": (2, 4, 1, True),
    "texts.sbatch": (4, 8, 1, True),
    "arrays.sbatch": (1, 2, None, False),
    "plain.sbatch": (1, 1, 4, False),
    "heredoc.sbatch": (1, 2, None, False),
    "container.sbatch": (2, 4, 1, False),
    "accelerate.sbatch": (2, 4, 1, False),
    "mpiexec.pbs": (2, 4, 1, False),
    "torque.pbs": (2, 4, None, False),
    "batch.flux": (2, 4, 1, False),
}


@pytest.mark.parametrize("name", NAMES)
def test_ranks_are_laid_out_as_the_launch_line_says(name: str) -> None:
    job = job_of(read_script(text_of(name)))
    assert (job.nodes, job.ranks_per_node, job.devices_per_rank, job.launcher.torchrun) == LAYOUTS[name]
