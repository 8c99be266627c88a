"""How a scheduler's commands are run: what they print is read as far as it is of use."""

from __future__ import annotations

import os
import tracemalloc
from pathlib import Path

import pytest

from launcher.schedulers import command
from launcher.schedulers.command import SchedulerUnreachable, answer_of, run_to_end
from launcher.schedulers.slurm.jobs import parse_queue


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"PATH": f"{tmp_path}:{os.environ['PATH']}"}


def program(folder: Path, text: str) -> None:
    path = folder / "squeue"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def test_an_answer_without_end_is_not_read_to_its_end(
    tmp_path: Path, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "LONGEST_ANSWER", 1 << 20)
    program(tmp_path, "exec yes")
    with pytest.raises(SchedulerUnreachable, match="squeue printed more than 1 MiB"):
        run_to_end(["squeue"], 600.0, environ)


def test_complaints_without_end_are_kept_in_part(tmp_path: Path, environ: dict[str, str]) -> None:
    program(tmp_path, "head -c 9000000 /dev/zero | tr '\\0' x >&2; echo fine")
    done = run_to_end(["squeue"], 600.0, environ)
    assert done.stdout == "fine\n" and len(done.stderr) == 1 << 20


def test_a_whole_answer_of_the_longest_length(
    tmp_path: Path, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path, "head -c 300000 /dev/zero | tr '\\0' x")
    monkeypatch.setattr(command, "LONGEST_ANSWER", 300000)
    assert answer_of(["squeue"], 600.0, environ) == "x" * 300000


def test_a_command_that_prints_and_does_not_end(tmp_path: Path, environ: dict[str, str]) -> None:
    program(tmp_path, "echo one; exec sleep 600")
    with pytest.raises(SchedulerUnreachable, match=r"squeue gave no answer within 0\.5 s"):
        run_to_end(["squeue"], 0.5, environ)


def test_others_jobs_take_no_memory() -> None:
    line = "{}|N/A|RUNNING|None|1|1|N/A|/home/me/other.sh\n"
    page = "".join(line.format(job) for job in range(200_000)) + line.format(7).replace("other", "x/job")
    tracemalloc.start()
    found = parse_queue(page, {"5"})
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [one.job for one in found] == ["5", "7"]
    assert peak < len(page) / 10
