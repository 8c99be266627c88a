"""Attempts that have printed and reported nothing for long, found with few looks at files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from castoff.launcher.logs import silence
from castoff.launcher.logs.silence import Silences, last_sign, silence_words, silent_since
from castoff.launcher.runs.states import AttemptStatus

NOW = 1_795_000_000.0


def attempt(run: Path, state: str = "running", /, **ages: float) -> AttemptStatus:
    """An attempt with files of these ages; `rank_0` is rank 0's log."""
    logs, folder = run / "logs" / "0.0", run / "attempts" / "0.0"
    for name, age in ages.items():
        file = logs / f"{name.replace('_', '-')}.log" if name.startswith("rank") else folder / name
        file = file.with_name("metrics.jsonl") if name == "metrics" else file
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
        os.utime(file, (NOW - age, NOW - age))
    return AttemptStatus(
        attempt=0,
        state=state,
        ending=None,
        code=None,
        reason=None,
        host="n1",
        started=NOW - 900,
        ended=None,
        failure=None,
        logs=str(logs),
    )


@pytest.mark.parametrize(
    ("ages", "since"),
    [
        ({}, None),
        ({"rank_0": 125}, NOW - 125),
        ({"rank_0": 125, "rank_1": 200}, NOW - 125),
        ({"rank_0": 125, "rank_1": 5}, None),
        ({"rank_0": 125, "metrics": 5}, None),
        ({"rank_0": 300, "metrics": 250, "progress": 200}, NOW - 200),
    ],
)
def test_any_line_or_report_is_a_sign(tmp_path: Path, ages: dict[str, float], since: float | None) -> None:
    assert silent_since(attempt(tmp_path, **ages), NOW) == since
    assert last_sign(attempt(tmp_path, **ages)) == (NOW - min(ages.values()) if ages else None)


def test_what_is_over_is_not_silent(tmp_path: Path) -> None:
    assert silent_since(attempt(tmp_path, "ended", rank_0=600), NOW) is None


def test_words() -> None:
    assert silence_words(NOW - 125, NOW) == "no output for 2m"
    assert silence_words(None, NOW) == ""


def test_files_of_a_program_at_work_are_read_twice_a_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One young file is enough; of an attempt that is silent, all are read, but less and less often."""
    found: list[float] = []
    signs = silence._signs

    def counted(one: AttemptStatus) -> Iterator[float]:
        for at in signs(one):
            found.append(at)
            yield at

    monkeypatch.setattr(silence, "_signs", counted)
    at_work, silences = attempt(tmp_path, metrics=2, **{f"rank_{n}": 1 for n in range(8)}), Silences()
    assert [silences.since(at_work, NOW + second) for second in range(0, 30, 2)] == [None] * 15
    assert len(found) == 1
    silences.since(at_work, NOW + 31)
    assert len(found) == 2
    assert silences.since(at_work, NOW + 600) == NOW - 1
    assert len(found) == 2 + 9
    assert silences.since(at_work, NOW + 650) == NOW - 1, "a tenth of the silence"
    assert len(found) == 2 + 9
    silences.since(at_work, NOW + 661)
    assert len(found) == 2 + 18
