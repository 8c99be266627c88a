"""Why a file has no metrics."""

from __future__ import annotations

from pathlib import Path

import pytest

from castoff.launcher.history.unread_lines import unread_line
from tests.launcher.conftest import Castoff, LocalJobs


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"step": 1}\n\nloss 0.3\n', "3: is not JSON: 'loss 0.3'"),
        ("[1, 2]\n", "1: is not a JSON object: '[1, 2]'"),
        ('{"step": 1, "loss": "0.3"}\n', "1: has loss as text, not as a number: "),
        ('{"step": 1, "loss": 0.3, "lr": "0.1"}\n{"name": "x"}\n', None),
        ("", None),
    ],
)
def test_a_line(tmp_path: Path, text: str, why: str | None) -> None:
    (path := tmp_path / "metrics.jsonl").write_text(text)
    found = unread_line([tmp_path / "none", path])
    assert found is None if why is None else (found or "").startswith(f"{path}:{why}")


def test_results_name_it(castoff: Castoff, jobs: LocalJobs) -> None:
    run = jobs.submit(sh='echo "loss 0.3" >>"$CASTOFF_METRICS_FILE"')
    jobs.wait(run)
    said = castoff("results", run.path).stderr
    assert f"castoff: no metrics: {run.path}/attempts/0.0/metrics.jsonl:1: is not JSON: 'loss 0.3'; " in said
