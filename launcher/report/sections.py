"""The parts of a page as rows of text: the request, what happened, and the results. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from castoff.launcher.config.quantities import clock, cpulist
from castoff.launcher.history.attempts import HostRanks, Phase
from castoff.launcher.history.listing import steps_words
from castoff.launcher.history.metrics import Point, step_words
from castoff.launcher.logs.silence import silence_words
from castoff.launcher.report import profile, timeline
from castoff.launcher.report.cells import Cell, Moments, Table, cut, ended, table
from castoff.launcher.report.curves import Curve, Plot
from castoff.launcher.report.facts import AttemptFacts, RunFacts
from castoff.launcher.report.masking import masked_words
from castoff.launcher.report.ranking import (
    Rule,
    best,
    larger_is_better,
    ranked,
    value_words,
)
from castoff.launcher.report.sweep import sweep
from castoff.launcher.report.tables import further, members, misses_ranks, resources
from castoff.launcher.report.using import use_table
from castoff.launcher.runs.states import FAILED, members_words, why
from castoff.launcher.text.words import brief

_LINES = 500
"""The maximum number of lines shown of a job file or a script's head."""

FIRST_ROWS = 20
"""The number of rows of a table that are shown unfolded."""

_LINED = 40
"""Up to this number of members, the timeline has a line for each; for more, it counts those in each phase.
"""


class Line(NamedTuple):
    """A line of the timeline."""

    label: str
    words: str
    bars: Sequence[timeline.Bar]


class Strip(NamedTuple):
    """The timeline: a line for each member, or a census, which counts the members in each phase."""

    begin: Cell
    end: Cell
    lines: Sequence[Line]
    census: str = ""
    """The census in words; empty: it is not a census."""


class Shown(NamedTuple):
    """A plot, and a table of its values."""

    title: str
    curves: Sequence[Curve]
    table: Table
    thinned: bool
    is_marked: bool
    """Whether a curve has marks where attempts begin."""
    axis: str
    """The unit of the axis."""


def sections(facts: RunFacts, moments: Moments) -> dict[str, Any]:
    """The variables of the template."""
    return {
        "state": facts.now.word,
        "summary": [*_summary(facts)],
        "request": [*_request(facts)],
        "strip": _strip(facts, moments),
        "sums": [(name, brief(took)) for name, took in _sums(facts).items()],
        "attempts": _attempts(facts, moments),
        "odd": _odd(facts),
        "members": members(facts),
        "further": further(facts),
        "sweep": sweep(facts),
        "placements": [*_placements(facts)],
        "local_ranks": _local_ranks(facts),
        "profile": profile.shown(facts.profile),
        "use_table": use_table(facts.use.use) if facts.use else None,
        "use_plots": [plot(one, None) for one in facts.use_plots],
        "resources": resources(facts),
        "misses_ranks": misses_ranks(facts),
        "code": [*_code(facts)],
        "packages": _packages(facts.metrics.packages),
        "parameters": _parameters(facts),
        "job_text": cut(facts.job_text, _LINES, "job.yaml in the run directory"),
        "script_head": cut(facts.script_head, _LINES, "job.sh in the run directory"),
    }


def plot(one: Plot, chosen: Rule | None) -> Shown:
    """A plot with a table of its values, for people who cannot see it."""
    rows = []
    for curve in one.curves:
        name = one.metric or curve.label
        largest = chosen.largest if chosen and name == chosen.metric else larger_is_better(name)
        values = curve.values
        point = values.best(largest=largest) if largest is not None else None
        cells = (curve.label, _value(values.last, one.axis), _value(point, one.axis))
        number = f"{values.number - values.odd:,}"
        restarts = ", ".join(map(step_words, curve.restarts))
        extremes = (_value(extreme, one.axis) for extreme in (values.smallest, values.largest))
        rows.append((*cells, *extremes, number, restarts))
    headings = ("curve", "last", "best", "smallest", "largest", "points", "restarts at step")
    words = table(f"Values of {one.title}", headings, rows, *headings[1:-1])
    return Shown(
        one.title,
        one.curves,
        words,
        any(curve.thinned for curve in one.curves),
        any(curve.marks for curve in one.curves),
        one.axis,
    )


def _value(point: Point | None, axis: str) -> str:
    return "" if point is None else f"{point.value:.6g} at {axis} {step_words(point.step)}"


