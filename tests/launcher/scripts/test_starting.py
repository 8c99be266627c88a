"""Ranks on several hosts that do not start: the job says which, and ends when that has taken too long."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import patience

from .conftest import Benches
from .harness import Bench, Started
from .machine import FOLDER, part

ADVICE = {"srun": "squeue --steps --job 12", "pals": "pbsnodes NODE"}
SUFFIX = {"srun": "", "pals": ".hostmgmt2.cm.aurora.alcf.anl.gov"}


def hung(here: Bench, timeout: str = "2s", **fields: Any) -> Started:
    """A job on three nodes whose second does not start its ranks before the file `go` is there."""
    reported = {"STUB_HUNG_NODE": "1", "STUB_GO": str(here.seen / "go")}
    return here.start(nodes=3, ranks_per_node=2, launcher={"timeout": timeout, **fields}, env=reported)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["srun", "pals"])
def test_a_node_that_does_not_start(kind: str, bench: Benches) -> None:
    ended = hung(bench(kind)).end()
    assert (ended.code, ended.ending) == (1, ("failed", 1)), ended.output
    # On a busy machine the time may be over before it is first looked.
    *_, last = (line for line in ended.output.splitlines() if "not started: " in line)
    assert last.startswith("castoff: the job is ended: launcher.timeout is 2 s, and after ")
    assert f"x1{SUFFIX[kind]} (ranks 2, 3)" in last


@pytest.mark.long
@pytest.mark.parametrize("kind", ["srun", "pals"])
def test_a_node_that_is_only_slow(kind: str, bench: Benches) -> None:
    """It is told of, and ends nothing."""
    here = bench(kind)
    text = (FOLDER / "unstarted.sh").read_text()
    assert text.count("castoff_patience=20") == 1
    own = here.folder / "own" / "blocks"
    own.mkdir(parents=True)
    (own / "unstarted.sh").write_text(text.replace("castoff_patience=20", "castoff_patience=0"))
    reported = {"STUB_HUNG_NODE": "1", "STUB_GO": str(here.seen / "go")}
    started = here.start(nodes=2, ranks_per_node=2, templates=str(own.parent), env=reported)
    lines = []
    try:
        assert started.process.stdout is not None
        for line in iter(started.process.stdout.readline, ""):
            lines.append(line)
            if line.startswith("castoff: if they have not after 600 s (launcher.timeout), the job is ended"):
                break
    finally:
        (here.seen / "go").touch()
    ended = started.end()
    assert (ended.code, ended.ending) == (0, ("done", 0)), ended.output
    *_, notice = (line for line in lines if "these have not started: " in line)
    assert notice.startswith("castoff: after ") and f"x1{SUFFIX[kind]} (ranks 2, 3)" in notice
    assert ADVICE[kind] in "".join(lines)
    assert len(here.ranks()) == 4


def test_one_node_is_not_watched(bench: Benches) -> None:
    here = bench("srun")
    ended = here.run(launcher={"timeout": "1s"})
    assert ended.code == 0, ended.output
    assert "start_timeout" not in (ended.run_dir / "job.sh").read_text()


def said(text: str, command: str, values: dict[str, str]) -> str:
    """What a command prints in a script of that text, which has these variables; it must not complain."""
    answer = subprocess.run(
        ["bash", "-c", f"set -euo pipefail\n{text}{command}"],
        env={**os.environ, **values},
        capture_output=True,
        text=True,
        timeout=patience.SECONDS,
        check=True,
    )
    assert not answer.stderr
    return answer.stdout


UNSTARTED = [
    # by, logs, first is marked, ranks on the first nodes, how many such nodes, hosts; what is said
    ("host", "rank-0 rank-1 rank-2 rank-3", False, 2, 2, 2, ""),
    ("host", "rank-0 rank-1 rank-2 rank-3", True, 2, 2, 2, "h0 (rank 0)"),
    ("host", "rank-0", False, 3, 1, 2, "h0 (ranks 1, 2), h1 (ranks 3, 4)"),
    ("host", "rank-0", True, 3, 2, 2, "h0 (ranks 0-2), h1 (ranks 3-5)"),
    ("host", "rank-0 rank-2 rank-4", False, 1, 5, 5, "h1 (rank 1), h3 (rank 3)"),
    ("host", "node-0 node-2 rank-9", False, 4, 3, 3, "h1 (ranks 4-7)"),
    ("host", "node-0", True, 4, 1, 1, "h0 (ranks 0-3)"),
    (
        *("host", "node-0", False, 1, 11, 11),
        ", ".join(f"h{rank} (rank {rank})" for rank in range(1, 9)) + " and those of 2 other hosts",
    ),
    ("number", "rank-0 rank-3", False, 2, 2, 2, "ranks 1, 2"),
    ("number", "node-0 node-2 rank-1", False, 4, 3, 3, "node 1"),
    ("number", "rank-0 rank-1 rank-2 rank-3", False, 2, 2, 2, ""),
]


@pytest.mark.parametrize(("by", "logs", "starting", "most", "full", "hosts", "words"), UNSTARTED)
def test_who_has_not_started(
    by: str, logs: str, starting: bool, most: int, full: int, hosts: int, words: str, tmp_path: Path
) -> None:
    for name in logs.split():
        kind, _, number = name.partition("-")
        (tmp_path / f"{kind}-{int(number):05d}.log").touch()
    (tmp_path / "hosts").write_text("".join(f"h{number}\n" for number in range(hosts)))
    if starting:
        (tmp_path / "starting").touch()
    first = f"{logs.partition('-')[0]}-00000.log"
    text = part("unstarted", *(["distribution"] if by == "number" else []))
    values = {
        **{"CASTOFF_LOG_DIR": str(tmp_path), "CASTOFF_ATTEMPT_DIR": str(tmp_path)},
        **{"castoff_first_log": first, "castoff_nodes": str(hosts), "castoff_ranks_per_node": str(most)},
        **{"castoff_full_nodes": str(full), "castoff_ranks": str(most * hosts - (hosts - full))},
    }
    assert said(text, "castoff_unstarted", values).strip() == words


def test_who_of_nodes_with_other_numbers_of_ranks_has_not_started(tmp_path: Path) -> None:
    for rank in (0, 2, 5):
        (tmp_path / f"rank-{rank:05d}.log").touch()
    (tmp_path / "hosts").write_text("h0\nh1\nh2\nh3\n")
    values = {
        **{"CASTOFF_LOG_DIR": str(tmp_path), "CASTOFF_ATTEMPT_DIR": str(tmp_path)},
        **{"castoff_first_log": "rank-00000.log", "castoff_groups": "1x1 2x3 1x2"},
    }
    assert said(part("unstarted", "groups"), "castoff_unstarted", values) == (
        "h1 (ranks 1, 3), h2 (ranks 4, 6), h3 (ranks 7, 8)\n"
    )


@pytest.mark.parametrize(
    ("launcher", "form"), [("hydra", "{}:{}"), ("intelmpi", "{}:{}"), ("openmpi", "{} slots={}")]
)
def test_a_host_file_of_nodes_with_other_numbers_of_ranks(launcher: str, form: str, tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("h0\nh1\nh2\nh3\n")
    values = {"CASTOFF_ATTEMPT_DIR": str(tmp_path), "castoff_nodes": "4", "castoff_groups": "1x1 2x3 1x2"}
    flags = said(
        part(f"launchers/{launcher}", "groups"), 'castoff_launcher_place; echo "$castoff_flags"', values
    )
    assert flags.startswith("-")
    counts = zip(("h0", "h1", "h2", "h3"), (1, 3, 3, 2), strict=True)
    assert (tmp_path / "hostfile").read_text().splitlines() == [form.format(*one) for one in counts]


def test_a_name_of_a_job_that_is_too_long_for_a_socket(bench: Benches) -> None:
    """The address of what the ranks of a node are copies of has 107 characters at most."""
    says = [sys.executable, "-c", 'import sys; print("copied" if "wave" in sys.modules else "started")']
    long = {"PBS_JOBID": f"7.{'server' * 15}"}
    ended = bench("hydra").run(env=long, command=says, launcher={"preload": ["wave"]})
    assert ended.code == 0 and "copied" in ended.output, ended.output


_LOSES_ITS_RANK = """#!/bin/bash
while [ "$1" != /bin/sh ]; do shift; done
export SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NODEID=0 SLURM_STEP_NUM_TASKS=1
setsid "$@" </dev/null >/dev/null 2>&1 &
until [ -s {0} ]; do sleep 0.1; done
echo 'srun: error: Node failure on here' >&2
exit 1
"""

_MEETS_A_PROCESS_THAT_ENDS = """#!/bin/bash
{0} "$@"
code=$?
case "$*" in */proc/*) exit 2 ;; esac
exit "$code"
"""


def test_a_rank_that_its_launcher_has_lost_does_not_outlive_the_script(bench: Benches) -> None:
    """As where slurmd is gone: nothing but the script could end it, before the user resubmits the run.

    On a busy host grep always meets a process that ends while it looks through all of them.
    """
    here = bench("srun")
    number = here.folder / "number"
    here.stub("srun", _LOSES_ITS_RANK.format(number))
    here.stub("grep", _MEETS_A_PROCESS_THAT_ENDS.format(shutil.which("grep")))
    ended = here.run(command=["sh", "-c", f"echo $$ >'{number}'; exec sleep 1000"])
    assert ended.ending == ("failed", 1), ended.output
    cmdline = Path(f"/proc/{number.read_text().strip()}/cmdline")  # it may be a zombie still
    assert not cmdline.exists() or cmdline.read_bytes() == b""
