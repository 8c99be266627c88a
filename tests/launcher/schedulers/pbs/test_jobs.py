"""What qstat prints about jobs, and what castoff makes of it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from hypothesis import given
from hypothesis import strategies as st

from castoff.launcher.schedulers.job_info import JobInfo
from castoff.launcher.schedulers.pbs.jobs import parse_denied, parse_found, parse_queue
from tests.hostile import any_text

from ..pages import page

WORDS = any_text(categories=("Cc", "Cs")) | st.sampled_from(
    [
        "Job Id: 5",  # as a job's name
        "x = y",
        "    job_state = F",
        r"x\n\nJob Id: 5.head\n    Exit_status = 0\n",  # so does OpenPBS write the end of a line
        "a,b",
        "/a b/été-20261122-000000-abcd/job.sh",
    ]
)
"""Values of attributes: OpenPBS writes what cannot be printed so that it can."""

FURTHER = st.dictionaries(
    st.sampled_from(["Job_Name", "Account_Name", "project", "comment", "Resource_List.select", "depend"]),
    WORDS,
)


def block(job: str, attributes: Mapping[str, object]) -> str:
    """A job as `qstat -f -w` prints it."""
    return (
        "\n".join([f"Job Id: {job}", *(f"    {name} = {value}" for name, value in attributes.items())])
        + "\n\n"
    )


def read(info: JobInfo) -> tuple[object, ...]:
    """What is told of a job in as many words."""
    return (info.job, info.task, info.word, info.stage, info.exit_code, info.script, info.folder)


@st.composite
def jobs(draw: st.DrawFn) -> tuple[tuple[object, ...], str]:
    """A job, and what qstat prints of it."""
    name = f"{draw(st.integers(0, 10**9))}.{draw(st.sampled_from(['head', 'head.example.org']))}"
    word, folder, script = draw(st.sampled_from("QHWTRESUBFXM")), draw(WORDS), draw(WORDS)
    status = draw(st.none() | st.integers(-30, 300))
    further = draw(FURTHER)
    environment = {"PBS_O_HOME": draw(WORDS), "E": draw(WORDS), "PBS_O_WORKDIR": folder}
    # Without \, which before the comma that ends a value means another comma.
    environment = {key: value.replace("\\", "") for key, value in environment.items()}
    variables = ",".join(f"{key}=" + value.replace(",", r"\,") for key, value in environment.items())
    attributes = {
        **further,
        "job_state": word,
        "Submit_arguments": script,
        "Variable_List": f"A=b,{variables}",
    }
    if status is not None:
        attributes["Exit_status"] = str(status)
    stage = {**dict.fromkeys("QHWT", "pending"), "F": "ended", "X": "ended", "M": "unknown"}.get(
        word, "running"
    )
    code = status if stage == "ended" and status is not None and status >= 0 else None
    code = code if code is None or code < 256 else code - 128
    info = (name, None, word, stage, code, script, environment["PBS_O_WORKDIR"])
    return info, block(name, attributes)


@st.composite
def arrays(draw: st.DrawFn) -> tuple[list[JobInfo], str]:
    """An array's members, and what qstat prints of it."""
    number, indices = draw(st.integers(0, 10**9)), draw(st.sampled_from([(0, 3, 1), (2, 9, 3), (5, 6, 1)]))
    script = draw(WORDS)
    begin, last, step = indices
    whole = {
        "job_state": "B",
        "array_indices_submitted": f"{begin}-{last}:{step}",
        "Submit_arguments": script,
    }
    text, info = block(f"{number}[].head", whole), []
    for index in range(begin, last + 1, step):
        text += block(f"{number}[{index}].head", {"job_state": "R", "array_index": index})
        info.append(JobInfo(f"{number}[].head", index, "R", "running", script=script))
    return info, text


@given(st.lists(jobs(), max_size=4, unique_by=lambda one: one[0][0]), st.data())
def test_jobs_are_read_as_they_were_meant(
    made: list[tuple[tuple[object, ...], str]], data: st.DataObject
) -> None:
    """Where the answer was cut, those before that place are, and nothing else."""
    answer = "".join(text for _, text in made)
    assert [*map(read, parse_queue(page(answer)))] == [info for info, _ in made]
    cut = data.draw(st.integers(0, len(answer)))
    whole = [
        info
        for place, (info, _) in enumerate(made)
        if len("".join(one for _, one in made[: place + 1])) <= cut
    ]
    assert [*map(read, parse_queue(page(answer[:cut])))] == whole


@given(arrays(), st.data())
def test_an_array_is_reported_of_as_a_whole_or_not_at_all(
    made: tuple[list[JobInfo], str], data: st.DataObject
) -> None:
    info, text = made
    assert parse_queue(page(text)) == info
    cut = data.draw(st.integers(0, len(text) - 1))
    assert parse_queue(page(text[:cut])) == []


@given(st.text(), st.text(alphabet="Job Id:=\n .[]0123456789abstate_"))
def test_whatever_is_printed(anything: str, alike: str) -> None:
    for text in (
        anything,
        alike,
        f"Job Id: 7.head\n{anything}\n\n",
        f"Job Id: {anything}\n    job_state = R\n\n",
    ):
        parse_queue(page(text))
        parse_found(page(text))
        parse_denied(text)


def test_when_a_job_that_waits_may_begin() -> None:
    """Where the server estimates it (pbs_sched(8B)); as it is in this host's zone."""
    attributes = {
        "job_state": "Q",
        "comment": "Not Running: Insufficient amount of resource: ncpus",
        "estimated.start_time": "Fri Nov 27 10:20:30 2026",
    }
    (info,) = parse_queue(page(block("5.head", attributes)))
    assert info.pending_reason == "PBS says: Not Running: Insufficient amount of resource: ncpus"
    assert info.start == datetime(2026, 11, 27, 10, 20, 30).timestamp()
    (requeued,) = parse_queue(page(block("5.head", {**attributes, "stime": "Fri Nov 27 08:00:00 2026"})))
    assert requeued.start == info.start
    (held,) = parse_queue(page(block("5.head", {**attributes, "job_state": "H", "Hold_Types": "u"})))
    assert held.start is None
