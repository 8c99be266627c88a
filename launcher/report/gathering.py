"""Reads the content of a run's page from its directory and from its scheduler's accounting."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from castoff.launcher.history.attempt_use import AttemptUse, attempt_use
from castoff.launcher.history.attempts import hosts, phases, waiting
from castoff.launcher.history.metrics import Metrics
from castoff.launcher.history.progress import device_use
from castoff.launcher.history.usage import shares, starts_of, total, usages
from castoff.launcher.history.use import samples_of
from castoff.launcher.logs.failures import excerpt_of, failed_rank
from castoff.launcher.logs.silence import silent_since
from castoff.launcher.report.cells import log_text
from castoff.launcher.report.curves import (
    DRAWN_METRICS,
    Plot,
    by_interest,
    plots,
    plots_of_several,
    points_of_each,
)
from castoff.launcher.report.facts import AttemptFacts, Excerpt, FailureFacts, MemberFacts, RunFacts
from castoff.launcher.report.masking import masked_job, masked_parameters, masked_script
from castoff.launcher.report.profile import newest
from castoff.launcher.report.ranking import Rule, for_a_table, metric_names, parameters_words, ranked, rule
from castoff.launcher.report.results import Result, metrics_of_member, result_of
from castoff.launcher.report.using import DRAWN_NODES, use_plots
from castoff.launcher.runs import provenance
from castoff.launcher.runs.directory import names_in
from castoff.launcher.runs.parameters import parameters_of
from castoff.launcher.runs.plan import Plan
from castoff.launcher.runs.records import read, record_bytes
from castoff.launcher.runs.run import RunDirectory
from castoff.launcher.runs.script import head_of
from castoff.launcher.runs.states import AttemptStatus, MemberStatus, RunStatus, attempt_words, why
from castoff.launcher.status.poller import Poller
from castoff.launcher.status.script_output import script_output
from castoff.launcher.status.watch import status
from castoff.launcher.text.failure import HANG

_FAILURES = 5
"""The maximum number of failures that are shown: those of the first failed members, the newest first."""

_OTHER_RANKS = 16
"""The maximum number of other ranks whose output is shown with a failure."""

_LINES_OF_OTHERS = 15

_LONGEST = 600
"""The maximum number of lines of a job file or a script's head."""

_COMPARED = 20
"""The maximum number of members whose curves share a plot."""

_Busy = dict[tuple[int, int], float]
"""The reported fraction of time in which devices computed, by member and last attempt of a job."""


class _Drawn(NamedTuple):
    """The plots of a run; for an array, of how many members, and how many metrics are left out."""

    plots: Sequence[Plot]
    members: int = 0
    metrics_left_out: int = 0


class Wish(NamedTuple):
    """The order of members: by which metric, and whether large values come first. None: castoff chooses. And
    which members are shown.
    """

    by: str | None = None
    largest: bool | None = None
    members: frozenset[int] | None = None
    """The members that the page is about; None: all."""


def gather(run: RunDirectory, wish: Wish, poller: Poller | None = None) -> RunFacts:
    """Read the content of a run's page.

    Raises:
        CastoffError: the run's directory cannot be read, or no member has reported `wish.by`.
    """
    now, planned = status(run, poller), run.facts()
    if wish.members is not None:
        chosen_members = [member for member in now.members if member.member in wish.members]
        now = msgspec.structs.replace(now, members=chosen_members)
    at = time.time()
    metrics, results, busy = _results(run, now, at)
    chosen = rule(metric_names(results), wish.by, wish.largest)
    failures, left_out = _failures(run, now)
    is_array = len(now.members) > 1
    drawn = _compared(run, now, results, chosen) if is_array else _Drawn(plots(metrics))
    use, use_plots = (None, []) if is_array else _use(run, now.members[0], metrics)
    return RunFacts(
        now=now,
        at=at,
        planned=planned,
        plan=read(run.path / "plan.json", Plan),
        job_text=_cut(masked_job(_text(run.path / "job.yaml"))),
        script_head=_cut(masked_script(head_of(_text(run.script)))),
        code=provenance.read(run),
        members=_members(run, now, results, busy),
        hours=total(shares(now, planned, at=at)),
        failures=failures,
        failures_left_out=left_out,
        metrics=metrics,
        profile=newest(run, now.members, is_array=is_array),
        rule=chosen,
        plots=drawn.plots,
        silent=_silent(now, at),
        compared=drawn.members,
        metrics_left_out=drawn.metrics_left_out,
        use=use,
        use_plots=use_plots,
    )


def _use(run: RunDirectory, member: MemberStatus, metrics: Metrics) -> tuple[AttemptUse | None, list[Plot]]:
    """What a member's newest attempt used that recorded something, and its curves."""
    for attempt in reversed(member.attempts):
        if found := attempt_use(run, member.member, attempt, lambda: metrics):
            samples = samples_of(run, member.member, attempt.attempt, DRAWN_NODES)
            return found, use_plots(samples, attempt.started or samples[0].samples[0].t)
    return None, []


def _results(run: RunDirectory, now: RunStatus, at: float) -> tuple[Metrics, list[Result], _Busy]:
    """The metrics of the first member that has any, the results of all members, and how busy devices were."""
    first, results, busy = Metrics(), list[Result](), _Busy()
    parameters = parameters_of(run)
    for member in now.members:
        metrics = metrics_of_member(run, member)
        metrics.parameters = masked_parameters(metrics.parameters)
        of_array = masked_parameters(parameters.typed(member.member))
        results.append(result_of(run, now, member, metrics, at, of_array))
        for start in starts_of(member):
            if start.began and (fraction := device_use(metrics, start.began, start.last.ended)) is not None:
                busy[member.member, start.last.attempt] = fraction
        if not (first.reports or first.packages):
            first = metrics
    return first, results, busy


