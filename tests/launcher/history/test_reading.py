"""Reports are reduced as they are read: summaries stay exact, whatever programs write, and repeat."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from castoff.launcher.history import metric_lines, reduction
from castoff.launcher.history.metrics import Metrics
from castoff.launcher.history.reading import MetricsReader, readers_kept, reduced_metrics_of, watched
from castoff.launcher.runs.run import RunDirectory


@pytest.fixture(autouse=True)
def small() -> Iterator[None]:
    """Blocks of few lines, and few stretches, so that few lines show what millions would."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(metric_lines, "_BLOCK", 160)
        patch.setattr(metric_lines, "_FEW", 2)
        patch.setattr(reduction, "RECENT", 3)
        patch.setattr(reduction, "_PENDING", 4)
        patch.setattr(reduction, "_FEWEST", 3)
        yield


class Simple(NamedTuple):
    """All reports of a member, by the words of `launcher.history.metrics`."""

    rows: list[tuple[float, dict[str, float]]]
    step: float | None


def number(item: object) -> float | None:
    if isinstance(item, bool) or not isinstance(item, int | float):
        return None
    return float(item) if abs(item) < 1e300 or not isinstance(item, int) else None


def simple(files: Sequence[Sequence[str]]) -> Simple:
    """Read without any haste."""
    rows: list[tuple[float, dict[str, float]]] = []
    last: float | None = None
    has_steps, before, offset, newest = False, dict[float, float](), 0.0, None
    for text in itertools.chain(*files):
        try:
            line = json.loads(text)
        except ValueError:
            continue
        if not isinstance(line, dict):
            continue
        found = {name: value for name, item in line.items() if (value := number(item)) is not None}
        about = {name: found.pop(name) for name in ("step", "time", "epoch", "total_steps") if name in found}
        about = {name: value for name, value in about.items() if math.isfinite(value)}
        if not found and {"total_steps", "folder", "parameters", "packages", "device"} & line.keys():
            last = about.get("step", 0.0)
            rows = [row for row in rows if row[0] <= last]
            before, offset, newest = {}, 0.0, None
            continue
        if "step" in about:
            has_steps, step, epoch = True, about["step"], about.get("epoch")
            if epoch is not None and epoch != newest:
                begun = [one for one in before if one <= epoch]
                offset = before[max(begun)] if begun else 0.0
                if newest is not None and epoch > newest and last is not None and step + offset < last:
                    offset = before[epoch] = last + (step == 0)
                newest = epoch
            last = step + offset
        else:
            last = 0.0 if last is None else last + (not has_steps)
        if found:
            if rows and last < rows[-1][0]:
                rows = [row for row in rows if row[0] < last]
            rows.append((last, found))
    return Simple(rows, last)


def check(found: Metrics, exact: Simple) -> None:
    """Compare a reduction with all reports."""
    assert found.step == exact.step
    names = {name for _, values in exact.rows for name in values}
    assert set(found.names) == names and len(found.names) == len(names)
    for name in names:
        pairs = [(step, values[name]) for step, values in exact.rows if name in values]
        good = [pair for pair in pairs if math.isfinite(pair[1])]
        whole = found.whole(name)
        assert whole is not None
        assert (whole.number, whole.odd) == (len(pairs), len(pairs) - len(good))
        assert str(whole.last) == str(pairs[-1]) and str(found.last[name]) == str(pairs[-1][1])
        odd = next((pair for pair in pairs if not math.isfinite(pair[1])), None)
        assert str(whole.first_odd) == str(odd)
        smallest = min(good, key=lambda pair: pair[1], default=None)
        largest = max(good, key=lambda pair: pair[1], default=None)
        assert (whole.best(largest=False), whole.best(largest=True)) == (smallest, largest)
        assert (found.best(name, largest=False), found.best(name, largest=True)) == (smallest, largest)
        assert whole.total == pytest.approx(sum(value for _, value in good))
        curve = [(point.step, point.value) for point in found.curve(name) if math.isfinite(point.value)]
        left = iter(good)
        assert all(point in left for point in curve)  # some of the values, in order
        assert curve[:1] == good[:1] and curve[-1:] == good[-1:]
    newest = [(report.step, sorted(report.values.items())) for report in found.reports]
    every = [(step, sorted(values.items())) for step, values in exact.rows]
    assert str(newest) == str(every[len(every) - len(newest) :])


