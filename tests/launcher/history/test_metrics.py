"""What a program has reported: read while it writes, over attempts, and from damaged files."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from castoff.launcher.history.metrics import Metrics, Point, finite, flat, step_words
from castoff.launcher.history.reading import MetricsReader, first_time, metrics_of
from castoff.launcher.runs.run import RunDirectory


def written(path: Path, *lines: dict[str, Any] | str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    texts = (line if isinstance(line, str) else json.dumps(line) + "\n" for line in lines)
    path.write_text("".join(texts))
    return path


def read(*files: Path) -> Metrics:
    return MetricsReader().look(files)


def test_lines_become_curves_and_columns(tmp_path: Path) -> None:
    found = read(
        written(
            tmp_path / "a",
            {"step": 0, "total_steps": 30, "folder": "/x", "parameters": {"lr": {"max": 0.1}}, "time": 5},
            {"step": 10, "loss": 2, "time": 6, "epoch": 0},
            {"step": 20, "loss": 1.5, "f1": 0.25, "time": 7, "note": "words"},
        )
    )
    assert (found.step, found.total_steps, found.time, found.folder) == (20, 30, 7, "/x")
    assert found.parameters == {"lr.max": 0.1}
    assert found.names == ["loss", "f1"]
    assert found.curve("loss") == [(10, 2), (20, 1.5)]
    assert found.last == {"loss": 1.5, "f1": 0.25}
    assert found.best("loss", largest=False) == Point(20, 1.5)
    assert found.best("loss", largest=True) == Point(10, 2)
    assert found.best("auc", largest=True) is None
    assert found.columns() == {
        "step": [10, 20],
        "epoch": [0, None],
        "time": [6, 7],
        "loss": [2, 1.5],
        "f1": [None, 0.25],
    }


def test_a_program_needs_no_steps(tmp_path: Path) -> None:
    found = read(written(tmp_path / "a", {"loss": 3}, {"loss": 2}))
    assert found.curve("loss") == [(0, 3), (1, 2)]


def test_a_line_without_a_step_belongs_to_the_last_one(tmp_path: Path) -> None:
    lines = ({"total_steps": 9}, {"step": 3, "loss": 1}, {"val": 5}, {"step": 4, "loss": 2}, {"val": 6})
    found = read(written(tmp_path / "a", *lines))
    assert (found.curve("val"), found.step) == ([(3, 5), (4, 6)], 4)


@pytest.mark.parametrize("first", [0, 1])
def test_steps_that_begin_again_in_each_epoch_are_counted_on(tmp_path: Path, first: int) -> None:
    def epoch(number: int, loss: float, steps: int = 3) -> list[dict[str, Any]]:
        lines = [{"epoch": number, "step": first + step, "loss": loss} for step in range(steps)]
        return [*lines, {"epoch": number, "val": loss}]

    whole = [(first + step, step // 3) for step in range(9)]
    found = read(written(tmp_path / "a", *epoch(0, 0), *epoch(1, 1), *epoch(2, 2)))
    assert found.curve("loss") == whole
    assert found.curve("val") == [(first + 2, 0), (first + 5, 1), (first + 8, 2)]
    # The second attempt resumes from a checkpoint at the end of the first epoch.
    killed = written(tmp_path / "b", *epoch(0, 0), *epoch(1, 7), *epoch(2, 7, 2))
    assert read(killed, written(tmp_path / "c", *epoch(1, 1), *epoch(2, 2))).curve("loss") == whole


def test_steps_that_continue_in_a_later_epoch_are_kept(tmp_path: Path) -> None:
    """Epochs may be fractions, as transformers has them; a later attempt does some steps again."""
    first = [{"step": step, "epoch": step / 20, "loss": 0} for step in range(10, 60, 10)]
    again = [{"step": step, "epoch": step / 20, "loss": 1} for step in range(30, 60, 10)]
    found = read(written(tmp_path / "a", *first), written(tmp_path / "b", *again))
    assert found.curve("loss") == [(10, 0), (20, 0), (30, 1), (40, 1), (50, 1)]


def test_a_look_may_leave_the_rest_to_the_next(tmp_path: Path) -> None:
    path = written(tmp_path / "a", "no JSON\n", *({"step": step, "loss": 1} for step in range(3)))
    reader, seen = MetricsReader(), []
    for _ in range(4):
        seen.append((reader.look([path], give_up=0.0).step, reader.behind))
    assert seen == [(None, True), (0, True), (1, True), (2, True)]
    assert reader.look([path]).step == 2 and not reader.behind


def test_a_step_has_all_its_digits() -> None:
    assert [step_words(one) for one in (1234567.0, 0.5, -3.0, 1e300)] == ["1,234,567", "0.5", "-3", "1e+300"]


def test_steps_that_are_done_again_count_once(tmp_path: Path) -> None:
    """A checkpoint at step 20, and a kill at step 40: the next attempt begins after step 20."""
    first = [{"step": step, "loss": -step} for step in (10, 20, 30, 40)]
    begins = {"step": 20, "total_steps": 50, "parameters": {}}
    again = [{"step": step, "loss": step} for step in (30, 50)]
    trainer = read(written(tmp_path / "a", *first), written(tmp_path / "b", begins, *again))
    bare = read(written(tmp_path / "c", *first), written(tmp_path / "d", *again))
    whole = [(10, -10), (20, -20), (30, 30), (50, 50)]
    assert trainer.curve("loss") == bare.curve("loss") == whole
    assert (trainer.step, trainer.total_steps) == (50, 50)


@pytest.mark.parametrize("most", [None, 400])
def test_later_attempts_begin_at_a_step(tmp_path: Path, most: int | None) -> None:
    steps = [range(10), range(4, 12), range(8, 20), []]
    files = [
        written(tmp_path / str(number), *({"step": step, "loss": 1.0} for step in some))
        for number, some in enumerate(steps)
    ]
    assert MetricsReader(most).look(files).restarts == [4, 8]
    again = written(tmp_path / "4", {"step": 6, "total_steps": 9}, {"step": 7, "loss": 1.0})
    reader = MetricsReader(most)
    assert reader.look([*files, again]).restarts == [4, 6]
    with files[0].open("a") as file:
        file.write(json.dumps({"step": 20, "loss": 1.0}) + "\n")
    assert reader.look([*files, again]).restarts == [4, 6]


def test_what_a_program_says_of_itself_may_stand_beside_metrics(tmp_path: Path) -> None:
    begins = {"packages": {"torch": "2.13.0", "odd": 5}, "device": "cpu", "parameters": {"lr": 1}, "time": 1}
    found = read(
        written(tmp_path / "a", {"step": 1, "loss": 4, "parameters": {"lr": 2}}, {"step": 2, "loss": 3}),
        written(
            tmp_path / "b", {"step": 1, **begins}, {"step": 2, "loss": 5, "device": "gpu", "packages": 7}
        ),
    )
    assert found.curve("loss") == [(1, 4), (2, 5)]
    assert (found.packages, found.device, found.parameters) == ({"torch": "2.13.0"}, "gpu", {"lr": 1})


def test_what_python_alone_takes_for_json_is_read_too(tmp_path: Path) -> None:
    lines = ('{"step": 1, "loss": NaN, "f1": 0.5}\n', '{"step": 2, "f1": 1.0, "\\ud800": 3}\n')
    found = read(written(tmp_path / "a", *lines))
    assert found.names == ["loss", "f1", "\ud800"]
    assert found.curve("f1") == [(1, 0.5), (2, 1)]


def test_a_loss_that_became_nan_does_not_look_like_the_last_good_one(tmp_path: Path) -> None:
    losses = [math.inf, 3, 2, math.nan, -math.inf]
    found = read(written(tmp_path / "a", *({"step": step, "loss": one} for step, one in enumerate(losses))))
    assert found.last == {"loss": -math.inf}
    assert found.best("loss", largest=False) == (2, 2)
    assert found.best("loss", largest=True) == (1, 3)
    assert found.columns()["loss"][2:3] == [2] and math.isnan(found.columns()["loss"][3] or 0)
    assert finite(found.curve("loss")) == [(1, 3), (2, 2)]
    assert read(written(tmp_path / "b", {"step": 1, "loss": math.nan})).best("loss", largest=False) is None


def test_the_first_time_may_come_after_a_line_without(tmp_path: Path) -> None:
    assert first_time(written(tmp_path / "a", {"total_steps": 9}, {"step": 1, "time": 7.5})) == 7.5
    assert first_time(written(tmp_path / "b", *({"step": step} for step in range(99)), {"time": 7})) is None


def test_a_line_is_read_once_it_is_whole(tmp_path: Path) -> None:
    path, reader = tmp_path / "a", MetricsReader()
    assert reader.look([path]).names == []
    written(path, {"step": 1, "loss": 4}, '{"step": 2, "lo')
    assert reader.look([path]).curve("loss") == [(1, 4)]
    with path.open("a") as file:
        file.write('ss": 3}\n')
    assert reader.look([path]).curve("loss") == [(1, 4), (2, 3)]
    assert reader.look([path]).curve("loss") == [(1, 4), (2, 3)]


def test_what_is_not_a_metric_is_left_out(tmp_path: Path) -> None:
    broken = ['{"step": NaN, "loss": null}\n', "}\n", "[1]\n", '{"time": Infinity, "loss": "1"}\n', "\xff\n"]
    found = read(written(tmp_path / "a", *broken, {"step": 3, "loss": True, "big": 10**400, "f1": 1}))
    assert (found.last, found.time) == ({"f1": 1}, None)
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "a")
    assert read(link, tmp_path, tmp_path / "absent").names == []


@given(st.binary(max_size=300))
def test_no_bytes_are_an_error(tmp_path_factory: Any, data: bytes) -> None:
    path = tmp_path_factory.mktemp("bytes") / "a"
    path.write_bytes(data + b"\n" + json.dumps({"step": 7, "loss": 1}).encode() + b"\n")
    assert read(path).last["loss"] == 1
    first_time(path)


def test_a_members_attempts(tmp_path: Path) -> None:
    for member, attempt, loss in ((0, 0, 1), (1, 0, 2), (1, 1, 3)):
        written(
            tmp_path / "attempts" / f"{member}.{attempt}" / "metrics.jsonl", {"step": attempt, "loss": loss}
        )
    run = RunDirectory(tmp_path)
    assert metrics_of(run).curve("loss") == [(0, 1)]
    assert metrics_of(run, 1).curve("loss") == [(0, 2), (1, 3)]


def test_paths_of_parameters() -> None:
    assert flat({"a": {"b": 1, "c": {"d": [1, {"e": 2}]}}, "f": {}}) == {
        "a.b": 1,
        "a.c.d": [1, {"e": 2}],
        "f": {},
    }
