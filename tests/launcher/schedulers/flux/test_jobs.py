"""What Flux says of jobs, read from answers of a real flux-core 0.88."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from castoff.launcher.schedulers.flux.jobs import decimal, f58, parse_denied, parse_queue

from ..pages import page

ANSWERS = Path(__file__).parents[2] / "answers" / "flux"

NAMES = [
    *("done", "failed", "killed", "walltime", "cancelled", "running", "waits-for-room", "waits-for-job"),
    *("held", "cancelled-pending", "too-large", "void"),
]
"""The jobs in jobs.json, in the order in which they were asked for."""

JOBS = dict(zip(NAMES, parse_queue(page((ANSWERS / "jobs.json").read_text())), strict=True))


@pytest.mark.parametrize(
    ("name", "stage", "ending", "itself", "code"),
    [
        ("done", "ended", "done", True, 0),
        ("failed", "ended", "failed", True, 3),
        ("killed", "ended", "failed", True, 137),
        ("walltime", "ended", "walltime", False, 137),
        ("cancelled", "ended", "cancelled", False, 129),
        ("running", "running", "unknown", False, None),
        ("waits-for-room", "pending", "unknown", False, None),
        ("waits-for-job", "pending", "unknown", False, None),
        ("held", "pending", "unknown", False, None),
        ("cancelled-pending", "ended", "cancelled", False, None),
        ("too-large", "pending", "unknown", False, None),  # until Flux has looked at it
        ("void", "ended", "failed", False, None),
    ],
)
def test_what_became_of_it(name: str, stage: str, ending: str, itself: bool, code: int | None) -> None:
    job = JOBS[name]
    assert (job.stage, job.ending, job.ended_itself, job.exit_code) == (stage, ending, itself, code)


def test_times() -> None:
    done, waits = JOBS["done"], JOBS["held"]
    assert done.submitted and done.start and done.end and done.submitted < done.start < done.end
    assert waits.submitted and waits.start is None and waits.end is None
    assert JOBS["running"].start and JOBS["running"].end is None
    assert JOBS["cancelled-pending"].start is None and JOBS["cancelled-pending"].end


def test_why_it_waits() -> None:
    assert JOBS["waits-for-room"].pending_reason == "Flux has not found room for it yet"
    first, second = JOBS["running"].job, JOBS["waits-for-room"].job
    info = f"after-success={f58(first)}, after-finish={f58(second)}"
    assert JOBS["waits-for-job"].pending_reason == f"it waits for other jobs ({info})"
    assert f"`flux job urgency {JOBS['held'].job} default` releases it" in JOBS["held"].pending_reason
    assert [name for name, job in JOBS.items() if job.is_held] == ["held"]


def test_why_it_ended() -> None:
    void = JOBS["void"]
    assert void.dependency_never_satisfied and "can never be satisfied" in (void.why or "")
    assert [name for name, job in JOBS.items() if job.why] == ["void"]


def test_the_host_of_its_script_was_lost() -> None:
    """As flux-core 0.88.0 said it where a host was off, and where its broker was killed."""
    lost = {"occurred": True, "severity": 0, "type": "exec", "note": "node failure on fx1 (rank 1)"}
    record = {"id": 1, "status": "FAILED", "t_run": 1.0, "returncode": 137, "exception": lost}
    (job,) = parse_queue(page(json.dumps(record)))
    assert (job.ending, job.why) == ("node-failure", "Flux ended it (exec): node failure on fx1 (rank 1)")
    record["exception"] = {**lost, "note": "unable to execute job shell"}
    assert [one.ending for one in parse_queue(page(json.dumps(record)))] == ["failed"]


def test_a_single_job_is_read_though_it_is_not_a_list() -> None:
    (one,) = parse_queue(page((ANSWERS / "one.json").read_text()))
    assert one == JOBS["running"]


def test_one_of_two_that_are_asked_about() -> None:
    (one,) = parse_queue(page((ANSWERS / "one-of-two.json").read_text()))
    assert one == JOBS["running"]
    assert parse_denied((ANSWERS / "one-of-two.err").read_text()) == {"123456"}


def test_none() -> None:
    assert parse_queue(page((ANSWERS / "unknown.json").read_text())) == []
    assert parse_denied((ANSWERS / "unknown.err").read_text()) == {"123456"}
    for text in ("[]", '{"jobs": [{}, null]}', "flux: no"):
        assert parse_queue(page(text)) == []


def test_an_answer_that_was_cut_off_says_nothing() -> None:
    text = (ANSWERS / "jobs.json").read_text()
    for end in range(0, len(text.rstrip()), 97):
        assert parse_queue(page(text[:end], 1 << 16)) == []
    assert parse_queue(page(text + "{}")) == []


def test_its_script_is_that_of_its_working_directory() -> None:
    (job,) = parse_queue(page('{"id": 1, "status": "RUN", "cwd": "/runs/train-1"}'))
    assert job.runs("/runs/train-1/job.sh") and job.runs("/moved/train-1/job.sh")
    assert not job.runs("/runs/train-10/job.sh")


@pytest.mark.parametrize(
    ("f58_", "number"),
    [("fDAtp9U4w", "26872435965952"), ("ƒDAtp9U4w", "26872435965952"), ("f1", "0"), ("123", "123")],
)
def test_ids(f58_: str, number: str) -> None:
    assert decimal(f58_) == number
    assert decimal(f58(number)) == number


@pytest.mark.parametrize("text", ["", "f", "f0", "fI", "DAtp9U4w", "f1 f2", "-1", "f" + "z" * 30])
def test_invalid_ids_are_refused(text: str) -> None:
    assert decimal(text) is None
