"""What an array's page shows about parameters: which were swept, and what they did to the metrics. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from markupsafe import Markup

from castoff.launcher.report.axes import Axis, axis, number
from castoff.launcher.report.cells import Table
from castoff.launcher.report.facts import RunFacts
from castoff.launcher.report.parallel import GOOD, MIDDLE, POOR, Line, parallel
from castoff.launcher.report.ranking import (
    differing,
    for_a_table,
    larger_is_better,
    metric_names,
    parameters_words,
    ranked,
    short_names,
    value_words,
)
from castoff.launcher.report.results import Result
from castoff.launcher.report.scatter import DONE, FAILED, OPEN, Dot, scatter
from castoff.launcher.runs import states

_DOTS, _LINES = 300, 100
"""The maximum number of members in a scatter plot, and in parallel coordinates, where lines cover more."""

_FURTHER_METRICS, _FURTHER_PARAMETERS = 6, 4
"""The maximum number of other metrics that are drawn, and of parameters over which they are."""

_VALUES = 8
"""The maximum number of values of a parameter that are listed."""

_ROWS = 200


class Figure(NamedTuple):
    """A drawing with its caption."""

    caption: str
    drawing: Markup
    sampled: str = ""
    """Which members are drawn if not all are."""


class Sweep(NamedTuple):
    """The parameters of an array's members, and the figures that show their effect."""

    swept: Table | None
    constant: Table | None
    overview: Figure | None
    """Parallel coordinates; None with a single parameter, which a scatter plot shows better."""
    scatters: Sequence[Figure]
    """The metric that orders the members, over each parameter."""
    further: Sequence[Figure]
    """Other metrics."""
    sampled: str
    """Which members are drawn in scatter plots if not all are."""


def sweep(facts: RunFacts) -> Sweep | None:
    """The parameters of an array; None for a run without an array, or without parameters."""
    results = [member.result for member in facts.members]
    if not facts.is_array or not any(result.parameters for result in results):
        return None
    (paths, _), rule = for_a_table(results), facts.rule
    swept, constant = _swept(results), _constant(results)
    if rule is None or not paths:
        return Sweep(swept, constant, None, [], [], "")
    ordered = [
        one for one in ranked(results, rule) if _value(one, rule.metric, largest=rule.largest) is not None
    ]
    figures = _Figures(ordered, paths)
    others = sorted(
        (name for name in metric_names(results) if name != rule.metric),
        key=lambda name: larger_is_better(name) is None,
    )
    return Sweep(
        swept,
        constant,
        figures.overview(rule.metric, largest=rule.largest) if len(paths) > 1 else None,
        [*figures.scatters(rule.metric, paths, largest=rule.largest)],
        [
            figure
            for name in others[:_FURTHER_METRICS]
            for figure in figures.scatters(name, paths[:_FURTHER_PARAMETERS], largest=larger_is_better(name))
        ],
        _sampled(ordered, _DOTS)[1],
    )


