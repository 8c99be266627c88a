"""A script that is imported and rendered again asks its scheduler for the same."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest

from castoff import JobSpec, Site
from castoff.launcher.importing.head import read_head
from castoff.launcher.importing.imported import nested
from castoff.launcher.importing.script import Wish, job_of, read_script
from castoff.launcher.importing.sizes import of_each_node
from castoff.launcher.importing.writing import job_file
from castoff.launcher.planning.planner import decide
from castoff.launcher.planning.render import rendered
from castoff.launcher.schedulers.registry import HAVE_DIRECTIVES, readers, scheduler_of
from castoff.launcher.typed.document import Document

from .scripts_of_tests import NAMES, text_of

DIALECTS = [scheduler_of(name).dialect for name in HAVE_DIRECTIVES]
ASKED = {row.field for one in DIALECTS if one for row in one.fields if row.value} | {"inherit", "device_type"}


def asks_for(script: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a script's directives say: on each node, in fields, and as they are written."""
    asked = read_head(script.split("\n"), readers()).asked
    size = {"nodes": asked.nodes, "memory": asked.fields.get("memory"), **of_each_node(asked)}
    return {**size, **{name: asked.fields.get(name) for name in ASKED}}, asked.raw


def again(script: str, name: str, wish: Wish | None) -> str:
    """The script that castoff makes of it."""
    result = read_script(script, name, wish)
    assert result.scheduler is not None
    assert result.refused == []
    plan, scheduler = decide(job_of(result), Site.load(result.scheduler))
    return rendered(plan, scheduler).text


@pytest.mark.parametrize("wish", [None, "driver"])
@pytest.mark.parametrize("name", NAMES)
def test_directives_ask_for_the_same(name: str, wish: Wish | None) -> None:
    script = text_of(name)
    found = again(script, name, wish)
    assert subprocess.run(["bash", "-n"], input=found, text=True, check=False).returncode == 0
    expected, raw = asks_for(script)
    fields, raw_again = asks_for(found)
    expected["name"] = expected["name"] or name
    assert fields == expected
    if wish == "driver":
        assert raw.items() <= raw_again.items()


@pytest.mark.parametrize("name", NAMES)
def test_the_job_file_is_what_was_read(name: str) -> None:
    for wish in (None, "driver"):
        result = read_script(text_of(name), name, wish)
        text = job_file(result, name, "slurm")
        assert Document.parse(text, "job.yaml").data == nested(result.fields)
        assert JobSpec.of(Document.parse(text, "job.yaml").data) == job_of(result)


RANKS = {
    "ddp.sbatch": (2, 4, 1, False),
    "torchrun.sbatch": (2, 4, 1, True),
    "batch.flux": (2, 4, 1, False),
}


@pytest.mark.parametrize("name", NAMES)
def test_ranks_are_laid_out_as_the_launch_line_says(name: str) -> None:
    result = read_script(text_of(name), name)
    job = job_of(result)
    if name in RANKS:
        found = (job.nodes, job.ranks_per_node, job.devices_per_rank, job.launcher.torchrun)
        assert (found, result.kept) == (RANKS[name], "")
    else:
        assert result.kept and job.script is not None
