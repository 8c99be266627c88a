"""Messages from the scripts of jobs, to a server on this host."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from castoff.launcher.notify import webhooks
from castoff.launcher.runs.notices import webhook_file
from castoff.launcher.runs.run import RunDirectory
from castoff.launcher.submission.resubmit import resubmit

from ..conftest import LocalJobs, objects
from .conftest import SECRET, Server

FAILS = "import sys; print('[rank0]: hello'); sys.exit(7) if False else int('x<y>')"


def job(jobs: LocalJobs, **fields: Any) -> RunDirectory:
    """A run of one rank that is over, with all that its script does then."""
    fields = {"name": "train", "notify": {"to": "phone"}, **fields}
    run = jobs.submit(jobs.job(json.dumps(fields)))
    jobs.wait(run)
    jobs.until_tidy(run)
    return run


def record(run: RunDirectory, name: str = "end=phone") -> Any:
    """What a run's directory says about a message."""
    return json.loads((run.path / "notify" / f"{name}.json").read_text())


def test_a_failure_with_its_reason_and_never_the_url(jobs: LocalJobs, server: Server) -> None:
    run = job(jobs, command=["python", "-c", FAILS])
    (got,) = server.got
    assert server.paths == [f"/{SECRET}"]
    assert got["title"] == "train: failed" and got["state"] == "failed" and got["run"] == run.id
    assert got["reason"].startswith("ValueError: invalid literal for int() with base 10: 'x<y>'; rank 0 on ")
    assert got["reason"].endswith(" failed first: exit code 1")
    assert got["text"].endswith(f"\nlocal, after {got['seconds']}s: castoff status {run.id}")
    assert record(run)["sent"] is True
    shown = jobs.castoff("status", run.id)
    assert "messages   phone: sent " in shown.stdout
    (facts,) = objects(jobs.castoff("status", run.id, "--json").stdout)
    assert [(one["event"], one["to"], one["sent"]) for one in facts["messages"]] == [("end", "phone", True)]
    assert jobs.holders(run, SECRET) == [] and SECRET not in shown.stdout


@pytest.mark.parametrize(
    ("on", "command", "titles"),
    [
        (["end"], "exit 0", ["train: done"]),
        (["fail"], "exit 0", []),
        (["fail"], "exit 3", ["train: failed"]),
    ],
)
def test_only_what_was_asked_for(
    on: list[str], command: str, titles: list[str], jobs: LocalJobs, server: Server
) -> None:
    job(jobs, command=["sh", "-c", command], notify={"to": "phone", "on": on})
    assert [got["title"] for got in server.got] == titles


def test_several_get_it_beside_each_other(jobs: LocalJobs, server: Server) -> None:
    webhooks.add("team", server.url, "slack", os.environ)
    run = job(jobs, command=["sh", "-c", "exit 0"], notify={"to": ["phone", "team", "me@example.org"]})
    assert sorted(next(iter(got)) for got in server.got) == ["text", "title"]
    assert record(run, "end=team")["sent"] and not (run.path / "notify" / "end=me@example.org.json").exists()


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((429, {"Retry-After": "30"}), "the server answered HTTP 429 to "),
        ((301, {"Location": "http://127.0.0.1:1/"}), "the server answered HTTP 301 to "),
        (None, "cannot connect to the server"),
    ],
)
def test_what_cannot_be_sent_changes_no_exit_code(
    answer: tuple[int, dict[str, str]] | None, said: str, jobs: LocalJobs, server: Server
) -> None:
    if answer is None:
        server.close()
    else:
        server.answers = [answer]
    run = job(jobs, command=["sh", "-c", "exit 5"])
    assert jobs.status(run)["code"] == 5
    assert said in record(run)["error"]
    shown = jobs.castoff("status", run.id).stdout
    assert f"phone: not sent: {record(run)['error']}; `castoff watch` sends it" in shown
    assert len(server.got) == (answer is not None)