def _sampled(ordered: Sequence[Result], most: int) -> tuple[Sequence[Result], str]:
    """At most so many members, with the first, and which they are in words; empty words: all."""
    drawn = ordered[:: -(-len(ordered) // most) or 1]
    words = f"{len(drawn):,} of {len(ordered):,} members are drawn, at equal distances in their order."
    return drawn, words if len(drawn) < len(ordered) else ""


class _Figures:
    """Figures of the same members, the best of them first."""

    def __init__(self, ordered: Sequence[Result], paths: Sequence[str]):
        self._ordered = ordered
        self._drawn, _ = _sampled(ordered, _DOTS)
        self._paths = paths
        self._names = short_names(paths)
        self._axes = {
            path: axis(self._names[path], (one.parameters.get(path) for one in ordered)) for path in paths
        }
        self._words = {
            one.member: f"member {one.member}: {parameters_words(one.parameters, paths)}"
            for one in (*self._drawn, *_sampled(ordered, _LINES)[0])
        }

    def scatters(self, metric: str, paths: Sequence[str], *, largest: bool | None) -> Iterable[Figure]:
        """A metric over each of these parameters; `largest`: None shows the last values, not the best."""
        values = [(one, _value(one, metric, largest=largest)) for one in self._drawn]
        known = [(one, value) for one, value in values if value is not None]
        if not known:
            return
        name = f"{'last' if largest is None else 'best'} {metric}"
        up = axis(name, (value for _, value in known))
        top = None if largest is None else (max if largest else min)(value for _, value in known)
        for path in paths:
            across, dots = self._axes[path], list[Dot]()
            for one, value in known:
                x, y = across.place(one.parameters.get(path)), up.place(value)
                if x is not None and y is not None:
                    words = f"{self._words[one.member]}; {name} {value:.6g}"
                    dots.append(Dot(x, y, _kind(one), words, value == top))
            caption = f"{name} over {self._names[path]}"
            if dots:
                yield Figure(caption, scatter(across, up, dots, f"{caption}: {_range(known)}"))

    def overview(self, metric: str, *, largest: bool) -> Figure | None:
        """The parameters and the metric of each member, side by side."""
        name = f"best {metric}"
        drawn, sampled = _sampled(self._ordered, _LINES)
        known = [(one, _value(one, metric, largest=largest)) for one in drawn]
        axes = [*self._axes.values(), axis(name, (value for _, value in known))]
        lines = []
        for rank, (one, value) in enumerate(known):
            places = _places(axes, [*(one.parameters.get(path) for path in self._paths), value])
            if places is not None:
                third = (GOOD, MIDDLE, POOR)[3 * rank // len(known)]
                words = f"{self._words[one.member]}; {name} {value:.6g}"
                lines.append(Line(places, third, words, rank == 0))
        if not lines:
            return None
        caption = f"{', '.join(self._names.values())} and {name}"
        words = f"Parallel coordinates of {caption}: {len(lines)} members; the best is {lines[0].words}"
        return Figure(caption, parallel(axes, lines[::-1], words), sampled)


def _places(axes: Sequence[Axis], values: Sequence[Any]) -> list[float] | None:
    found = [one.place(value) for one, value in zip(axes, values, strict=True)]
    places = [place for place in found if place is not None]
    return places if len(places) == len(axes) else None


def _kind(one: Result) -> str:
    return DONE if one.state == "done" else FAILED if one.state in states.FAILED else OPEN


def _value(one: Result, metric: str, *, largest: bool | None) -> float | None:
    """A member's best value of a metric, or its last, if it is finite."""
    values = one.metrics.get(metric)
    if values is None:
        return None
    point = values.last if largest is None else values.best(largest=largest)
    return None if point is None else number(point.value)


def _range(known: Sequence[tuple[Result, float]]) -> str:
    """The members and values of a figure in words."""
    low, high = min(known, key=lambda one: one[1]), max(known, key=lambda one: one[1])
    return (
        f"{len(known)} members, from {low[1]:.6g} (member {low[0].member}) "
        f"to {high[1]:.6g} (member {high[0].member})"
    )


def _swept(results: Sequence[Result]) -> Table | None:
    rows = []
    for path in differing(results)[:_ROWS]:
        values = {
            value_words(value): value for one in results if (value := one.parameters.get(path)) is not None
        }
        numbers = [one for value in values.values() if (one := number(value)) is not None]
        if len(numbers) == len(values):
            words = [value_words(value) for value in sorted(values.values())]
        else:
            words = sorted(values)
        shown = ", ".join(words) if len(words) <= _VALUES else f"{words[0]} … {words[-1]}"
        rows.append((path, f"{len(words):,}", shown))
    return Table("Swept parameters", ("parameter", "values", "which"), rows, (1,)) if rows else None


def _constant(results: Sequence[Result]) -> Table | None:
    differs = {*differing(results)}
    first = next((one.parameters for one in results if one.parameters), {})
    rows = [(path, value_words(value)) for path, value in first.items() if path not in differs]
    return Table("Parameters that all members share", ("parameter", "value"), rows) if rows else None
