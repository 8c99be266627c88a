"""The content of a page that compares runs: what differs between them, and their final metrics. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from castoff.launcher.history.metrics import step_words
from castoff.launcher.report.cells import Moments, Table, ended, table
from castoff.launcher.report.curves import Plot
from castoff.launcher.report.ranking import Rule, best, metric_names, ranked
from castoff.launcher.report.results import Result
from castoff.launcher.runs.states import RunStatus
from castoff.launcher.text.shortened import cut
from castoff.launcher.text.words import brief

_FURTHER = 24
"""The maximum number of metrics that are shown besides the metric that orders the runs."""

_LONGEST = 200
"""The maximum number of characters of a value."""


@dataclass(frozen=True)
class ComparedRun:
    """A run among others."""

    label: str
    now: RunStatus
    result: Result
    """The result of its only member; of an array, of the best."""
    traits: Mapping[str, str]
    """What may differ: the fields of its job, parameters, code and packages, each by a name."""


@dataclass(frozen=True)
class Comparison:
    """Runs at one moment."""

    at: float
    """When their states were read, in seconds since the epoch."""
    runs: Sequence[ComparedRun]
    """In the order in which they were named."""
    rule: Rule | None
    plots: Sequence[Plot] = ()
    compared: int = 0
    """The number of runs in the plots."""
    metrics_left_out: int = 0
    """The number of metrics that are not drawn."""


def labels(runs: Sequence[RunStatus]) -> list[str]:
    """The shortest labels that tell runs apart: names, names with the ends of ids, or ids."""
    for words in ([run.name for run in runs], [f"{run.name} {run.id[-4:]}" for run in runs]):
        if len({*words}) == len(runs):
            return words
    counts = Counter(run.id for run in runs)
    return [run.id if counts[run.id] == 1 else run.directory for run in runs]


def by_rank(content: Comparison) -> list[ComparedRun]:
    """The runs, the best first."""
    runs = {id(one.result): one for one in content.runs}
    return [runs[id(result)] for result in ranked((one.result for one in content.runs), content.rule)]


def final_metrics(content: Comparison) -> Table:
    """State and metrics of each run, the best first."""
    chosen, runs = content.rule, by_rank(content)
    others = [
        name for name in metric_names(one.result for one in runs) if not chosen or name != chosen.metric
    ]
    metric = (f"best {chosen.metric}", "at step", f"last {chosen.metric}") if chosen else ()
    further = [f"last {name}" for name in others[:_FURTHER]]
    rows = []
    for one in runs:
        point = best(one.result, chosen)
        values = [f"{point.value:.6g}" if point else "", step_words(point.step) if point else ""]
        cells = [*values, _last(one.result, chosen.metric)] if chosen else []
        cells += [_last(one.result, name) for name in others[:_FURTHER]]
        took = "" if one.result.seconds is None else brief(one.result.seconds)
        rows.append((one.label, ended(one.now.word), *cells, took, one.result.why))
    headings = ("run", "state", *metric, *further, "took", "why")
    return table("Final metrics, best first", headings, rows, *metric, *further, "took")


def _last(one: Result, name: str) -> str:
    values = one.metrics.get(name)
    return "" if values is None else f"{values.last.value:.6g}"


def differences(content: Comparison) -> Table | None:
    """What is not the same in all runs, in columns by run, or in rows by run if that is narrower."""
    names = [name for name in _names(content.runs) if not _is_equal(content.runs, name)]
    if not names:
        return None
    cells = [[cut(one.traits.get(name, ""), _LONGEST) for name in names] for one in content.runs]
    runs = [one.label for one in content.runs]
    if len(runs) > len(names):
        rows = [(label, *row) for label, row in zip(runs, cells, strict=True)]
        return Table("What differs", ("run", *names), rows)
    rows = [(name, *column) for name, column in zip(names, zip(*cells, strict=True), strict=True)]
    return Table("What differs", ("what", *runs), rows)


def equalities(content: Comparison) -> Table | None:
    """What is the same in all runs."""
    first = content.runs[0].traits
    rows = [(name, cut(first[name], _LONGEST)) for name in first if _is_equal(content.runs, name)]
    return Table("What is equal in all runs", ("what", "value"), rows) if rows else None


def _names(runs: Iterable[ComparedRun]) -> list[str]:
    return list(dict.fromkeys(name for one in runs for name in one.traits))


def _is_equal(runs: Sequence[ComparedRun], name: str) -> bool:
    return len({one.traits.get(name) for one in runs}) == 1


def origins(content: Comparison, moments: Moments) -> Table:
    """Where the runs are from."""
    rows = [
        (
            one.label,
            one.now.id,
            one.now.site,
            one.now.job or "",
            moments.date(one.now.submitted),
            _member(one),
        )
        for one in content.runs
    ]
    return table("Ids of the runs", ("run", "id", "site", "job", "submitted", "shown"), rows)


def _member(one: ComparedRun) -> str:
    """Which member of an array stands for it."""
    members = len(one.now.members)
    return f"member {one.result.member}, the best of {members}" if members > 1 else ""
