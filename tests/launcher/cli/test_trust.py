"""castoff trust, and what it allows: as the verbs that read code and configuration meet it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.command_line import Castoff

from ..conftest import STRANGER, give_away

PROFILE = "extends: slurm\nsetup: [echo stolen]\n"


@pytest.fixture
def his(tmp_path: Path) -> Path:
    """A neighbour's project in a folder where everybody may write; the user works below."""
    profile = tmp_path / "scratch" / ".castoff" / "sites" / "slurm.yaml"
    profile.parent.mkdir(parents=True)
    profile.write_text(PROFILE)
    (tmp_path / "scratch" / "mine").mkdir()
    (tmp_path / "scratch").chmod(0o1777)
    for path in (profile, *profile.parents[:2]):
        give_away(path)
    return profile.parents[1]


@pytest.mark.parametrize(
    "words",
    [
        ["render", "--site", "slurm", "--", "true"],
        ["submit", "--site", "slurm", "--dry-run", "--", "true"],
        ["init", "--site", "slurm"],
        ["sites"],
        ["sites", "slurm"],
        ["sites", "check", "slurm"],
    ],
    ids=" ".join,
)
def test_a_neighbour_s_project(castoff: Castoff, his: Path, words: list[str]) -> None:
    """`/scratch/.castoff` is nobody's project but his."""
    mine = his.parent / "mine"
    answer = castoff(*words, cwd=mine)
    assert answer.returncode != 0 and "stolen" not in answer.stdout
    assert answer.stderr.splitlines() == [
        f"castoff: {his}: is not used, since it belongs to user {STRANGER}",
        f"castoff: if you trust them with what castoff runs from there: castoff trust {his}",
        "castoff: or make this folder its own project: mkdir .castoff",
    ]
    (mine / ".castoff").mkdir()
    assert "stolen" not in castoff(*words, cwd=mine).stdout


def test_one_line_allows_it(castoff: Castoff, his: Path) -> None:
    words = ["render", "--site", "slurm", "--", "true"]
    mine = his.parent / "mine"
    answer = castoff("trust", his)
    assert (answer.returncode, answer.stderr) == (0, "")
    answer = castoff(*words, cwd=mine)
    assert answer.returncode == 0 and "echo stolen" in answer.stdout
    assert f"castoff: site slurm: uses the project's {his}/sites/slurm.yaml\n" in answer.stderr
    assert castoff("trust").stdout.splitlines() == [
        str(his),
        f"who         {his} belongs to user {STRANGER}",
    ]
    assert json.loads(castoff("trust", "--json").stdout) == {"folder": str(his), "trusted": True}
    assert castoff("trust", "--remove", his).returncode == 0
    assert castoff(*words, cwd=mine).returncode == 1 and castoff("trust").stdout == ""
    assert castoff("trust").stderr.startswith("castoff: no folder is trusted yet; ")
    assert castoff("trust", "--remove").returncode == 2


def test_a_file_of_his_in_a_project_of_ours(castoff: Castoff, tmp_path: Path) -> None:
    """Whoever made it: each file that is read counts, and each link to one."""
    (sites := tmp_path / ".castoff" / "sites").mkdir(parents=True)
    for name in ("profile", "linked"):
        path = sites / f"{name}.yaml" if name == "profile" else tmp_path / "elsewhere.yaml"
        path.write_text(PROFILE)
        give_away(path)
    (sites / "linked.yaml").symlink_to(tmp_path / "elsewhere.yaml")
    for name in ("profile", "linked"):
        answer = castoff("render", "--site", name, "--", "true")
        assert answer.returncode == 1 and f"{name}.yaml: is not used, since " in answer.stderr
        assert castoff("render", "--site", "slurm", "--", "true").returncode == 0
    (config := tmp_path / ".castoff" / "config.yaml").write_text("site: slurm\n")
    assert castoff("render", "--", "true").returncode == 0
    config.chmod(0o666)
    answer = castoff("render", "--", "true")
    assert answer.returncode == 1 and f"{config}: is not used, since it can be changed by" in answer.stderr


def test_a_project_of_ours_that_others_can_change(castoff: Castoff, tmp_path: Path) -> None:
    """To make the folder a project, as where it is a neighbour's, would change nothing."""
    (tmp_path / ".castoff").mkdir()
    tmp_path.chmod(0o777)
    answer = castoff("render", "--site", "slurm", "--", "true")
    assert answer.returncode == 1 and " is not used, since " in answer.stderr
    assert "mkdir .castoff" not in answer.stderr


def test_a_profile_of_the_user_s_own(castoff: Castoff, fresh_home: Path) -> None:
    (path := fresh_home / ".config" / "castoff" / "sites" / "lab.yaml").parent.mkdir(parents=True)
    path.write_text("extends: slurm\n")
    assert castoff("render", "--site", "lab", "--", "true").stderr == ""
    path.parent.chmod(0o777)
    answer = castoff("render", "--site", "lab", "--", "true")
    assert answer.returncode == 1 and f"{path}: is not used, since {path.parent} can be " in answer.stderr


@pytest.mark.usefixtures("shared_group")
def test_templates(castoff: Castoff, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("command: [true]\ntemplates: ours\n")
    (block := tmp_path / "ours" / "blocks" / "environment.sh").parent.mkdir(parents=True)
    block.touch()
    (head := tmp_path / "ours" / "slurm.sh.j2").write_text('{% extends "castoff/slurm.sh.j2" %}\n')
    words = ["render", "job.yaml", "--site", "slurm"]
    assert castoff(*words).returncode == 0
    for path in (block, head, tmp_path / "ours"):
        mode = path.stat().st_mode
        path.chmod(0o775)
        answer = castoff(*words)
        assert answer.returncode == 1 and " can be changed by group " in answer.stderr, path
        path.chmod(mode)


def test_a_job_file_that_everybody_could_have_written(castoff: Castoff, tmp_path: Path) -> None:
    (job := tmp_path / "job.yaml").write_text("command: [true]\n")
    job.chmod(0o664)
    assert castoff("render", job, "--site", "slurm").returncode == 0
    job.chmod(0o666)
    answer = castoff("render", job, "--site", "slurm")
    assert answer.returncode == 1 and f"{job}: is not used, since it can be changed by " in answer.stderr


def test_an_empty_word_is_no_folder(castoff: Castoff) -> None:
    """It comes of `castoff trust "$PROJECT"` without the variable, and would be the working folder."""
    answer = castoff("trust", "")
    assert answer.returncode == 2 and "the folder is an empty word" in answer.stderr
    assert castoff("trust").stdout == ""
