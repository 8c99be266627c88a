"""Verbs reach the machine through every login shell, byte for byte, and their output and codes come back."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest

from tests import patience
from tests.remote.conftest import Laptop
from tests.remote_machine import SHELLS

pytestmark = pytest.mark.costly


@pytest.mark.long
@pytest.mark.parametrize("user", SHELLS)
def test_a_job_through_every_login_shell(laptop: Laptop, user: str) -> None:
    laptop.add("far", user)
    home = laptop.machine.homes[user]
    for name in (".profile", ".bashrc", ".cshrc"):
        (home / name).write_text("echo 'Welcome to the machine'\n")
    (home / ".config/fish").mkdir(parents=True)
    (home / ".config/fish/config.fish").write_text("echo 'Welcome to the machine'\n")
    laptop.a_job()
    words = ["it's", 'a "quoted" $HOME', "`x` \\ !h", "*", "ü\n;"]
    answer = laptop(
        "--on", "far", "submit", "--json", "--", "python3", "-c", "import sys; print(sys.argv[1:])", *words
    )
    assert answer.returncode == 0, answer.stderr
    run = json.loads(answer.stdout)["id"]  # and nothing of the banner
    assert laptop("--on", "far", "wait", run).returncode == 0
    assert repr(words) in laptop("--on", "far", "logs", run).stdout
    assert laptop("--on", "far", "list").stdout.count("\n") == 2


def test_exit_codes_and_streams_are_the_verbs_own(laptop: Laptop) -> None:
    laptop.add("far")
    laptop.a_job()
    failed = laptop("--on", "far", "submit", "--follow", "--", "sh", "-c", "echo seen; exit 255")
    assert failed.returncode == 255 and "seen" in failed.stdout
    run = laptop("--on", "far", "list", "--json").stdout
    assert laptop("--on", "far", "wait", json.loads(run)["id"]).returncode == 255
    unknown = laptop("--on", "far", "status", "nothing-of-that-name")
    assert unknown.returncode == 1 and unknown.stdout == ""
    assert "no such run" in unknown.stderr and "`castoff --on far list` shows your runs" in unknown.stderr


@pytest.mark.long
def test_a_page_is_written_here(laptop: Laptop) -> None:
    laptop.add("far", "csh")
    laptop.a_job()
    run = str(laptop.submitted("far", "submit", "--", "echo", "hello")["id"])
    assert laptop("--on", "far", "wait", run).returncode == 0
    written = laptop("--on", "far", "report", run, "-o", "a page.html")
    assert (written.returncode, written.stdout) == (0, "")
    page = (laptop.project / "a page.html").read_text()
    assert page.startswith("<!DOCTYPE html>") and page.endswith("</html>\n") and run in page
    assert laptop("--on", "far", "report", run, "--largest").stdout.startswith("<!DOCTYPE html>")
    wrong = laptop("--on", "far", "report", run, "--by", "loss", "-o", "other.html")
    assert wrong.returncode == 1 and "loss" in wrong.stderr
    assert not (laptop.project / "other.html").exists()
    assert [path.name for path in laptop.far.glob("*.html")] == []
    other = str(laptop.submitted("far", "submit", "--", "echo", "again")["id"])
    assert laptop("--on", "far", "report", run, other, "--watch", "-o", "both.html").returncode == 0
    both = (laptop.project / "both.html").read_text()
    assert "<h1>2 runs compared</h1>" in both and 'http-equiv="refresh"' not in both
    results = laptop("--on", "far", "results", run, "--csv")
    assert results.stdout.startswith("run,member,state") and run in results.stdout
    assert run[:5] in laptop("--on", "far", "list").stdout
    assert "local" in laptop("--on", "far", "usage").stdout


def test_a_program_beside_a_rank_reads_what_is_given_here(laptop: Laptop) -> None:
    laptop.add("far", "fish")
    laptop.a_job()
    laptop.submitted("far", "submit", "--name", "long", "--", "sleep", "600")
    patience.until(lambda: "running" in laptop("--on", "far", "status", "long").stdout)
    beside = ("--on", "far", "shell", "long", "--", "tr", "a-z", "A-Z")
    patience.until(lambda: laptop(*beside, input="text\n").stdout == "TEXT\n")
    assert laptop("--on", "far", "cancel", "long").returncode == 0


def test_an_interrupt_ends_the_verb_there(laptop: Laptop) -> None:
    laptop.add("far")
    laptop.a_job()
    run = str(laptop.submitted("far", "submit", "--", "sleep", "600")["id"])

    def waiting() -> list[str]:
        found = subprocess.run(
            ["pgrep", "-f", f"on run .*wait {run}"], capture_output=True, text=True, check=False
        )
        return found.stdout.split()

    process = laptop.start("--on", "far", "wait", run)
    patience.until(waiting)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=patience.SECONDS)
    assert process.returncode == 130
    assert f"the runs there are unaffected; `castoff --on far wait {run}` continues" in errors
    patience.until(lambda: not waiting(), "the verb there did not end")
    assert laptop("--on", "far", "cancel", run).returncode == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--on", "nowhere", "list"], "`castoff on add nowhere USER@HOST --dir FOLDER` adds it"),
        (["--on", "far", "init"], "init writes a job file here"),
        (["--on", "far", "launch", "--", "true"], "without --on: castoff launch"),
        (["--on", "far"], "name a verb after --on far"),
        (["--on"], "--on takes the name of a machine"),
        (["--on", "far", "logs", "-o", "x.html"], "would write a file on far"),
        (["--on", "far", "status", "./here/run"], "name a run by its id"),
        (["--on", "far", "submit", "--runs-dir", "x", "--", "true"], "give its whole path there"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_any_connection(
    laptop: Laptop, words: list[str], message: str
) -> None:
    laptop.add("far", "no-such-host.invalid")
    (laptop.project / "here" / "run").mkdir(parents=True)
    refused = laptop(*words)
    assert refused.returncode in (1, 2) and message in refused.stderr, refused.stderr
    assert "ssh:" not in refused.stderr


def test_the_variable_and_the_project_name_the_machine(laptop: Laptop) -> None:
    laptop.add("far", "bash")
    laptop.a_job()
    laptop("--on", "far", "submit", "job.yaml")
    assert "toy-" in laptop("list", env={"CASTOFF_ON": "far"}).stdout
    (laptop.project / ".castoff").mkdir()
    laptop.write(".castoff/config.yaml", "on: far\n")
    listed = laptop("wait", "toy")
    assert listed.returncode == 0 and "toy-" in listed.stdout
    unknown = laptop("status", "nothing")
    assert "`castoff list` shows your runs" in unknown.stderr  # as it works here
    for here in ({"CASTOFF_ON": ""}, {"CASTOFF_ON": "local"}):
        assert "no runs yet" in laptop("list", env=here).stderr
    assert "no runs yet" in laptop("--on", "local", "list").stderr
    assert laptop("init", "--site", "local").returncode in (0, 1)  # which is about files here
    assert "no runs yet" in laptop("list", env={"CASTOFF_RUN_DIR": "/nowhere"}).stderr  # in a job


def test_a_setup_that_fails_is_named(laptop: Laptop) -> None:
    laptop.machine.settings.exists()
    laptop.write("x", "")
    added = laptop(
        *("on", "add", "far", "csh", "--dir", str(laptop.far), "--castoff", "castoff"),
        *("--setup", f"export PATH={Path(__file__).parent}:$PATH", "--setup", "false"),
    )
    assert added.returncode == 0
    failed = laptop("--on", "far", "list")
    assert failed.returncode == 1 and "far: setup: this line failed there: false" in failed.stderr


def test_a_login_shell_that_ends_by_itself_is_named(laptop: Laptop) -> None:
    laptop.add("far", "bash")
    (laptop.machine.homes["bash"] / ".bashrc").write_text('[ -n "$PS1" ] || exit 3\n')
    ended = laptop("--on", "far", "list")
    assert ended.returncode == 1 and "ended with code 3 before castoff began" in ended.stderr
    assert "perhaps a startup file there exits" in ended.stderr


@pytest.mark.parametrize("program", ["exec yes", "echo hello; exec cat"])
def test_what_is_not_a_castoff_is_given_up(laptop: Laptop, program: str) -> None:
    other = laptop.far / "other"
    other.write_text(f"#!/bin/sh\n{program}\n")
    other.chmod(0o755)
    laptop.add("far", "sh", castoff=str(other))
    laptop.a_job()
    refused = laptop("--on", "far", "submit", "job.yaml")
    assert refused.returncode == 1 and "the data is not a message of castoff" in refused.stderr
    assert "gave no usable answer while castoff was starting there" in refused.stderr


def test_another_version_there_is_reported_once(laptop: Laptop) -> None:
    laptop.add("far")
    other = laptop.write("old/castoff", "#!/bin/sh\necho 'castoff: no verb on' >&2; exit 2\n")
    other.chmod(0o755)
    laptop.add("old", castoff=str(other))
    assert laptop("--on", "old", "list").returncode == 2
    missing = laptop("--on", "far", "list")
    assert missing.returncode == 0
    laptop.add("none", castoff="/nowhere/castoff")
    refused = laptop("--on", "none", "list")
    assert refused.returncode == 1 and "/nowhere/castoff is not a program there" in refused.stderr
    laptop.add("empty", castoff="")
    offered = laptop("--on", "empty", "list")
    assert offered.returncode == 1 and "`castoff on install empty` installs it" in offered.stderr