def _odd(facts: RunFacts) -> Table | None:
    """Metrics with values that are not finite, which no plot can show; None for arrays."""
    if facts.is_array:
        return None
    metrics = facts.members[0].result.metrics.items()
    rows = [
        (name, _value(values.first_odd, "step"), f"{values.odd:,} of {values.number:,}")
        for name, values in metrics
        if values.odd
    ]
    headings = ("metric", "first", "values")
    return table("Values that are not finite numbers", headings, rows, *headings[1:]) if rows else None


# The summary at the top


def _summary(facts: RunFacts) -> Iterator[tuple[str, str]]:
    now = facts.now
    if facts.is_array:
        yield "Members", members_words(now.counts)
    if facts.silent:
        words = silence_words(max(facts.silent.values()), facts.at)
        of_array = f"members {cpulist(sorted(facts.silent))}: {words} or more"
        yield "Silent", of_array if facts.is_array else words
    seconds = [member.result.seconds for member in facts.members if member.result.seconds is not None]
    if seconds:
        yield ("Longest member" if facts.is_array else "Took"), brief(max(seconds))
    number = sum(len(member.attempts) for member in facts.members)
    if number > len(facts.members):
        yield "Attempts", str(number)
    hours = facts.hours
    if hours.starts > hours.unknown:
        of = f" of {_hours(hours.requested)} requested" if hours.unbounded < hours.starts else ""
        yield "Node-hours", f"{_hours(hours.used)}{of}"
    if facts.rule is not None and not facts.rule.is_guess:
        top = ranked([member.result for member in facts.members], facts.rule)[0]
        point = best(top, facts.rule)
        if point is not None:
            of = f", member {top.member}" if facts.is_array else ""
            yield f"Best {facts.rule.metric}", f"{point.value:.6g} at step {step_words(point.step)}{of}"
    metrics = facts.metrics
    if not facts.is_array and metrics.step is not None:
        yield "Step", steps_words(metrics.step, metrics.total_steps)


def _hours(count: float) -> str:
    return f"{count:,.2f}" if count >= 1 else f"{count:.2g}"


# The request


def _request(facts: RunFacts) -> Iterator[tuple[str, str]]:
    planned, plan = facts.planned, facts.plan
    yield "Site", f"{facts.now.site or 'not known'}, scheduler {planned.scheduler or 'not known'}"
    if plan is not None:
        yield "Command", "a Python function" if plan.function else shlex.join(masked_words(plan.command))
        yield "Nodes", str(plan.nodes)
    if planned.ranks is not None:
        layout = ", ".join(f"{ranks} on {_nodes(nodes)}" for ranks, nodes in planned.layout)
        yield "Ranks", f"{planned.ranks} ({layout}), started by {planned.launcher}"
    if planned.cores_per_rank:
        yield "Cores per rank", str(planned.cores_per_rank)
    if plan is not None and plan.devices_per_rank:
        yield "Devices per rank", str(plan.devices_per_rank)
    yield "Walltime", clock(planned.walltime) if planned.walltime else "none"
    for name, value in (("Account", planned.account), ("Queue", planned.queue)):
        if value:
            yield name, value
    if planned.array_count is not None:
        at_most = (
            f", at most {planned.array_max_concurrent} at a time" if planned.array_max_concurrent else ""
        )
        yield "Array", f"{planned.array_count} members{at_most}"
    if planned.requeue_max:
        yield "Requeues", f"at most {planned.requeue_max}"
    if plan is not None and plan.restart is not None and plan.restart.max:
        yield "Restarts", f"at most {plan.restart.max} in each job"
    if plan is not None and plan.container is not None:
        yield "Container", f"{plan.container.image} ({plan.container.runtime})"


def _nodes(count: int) -> str:
    return "1 node" if count == 1 else f"each of {count} nodes"


# The timeline


def _phases(facts: RunFacts) -> list[list[Phase]]:
    """The phases of each member, over all its attempts in order."""
    return [
        [
            *(phase for attempt in member.attempts for phase in _phases_of(attempt)),
            *([member.waiting] if member.waiting else []),
        ]
        for member in facts.members
    ]


def _phases_of(one: AttemptFacts) -> Sequence[Phase]:
    return timeline.marked_failed(one.phases) if one.status.ending in FAILED else one.phases


def _sums(facts: RunFacts) -> dict[str, float]:
    return timeline.sums(_phases(facts), facts.at)


