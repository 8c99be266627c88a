"""A page that compares runs: their final metrics, what differs between them, and their curves."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import msgspec

from castoff.launcher.report.comparing import compare
from castoff.launcher.report.comparison import (
    ComparedRun,
    Comparison,
    differences,
    equalities,
    final_metrics,
    labels,
)
from castoff.launcher.report.comparison_page import comparison_page
from castoff.launcher.report.curves import plots_of_several
from castoff.launcher.report.ranking import metric_names, rule
from castoff.launcher.status.watch import status

from ..conftest import LocalJobs
from .made import facts, metrics, result
from .test_page import HOSTILE, Elements, shape

NOW = facts().now


def compared(number: int, name: str = "", **traits: str) -> ComparedRun:
    """A run whose loss is its number."""
    name = name or f"run-{number}"
    now = msgspec.structs.replace(NOW, name=name, id=f"{name}-20261128-101500-{number:04x}")
    return ComparedRun(name, now, result(0, None, val__loss=[9.0, number], lr=[0.1]), traits)


def made(*runs: ComparedRun) -> Comparison:
    """These runs with their curves."""
    chosen = rule(metric_names(one.result for one in runs))
    curves = ((one.label, metrics(val__loss=[9.0, 1.0])) for one in runs)
    plots = plots_of_several(curves, ["val/loss"], 200)
    return Comparison(1_795_000_000.0, runs, chosen, plots, len(runs))


def test_final_metrics_are_ranked() -> None:
    found = final_metrics(made(compared(3), compared(1), compared(2)))
    assert [*found.headings] == [
        *("run", "state", "best val/loss", "at step", "last val/loss", "last lr", "took"),
    ]
    assert [[re.sub("<.*?>", "", cell) for cell in row] for row in found.rows] == [
        [f"run-{number}", "done", str(number), "1", str(number), "0.1", "60s"] for number in (1, 2, 3)
    ]


def test_what_differs_comes_first_and_what_is_equal_is_folded() -> None:
    content = made(compared(1, lr="0.1", **{"job: nodes": "2"}), compared(2, lr="0.2", **{"job: nodes": "2"}))
    differing, equal = differences(content), equalities(content)
    assert differing and [*differing.headings] == ["run", "lr"]  # which is narrower than a column for each
    assert [*differing.rows] == [("run-1", "0.1"), ("run-2", "0.2")]
    assert equal and [*equal.rows] == [("job: nodes", "2")]
    text = comparison_page(content)
    assert text.index("What differs") < text.index(
        "<details><summary>What is equal in all runs (1)</summary>"
    )
    same = comparison_page(made(compared(1), compared(2)))
    assert "Jobs, parameters and code are equal." in same
    only_one = differences(made(compared(1, lr="0.1", x="1"), compared(2)))
    assert only_one and [*only_one.headings] == ["what", "run-1", "run-2"]
    assert [*only_one.rows] == [("lr", "0.1", ""), ("x", "1", "")]


def test_runs_have_the_shortest_labels_that_tell_them_apart() -> None:
    def of(*ids: str) -> list[str]:
        return labels([msgspec.structs.replace(NOW, name=id[:1], id=id, directory=f"/x/{id}") for id in ids])

    assert of("a-1000", "b-1000") == ["a", "b"]
    assert of("a-1000", "a-2000") == ["a 1000", "a 2000"]
    assert of("a-1-1000", "a-2-1000") == ["a-1-1000", "a-2-1000"]
    assert of("a-1-1000", "a-1-1000") == ["/x/a-1-1000", "/x/a-1-1000"]


def test_hostile_text_is_text() -> None:
    def of(text: str) -> str:
        run = compared(1, text, **{text: text, "x": text})
        return comparison_page(made(dataclasses.replace(run, label=text), compared(2, x="y")))

    assert shape(of(HOSTILE)) == shape(of("x" * len(HOSTILE)))
    of(HOSTILE).encode()


def test_headings_are_in_order_and_regions_have_names() -> None:
    found = Elements(comparison_page(made(*(compared(number, x=str(number)) for number in range(12)))))
    levels = [int(tag[1]) for tag, _ in found.found if re.fullmatch("h[1-6]", tag)]
    assert levels[:2] == [1, 2] and {*levels} == {1, 2, 3}
    regions = [one["aria-label"] for one in found.named("div") if one.get("role") == "region"]
    assert len(regions) == len({*regions}) == 4
    sections = {"Final metrics", "Differences", "Curves", "Runs"}
    assert sections.isdisjoint(regions)  # else screen readers would list two landmarks of one name
    assert sum(one.get("data-curve") is not None for one in found.named("button")) == 12


LINES = """
import json, os, sys
with open(os.environ["CASTOFF_METRICS_FILE"], "a") as file:
    lr = float(sys.argv[1]) * (1 + int(os.environ.get("CASTOFF_ARRAY_INDEX") or 0))
    print(json.dumps({"parameters": {"lr": lr, "seed": 1, "api_key": "leak-1"}}), file=file)
    for step in range(4):
        print(json.dumps({"step": step, "val/loss": lr + 1 / (1 + step), "lr": lr}), file=file)
"""


def run(jobs: LocalJobs, name: str, *words: str) -> Any:
    """A run that is over, with its status."""
    one = jobs.submit("--name", name, "-n", "1", *words)
    jobs.wait(one)
    return one, status(one)


def test_of_runs_that_were_run_here(jobs: LocalJobs) -> None:
    program = ("--", "python", "-c", LINES)
    array = ("--set", "array.count=2")
    content = compare(
        [
            run(jobs, "one", "--set", "walltime=1h", "--set", "env.DB_PASSWORD=leak-2", *program, "0.5"),
            run(jobs, "many", *array, *program, "0.1"),
            run(jobs, "plain", "--", "true", "--token", "leak-3"),
        ]
    )
    assert [one.label for one in content.runs] == ["one", "many", "plain"]
    assert [one.result.member for one in content.runs] == [0, 0, 0]
    assert [plot.title for plot in content.plots] == ["val/loss", "lr"]
    assert [curve.label for curve in content.plots[0].curves] == ["many", "one"]
    found = differences(content)
    assert found
    rows = {row[0]: row[1:] for row in found.rows}
    assert rows["lr"] == ("0.5", "0.1", "")
    assert rows["job: name"] == ("one", "many", "plain")
    assert rows["job: array.count"] == ("", "2", "")
    assert rows["job: walltime"] == ("1h", "", "")
    text = comparison_page(content)
    assert "member 0, the best of 2" in text and "leak" not in text
    by_lr = compare([run(jobs, "more", *program, "0.5")], "lr", True)
    assert by_lr.rule and by_lr.rule.metric == "lr" and by_lr.rule.largest
