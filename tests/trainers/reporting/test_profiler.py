"""Steps that are profiled, on one rank and on three."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from castoff.launcher.report.profile import Profile
from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.program.training import train
from castoff.trainers.reporting import profiler
from castoff.trainers.reporting.trace import PARTS, STEP
from tests.trainers.toys import Toy, config, digest, run


def trained(path: Path, profile: dict[str, Any] | None, **training: Any) -> str:
    """The weights after a training with these fields."""
    fields = config(path, **{"num_epochs": None, "num_steps": 6, **training}) | {"profile": profile}
    return digest(train(fields, Toy(40)).trainer.model)


def steps_of(trace: Path) -> set[str]:
    """The names of the recorded steps."""
    events = json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    return {each["name"] for each in events if each.get("name", "").startswith(STEP)}


def test_some_steps_are_recorded_and_change_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    metrics = tmp_path / "attempt" / "metrics.jsonl"
    metrics.parent.mkdir()
    monkeypatch.setenv("CASTOFF_METRICS_FILE", str(metrics))
    caplog.set_level("INFO", "castoff.trainers")
    weights = trained(tmp_path / "with", {"from": 2, "steps": 3})
    folder = tmp_path / "with" / "toy" / "profile"
    assert sorted(each.name for each in folder.iterdir()) == ["steps-2-4-rank-0.json.gz", "steps-2-4.json"]
    assert steps_of(folder / "steps-2-4-rank-0.json.gz") == {f"{STEP}{step}" for step in (2, 3, 4)}
    found = json.loads((folder / "steps-2-4.json").read_text())
    assert found == json.loads(metrics.with_name("profile.json").read_text())
    assert sum(found["ranks"][0][part] for part in PARTS) == pytest.approx(1)
    assert found["ranks"][0]["data"] > 0
    assert "aten::addmm" in [each["name"] for each in found["operations"]]
    assert len(found["operations"]) == 10
    assert msgspec.convert(found, Profile).first_step == 2, "as castoff report reads it"
    assert "Profile of steps 2 to 4: " in caplog.text
    assert "WARNING" not in caplog.text
    monkeypatch.delenv("CASTOFF_METRICS_FILE")
    assert trained(tmp_path / "without", None) == weights
    assert not (tmp_path / "without" / "toy" / "profile").exists()


def test_a_resumed_run_records_its_own_steps(tmp_path: Path) -> None:
    trained(tmp_path, {"from": 3, "steps": 1})
    trained(tmp_path, {"from": 3, "steps": 1}, num_steps=12)
    folder = tmp_path / "toy" / "profile"
    assert steps_of(folder / "steps-3-3-rank-0.json.gz") == {f"{STEP}3"}
    assert steps_of(folder / "steps-9-9-rank-0.json.gz") == {f"{STEP}9"}


@pytest.mark.parametrize(("first", "steps"), [(3, 9), (5, 3), (6, 2)])
def test_a_training_that_ends_between_leaves_what_was_recorded(
    first: int, steps: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    weights = trained(tmp_path, {"from": first, "steps": steps})
    folder = tmp_path / "toy" / "profile"
    found = json.loads((folder / f"steps-{first}-6.json").read_text())
    assert (found["first_step"], found["steps"]) == (first, 7 - first)
    recorded = steps_of(folder / f"steps-{first}-6-rank-0.json.gz")
    assert {f"{STEP}{step}" for step in range(first, 7)} <= recorded
    assert (
        f"ended at step 6, so {7 - first} of the steps {first} to {first + steps - 1} were rec" in caplog.text
    )
    assert weights == trained(tmp_path / "plain", None)


@pytest.mark.parametrize("first", [7, 8, 100])
def test_a_training_that_ends_before_says_so(
    first: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trained(tmp_path, {"from": first, "steps": 2})
    assert f"training ended at step 6, and profile.from: {first} with profile.steps: 2 asked" in caplog.text
    assert not (tmp_path / "toy" / "profile").exists()


def test_a_profiler_that_fails_does_not_end_the_training(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: object, **__: object) -> None:
        raise RuntimeError("CUPTI_ERROR\n is in use")

    monkeypatch.setattr(profiler, "profile", refuses)
    trained(tmp_path, {"from": 2, "steps": 2})
    assert "steps cannot be recorded, training continues: CUPTI_ERROR is in use" in caplog.text


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"ranks": [0, 3]}, "profile.ranks: has 3, but there is only rank 0"),
        ({"from": 1}, "profile.from: is 1, but takes a whole number of at least 2"),
        ({"form": 20}, "did you mean from?"),
    ],
)
def test_mistakes_are_named(fields: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=words.replace("?", "[?]")):
        trained(tmp_path, fields)


def on_a_rank(path: str, profile: dict[str, Any] | None) -> str:
    fields = config(path, num_epochs=None, num_steps=5) | {"profile": profile}
    return digest(train(fields, Toy(60)).trainer.model)


def test_chosen_ranks_record_and_nothing_changes(tmp_path: Path) -> None:
    asked = {"from": 2, "steps": 2, "ranks": [1, 2]}
    weights = run(on_a_rank, str(tmp_path / "out"), asked, folder=tmp_path / "ranks", world_size=3)
    assert len(set(weights)) == 1
    plain = run(on_a_rank, str(tmp_path / "plain"), None, folder=tmp_path / "plain-ranks", world_size=3)
    assert plain == weights
    folder = tmp_path / "out" / "toy" / "profile"
    traces = {f"steps-2-3-rank-{rank}.json.gz" for rank in (1, 2)}
    assert {each.name for each in folder.iterdir()} == {*traces, "steps-2-3.json"}
    found = json.loads((folder / "steps-2-3.json").read_text())
    assert [each["rank"] for each in found["ranks"]] == [1, 2]
    assert all(each["communication"] > 0 for each in found["ranks"])
    assert found["operations_of"] == 1
    assert "most expensive operations on rank 1, of a step" in (tmp_path / "ranks" / "log-0").read_text()
