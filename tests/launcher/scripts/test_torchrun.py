"""torchrun between the launcher and the ranks: the rank that failed first is known all the same."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from castoff import JobSpec, Run, Site, plan
from castoff.launcher.text.failure import failure_words

from .conftest import Benches
from .machine import written

OTHERS_WAIT = 'if [ "$RANK" = 2 ]; then {}; fi; exec sleep 60'
SECOND_ROUND = """
case $TORCHELASTIC_RESTART_COUNT$RANK in 00) exit 5 ;; 12) {} ;; esac
[ $TORCHELASTIC_RESTART_COUNT = 1 ] || exec sleep 60
"""


@pytest.mark.parametrize(
    ("kind", "program", "env", "reported"),
    [
        ("hydra", OTHERS_WAIT.format("exit 7"), {}, (2, 7, None)),
        pytest.param(
            *("local", OTHERS_WAIT.format("kill -s KILL $$"), {}, (2, 137, "SIGKILL")), marks=pytest.mark.long
        ),
        # The rank's whole session, with what castoff has put there.
        pytest.param(
            *("hydra", OTHERS_WAIT.format("kill -s KILL 0"), {}, (2, 137, "SIGKILL")), marks=pytest.mark.long
        ),
        pytest.param(
            *("hydra", SECOND_ROUND.format("exit 7"), {"PET_MAX_RESTARTS": "1"}, (2, 7, None)),
            marks=pytest.mark.long,
        ),
        pytest.param(
            *("hydra", SECOND_ROUND.format("true"), {"PET_MAX_RESTARTS": "1"}, None), marks=pytest.mark.long
        ),
        pytest.param(*("hydra", "exit 7", {}, (None, 7, None)), marks=pytest.mark.long),
    ],
)
def test_the_rank_that_failed(
    kind: str, program: str, env: dict[str, str], reported: tuple[Any, ...] | None, bench: Benches
) -> None:
    pytest.importorskip("torch")
    asked: dict[str, Any] = {"ranks_per_node": 3, "launcher": {"torchrun": True}, "env": env}
    ended = bench(kind).run(command=["sh", "-c", program], **asked)
    if reported is None:
        assert (ended.code, ended.ending) == (0, ("done", 0)), ended.output
        assert not (ended.run_dir / "attempts" / "0.0" / "failure.json").exists()
        return
    record = ended.record("failure")
    rank = record["rank"] if reported[0] is not None else None
    assert (rank, record["code"], record["signal"]) == reported, ended.output
    assert ended.ending == ("failed", reported[1])
    where = "its log: " if kind == "local" else "see "
    assert f"castoff: {failure_words(record)}; {where}" in ended.output
    assert (Run(ended.run_dir).log_folder / "0.0" / record["log"]).is_file()


@pytest.fixture(params=["dash", "bash"])
def shim(
    request: pytest.FixtureRequest, system_program: Callable[[str, str], Path], tmp_path: Path
) -> Callable[..., dict[str, Any] | None]:
    """What castoff puts round each of torchrun's ranks, under both shells; the failure that it records."""
    decided = plan(JobSpec.of({"command": ["x"], "launcher": {"torchrun": True}}), Site.load("slurm"))
    script, failure = written(decided, "torchrun_rank", tmp_path), tmp_path / "failure.json"
    shell = tmp_path / "sh"
    shell.symlink_to(system_program(request.param, request.param))

    def run(program: str, **env: str) -> dict[str, Any] | None:
        reported = {"RANK": "5", "NODE_RANK": "1", "CASTOFF_FAILURE_FILE": str(failure), **env}
        subprocess.run(
            [shell, script, "sh", "-c", program], env=reported, start_new_session=True, check=False
        )
        record: dict[str, Any] | None = json.loads(failure.read_text()) if failure.exists() else None
        failure.unlink(missing_ok=True)
        return record

    return run


def test_round_one_rank(shim: Callable[..., dict[str, Any] | None]) -> None:
    record = shim("exit 9")
    assert record is not None
    assert {**record, "host": "", "time": 0} == {
        **{"rank": 5, "host": "", "code": 9, "signal": None, "log": "node-00001.log", "time": 0}
    }
    assert shim("exit 0") is None
    segv = shim("kill -s SEGV $$")
    assert segv is not None and (segv["code"], segv["signal"]) == (128 + signal.SIGSEGV, "SIGSEGV")
    ended = "trap 'exit 3' TERM; kill -s TERM $PPID; while :; do sleep 0.1; done"
    assert shim(ended) is None, "torchrun ends it for another's failure"
    rounds = {"TORCHELASTIC_RESTART_COUNT": "1", "TORCHELASTIC_MAX_RESTARTS": "2"}
    assert shim("exit 9", **rounds) is None, "torchrun starts it again"
    assert shim("exit 9", **{**rounds, "TORCHELASTIC_RESTART_COUNT": "2"}) is not None
