"""Jobs that are submitted from a laptop: checked here, with their code, once."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from castoff.launcher.config.job_fields import Snapshot
from castoff.launcher.errors import CastoffError
from castoff.launcher.remote.code import travelling
from castoff.launcher.remote.entries import Entry
from castoff.launcher.remote.messages import PROTOCOL, ConnectionLost, Hello, Lacking
from castoff.launcher.remote.remembered import pending
from castoff.launcher.remote.submission import remembered_site, reported_site, send_code
from tests.command_line import COMMAND
from tests.remote.conftest import Laptop


def test_code_and_job_travel(laptop: Laptop) -> None:
    laptop.add("far", "csh")
    laptop.write("sub dir/deep/é \n.txt", "x")
    laptop.write("run.sh", "#!/bin/sh\ncat link\n").chmod(0o755)
    (laptop.project / "link").symlink_to("sub dir/deep/é \n.txt")
    laptop.write(".gitignore", "data/\n")
    laptop.write("data/large", "not code")
    job = laptop.a_job()
    answer = laptop("--on", "far", "submit", job)
    assert answer.returncode == 0, answer.stderr
    assert "castoff: code: 6 files" in answer.stderr and "to send" in answer.stderr
    assert "far: toy-" in answer.stderr and "`castoff --on far logs -f toy-" in answer.stderr
    assert "on          far (csh)" in answer.stdout and "(branch main, unchanged)" in answer.stdout
    assert laptop("--on", "far", "wait", "toy").returncode == 0
    (code,) = (laptop.far / "code" / "my_project").glob("[!.]*")
    assert f"here is {code} with None" in laptop("--on", "far", "logs", "toy").stdout
    assert not (code / "data").exists() and os.access(code / "run.sh", os.X_OK)
    assert (code / "link").is_symlink() and (code / "link").read_text() == "x"
    again = laptop("--on", "far", "submit", job, "--set", f"command=[cat, {laptop.project}/train.py, /etc]")
    assert f"command.1: {laptop.project}/train.py is a path on this machine; in" in again.stderr
    assert "sent, it is train.py" in again.stderr and "command.2" not in again.stderr
    assert "the machine has all of it already" in again.stderr
    laptop.write("train.py", "print('other')\n")
    laptop.write(os.fsdecode(b"new \xff.txt"), "new\n")
    changed = laptop("--on", "far", "submit", job)
    assert "7 files" in changed.stderr and "; 2 files, 19 bytes, to send" in changed.stderr
    assert "1 file changed, 1 file new" in changed.stdout
    run = next(line.split()[1] for line in changed.stdout.splitlines() if line.startswith("run "))
    assert "+print('other')" in (laptop.far / "castoff-runs" / run / "code.diff").read_text()
    assert len(laptop.runs()) == 3
    assert laptop("--on", "far", "wait", run).returncode == 0


def test_mistakes_are_reported_before_any_connection(laptop: Laptop) -> None:
    laptop.add("far", "no-such-host.invalid")
    laptop.a_job()

    def refused(message: str, *words: str) -> None:
        answer = laptop("--on", "far", "submit", *words)
        assert answer.returncode in (1, 2) and message in answer.stderr, answer.stderr
        assert "ssh" not in answer.stderr

    laptop.write("typo.yaml", "comand: [python3, train.py]\n")
    refused("did you mean command?", "typo.yaml")
    refused("TOKEN not set in this environment", "job.yaml", "--set", "env_from=[TOKEN]")
    refused("'trian.py', which is not in", "--", "python3", "trian.py")
    refused("did you mean train.py?", "--", "python3", "trian.py")
    laptop.write(".gitignore", "secret.py\n")
    laptop.write("secret.py", "")
    refused("is not sent, because git ignores it", "--", "python3", "secret.py")
    refused("snapshot.link: data", "job.yaml", "--set", "snapshot={link: [data]}")
    refused("no such file", "jobb.yaml")
    assert laptop("--on", "far", "submit", "--dry-run", "job.yaml").returncode == 0
    assert (
        laptop("--on", "far", "render", "job.yaml").stdout
        == laptop("render", "--site", "local", "job.yaml").stdout
    )


def test_the_script_is_the_one_that_is_rendered_here(laptop: Laptop) -> None:
    laptop.add("far", "bash")
    laptop.write("parts/blocks/announce.sh", "castoff_announce() { echo mine; }\n")
    laptop.write("x", "")
    job = laptop.a_job()
    rendered = laptop("--on", "far", "render", job).stdout
    run = str(laptop.submitted("far", "submit", job)["id"])
    assert (laptop.far / "castoff-runs" / run / "job.sh").read_text() == rendered
    assert laptop("--on", "far", "wait", run).returncode == 0


def test_secrets_travel_in_no_command_line_and_no_record(laptop: Laptop) -> None:
    laptop.add("far", "fish")
    laptop.a_job()
    laptop.write("notes.txt", "my token is s3cr3t-value\n")
    secret = {"TOKEN": "s3cr3t-value"}
    run = str(laptop.submitted("far", "submit", "job.yaml", "--set", "env_from=[TOKEN]", env=secret)["id"])
    assert laptop("--on", "far", "wait", run).returncode == 0
    path = laptop.far / "castoff-runs" / run
    assert "with s3cr3t-value" in laptop("--on", "far", "logs", run).stdout
    held = [one.name for one in path.rglob("*") if one.is_file() and "s3cr3t" in one.read_text()]
    assert {*held} <= {"job-0.log", "rank-00000.log", "secrets.sh"}
    missing = laptop("--on", "far", "resubmit", "--include-done", run)
    assert missing.returncode == 1 and "TOKEN not set in this environment" in missing.stderr
    elsewhere = {"TOKEN": "x", "XDG_STATE_HOME": str(laptop.project)}
    asked = laptop("--on", "far", "resubmit", "--include-done", run, env=elsewhere)
    assert asked.returncode == 1 and f"far: {run} takes TOKEN from your environment" in asked.stderr
    again = laptop("--on", "far", "resubmit", "--include-done", "-f", run, env={"TOKEN": "an0ther"})
    assert again.returncode == 0 and "with an0ther" in again.stdout, again.stderr


def test_outside_of_git_and_below_the_top(laptop: Laptop) -> None:
    laptop.add("far")
    laptop.write("train.py", "import os; print('in', os.getcwd())\n")
    laptop.write(".ssh/id_rsa", "mine")
    refused = laptop("--on", "far", "submit", "--", "python3", "train.py")
    assert refused.returncode == 1 and "is not in a git repository, so all its files" in refused.stderr
    assert "train.py (" in refused.stderr and "may hold secrets: .ssh/" in refused.stderr
    assert "nothing was sent" in refused.stderr and not (laptop.far / "code").exists()
    run = str(laptop.submitted("far", "submit", "--yes", "--", "python3", "train.py")["id"])
    assert laptop("--on", "far", "wait", run).returncode == 0
    assert "/code/my_project/files-" in laptop("--on", "far", "logs", run).stdout
    assert not [*laptop.far.rglob("id_rsa")]
    laptop.submitted("far", "submit", "--", "python3", "train.py")  # it was agreed to before


def test_code_that_a_job_has_changed_is_not_used_again(laptop: Laptop) -> None:
    laptop.add("far")
    laptop.a_job()
    laptop.write("train.py", "open('train.py', 'a').write('# changed')\n")
    laptop.commit()
    for expected in ("", "train.py was changed on the machine since it was sent"):
        answer = laptop("--on", "far", "submit", "job.yaml")
        assert answer.returncode == 0 and expected in answer.stderr, answer.stderr
        assert laptop("--on", "far", "wait", "toy").returncode == 0
    folders = sorted(path.name for path in (laptop.far / "code/my_project").glob("[!.]*"))
    assert len(folders) == 2 and folders[1] == f"{folders[0]}.2"


def test_the_site_that_the_machine_reports_is_remembered(laptop: Laptop) -> None:
    laptop.add("far", "sh", site="")
    config = laptop.machine.homes["sh"] / ".config/castoff/sites"
    config.mkdir(parents=True)
    (config / "lab.yaml").write_text("extends: local\ndescription: The lab\nenv: {FROM_LAB: yes}\n")
    laptop.a_job()
    profile = laptop.machine.homes["sh"] / ".profile"
    profile.write_text("export CASTOFF_SITE=lab\n")
    added = laptop(
        *(
            "on",
            "add",
            "far",
            "sh",
            "--dir",
            str(laptop.far),
            "--castoff",
            str(COMMAND),
        ),
        *("--setup", "export CASTOFF_SITE=lab"),
    )
    assert added.returncode == 0
    facts = laptop.submitted("far", "submit", "job.yaml")
    script = Path(str(facts["directory"]), "job.sh").read_text()
    assert "FROM_LAB" in script
    assert laptop("--on", "far", "wait", "toy").returncode == 0
    laptop.machine.disconnect()
    rendered = laptop("--on", "far", "render", "job.yaml", env={"PATH": f"{COMMAND.parent}:/usr/bin:/bin"})
    assert rendered.returncode == 0 and rendered.stdout == script  # without a connection


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"hitherto": "unknown"}, "if the two castoffs differ, `castoff on install far`"),
        (
            {"defaults": {"env_from": ["AWS_SECRET"]}},
            "far: site lab: defaults.env_from would read",
        ),
        ({"defaults": {"templates": "/etc"}}, "far: site lab: defaults.templates would read"),
        ({"launcher": "made up"}, "far: castoff here cannot use the profile"),
    ],
)
def test_a_profile_from_there_reads_nothing_here(
    fields: dict[str, object], message: str, tmp_path: Path
) -> None:
    site = {"name": "lab", "description": "A lab", "scheduler": "local", "launcher": "local", **fields}
    hello = Hello(PROTOCOL, "1", "3", "/far", site=site)
    entry = Entry(name="far", host="h", dir="d")
    environ = {"XDG_STATE_HOME": str(tmp_path)}
    with pytest.raises(CastoffError, match=re.escape(message)):
        reported_site(SimpleNamespace(hello=hello), entry, environ)  # type: ignore[arg-type]
    assert remembered_site(entry, environ) is None


@pytest.mark.parametrize("numbers", [[0, 0], [-1], [2], [0, 1 << 60]])
def test_only_listed_files_are_sent_each_once(numbers: list[int], tmp_path: Path) -> None:
    (tmp_path / "one").write_text("1")
    (tmp_path / "two").write_text("2")
    code = travelling(tmp_path, Snapshot(), {"PATH": os.environ["PATH"]}, [])
    sent: list[object] = []
    session = SimpleNamespace(ask=lambda *_: Lacking(numbers), send=sent.append)
    with pytest.raises(ConnectionLost, match="asked for files that are not in the list"):
        send_code(session, code, print)  # type: ignore[arg-type]
    assert not sent


def test_two_at_the_same_time_are_two_runs(laptop: Laptop) -> None:
    laptop.add("far")
    laptop.a_job()
    both = [laptop.start("--on", "far", "submit", "--json", "job.yaml") for _ in range(2)]
    answers = [process.communicate() for process in both]
    assert len({json.loads(answer)["id"] for answer, _ in answers}) == 2, answers
    assert len(laptop.runs()) == 2


def test_an_id_is_kept_until_it_is_answered(tmp_path: Path) -> None:
    environ = {"XDG_STATE_HOME": str(tmp_path)}
    entry = Entry(name="far", host="h", dir="d")
    with pending(entry, b"job", "toy", environ) as first, pending(entry, b"job", "toy", environ) as beside:
        assert first.run != beside.run and not beside.is_old
        beside.answered()
    with pending(entry, b"job", "toy", environ) as second:
        assert second.run == first.run and second.is_old
        second.answered()
    with pending(entry, b"job", "toy", environ) as third:
        assert third.run != first.run and not third.is_old
    assert all(path.stat().st_mode & 0o077 == 0 for path in tmp_path.rglob("*.json"))


@pytest.mark.parametrize("follow", [[], ["-f"]])
def test_a_refusal_is_an_answer(laptop: Laptop, follow: list[str]) -> None:
    laptop.add("far")
    laptop.a_job()
    refused = laptop("--on", "far", "submit", *follow, "job.yaml", "--set", "after={afterok: [nothing]}")
    assert refused.returncode != 0 and "far: " in refused.stderr
    assert laptop.runs() == []
    assert not [*(laptop.home / ".local/state/castoff/on/pending").glob("*")]
