"""What a person sees where a scheduler does not answer: what is known, and that it does not."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

import pytest

from castoff.launcher.cli import list as list_verb
from castoff.launcher.cli import main as cli
from castoff.launcher.cli import status as status_verb
from castoff.launcher.runs.index import Index
from castoff.launcher.runs.run import RunDirectory
from castoff.launcher.schedulers import command
from castoff.launcher.schedulers.command import PATIENCE, SchedulerUnreachable
from castoff.launcher.status.poller import AT_A_GLANCE
from castoff.launcher.status.watch import wait

from ..fake_slurm import FakeSlurm, OnSlurm


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunDirectory:
    """A run that goes on, as far as its records tell."""
    FakeSlurm(tmp_path, monkeypatch)
    one = OnSlurm(tmp_path)
    one.attempt("0.0")
    Index.of(os.environ).add(one.run, "made")
    return one.run


class Asked:
    """How long a scheduler was given when it was asked, and what was printed then."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
        self.patience: list[float] = []
        self._capsys = capsys
        monkeypatch.setattr(command, "read_to_end", self._hang)

    def _hang(self, argv: list[str], patience: float, environ: Mapping[str, str], *_: Any) -> NoReturn:
        self.patience.append(patience)
        raise SchedulerUnreachable(f"{argv[0]} gave no answer within {patience:.0f} s")

    def run(self, *words: str | Path) -> tuple[str, str]:
        """What a verb prints in the end, and says."""
        with pytest.raises(SystemExit):
            cli.main(list(map(str, words)))
        captured = self._capsys.readouterr()
        return captured.out, captured.err


@pytest.fixture
def asked(made: RunDirectory, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Asked:
    return Asked(monkeypatch, capsys)


def test_status(asked: Asked, made: RunDirectory) -> None:
    output, _ = asked.run("status", made.path)
    assert output.splitlines()[0] == f"run        {made.id}" and f"directory  {made.path}\n" in output
    assert "state      unknown\n" in output
    assert (
        "squeue gave no answer within 5 s; according to its records, it began and has not ended\n" in output
    )
    assert asked.patience == [AT_A_GLANCE]


@pytest.mark.parametrize("words", [[], ["--json"]])
def test_list(asked: Asked, made: RunDirectory, tmp_path: Path, words: list[str]) -> None:
    over = OnSlurm(tmp_path / "over", id="over-1", time=800.0)
    over.attempt("0.0", "done")
    index = Index.of(os.environ)
    index.path.unlink()
    for run, name in ((over.run, "over"), (made, "made")):
        index.add(run, name)
    output, said = asked.run("list", *words)
    assert "over-1" in output and "unknown" in output.partition("made-1")[2]
    assert "squeue gave no answer within 5 s: 1 run is shown as unknown, and may still be running\n" in said
    assert set(asked.patience) == {AT_A_GLANCE}


def test_who_waits_has_more_patience(asked: Asked, made: RunDirectory) -> None:
    wait(made, timeout=0)
    assert asked.patience[0] == PATIENCE > AT_A_GLANCE


@pytest.mark.parametrize("verb", ["status", "list"])
def test_a_command_that_never_ends(
    made: RunDirectory,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    verb: str,
) -> None:
    """It is given up for real."""
    os.mkfifo(tmp_path / "never")
    squeue = tmp_path / "slurm" / "squeue"
    squeue.write_text(f"#!/bin/sh\nread line <{tmp_path}/never\n")
    for module in (status_verb, list_verb):
        monkeypatch.setattr(module, "AT_A_GLANCE", 0.1)
    with pytest.raises(SystemExit) as end:
        cli.main([verb])
    captured = capsys.readouterr()
    assert not end.value.code and made.id in captured.out
    assert "squeue gave no answer within 0.1 s" in captured.out + captured.err