def _strip(facts: RunFacts, moments: Moments) -> Strip | None:
    """The timeline; None if no phase took a second."""
    all_phases = _phases(facts)
    whole = timeline.span(all_phases, facts.at)
    if whole is None or not _sums(facts):
        return None
    ends = moments.date(whole.begin), moments.date(whole.end)
    if len(all_phases) > _LINED:
        most = timeline.most_at_once(all_phases, facts.at)
        words = f"at most {most} of {len(all_phases)} members ran at a time"
        return Strip(*ends, [Line("members", words, timeline.census(all_phases, whole, facts.at))], words)
    lines = [
        Line(
            f"member {member.result.member}" if facts.is_array else "",
            timeline.words(phases, facts.at) if len(phases) <= 8 else f"{len(member.attempts)} attempts",
            timeline.bars(phases, whole, facts.at),
        )
        for member, phases in zip(facts.members, all_phases, strict=True)
    ]
    return Strip(*ends, lines)


def _attempts(facts: RunFacts, moments: Moments) -> Table | None:
    """The attempts of a run; None for arrays, which have a table of members instead."""
    if facts.is_array or not facts.members[0].attempts:
        return None
    rows = [_attempt(attempt, facts, moments) for attempt in facts.members[0].attempts]
    headings = ("attempt", "state", "began", *timeline.PHASES, "host", "why")
    if len(rows) <= FIRST_ROWS:
        return table("Attempts", headings, rows, *timeline.PHASES)
    return table("Attempts, the newest first", headings, rows[::-1], *timeline.PHASES)


def _attempt(one: AttemptFacts, facts: RunFacts, moments: Moments) -> Sequence[Cell]:
    status = one.status
    took = {phase.name: brief(phase.seconds(facts.at)) for phase in one.phases}
    restart = f" (restart {status.restart} of its job)" if status.restart else ""
    return (
        f"{one.words}{restart}",
        ended(status.word),
        moments.date(status.started) or "never",
        *(took.get(name, "") for name in timeline.PHASES),
        status.host or "",
        "; ".join(why(status.failure, status.reason)),
    )


# Hosts, cores and devices


def _placements(facts: RunFacts) -> Iterator[Table]:
    """The hosts of attempts; attempts on the same hosts share a table."""
    attempts_on: dict[tuple[HostRanks, ...], list[int]] = {}
    for attempt in (attempt for member in facts.members for attempt in member.attempts if attempt.hosts):
        attempts_on.setdefault(tuple(attempt.hosts), []).append(attempt.status.attempt)
    for hosts, attempts in attempts_on.items():
        numbers = f"attempt{'s' * (len(attempts) > 1)} {cpulist(attempts)}"
        rows = [(str(number), host.host, _ranks(host.ranks)) for number, host in enumerate(hosts)]
        yield table(f"Hosts of {numbers}", ("node", "host", "ranks"), rows, "node")


def _ranks(ranks: range | None) -> str:
    return "not known" if ranks is None else cpulist(ranks) or "none"


def _local_ranks(facts: RunFacts) -> Table | None:
    """The planned cores and devices of each local rank; None if castoff does not choose them."""
    plan = facts.plan
    if plan is None or not (plan.cpu_lists or plan.devices.per_rank):
        return None
    number = max(len(plan.cpu_lists), len(plan.devices.per_rank))
    rows = [
        (str(rank), _at(plan.cpu_lists, rank), _at(plan.devices.per_rank, rank)) for rank in range(number)
    ]
    headings = ("local rank", "CPUs", "devices")
    return table("Cores and devices of each node's ranks", headings, rows, "local rank")


def _at(some: Sequence[str], at: int) -> str:
    return some[at] if at < len(some) else ""


# The code


def _code(facts: RunFacts) -> Iterator[tuple[str, str]]:
    code = facts.code
    if code is not None:
        if code.repository:
            yield "Commit", code.commit or "none yet"
            yield "Branch", code.branch or "none"
        if code.remote:
            yield "Remote", code.remote
        for name, files in (("Changed files", code.changed), ("New files", code.untracked)):
            if files.count:
                yield name, f"{files.count}: {', '.join(files.first[:10])}{' …' if files.count > 10 else ''}"
        if code.diff_bytes:
            yield "Differences", "code.diff in the run directory"
        if code.castoff:
            yield "castoff", code.castoff
        if code.python:
            yield "Python of the submission", code.python
    if facts.metrics.device:
        yield "Device", facts.metrics.device


def _packages(versions: Mapping[str, str]) -> Table | None:
    if not versions:
        return None
    rows = sorted(versions.items(), key=lambda item: item[0].lower())
    return Table("Package versions, as the program reports them", ("package", "version"), rows)


def _parameters(facts: RunFacts) -> Table | None:
    """The program's parameters; None for arrays, whose parameters are in `sweep`."""
    rows = [(path, value_words(value)) for path, value in facts.metrics.parameters.items()]
    return Table("Parameters", ("parameter", "value"), rows) if rows and not facts.is_array else None