VALUES = st.one_of(
    st.integers(-3, 3),
    st.floats(-3, 3, allow_nan=False),
    st.sampled_from([math.nan, math.inf, -math.inf, None, True, "words", {"a": 1}, 10**400]),
)
REPORTS = st.fixed_dictionaries(
    {},
    optional={
        "step": st.one_of(st.integers(0, 12), st.sampled_from([math.nan, "7", 2.5])),
        "epoch": st.integers(0, 3),
        "time": st.integers(0, 99),
        "a": VALUES,
        "b": VALUES,
        "c\n": VALUES,
        "\ud800": st.integers(0, 2),
    },
)
DESCRIPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "step": st.integers(0, 12),
        "total_steps": st.one_of(st.integers(0, 99), st.none()),
        "device": st.sampled_from(["cpu", None]),
        "a": st.integers(0, 3),
    },
)
REGULAR = st.tuples(st.integers(0, 20), st.integers(1, 12), st.integers(1, 2)).map(
    lambda given: [
        {"step": given[0] + step * given[2], "epoch": step // 5, "a": (step * 7) % 5, "b": step / 3}
        for step in range(given[1])
    ]
)
LINES = st.one_of(
    REPORTS.map(lambda line: [line]),
    DESCRIPTIONS.map(lambda line: [line]),
    st.sampled_from([["no JSON"], ["[1]"], [""], ['{"a":1}{"a":2}'], ['{"a":', "1}"], [{"a": "x" * 200}]]),
    REGULAR,
)


def epochs(first: int, end: int) -> list[dict[str, Any]]:
    """Lines of epochs whose steps begin again in each."""
    return [{"step": step, "epoch": epoch, "a": epoch} for epoch in range(first, end) for step in range(5)]


@settings(max_examples=60)
@example(files=[[epochs(0, 6)], [epochs(3, 5)]], most=3, looks=1)
@given(
    files=st.lists(st.lists(LINES, max_size=6), min_size=1, max_size=3),
    most=st.integers(1, 6),
    looks=st.integers(1, 3),
)
def test_reduced_reports_have_exact_summaries(
    tmp_path_factory: pytest.TempPathFactory, files: list[list[list[Any]]], most: int, looks: int
) -> None:
    folder = tmp_path_factory.mktemp("files")
    texts = [
        [line if isinstance(line, str) else json.dumps(line) for line in itertools.chain(*lines)]
        for lines in files
    ]
    paths = [folder / str(number) for number in range(len(files))]
    exact, reduced = MetricsReader(), MetricsReader(most)
    for path, lines in zip(paths, texts, strict=True):
        data = "".join(f"{line}\n" for line in lines).encode()
        for look in range(looks):  # which may end within a line
            path.write_bytes(data[: len(data) * (look + 1) // looks])
            for reader in (exact, reduced):
                reader.look(paths)
    check(exact.metrics, simple(texts))
    check(reduced.metrics, simple(texts))
    for field in ("step", "total_steps", "time", "device"):
        assert getattr(reduced.metrics, field) == getattr(exact.metrics, field)


def test_few_stretches_stand_for_many_reports(tmp_path: Path) -> None:
    path = tmp_path / "a"
    lines: list[dict[str, Any]] = [{"step": step, "time": step / 2, "loss": step} for step in range(5000)]
    lines[2501:2501] = [{"step": 2500, "val": 7}]
    lines[1234]["loss"] = 9999
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = MetricsReader(20).look([path])
    assert 10 <= len(found.older) <= 20 and len(found.reports) < 10
    assert found.last == {"loss": 4999, "val": 7} and (found.step, found.time) == (4999, 2499.5)
    steps = [step for stretch in found.older for step in stretch.steps]
    assert steps == sorted(steps) and steps[0] == 0
    assert max(after - before for before, after in itertools.pairwise(steps)) < 512
    assert found.best("loss", largest=True) == (1234, 9999) in found.curve("loss")
    assert found.older[0].times == (0, found.older[0].steps[1] / 2)


def test_many_metrics_share_the_stretches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reduction, "_PARTS", 300)
    path = tmp_path / "a"
    path.write_text("".join(json.dumps({f"x{number}": number}) + "\n" for number in range(100)))
    found = MetricsReader(2000).look([path])
    assert len(found.older) <= 300 // 100
    assert found.last["x99"] == 99 and len(found.names) == 100


def test_only_new_bytes_are_read(tmp_path: Path) -> None:
    path, reader = tmp_path / "a", MetricsReader(20)
    path.write_text('{"step": 1, "loss": 4}\n{"st')
    assert reader.unread([path, tmp_path / "absent"]) == 27
    reader.look([path])
    assert reader.unread([path]) == 4


def test_readers_that_are_kept_read_what_was_added(tmp_path: Path) -> None:
    path, counts = tmp_path / "attempts" / "0.0" / "metrics.jsonl", list[int]()
    path.parent.mkdir(parents=True)
    with readers_kept(), watched(counts.append):
        for loss in (4, 3, 2):
            with path.open("a") as file:
                file.write(f'{{"loss": {loss}}}\n')
            found = reduced_metrics_of(RunDirectory(tmp_path))
    assert found.curve("loss") == [(0, 4), (1, 3), (2, 2)]
    assert counts == 3 * [len('{"loss": 4}\n')]
    assert reduced_metrics_of(RunDirectory(tmp_path)).last == {"loss": 2} and len(counts) == 3
