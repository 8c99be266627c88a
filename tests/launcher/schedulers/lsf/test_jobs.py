"""What LSF says of jobs, read from answers that were written after bjobs(1) of LSF 10.1, not recorded."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from castoff.launcher.schedulers.job_info import JobInfo
from castoff.launcher.schedulers.lsf.jobs import parse_denied, parse_queue

from ..pages import page

ANSWERS = Path(__file__).parents[2] / "answers" / "lsf"
TEXT = (ANSWERS / "jobs.txt").read_text()
JOBS = {
    Path(job.script).parent.name + (f".{job.task}" if job.task else ""): job
    for job in parse_queue(page(TEXT))
}


@pytest.mark.parametrize(
    ("name", "stage", "ending", "itself", "code"),
    [
        ("done", "ended", "done", True, 0),
        ("failed", "ended", "failed", True, 3),
        ("late", "ended", "walltime", False, 140),
        ("cancelled", "ended", "cancelled", False, 130),
        ("large", "ended", "out-of-memory", False, 137),
        ("lost", "ended", "node-failure", False, None),
        ("running", "running", "unknown", False, None),
        ("suspended", "running", "unknown", False, None),
        ("waiting", "pending", "unknown", False, None),
        ("void", "pending", "unknown", False, None),
        ("held", "pending", "unknown", False, None),
        ("unreached", "unknown", "unknown", False, None),
        ("array.2", "running", "unknown", False, None),
        ("array.3", "pending", "unknown", False, None),
    ],
)
def test_what_became_of_it(name: str, stage: str, ending: str, itself: bool, code: int | None) -> None:
    job = JOBS[name]
    assert (job.stage, job.ending, job.ended_itself, job.exit_code) == (stage, ending, itself, code)


def test_why() -> None:
    assert JOBS["cancelled"].was_cancelled and JOBS["cancelled"].why is None
    assert str(JOBS["large"].why).startswith("TERM_MEMLIMIT: job killed after")
    assert JOBS["waiting"].pending_reason == (
        "LSF has not found room for it yet (Job slot limit reached: 4 hosts)"
    )
    assert JOBS["void"].dependency_never_satisfied and not JOBS["waiting"].dependency_never_satisfied
    assert JOBS["held"].is_held and "`bresume 111`" in JOBS["held"].pending_reason


def test_where_and_which() -> None:
    assert parse_queue(page(TEXT))[0].folder == f"{Path.home()}/work"
    assert JOBS["array.3"].job == "113"
    assert JOBS["done"].runs("/runs/done/job.sh") and not JOBS["done"].runs("/runs/failed/job.sh")


def test_what_is_not_known() -> None:
    assert parse_denied((ANSWERS / "unknown.err").read_text()) == {"999"}  # OpenLava 2.2 says it, too
    assert parse_denied("Job <7[3]> is not found\nLSF is down. Please wait ...\n") == {"7"}


@pytest.mark.parametrize(
    "text",
    [
        "No unfinished job found\n",
        "batch system daemon not responding ... still trying\n",
        "7|0|RUN|-|-|-|/work|cut off",
        "7|0|RUN\n",
        "|||||||\n",
        "x|0|RUN|-|-|-|/work|/bin/bash\n",
        f"{'9' * 400}|0|RUN|-|-|-|/work|/bin/bash\n",
        f"7|{'9' * 400}|RUN|-|-|-|/work|/bin/bash\n",
        "JOBID|JOBINDEX|STAT|EXIT_CODE|EXIT_REASON|PEND_REASON|SUB_CWD|COMMAND\n",
    ],
)
def test_an_absurd_answer_says_nothing(text: str) -> None:
    assert parse_queue(page(text)) == []


@pytest.mark.parametrize("code", ["-", "", "9" * 400, "x", "1e9"])
def test_an_absurd_exit_code(code: str) -> None:
    (job,) = parse_queue(page(f"7|0|EXIT|{code}|-|-|/work|/bin/bash\n"))
    assert (job.ending, job.exit_code, job.ended_itself) == ("failed", None, False)


@given(st.text(alphabet=st.sampled_from("17|-[]\nRUNDOEXITPSKW \x00é"), max_size=60))
def test_no_answer_breaks_it(text: str) -> None:
    assert all(isinstance(job, JobInfo) and job.job.isdecimal() for job in parse_queue(page(text)))


def test_parts_end_anywhere() -> None:
    cut = (TEXT[at : at + 7] for at in range(0, len(TEXT), 7))
    assert len(parse_queue(cut)) == TEXT.count("\n")