@pytest.mark.costly
def test_a_server_that_does_not_answer_delays_nothing(jobs: LocalJobs, server: Server) -> None:
    server.hold.clear()
    run = job(jobs, command=["sh", "-c", "exit 5"])
    assert jobs.status(run)["code"] == 5
    assert "the server did not answer" in record(run)["error"]


def test_a_webhook_that_is_not_there_or_that_others_can_read(jobs: LocalJobs, server: Server) -> None:
    path = webhook_file("phone", os.environ)
    path.chmod(0o644)
    assert f"others may read or change {path}" in record(job(jobs, command=["true"]))["error"]
    path.unlink()
    assert f" has no {path} (castoff notify add phone)" in record(job(jobs, command=["true"]))["error"]
    path.write_text("https://example.org\n")
    path.chmod(0o600)
    assert f"{path} holds no URL and body" in record(job(jobs, command=["true"]))["error"]
    assert server.got == []


@pytest.mark.costly
def test_an_array_sends_its_first_failure_and_its_end(jobs: LocalJobs, server: Server) -> None:
    fails = 'test $((CASTOFF_ARRAY_INDEX % 3)) != 1 || { echo "a fatal day"; exit 9; }'
    run = job(jobs, command=["sh", "-c", fails], array={"count": 8, "max_concurrent": 1})
    assert [got["title"] for got in server.got] == ["train: member 1: failed", "train: 5 of 8 done"]
    assert server.got[0]["reason"].startswith("a fatal day; rank 0 on ")
    assert server.got[1]["reason"] == "failed: 1, 4, 7"
    resubmit(run, members=[4])
    jobs.wait(run)
    jobs.until_tidy(run)
    assert [got["title"] for got in server.got[2:]] == ["train: 5 of 8 done"], (
        "once more, after a resubmission"
    )


def test_a_group_sends_one_message(jobs: LocalJobs, server: Server) -> None:
    notify = {"to": "phone"}
    several = {"a": {"command": ["true"], "notify": notify}, "b": {"command": ["true"]}}
    several["c"] = {"command": ["true"], "notify": notify, "array": {"count": 2}, "after": {"afterok": ["a"]}}
    jobs.job(json.dumps({"name": "all", "jobs": several}))
    answer = jobs.castoff("submit", "job.yaml", "--site", "local", "-f", cwd=jobs.folder)
    assert answer.returncode == 0, answer.stderr
    for run in jobs.runs():
        jobs.until_tidy(run)
    assert [got["title"] for got in server.got] == ["all: 3 of 3 done"]
    assert server.got[0]["command"] == f"castoff status {server.got[0]['run']}"
    assert server.got[0]["run"].startswith("all-")


@pytest.mark.costly
def test_a_hang_that_a_restart_mends(jobs: LocalJobs, server: Server) -> None:
    waits = "if [ $CASTOFF_ATTEMPT = 0 ]; then sleep 600; fi"
    job(
        jobs,
        command=["sh", "-c", waits],
        restart={"max": 1, "hang": "1s"},
        notify={"to": "phone", "on": ["hang", "fail"]},
    )
    assert [got["title"] for got in server.got] == ["train: hang, restarted"]
    assert server.got[0]["reason"].startswith("hang: no output and no progress for 1 s;")


def test_a_resumed_attempt_is_not_the_end(jobs: LocalJobs, server: Server) -> None:
    resumes = 'test "$CASTOFF_ATTEMPT" = 1 || echo resume >"$CASTOFF_OUTCOME_FILE"'
    job(jobs, command=["sh", "-c", resumes], requeue={"max": 2})
    assert [got["title"] for got in server.got] == ["train: done"]


def test_a_setup_that_fails(jobs: LocalJobs, server: Server) -> None:
    job(jobs, command=["true"], setup=["module() { return 4; }; module load nothing"])
    assert [got["reason"] for got in server.got] == [
        "setup ended the job with code 4: module() { return 4; }; module load nothing"
    ] or server.got[0]["reason"].startswith("setup ended the job with code 4")
