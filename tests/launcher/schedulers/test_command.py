"""How a scheduler's commands are run: what they print is read as far as it is of use."""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Callable
from functools import partial
from itertools import chain
from pathlib import Path

import pytest

from castoff.launcher.schedulers import command
from castoff.launcher.schedulers import page as pages
from castoff.launcher.schedulers.command import SchedulerUnreachable, answer_of, read_to_end, run_to_end
from castoff.launcher.schedulers.flux import jobs as flux
from castoff.launcher.schedulers.job_info import JobInfo, JobUsage
from castoff.launcher.schedulers.page import Page, Wanted
from castoff.launcher.schedulers.pbs import jobs as pbs
from castoff.launcher.schedulers.pbs.accounting import parse_usage as pbs_usage
from castoff.launcher.schedulers.slurm import jobs as slurm
from castoff.launcher.schedulers.slurm.accounting import parse_usage as slurm_usage


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


def test_an_answer_is_read_as_it_arrives(tmp_path: Path, environ: dict[str, str]) -> None:
    """Whatever is cut in two: a line, the end of a line, a letter."""
    go = f"read -r _ <{tmp_path}/go"
    program(tmp_path, f"printf 'a\\r'; {go}; printf '\\nf\\303'; {go}; printf '\\274r\\377\\rb'")
    os.mkfifo(tmp_path / "go")
    fifo = os.open(tmp_path / "go", os.O_RDWR)

    def read(page: Page) -> list[str]:
        found = []
        for part in page:
            found.append(part)
            if part in ("a", "\nf"):  # it goes on once this has been read
                os.write(fifo, b"\n")
        return found

    done, found = read_to_end(["squeue"], 600.0, environ, read)
    os.close(fifo)
    assert "".join(found) == done.stdout == "a\nfür\udcff\nb" and len(found) > 2


def test_what_a_reader_leaves_is_read_all_the_same(tmp_path: Path, environ: dict[str, str]) -> None:
    program(tmp_path, "head -c 3000000 /dev/zero; echo wrong >&2; exit 3")
    done, found = read_to_end(["squeue"], 600.0, environ, lambda page: len(next(page)) > 0)
    assert found and done.returncode == 3 and done.stderr == "wrong\n" and len(done.stdout) == 1 << 16


def test_a_line_without_end_is_not_read_to_its_end(
    tmp_path: Path, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "LONGEST_RECORD", 1 << 20)
    program(tmp_path, "exec cat /dev/zero")
    with pytest.raises(SchedulerUnreachable, match="squeue printed more than 1 MiB that are not one job's"):
        read_to_end(["squeue"], 600.0, environ, slurm.parse_queue)


def of_jobs(*jobs: str) -> Wanted:
    return lambda job, _: job in jobs


QSTAT = "Job Id: {}.head\n    job_state = R\n    resources_used.mem = 1kb\n    project = x\n\n"
FLUX = '{{"id": {}, "status": "RUN", "cwd": "/home/me/elsewhere"}}'
USAGE = "{}|100|60|4|1|2G|00:04|1K|cpu=00:00:01|\n"
HISTORY = "{}|FAILED|1:0|1|2|3|sbatch /home/me/other.sh\n"


@pytest.mark.parametrize(
    ("parse", "beginning", "record", "ending"),
    [
        (
            partial(slurm.parse_queue, wanted=of_jobs("7")),
            "7|N/A|RUNNING|None|1|1|N/A|/x\n",
            "{}|N/A|RUNNING|None|1|1|N/A|/home/me/other.sh\n",
            "",
        ),
        (partial(slurm.parse_history, wanted=of_jobs("7")), HISTORY.format(7), HISTORY, ""),
        (slurm.parse_history, HISTORY.format(7), HISTORY.replace("{}", "7.{}"), ""),
        (partial(slurm_usage, wanted=of_jobs("7")), USAGE.format(7), USAGE, ""),
        (slurm_usage, USAGE.format(7), USAGE.replace("{}", "7.{}"), ""),
        (partial(pbs.parse_queue, jobs={"7.head"}), QSTAT.format(7), QSTAT, ""),
        (partial(pbs_usage, jobs={"7.head"}), QSTAT.format(7), QSTAT, ""),
        (
            partial(flux.parse_queue, wanted=of_jobs("7")),
            f'{{"jobs": [\n{FLUX.format(7)}',
            f",\n{FLUX}",
            "\n]}\n",
        ),
    ],
    ids=["squeue", "sacct", "steps", "usage", "usage of steps", "qstat", "usage by qstat", "flux jobs"],
)
def test_others_jobs_take_no_memory(
    parse: Callable[[Page], list[JobInfo | JobUsage]], beginning: str, record: str, ending: str
) -> None:
    """Nor do a job's own steps, however many they are."""
    most = {}
    for count in (1_000, 10_000):
        parts = (
            "".join(map(record.format, range(first, first + 100))) for first in range(1000, 1000 + count, 100)
        )
        tracemalloc.start()
        found = parse(chain([beginning], parts, [ending]))
        most[count] = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert [one.job.partition(".")[0] for one in found] == ["7"]
    assert most[10_000] < most[1_000] + 50_000
