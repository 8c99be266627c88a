"""Tables of a page: an array's members side by side, and the resources that jobs used. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from castoff.launcher.history.metrics import step_words
from castoff.launcher.report.cells import Table, ended, table
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
from castoff.launcher.runs.records import Usage
from castoff.launcher.text.words import brief, size_words

_FURTHER = 24
"""The maximum number of metrics that are shown besides the metric that orders the members."""

_CELLS = 8_000
"""About the maximum number of cells of a table: a quarter of a megabyte."""


def members(facts: RunFacts) -> Table | None:
    """An array's members, the best first."""
    if not facts.is_array:
        return None
    results = [member.result for member in facts.members]
    (paths, _), rule = for_a_table(results), facts.rule
    metric = (f"best {rule.metric}", "at step", f"last {rule.metric}") if rule else ()
    headings = ("member", *short_names(paths).values(), *metric, "state", "attempts", "took", "why")
    rows = []
    for result in ranked(results, rule):
        values: Sequence[str] = ()
        if rule is not None:
            point, summary = best(result, rule), result.metrics.get(rule.metric)
            best_cells = (f"{point.value:.6g}", step_words(point.step)) if point else ("", "")
            values = (*best_cells, f"{summary.last.value:.6g}" if summary else "")
        took = "" if result.seconds is None else brief(result.seconds)
        parameters = [value_words(result.parameters.get(path)) for path in paths]
        outcome = (ended(result.state), str(result.attempts), took, result.why)
        rows.append((str(result.member), *parameters, *values, *outcome))
    return _limited(table("Members, best first", headings, rows, *metric, "attempts", "took"), facts)


def further(facts: RunFacts) -> Table | None:
    """Other metrics of an array's members; those whose names show which values are better come first."""
    if not facts.is_array or facts.rule is None:
        return None
    results = ranked([member.result for member in facts.members], facts.rule)
    names = [name for name in metric_names(results) if name != facts.rule.metric]
    chosen = sorted(names, key=lambda name: larger_is_better(name) is None)[:_FURTHER]
    if not chosen:
        return None
    headings = [heading for name in chosen for heading in (f"best {name}", f"last {name}")]
    rows = [
        (str(result.member), *(cell for name in chosen for cell in _best_and_last(result, name)))
        for result in results
    ]
    return _limited(table("Other metrics of the members", ("member", *headings), rows, *headings), facts)


def _limited(one: Table, facts: RunFacts) -> Table:
    """A table of members without most of those in the middle, if there are very many."""
    most = _CELLS // len(one.headings)
    return one.shortened(most - most // 10, most // 10, f"castoff results {facts.now.id} --csv")


def _best_and_last(one: Result, name: str) -> tuple[str, str]:
    """A metric's best and last value; only the last if the name does not show which is better."""
    values, largest = one.metrics.get(name), larger_is_better(name)
    if values is None:
        return "", ""
    point = None if largest is None else values.best(largest=largest)
    return f"{point.value:.6g}" if point else "", f"{values.last.value:.6g}"


class Use(NamedTuple):
    """What one job or several jobs together used. A field that is None is not known."""

    elapsed: float | None
    """The time that the jobs took together, in seconds."""
    cpus: int | None
    cpu_use: float | None
    """The fraction of the time in which the CPUs computed."""
    memory: int | None
    """The largest memory of a job, in bytes."""
    memory_requested: int | None
    device_use: float | None
    source: str


def resources(facts: RunFacts) -> Table | None:
    """The resources that each job used and had, after those of all jobs together if there are several."""
    used = [
        # Not `1.0`, which looks like a number in a table of numbers.
        (
            f"member {member.result.member}, attempt {attempt.status.attempt}"
            if facts.is_array
            else attempt.words,
            attempt.usage,
        )
        for member in facts.members
        for attempt in member.attempts
        if attempt.usage
    ]
    if not used:
        return None
    rows = [(words, together([usage])) for words, usage in used]
    if len(used) > 1:
        rows = [("all", together([usage for _, usage in used])), *rows]
    headings = ("job up to attempt", "took", "CPUs", "CPU use", "memory", "device use", "by")
    shown = table("Resources used", headings, [_row(*row) for row in rows], *headings[1:-1])
    return shown.shortened(_CELLS // 10, 0, "castoff usage")


def misses_ranks(facts: RunFacts) -> bool:
    """Whether the numbers may leave out ranks, as PBS's numbers may without its cgroups hook."""
    return any(
        attempt.usage and attempt.usage.source == "qstat"
        for member in facts.members
        for attempt in member.attempts
    )


def together(used: Sequence[Usage]) -> Use:
    """Add up what jobs used: the sum of their times, the largest memory, and time-weighted
    means of the rest.
    """
    elapsed = [usage.elapsed for usage in used if usage.elapsed is not None]
    jobs = [(usage.elapsed, usage.cpus, usage.cpu_seconds) for usage in used if usage.elapsed and usage.cpus]
    cpus = _mean((time, count) for time, count, _ in jobs)
    computed = [
        (time * count, seconds / (time * count)) for time, count, seconds in jobs if seconds is not None
    ]
    busy = ((usage.elapsed or 1.0, usage.device_utilization) for usage in used)
    fullest = max(used, key=lambda usage: usage.memory or 0)
    return Use(
        elapsed=sum(elapsed) if elapsed else None,
        cpus=None if cpus is None else round(cpus),
        cpu_use=_mean(computed),
        memory=fullest.memory,
        memory_requested=fullest.memory_requested,
        device_use=_mean((time, part) for time, part in busy if part is not None),
        source=", ".join(dict.fromkeys(usage.source for usage in used)),
    )


def _mean(parts: Iterable[tuple[float, float]]) -> float | None:
    """The weighted mean of (weight, value) pairs; None if there are none."""
    pairs = [*parts]
    return (
        sum(weight * value for weight, value in pairs) / sum(weight for weight, _ in pairs) if pairs else None
    )


def _row(words: str, use: Use) -> Sequence[str]:
    memory = "" if use.memory is None else size_words(use.memory)
    if memory and use.memory_requested:
        memory += f" of {size_words(use.memory_requested)}"
    return (
        words,
        "" if use.elapsed is None else brief(use.elapsed),
        "" if use.cpus is None else str(use.cpus),
        "" if use.cpu_use is None else f"{use.cpu_use:.0%}",
        memory,
        "" if use.device_use is None else f"{use.device_use:.0%}",
        use.source,
    )
