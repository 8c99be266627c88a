"""The line that shows how much of the metrics has been read."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from castoff.launcher.cli import reading_line as shown
from castoff.launcher.cli.reading_line import reading_line
from castoff.launcher.history.reading import reduced_metrics_of
from castoff.launcher.runs.run import RunDirectory


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    for attempt in range(3):
        folder = tmp_path / "attempts" / f"0.{attempt}"
        folder.mkdir(parents=True)
        (folder / "metrics.jsonl").write_text(f'{{"step": {attempt}, "loss": 1}}\n')
    return RunDirectory(tmp_path)


def test_a_terminal_shows_how_much_is_read(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    stderr = SimpleNamespace(isatty=lambda: True, write=written.append, flush=lambda: None)
    monkeypatch.setattr(sys, "stderr", stderr)
    times = itertools.count(step=0.6)
    monkeypatch.setattr(shown, "time", SimpleNamespace(monotonic=lambda: next(times)))
    with reading_line([run]):
        reduced_metrics_of(run)
    second = "castoff: reading metrics, 46 bytes of 69 bytes"
    third = "castoff: reading metrics, 69 bytes of 69 bytes"
    assert written == [f"\r{second}", f"\r{third}", f"\r{' ' * len(third)}\r"]
    with reading_line([run]):
        pass
    assert len(written) == 3


def test_a_file_does_not(run: RunDirectory, capsys: pytest.CaptureFixture[str]) -> None:
    with reading_line([run]):
        reduced_metrics_of(run)
    assert capsys.readouterr() == ("", "")
