"""A submission as the laptop sees it, without a machine."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from castoff import JobSpec, Site
from castoff.launcher.config.job_fields import Snapshot
from castoff.launcher.remote.code import travelling
from castoff.launcher.remote.entries import Entry
from castoff.launcher.remote.machine import RefusedByMachine
from castoff.launcher.remote.messages import Failed, Order, Stored
from castoff.launcher.remote.submission import planned, submit_there


def test_an_id_is_kept_until_the_machine_has_decided(tmp_path: Path) -> None:
    """An earlier submission that is still under way may become a job: the next call has to ask for it."""
    environ = {"XDG_STATE_HOME": str(tmp_path / "state"), "PATH": os.environ["PATH"]}
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "train.py").touch()
    code = travelling(tmp_path / "code", Snapshot(), environ, [])
    job = planned(JobSpec.of({"command": ["true"]}), Site.load("local"))
    machine: Any = SimpleNamespace(entry=Entry(name="far", host="h", dir="d"))
    asked: list[str] = []

    def ask(message: object, _: str) -> Stored:
        if isinstance(message, Order):
            asked.append(message.run)
            raise RefusedByMachine("far", Failed("no", 1, is_final=len(asked) == 2))
        return Stored("/far/code")

    session: Any = SimpleNamespace(ask=ask)
    for _ in range(3):
        with pytest.raises(RefusedByMachine, match="far: no"):
            submit_there(machine, job, code, session, environ, print)
    assert asked[0] == asked[1] != asked[2]
