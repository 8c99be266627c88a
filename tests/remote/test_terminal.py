"""Verbs on a machine, from a terminal here: tables as at home, a shell there, questions before changes."""

from __future__ import annotations

import json

import pytest

from tests import patience
from tests.command_line import COMMAND
from tests.launcher.terminal import Answer, on_terminal
from tests.remote.conftest import Laptop

pytestmark = pytest.mark.costly


def typed(laptop: Laptop, *words: str, then: tuple[tuple[str, str], ...] = (), columns: int = 100) -> Answer:
    env = laptop.machine.environment(laptop.home)
    return on_terminal(COMMAND, *words, cwd=laptop.project, env=env, then=then, columns=columns)


def test_tables_look_as_at_home(laptop: Laptop) -> None:
    laptop.add("far", "fish")
    laptop.a_job()
    run = str(laptop.submitted("far", "submit", "job.yaml")["id"])
    assert laptop("--on", "far", "wait", run).returncode == 0
    wide, narrow = (typed(laptop, "--on", "far", "list", columns=columns).output for columns in (100, 40))
    assert "\x1b[32mdone" in wide and run in wide
    assert "\x1b[32mdone" in narrow and run not in narrow  # which a narrow terminal shortens
    assert "\x1b" not in laptop("--on", "far", "list").stdout


def test_a_shell_there(laptop: Laptop) -> None:
    laptop.add("far", "csh")
    laptop.a_job()
    laptop.submitted("far", "submit", "--name", "long", "--", "sleep", "600")
    patience.until(lambda: "rank" in laptop("--on", "far", "logs", "long").stdout)
    patience.until(lambda: laptop("--on", "far", "shell", "long", "--", "true").returncode == 0)
    then = ((r"rank 0\].*# ", "echo $RANK of $WORLD_SIZE; test -t 0 && exit 9\n"),)
    answer = typed(laptop, "--on", "far", "shell", "long", then=then)
    assert answer.code == 9 and "0 of 1" in answer.output, answer.output
    assert "Shared connection" not in answer.output
    assert laptop("--on", "far", "cancel", "long").returncode == 0


@pytest.mark.long
def test_code_that_no_run_needs_is_removed_on_request(laptop: Laptop) -> None:
    laptop.add("far", "fish")
    laptop.a_job()
    runs = []
    for text in ("one", "two", "three"):
        laptop.write("notes.txt", text)
        runs.append(str(laptop.submitted("far", "submit", "job.yaml")["id"]))
        assert laptop("--on", "far", "wait", runs[-1]).returncode == 0
    project = laptop.far / "code/my_project"
    first, second, third = sorted(project.glob("[!.]*"), key=lambda path: path.stat().st_mtime_ns)
    assert "there is nothing to remove" in laptop("on", "clean", "far", "--dry-run").stderr
    assert laptop("--on", "far", "clean", "--yes", *runs[:2]).returncode == 0
    (second / "weights.pt").touch()
    piped = laptop("on", "clean", "far")
    assert piped.returncode == 2 and "cannot ask without a terminal: give --yes" in piped.stderr
    kept = typed(laptop, "on", "clean", "far", then=((r"\[y/N\]", "n\n"),))
    assert kept.code == 1 and "Remove 1 folder, " in kept.output and first.is_dir()
    cleaned = laptop("on", "clean", "far", "--yes", "--json")
    facts = json.loads(cleaned.stdout)
    assert (facts["folder"], facts["removed"]) == (str(first), True), cleaned.stderr
    assert "weights.pt in it was added or changed since" in cleaned.stderr
    assert sorted(project.glob("[!.]*")) == sorted([second, third])


def test_it_asks_before_it_installs_and_before_it_removes(laptop: Laptop) -> None:
    new = laptop.far / "typo"
    laptop.add("wrong", "sh", castoff="", dir=str(new))
    declined = typed(laptop, "--on", "wrong", "list", then=((r"\[Y/n\]", "n\n"),))
    home = laptop.machine.homes["sh"] / ".local/share/castoff"
    assert f"in {home}/wrong on wrong, and make the folder {new}, with" in declined.output.replace("\r\n", "")
    assert not new.exists()
    laptop.add("bare", "sh", castoff="")
    declined = typed(laptop, "--on", "bare", "list", then=((r"\[Y/n\]", "n\n"),))
    assert declined.code == 1 and "castoff: bare: castoff is not installed there yet" in declined.output
    assert "Install castoff " in declined.output and "python3" in declined.output
    assert not home.exists()
    laptop.add("far")
    laptop.a_job()
    run = str(laptop.submitted("far", "submit", "job.yaml")["id"])
    assert laptop("--on", "far", "wait", run).returncode == 0
    kept = typed(laptop, "--on", "far", "clean", run, then=((r"\[y/N\]", "n\n"),))
    assert kept.code == 1 and "nothing was removed" in kept.output and laptop.runs() == [run]
    piped = laptop("--on", "far", "clean", run)
    assert piped.returncode == 2 and "cannot ask without a terminal: give --yes" in piped.stderr
