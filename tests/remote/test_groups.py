"""Jobs of one file that are submitted from a laptop: their code once, each job once."""

from __future__ import annotations

import json
import re
import sys

import pytest

from tests.remote.conftest import PROGRAM, Laptop

FILE = """
defaults: {ranks_per_node: 1}
jobs:
  train:
    command: [sh, -c, 'cat "$MADE" && python3 train.py']
    env: {MADE: "{prepare.dir}/made"}
    env_from: [TOKEN]
    after: {afterok: [prepare]}
  prepare:
    command: [sh, -c, "python3 train.py && echo numbers >$CASTOFF_RUN_DIR/made"]
"""

TOKEN = {"TOKEN": "s3cr3t-value"}

_INTERRUPTED = """#!{python}
# The castoff of a machine, whose connection breaks when it submits the second job.
import os, signal, sys
from castoff.launcher.cli.main import main
from castoff.launcher.submission import group
submit = group.submit
def interrupted(spec, *words, **named):
    if spec.name == "train" and os.path.exists({flag!r}):
        os.unlink({flag!r})
        os.kill(os.getppid(), signal.SIGKILL)  # sshd's, of this connection
        if {dies}:
            os.kill(os.getpid(), signal.SIGKILL)
    return submit(spec, *words, **named)
group.submit = interrupted
sys.exit(main())
"""


def a_pipeline(laptop: Laptop, text: str = FILE) -> None:
    laptop.write("train.py", PROGRAM)
    laptop.write("pipeline.yaml", text)
    laptop.commit()


def names(laptop: Laptop) -> list[str]:
    """The jobs that have a run directory."""
    return [run.rsplit("-", 3)[0] for run in laptop.runs()]


def kept_ids(laptop: Laptop) -> list[str]:
    kept = laptop.home / ".local/state/castoff/on/groups"
    return [json.loads(path.read_text())["run"] for path in kept.glob("*")]


def test_jobs_and_their_code_travel(laptop: Laptop) -> None:
    laptop.add("far")
    a_pipeline(laptop)
    missing = laptop("--on", "far", "submit", "pipeline.yaml")
    assert missing.returncode == 1 and "TOKEN not set in this environment" in missing.stderr
    answer = laptop("--on", "far", "submit", "pipeline.yaml", "--json", env=TOKEN)
    assert answer.returncode == 0, answer.stderr
    assert answer.stderr.count("castoff: code: ") == 1 and "2 files" in answer.stderr
    facts = json.loads(answer.stdout)
    assert facts["group"].startswith("pipeline-") and facts["on"] == "far"
    assert [job["name"] for job in facts["jobs"]] == ["prepare", "train"]
    assert laptop("--on", "far", "wait", "pipeline").returncode == 0
    logs = laptop("--on", "far", "logs", "train").stdout
    (code,) = (laptop.far / "code" / "my_project").glob("[!.]*")
    assert "numbers" in logs and f"here is {code} with s3cr3t-value" in logs
    assert f"here is {code} with None" in laptop("--on", "far", "logs", "prepare").stdout
    shown = laptop("--on", "far", "status", "pipeline").stdout
    assert "2 of 2 jobs done" in shown and f"file       {laptop.project}/pipeline.yaml" in shown
    again = laptop("--on", "far", "resubmit", "pipeline", env=TOKEN)
    assert again.returncode == 1 and "there is nothing to start: prepare (done)" in again.stderr


@pytest.mark.costly
@pytest.mark.parametrize("dies", [False, True])
def test_a_link_that_breaks_between_two_jobs(laptop: Laptop, dies: bool) -> None:
    flag, program = laptop.far / "breaks", laptop.far / "castoff"
    flag.touch()
    program.write_text(_INTERRUPTED.format(python=sys.executable, flag=str(flag), dies=dies))
    program.chmod(0o755)
    laptop.add("far", castoff=str(program))
    a_pipeline(laptop)
    first = laptop("--on", "far", "submit", "pipeline.yaml", env=TOKEN)
    assert "far: the connection to sh broke while" in first.stderr and first.stdout == ""
    (kept,) = kept_ids(laptop)
    assert kept in first.stderr
    second = laptop("--on", "far", "submit", "pipeline.yaml", env=TOKEN)
    assert second.returncode == 0, second.stderr
    assert re.search("^prepare: .* submitted before$", second.stdout, re.MULTILINE)
    assert f"group       {kept}" in second.stdout and not kept_ids(laptop)
    was_there = f"far: {kept} was submitted by an earlier command; nothing was submitted again"
    assert (was_there in second.stderr) == (not dies)
    assert laptop("--on", "far", "wait", "pipeline").returncode == 0
    assert names(laptop) == ["prepare", "train"] and laptop.times_run() == 2


def test_what_the_machine_refuses_is_refused_as_a_whole(laptop: Laptop) -> None:
    laptop.add("far")
    a_pipeline(laptop)
    setting = "train.after={afterok: [prepare, nothing]}"
    refused = laptop("--on", "far", "submit", "pipeline.yaml", "--set", setting, env=TOKEN)
    assert refused.returncode == 2
    assert "far: train: after.afterok.1: is nothing, which is neither a job" in refused.stderr
    assert laptop.runs() == [] and not kept_ids(laptop)
    typo = laptop("--on", "far", "submit", "pipeline.yaml", "--set", "train.command=[python3, trian.py]")
    assert typo.returncode == 2 and "castoff: train: command.1: is 'trian.py', which is" in typo.stderr


def test_selected_jobs_and_a_dry_run(laptop: Laptop) -> None:
    laptop.add("far")
    more = "  evaluate: {command: [python3, train.py], after: {afterok: [train]}}\n"
    a_pipeline(laptop, FILE + more)
    dry = laptop("--on", "far", "submit", "pipeline.yaml", "--dry-run")
    assert dry.returncode == 0, dry.stderr
    assert re.findall(r"castoff: (\w+):\n", dry.stderr) == ["prepare", "train", "evaluate"]
    assert dry.stderr.count("would send the code to far") == 3
    alone = laptop("--on", "far", "render", "pipeline.yaml", "--only", "train").stdout
    assert alone in dry.stdout and not laptop.runs()
    assert laptop("--on", "far", "submit", "pipeline.yaml", "--only", "prepare").returncode == 0
    assert laptop("--on", "far", "wait", "prepare").returncode == 0
    later = laptop("--on", "far", "submit", "-f", "pipeline.yaml", "--from", "train", env=TOKEN)
    assert later.returncode == 0, later.stderr
    assert later.stdout.startswith("train: train-")
    assert re.search(r"^\[train:0\] here is ", later.stdout, re.MULTILINE)
    assert "pipeline-" in later.stderr and "done" in later.stderr
    assert names(laptop) == ["evaluate", "prepare", "train"] and laptop.times_run() == 3
