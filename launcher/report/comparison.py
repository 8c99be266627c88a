"""An array's members side by side, as tables. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from castoff.launcher.history.metrics import step_words
from castoff.launcher.report.facts import RunFacts
from castoff.launcher.report.ranking import (
    best,
    for_a_table,
    larger_is_better,
    metric_names,
    ranked,
    short_names,
    value_words,
)
from castoff.launcher.report.results import Result
from castoff.launcher.report.tables import Table, ended, table
from castoff.launcher.text.words import brief

_FURTHER = 8
"""Metrics of members that are shown beside the one that decides."""


def members(facts: RunFacts) -> Table | None:
    """An array's members, the best first."""
    if not facts.is_array:
        return None
    results = [one.result for one in facts.members]
    (paths, _), rule = for_a_table(results), facts.rule
    metric = (f"best {rule.metric}", "at step", f"last {rule.metric}") if rule else ()
    headings = ("member", *short_names(paths).values(), *metric, "state", "attempts", "took", "why")
    rows = []
    for one in ranked(results, rule):
        values: Sequence[str] = ()
        if rule is not None:
            point, held = best(one, rule), one.metrics.get(rule.metric)
            place = (f"{point.value:.6g}", step_words(point.step)) if point else ("", "")
            values = (*place, f"{held.last.value:.6g}" if held else "")
        took = "" if one.seconds is None else brief(one.seconds)
        own = [value_words(one.parameters.get(path)) for path in paths]
        rows.append((str(one.member), *own, *values, ended(one.state), str(one.attempts), took, one.why))
    return table("Members, best first", headings, rows, *metric, "attempts", "took")


def further(facts: RunFacts) -> Table | None:
    """Other metrics of an array's members: first those whose names say which values are better."""
    if not facts.is_array or facts.rule is None:
        return None
    results = ranked([one.result for one in facts.members], facts.rule)
    names = [name for name in metric_names(results) if name != facts.rule.metric]
    chosen = sorted(names, key=lambda name: larger_is_better(name) is None)[:_FURTHER]
    if not chosen:
        return None
    headings = [heading for name in chosen for heading in (f"best {name}", f"last {name}")]
    rows = [
        (str(one.member), *(cell for name in chosen for cell in _best_and_last(one, name))) for one in results
    ]
    return table("Other metrics of the members", ("member", *headings), rows, *headings)


def _best_and_last(one: Result, name: str) -> tuple[str, str]:
    """Cells of a metric; where its name does not say what is better, only the last value."""
    held, largest = one.metrics.get(name), larger_is_better(name)
    if held is None:
        return "", ""
    point = None if largest is None else held.best(largest=largest)
    return f"{point.value:.6g}" if point else "", f"{held.last.value:.6g}"