def _members(run: RunDirectory, now: RunStatus, results: Sequence[Result], busy: _Busy) -> list[MemberFacts]:
    used, is_array, submission = usages(run, now), len(now.members) > 1, run.submission()
    for key, fraction in busy.items():
        if key in used and used[key].device_utilization is None:
            used[key] = msgspec.structs.replace(used[key], device_utilization=fraction)
    return [
        MemberFacts(
            result,
            [
                AttemptFacts(
                    attempt_words(member.member, attempt.attempt, is_array=is_array),
                    attempt,
                    phases(run, submission, member, attempt),
                    [] if is_array else hosts(run, member.member, attempt.attempt),
                    used.get((member.member, attempt.attempt)),
                )
                for attempt in member.attempts
            ],
            waiting(submission, member),
        )
        for member, result in zip(now.members, results, strict=True)
    ]


def _compared(run: RunDirectory, now: RunStatus, results: Sequence[Result], chosen: Rule | None) -> _Drawn:
    """The plots of an array's best members: one for each metric."""
    if chosen is None:
        return _Drawn([])
    best = [result for result in ranked(results, chosen) if chosen.metric in result.metrics][:_COMPARED]
    of_number = {member.member: member for member in now.members}
    (paths, _), names = for_a_table(results), by_interest(metric_names(best), chosen.metric)

    def members() -> Iterator[tuple[str, Metrics]]:
        for result in best:
            words = parameters_words(result.parameters, paths)
            label = f"{result.member}: {words}" if words else f"member {result.member}"
            # Read again, since keeping the curves of all members would take much memory.
            yield label, metrics_of_member(run, of_number[result.member])

    drawn = names[:DRAWN_METRICS]
    found = plots_of_several(members(), drawn, points_of_each(len(best) * len(drawn)))
    return _Drawn(found, len(best), len(names) - len(drawn))


def _silent(now: RunStatus, at: float) -> dict[int, float]:
    """When the ranks of running members became silent, of those that are silent."""
    running = (member for member in now.members if member.state == "running" and member.attempts)
    found = {member.member: silent_since(member.attempts[-1], at) for member in running}
    return {member: since for member, since in found.items() if since is not None}


def _failures(run: RunDirectory, now: RunStatus) -> tuple[list[FailureFacts], int]:
    """The failures to show, the newest of each member first, and the number of further ones."""
    failed = [
        (member, attempt)
        for member in now.members
        for attempt in reversed(member.attempts)
        if attempt.failure or (attempt.state == "ended" and script_output(run, member.member, attempt))
    ]
    is_array = len(now.members) > 1
    shown = [_failure(run, member, attempt, is_array=is_array) for member, attempt in failed[:_FAILURES]]
    return shown, len(failed) - len(shown)


def _failure(
    run: RunDirectory, member: MemberStatus, attempt: AttemptStatus, *, is_array: bool
) -> FailureFacts:
    failed = failed_rank(run, member.member, attempt)
    others = [] if failed is None else [*_others(run, member.member, attempt)]
    text = log_text(failed.excerpt()) if failed else ""
    lines = script_output(run, member.member, attempt)
    return FailureFacts(
        attempt=attempt_words(member.member, attempt.attempt, is_array=is_array),
        why=why(attempt.failure, attempt.reason),
        text=text or log_text([line.encode(errors="surrogateescape") for line in lines]),
        log=str(failed.stack or failed.log) if failed and (failed.stack or failed.log) else None,
        others=[Excerpt(path.stem, _last_lines(path)) for path in others[:_OTHER_RANKS]],
        others_left_out=max(len(others) - _OTHER_RANKS, 0),
        hung=attempt.failure is not None and attempt.failure.reason == HANG,
    )


def _others(run: RunDirectory, member: int, attempt: AttemptStatus) -> Iterator[Path]:
    """The logs of all ranks except the first failed rank; their stacks if all hung."""
    assert attempt.failure is not None
    logs = run.log_folder / f"{member}.{attempt.attempt}"
    hung = attempt.failure.reason == HANG
    folder, ending = (logs / "stacks", ".txt") if hung else (logs, ".log")
    failed_name = None if attempt.failure.rank is None else f"rank-{attempt.failure.rank:05d}{ending}"
    for name in sorted(names_in(folder)):
        if (
            name.startswith(("rank-", "node-"))
            and name.endswith(ending)
            and name not in (failed_name, attempt.failure.log)
        ):
            yield folder / name


def _last_lines(path: Path) -> str:
    """A whole stack, or a log's last traceback or last lines."""
    lines = excerpt_of(path)
    return log_text(lines if path.suffix == ".txt" else lines[-_LINES_OF_OTHERS:])


def _cut(text: str) -> str:
    """A text without its middle if it is long, as with the parameters of many members."""
    lines = text.split("\n")
    if len(lines) <= _LONGEST:
        return text
    half = _LONGEST // 2
    return "\n".join([*lines[:half], f"… {len(lines) - 2 * half:,} lines are left out …", *lines[-half:]])


def _text(path: Path) -> str:
    return record_bytes(path).decode(errors="replace")
