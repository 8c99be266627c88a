"""castoff results: compare the members of arrays, and runs, by a metric."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import click

from castoff.launcher.cli.help import examples
from castoff.launcher.cli.offers import F, complete_metrics, complete_runs_and_parameters
from castoff.launcher.cli.output import (
    brief,
    json_option,
    parameter_columns,
    print_json,
    print_table,
    report,
)
from castoff.launcher.cli.reading_line import reading_line
from castoff.launcher.cli.run_options import selected
from castoff.launcher.history.metrics import Point, step_words
from castoff.launcher.history.reading import METRICS
from castoff.launcher.history.unread_lines import unread_line
from castoff.launcher.report.matched import LOG, Search
from castoff.launcher.report.ranking import (
    Rule,
    best,
    differing,
    for_a_table,
    larger_is_better,
    metric_names,
    ranked,
    rule,
    short_names,
    value_words,
)
from castoff.launcher.report.results import Result, results
from castoff.launcher.runs.index import Index
from castoff.launcher.runs.run import RunDirectory
from castoff.launcher.status.poller import AT_A_GLANCE, Poller
from castoff.launcher.status.watch import statuses
from castoff.launcher.text.layout import Column
from castoff.launcher.text.shortened import cut_ids

_HIDDEN = {"step": 2, "last": 3}
"""Columns about a metric that a narrow terminal hides, in this order."""

_NUMBER = len("-1.23457e-05")


def ranking_options(function: F) -> F:
    """Add --by, --largest and --smallest."""
    function = click.option(
        "--largest/--smallest",
        "largest",
        default=None,
        help="Whether its largest or smallest value is best; default: as the metric's name suggests.",
    )(function)
    return click.option(
        "--by",
        metavar="METRIC",
        shell_complete=complete_metrics,
        help="The metric to compare by; default: val/loss, else another of validation, else a loss.",
    )(function)


@click.command(
    "results",
    epilog=examples(
        "castoff results sweep",
        "castoff results sweep --by val/f1 --csv > sweep.csv",
        "castoff results a b c",
        "castoff results sweep seed=0 --pattern 'loss (?P<loss>[0-9.]+)'",
    ),
)
@click.argument("runs", nargs=-1, shell_complete=complete_runs_and_parameters)
@ranking_options
@click.option(
    "--pattern",
    metavar="REGEX",
    help="A number that the program printed, as 'loss=(?P<loss>[0-9.e-]+)': the last line that matches.",
)
@click.option(
    "--from",
    "source",
    metavar="FILE",
    help="Where --pattern looks: a file of each member, as 'out/{lr}/result.txt'; default: its log.",
)
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV, with every metric of every member.")
@json_option
def command(
    runs: tuple[str, ...],
    by: str | None,
    largest: bool | None,
    pattern: str | None,
    source: str | None,
    as_csv: bool,
    as_json: bool,
) -> None:
    """Compare the members of RUNS, best first: parameters that differ, best and last value of a metric.

    Each of RUNS is an id, the beginning of one, a name (its newest run), a scheduler's id or a directory;
    without any, the newest run is meant. Values are those that programs write into CASTOFF_METRICS_FILE, and
    those that --pattern finds. NAME=VALUE after a run selects its members by their parameters.
    """
    if as_csv and as_json:
        click.get_current_context().fail("--csv excludes --json: drop one")
    if source is not None and pattern is None:
        context = click.get_current_context()
        context.fail("--from needs --pattern REGEX, as in --pattern 'loss=(?P<loss>[0-9.e-]+)'")
    search = None if pattern is None else Search(source or LOG, pattern)
    if not runs:
        report(f"{Index.of(os.environ).newest().id}: the newest run")
    meant = selected(runs, ())
    states = [*map(meant.of, statuses(meant.runs, Poller(AT_A_GLANCE)))]
    with reading_line(meant.runs):
        members = results(
            zip(meant.runs, states, strict=True), time.time(), search.values if search else None
        )
    names = metric_names(members)
    singles = [name for name in search.names if name in names] if search else []
    if search is not None:
        _report_missing(search, len(members))
    chosen = rule(names, by or next(iter(singles), None), largest)
    ordered = ranked(members, chosen)
    if as_json:
        print_json(*(_facts(member, chosen) for member in ordered))
    elif as_csv:
        _print_csv(ordered, chosen, singles)
    else:
        _print_table(ordered, chosen, singles)
    if chosen is None and search is None:
        _report_none(meant.runs)
    elif chosen is not None and not (as_csv or as_json):
        report(f"ordered {chosen.words}")


def _report_none(runs: Iterable[RunDirectory]) -> None:
    """Report that there are no metrics, and how a program writes some."""
    line = 'lines like {"step": 10, "loss": 0.3}'
    if unread := unread_line(folder / METRICS for run in runs for _, _, folder in run.attempts()):
        report(f"no metrics: {unread}; programs append {line}")
        return
    append = f"no metrics: programs append {line} to $CASTOFF_METRICS_FILE"
    report(f"{append}; --pattern 'loss=(?P<loss>[0-9.e-]+)' finds what they print")


def _print_table(ordered: Sequence[Result], chosen: Rule | None, singles: Sequence[str]) -> None:
    """Print a table. `singles`: metrics that are one number of each member."""
    paths, left_out = for_a_table(ordered)
    names = [*short_names(paths).values()]
    metric = [f"best {chosen.metric}", "step", "last"] if chosen else []
    if chosen and chosen.metric in singles:
        metric = [chosen.metric, *(name for name in singles if name != chosen.metric)]
    columns = [
        Column("run", least=16, shorten=cut_ids),
        Column("member"),
        Column("state"),
        *parameter_columns(names, goes=5),
        # A number is never cut, as only a metric's name can be longer.
        *(Column(name, goes=_HIDDEN.get(name, 0), least=_NUMBER) for name in metric),
        Column("took", goes=1),
        Column("why", goes=4, least=24),
    ]
    several_runs = len({member.run for member in ordered}) > 1
    is_array = len(ordered) > len({member.run for member in ordered})
    rows = []
    for member in ordered:
        parameters = [value_words(member.parameters.get(path)) for path in paths]
        took = "" if member.seconds is None else brief(member.seconds)
        run = member.run if several_runs or not is_array else ""
        values = _values(member, chosen)
        if chosen and chosen.metric in singles:
            values = [_last(member, name) for name in metric]
        rows.append((run, str(member.member), member.state, *parameters, *values, took, member.why))
    if not several_runs and is_array:  # omit the run, which the user has just named
        columns, rows = columns[1:], [row[1:] for row in rows]
    print_table(columns, rows)
    if left_out:
        report(f"{left_out} more parameters differ: --csv and --json have all of them")


def _values(member: Result, chosen: Rule | None) -> list[str]:
    """The table cells for the ranking metric: best value, its step, last value."""
    if chosen is None:
        return []
    point = best(member, chosen)
    best_cells = [f"{point.value:.6g}", step_words(point.step)] if point else ["", ""]
    return [*best_cells, _last(member, chosen.metric)]


def _last(member: Result, name: str) -> str:
    metric = member.metrics.get(name)
    return f"{metric.last.value:.6g}" if metric else ""


def _report_missing(search: Search, members: int) -> None:
    """Report that members have no number, and why the first has none."""
    if search.missing:
        first, why = next(iter(search.missing.items()))
        report(f"{len(search.missing)} of {members} members have no number: member {first} {why}")


def _print_csv(ordered: Sequence[Result], chosen: Rule | None, singles: Sequence[str]) -> None:
    import csv

    metrics = {name: larger_is_better(name) for name in metric_names(ordered)}
    if chosen is not None:
        metrics[chosen.metric] = chosen.largest
    metrics = {name: largest for name, largest in metrics.items() if name not in singles}
    paths = list(dict.fromkeys(path for member in ordered for path in member.parameters))
    kept = set(differing(ordered)) if len(ordered) > 1 else set(paths)
    paths = [path for path in paths if path in kept]
    writer = csv.writer(sys.stdout, lineterminator="\n")
    about = ("run", "member", "state", "code", "attempts", "seconds")
    headings = [heading for item in metrics.items() for heading in _headings(*item)]
    writer.writerow([*about, *paths, *singles, *headings])
    for member in ordered:
        cells: list[Any] = [getattr(member, name) for name in about]
        cells += [member.parameters.get(path) for path in paths]
        cells += [member.metrics[name].last.value if name in member.metrics else None for name in singles]
        writer.writerow([*cells, *(cell for item in metrics.items() for cell in _cells(member, *item))])


def _headings(metric: str, largest: bool | None) -> Iterator[str]:
    yield f"last {metric}"
    if largest is not None:
        yield from (f"best {metric}", f"step of best {metric}")


def _cells(member: Result, name: str, largest: bool | None) -> Iterator[float | None]:
    metric = member.metrics.get(name)
    yield metric.last.value if metric else None
    if largest is not None:
        point = metric.best(largest=largest) if metric else None
        yield from (point.value, _whole(point.step)) if point else (None, None)


def _facts(member: Result, chosen: Rule | None) -> dict[str, Any]:
    """A member as JSON, with all its parameters and metrics."""
    by = {"metric": chosen.metric, "largest": chosen.largest} if chosen else None
    metrics = {
        name: {
            "last": _point(metric.last),
            "smallest": _point(metric.smallest),
            "largest": _point(metric.largest),
        }
        for name, metric in member.metrics.items()
    }
    return {
        "run": member.run,
        "directory": member.directory,
        "member": member.member,
        "state": member.state,
        "code": member.code,
        "attempts": member.attempts,
        "seconds": member.seconds,
        "why": member.why or None,
        "parameters": dict(member.parameters),
        "by": by,
        "best": _point(best(member, chosen)),
        "metrics": metrics,
    }


def _point(point: Point | None) -> dict[str, float | None] | None:
    """A point of a metric as JSON; a value that is not finite becomes null."""
    if point is None:
        return None
    step = None if math.isnan(point.step) else _whole(point.step)
    return {"step": step, "value": point.value if math.isfinite(point.value) else None}


def _whole(step: float) -> float | int:
    return int(step) if float(step).is_integer() else step
