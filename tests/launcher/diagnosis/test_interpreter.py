"""The Python that a job would have."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from castoff.launcher.config.job import JobSpec
from castoff.launcher.config.site import Search, Site
from castoff.launcher.diagnosis import interpreter
from castoff.launcher.diagnosis.finding import Finding, Subject

Look = Callable[..., dict[str, Finding]]


@pytest.fixture
def look(tmp_path: Path) -> Look:
    def findings(site: str = "slurm", **fields: Any) -> dict[str, Finding]:
        subject = Subject.of(
            Site.load(site, search=Search({}, None)),
            JobSpec.of({"command": ["python", "train.py"], **fields}),
            source=None,
            directory=tmp_path,
            runs=tmp_path / "runs",
            environ={"HOME": str(tmp_path), "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"},
        )
        return {one.about: one for one in interpreter.findings(subject)}

    return findings


def fake(folder: Path, answer: str) -> str:
    """A Python that says so."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "python").write_text(f"#!/bin/sh\n{answer}\n")
    (folder / "python").chmod(0o755)
    return str(folder / "python")


ANSWER = """echo '{"version": "3.11.7", "torch": TORCH, "torch_at": AT, "castoff": null}'"""
WITHOUT = ANSWER.replace("TORCH", "null").replace("AT", "null")
WITH = ANSWER.replace("TORCH", '"2.9.1"').replace("AT", '"/x/torch/__init__.py"')


def test_the_one_that_is_named(look: Look) -> None:
    """torch's version is found, and torch is not imported."""
    pytest.importorskip("torch")
    found = look(python=sys.executable)
    version = sys.version.split()[0]
    assert found["python"][:3] == (
        "python",
        "ok",
        f"{Path(sys.executable).parent}/python is Python {version}",
    )
    import importlib.metadata

    assert found["torch"].fact.startswith(f"torch {importlib.metadata.version('torch')} in ")
    code = interpreter._ASKS + "assert 'torch' not in sys.modules"
    import subprocess

    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_the_one_that_setup_gives(look: Look, tmp_path: Path) -> None:
    """With its PATH, and with what the terminal has dropped."""
    fake(tmp_path / "env" / "bin", WITH)
    (tmp_path / "env" / "bin" / "activate").write_text(f"PATH={tmp_path}/env/bin:$PATH\n")
    found = look(setup=[". env/bin/activate"])
    assert found["python"].fact == f"{tmp_path}/env/bin/python (after setup) is Python 3.11.7"
    assert found["torch"][:3] == ("torch", "ok", "torch 2.9.1 in /x/torch")


def test_without_torch_and_without_castoff(look: Look, tmp_path: Path) -> None:
    python = fake(tmp_path / "env", WITHOUT)
    found = look(python=python)
    assert found["torch"].status == "warning" and "castoff" not in found
    assert found["torch"].remedy.startswith(f"{python} -m pip install torch")
    found = look(python=python, command=["python", "-m", "castoff.trainers.gnn"])
    assert found["castoff"].status == "problem" and f"{python} -m pip install" in found["castoff"].remedy


def test_one_that_is_not_there_or_does_not_run(look: Look, tmp_path: Path) -> None:
    found = look(command=[f"{tmp_path}/none/python", "train.py"])
    assert found["python"].status == "problem" and found["python"].fact.endswith("none/python does not exist")
    broken = fake(tmp_path / "broken", "echo libpython3.so: cannot open >&2; exit 127")
    found = look(python=broken)
    assert found["python"].fact == f"{broken} does not run: libpython3.so: cannot open"
    assert found["python"].remedy == "--python /path/to/env/bin/python"


def test_what_only_the_job_knows(look: Look, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A setup of the user's own commands is not run here; one that hangs is given up."""
    found = look(setup=["touch made"])
    assert found["python"].status == "unknown" and not (tmp_path / "made").exists()
    assert found["python"].remedy == "`castoff doctor --nodes 1` tests it in a job"
    monkeypatch.setattr(interpreter, "PATIENCE", 0.2)
    python = fake(tmp_path / "slow", "exec sleep 1000")
    found = look(python=python)
    assert found["python"].status == "unknown" and "no answer within 0.2 s" in found["python"].fact


@pytest.mark.parametrize("command", [["./run.sh"], ["bash", "run.sh"]])
def test_other_programs_have_none(look: Look, command: list[str]) -> None:
    assert look(command=command) == {}
