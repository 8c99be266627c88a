"""Facts of runs that nobody ran, for pages that show anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from castoff.launcher.history.attempts import QUEUED, RUNNING, SETUP, START_UP, Phase
from castoff.launcher.history.metrics import Metrics, Point, Report
from castoff.launcher.history.usage import Total
from castoff.launcher.report.curves import plots
from castoff.launcher.report.facts import AttemptFacts, MemberFacts, RunFacts
from castoff.launcher.report.ranking import metric_names, rule
from castoff.launcher.report.results import Result, Values, columns, summarised
from castoff.launcher.runs.records import Facts
from castoff.launcher.runs.states import AttemptStatus, MemberStatus, RunStatus

BEGAN = 1_795_000_000.0


def metrics(**curves: Sequence[float]) -> Metrics:
    """Values at the steps 0, 1, 2 …; `__` in a name stands for its slash."""
    found = Metrics()
    for step in range(max(map(len, curves.values()), default=0)):
        values = {name.replace("__", "/"): some[step] for name, some in curves.items() if step < len(some)}
        found.add(Report(float(step), values))
        found.step = step
    return found


def values(*some: float) -> Values:
    """A metric in brief."""
    return summarised(columns(metrics(x=some))["x"])


def result(number: int = 0, parameters: Mapping[str, Any] | None = None, **curves: Sequence[float]) -> Result:
    """A member that is done."""
    found = columns(metrics(**curves))
    return Result(
        run="made-1",
        directory="/runs/made-1",
        member=number,
        state="done",
        code=0,
        attempts=1,
        seconds=60.0,
        why="",
        parameters=parameters or {},
        metrics={name: summarised(column) for name, column in found.items()},
    )


def attempt(number: int = 0, **more: Any) -> AttemptStatus:
    """A minute that ended well."""
    began = BEGAN + 100 * number
    words = {"state": "ended", "ending": "done", "code": 0, "reason": None, "host": "n1", "failure": None}
    words |= {"started": began, "ended": began + 60, "logs": "/runs/made-1/logs/0.0"}
    return AttemptStatus(attempt=number, **{**words, **more})


def phases(one: AttemptStatus) -> list[Phase]:
    """Ten seconds each of waiting, setup and start, and the rest."""
    began = one.started or BEGAN
    marks = [began - 10, began, began + 10, began + 20]
    names = (QUEUED, SETUP, START_UP, RUNNING)
    return [Phase(*part) for part in zip(names, marks, [*marks[1:], one.ended], strict=True)]


def facts(
    *results: Result, attempts: Sequence[AttemptStatus] | None = None, at: float = BEGAN + 1000, **more: Any
) -> RunFacts:
    """A run: of one member if no results are given, or one."""
    found = results or (result(),)
    begun = [attempt()] if attempts is None else [*attempts]
    members = [MemberStatus(one.member, "ended", one.state, begun) for one in found]
    words = [f"{one.member}." if len(found) > 1 else "" for one in found]
    given: dict[str, Any] = {
        "now": RunStatus(
            name="made",
            site="big",
            state="ended",
            ending="done",
            id="made-1",
            directory="/runs/made-1",
            final=True,
            walltime=3600,
            members=members,
        ),
        "at": at,
        "planned": Facts(name="made", site="big", scheduler="slurm", ranks=1, layout=[(1, 1)]),
        "plan": None,
        "job_text": "command: [python, train.py]\n",
        "script_head": "#!/bin/bash\n",
        "code": None,
        "members": [
            MemberFacts(one, [AttemptFacts(f"{word}{each.attempt}", each, phases(each)) for each in begun])
            for one, word in zip(found, words, strict=True)
        ],
        "hours": Total(1, 1.0, 0.5, 0, 0),
        "rule": rule(metric_names(found)),
    }
    return RunFacts(**{**given, **more})


def with_curves(**curves: Sequence[float]) -> RunFacts:
    """A run of one member, with its plots."""
    found = metrics(**curves)
    return facts(result(0, None, **curves), metrics=found, plots=plots(found))


def point(step: float, value: float) -> Point:
    """A point of a curve."""
    return Point(step, value)
