"""Which verbs run elsewhere, and which never do."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from castoff.launcher.cli import elsewhere, main
from castoff.launcher.cli.help import VERBS

from ..conftest import Castoff


def test_every_verb_that_is_about_this_machine_stays_here() -> None:
    here = {word for word in main._HERE if word[0] != "-"}
    assert {*elsewhere.ONLY_HERE} < here < {*VERBS}
    assert not {"submit", "render", "list", "status", "logs", "wait", "stop", "cancel", "resubmit"} & here


@pytest.mark.parametrize("verb", sorted(elsewhere.ONLY_HERE))
def test_the_variable_does_not_move_what_stays_here(
    castoff: Castoff, castoff_command: Castoff, verb: str
) -> None:
    """With --on such a verb says why it cannot; the variable is for the others."""
    refused = castoff("--on", "nowhere", verb)
    assert refused.returncode == 2 and f"castoff: {verb} " in refused.stderr
    assert f"without --on: castoff {verb}" in refused.stderr
    assert castoff(verb, "--help", env={"CASTOFF_ON": "nowhere"}).returncode == 0
    alone = castoff_command if verb == "mcp" else castoff  # which answers on standard input until its end
    assert "nowhere" not in alone(verb, env={"CASTOFF_ON": "nowhere"}).stderr


def test_help_needs_no_machine(castoff: Castoff) -> None:
    assert castoff("--on", "nowhere", "list", "--help").stdout.startswith("Usage: castoff list ")
    assert "--on NAME" in castoff("--help").stdout
    behind = castoff("list", "--on", "aurora")
    assert behind.returncode == 2 and "here: castoff --on aurora list" in behind.stderr


@pytest.mark.parametrize(
    ("text", "names"),
    [("on: far\n", True), ("site: slurm\non: far\n", True), ("site: slurm\n", False), ("# on: far\n", False)],
)
def test_the_nearest_project_counts(castoff: Castoff, tmp_path: Path, text: str, names: bool) -> None:
    (tmp_path / ".castoff").mkdir()
    (tmp_path / ".castoff" / "config.yaml").write_text(text)
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)

    def listed(**env: str) -> subprocess.CompletedProcess[str]:
        return castoff("list", cwd=below, env=env)

    assert ("config.yaml: on: 'far' is not an entry of" in listed().stderr) == names
    assert "CASTOFF_ON: 'other' is not an entry of" in listed(CASTOFF_ON="other").stderr
    assert "no runs yet" in listed(CASTOFF_ON="local").stderr
    assert "no runs yet" in listed(CASTOFF_ON="other", CASTOFF_RUN_DIR="/x").stderr
    (below / ".castoff").mkdir()
    assert "no runs yet" in listed().stderr


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["submit", "-I", "job.yaml"], "here: castoff --on lab alloc job.yaml (see castoff submit --help)"),
        (["submit", "train.py"], "programs follow --: castoff --on lab submit -- python train.py (see"),
        (["submit", "--gres=gpu:2", "job.yaml"], "here: --ranks-per-node 2 --devices-per-rank 1 (see"),
    ],
)
def test_what_is_suggested_is_for_the_same_machine(castoff: Castoff, words: list[str], meant: str) -> None:
    castoff("on", "add", "lab", "me@lab", "--dir", "/scratch/me")
    answer = castoff("--on", "lab", *words)
    assert answer.returncode == 2 and meant in answer.stderr, answer.stderr


def test_machines_are_added_listed_and_removed(castoff: Castoff, fresh_home: Path) -> None:
    assert "no machines yet; castoff on add NAME" in castoff("on").stderr
    assert castoff("on", "add", "lab", "me@lab", "--dir", "/scratch/me", "--site", "slurm").returncode == 0
    expanded = castoff("on", "add", "home", "me@lab", "--dir", f"{fresh_home}/my work")
    assert "for your home there: --dir '~/my work'" in expanded.stderr
    assert castoff("on").stdout == castoff("on", "list").stdout
    assert "lab   me@lab  /scratch/me" in castoff("on").stdout
    (first, _) = map(json.loads, castoff("on", "--json").stdout.splitlines())
    assert first["name"] == "lab" and first["site"] == "slurm" and first["setup"] == []
    refused = castoff("on", "add", "lab", "me@lab", "--dir", "$SCRATCH")
    assert refused.returncode == 2 and "variables are not expanded" in refused.stderr
    assert castoff("on", "remove", "lab", env={"PATH": "/usr/bin:/bin"}).returncode == 0
    unknown = castoff("on", "remove", "lab")
    assert unknown.returncode == 1 and "'lab' is not an entry of" in unknown.stderr
