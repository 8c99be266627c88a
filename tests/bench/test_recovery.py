"""`python -m bench.recovery`, but for the ranks."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import recovery


def test_ft_launcher_is_measured_where_it_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert recovery.ways().keys() == {"restart", "torchrun"}
    (tmp_path / "ft_launcher").touch(0o700)
    assert recovery.ways()["ft_launcher"][0] == str(tmp_path / "ft_launcher")


@pytest.mark.parametrize("installed", [False, True])
def test_the_bars(
    installed: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seconds = {"restart": 1.0, "torchrun": 4.0, **({"ft_launcher": 2.0} if installed else {})}
    monkeypatch.setattr(recovery, "ways", lambda: {way: [way] for way in seconds})
    monkeypatch.setattr(recovery, "recovery", lambda argv: seconds[argv[0]])
    recovery.main(2)
    printed = capsys.readouterr().out
    assert "of torchrun's 0.25, bar 0.3: met" in printed
    last = "of ft_launcher's 0.50, bar 0.3: NOT MET" if installed else "ft_launcher is not on PATH"
    assert printed.splitlines()[-1].startswith(last)
