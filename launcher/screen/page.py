"""The details of a run as lines of text, for a screen of a given size. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from castoff.launcher.errors import printable
from castoff.launcher.history.attempts import HostRanks, Phase
from castoff.launcher.history.listing import left_words, site_words, start_words, steps_words
from castoff.launcher.history.progress import Progress, speed_unit, time_left
from castoff.launcher.logs.silence import silence_words
from castoff.launcher.runs.states import (
    AttemptStatus,
    MemberStatus,
    RunStatus,
    attempt_words,
    members_words,
    why,
)
from castoff.launcher.screen.detail import Detail
from castoff.launcher.screen.listing import steps_with_bar
from castoff.launcher.text.layout import (
    STATE_STYLES,
    Cell,
    Column,
    Line,
    Span,
    number,
    sparkline,
    state_cell,
    table,
)
from castoff.launcher.text.shortened import cut
from castoff.launcher.text.words import brief, moment

_ATTEMPTS = 5
"""The number of newest attempts that are shown."""

_OF_ATTEMPTS = (
    Column("attempt"),
    Column("state"),
    Column("code", goes=2),
    Column("began", goes=3),
    Column("took", goes=1),
    Column("host", goes=4, least=8),
)
"""The columns of the table of attempts."""

_HOSTS = 8
"""The maximum number of hosts that are named."""

_METRICS = 24
"""The maximum number of metrics that are shown besides the loss."""

_NAME = 10
"""The width of the names at the beginning of lines."""

_FEWEST_LINES = 8
"""The minimum number of a log's lines that are shown."""


def lines(detail: Detail, now: float, width: int, height: int) -> list[Line]:
    """All lines, with as many of the log's last lines as fit the height, but at least `_FEWEST_LINES`."""
    page = [
        *_head(detail, now, width),
        *_attempts(detail, now, width),
        *_fields("phases", [_phase(phase, now) for phase in detail.phases], width, " · "),
        *_fields("hosts", _hosts(detail.hosts), width, "  "),
        *_progress(detail, now, width),
        *_use(detail, width),
    ]
    if detail.trouble:
        page += _fields("trouble", [detail.trouble], width)
    if excerpt := detail.excerpt.lines:
        title = f"── {printable(detail.excerpt.title)} "
        page.append([Span(cut(title, width).ljust(width, "─"), "dim")])
        left = max(height - len(page), _FEWEST_LINES)
        page += [[Span(cut(printable(line), width))] for line in excerpt[-left:]]
    return page


def _fields(name: str, words: Sequence[str], width: int, between: str = " ", style: str = "") -> list[Line]:
    """A name, and words on as many lines as they need; no lines if there are no words."""
    shown: list[Line] = []
    text = ""
    room = max(width - _NAME, 10)
    for word in [printable(word) for word in words if word]:
        joined = f"{text}{between}{word}" if text else word
        if text and len(joined) > room:
            shown.append(_field(name if not shown else "", text, style))
            joined = word
        while len(joined) > room:
            shown.append(_field(name if not shown else "", joined[:room], style))
            joined = joined[room:]
        text = joined
    return [*shown, _field(name if not shown else "", text, style)] if text else shown


def _field(name: str, text: str, style: str) -> Line:
    return [Span(name.ljust(_NAME), "dim"), Span(text, style)]


def _head(detail: Detail, now: float, width: int) -> Iterator[Line]:
    run, member = detail.status, detail.member
    yield from _fields("state", [run.state_words], width, style=STATE_STYLES.get(run.word, ""))
    yield from _fields("", [silence_words(detail.silent_since, now)], width, style="yellow")
    is_array = len(run.members) > 1
    of_attempt = detail.attempt and " ".join(why(detail.attempt.failure, detail.attempt.reason))
    if run.reason and not (of_attempt and run.state == "ended"):
        yield from _fields("why", run.reason.split(), width)
    if start := run.expected_start:
        yield from _fields("starts", [start_words(start, now)], width)
    yield from _fields("site", [_site(run, now)], width)
    if is_array:
        yield from _fields("members", [members_words(run.counts)], width)
        position = f"{member.member} of {run.members[0].member}-{run.members[-1].member}"
        yield from _fields("member", [f"{position}: {member.word}; ← → show others"], width)
        yield from _fields("", detail.parameters.split(" "), width)
        if member.reason and member.reason != run.reason:
            yield from _fields("", member.reason.split(), width)


def _site(run: RunStatus, now: float) -> str:
    submitted = f", submitted {brief(now - run.submitted)} ago" if run.submitted else ""
    return f"{site_words(run)}{submitted}"


def _attempts(detail: Detail, now: float, width: int) -> Iterator[Line]:
    member, is_array = detail.member, len(detail.status.members) > 1
    newest = member.attempts[-_ATTEMPTS:]
    if not newest:
        return
    if len(newest) < len(member.attempts):
        yield from _fields("attempts", [f"{len(member.attempts)}; the newest:"], width)
    rows = [_attempt_cells(member, attempt, now, is_array=is_array) for attempt in newest]
    yield from table(_OF_ATTEMPTS, rows, width).lines
    last = newest[-1]
    for text in why(last.failure, last.reason):
        yield from _fields("", text.split(), width)


def _attempt_cells(
    member: MemberStatus, attempt: AttemptStatus, now: float, *, is_array: bool
) -> tuple[Cell, ...]:
    took = attempt.seconds(now)
    return (
        Cell(attempt_words(member.member, attempt.attempt, is_array=is_array)),
        state_cell(attempt.word),
        Cell("" if attempt.code is None else str(attempt.code)),
        Cell(moment(attempt.started) if attempt.started else "never"),
        Cell("" if took is None else brief(took)),
        Cell(printable(attempt.host or "")),
    )


def _phase(phase: Phase, now: float) -> str:
    return f"{phase.name} {brief(phase.seconds(now))}"


def _hosts(hosts: Sequence[HostRanks]) -> list[str]:
    words = [f"{host.host} {_ranks(host.ranks)}".rstrip() for host in hosts[:_HOSTS]]
    return [*words, f"and {len(hosts) - _HOSTS} more"] if len(hosts) > _HOSTS else words


def _ranks(ranks: range | None) -> str:
    if ranks is None or not ranks:
        return ""
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {ranks[0]}-{ranks[-1]}"


def _progress(detail: Detail, now: float, width: int) -> Iterator[Line]:
    progress = detail.progress
    if progress.step is None:
        yield from _left(detail, now, width)
        return
    is_running = detail.attempt is not None and detail.attempt.state == "running"
    pace = f"{number(progress.pace)} steps/s" if progress.pace else ""
    reported = f"{brief(now - progress.reported)} ago" if is_running and progress.reported else ""
    steps = steps_words(progress.step, progress.total)
    steps = steps_with_bar(steps, progress.part, min(width // 4, 30)).removeprefix("step ")
    yield from _fields("step", [steps, pace, reported], width, "  ")
    yield from _left(detail, now, width)
    if progress.loss:
        curve = sparkline(progress.curve, max(min(width - _NAME - 24, 60), 8))
        name = "" if progress.loss.name == "loss" else f"({progress.loss.name})"
        yield from _fields("loss", [number(progress.loss.value), curve, name], width, "  ")
    waits = progress.data_wait if detail.use is None else None  # _use shows it, too
    of_data = [] if waits is None else [f"waiting for data {waits:.0%}"]
    yield from _fields("speed", [*_speed(progress), *of_data], width, "; ")
    yield from _fields("devices", _devices(progress), width, ", ")
    others = [f"{metric.name} {number(metric.value)}" for metric in progress.others[:_METRICS]]
    yield from _fields("metrics", others, width, " · ")


def _use(detail: Detail, width: int) -> Iterator[Line]:
    if detail.use is not None:
        yield from _fields("use", detail.use.words.split(", "), width, ", ")
        yield from _fields("", detail.use.advice.split(), width, style="yellow")


def _left(detail: Detail, now: float, width: int) -> Iterator[Line]:
    attempt, walltime = detail.attempt, detail.status.walltime
    if attempt is None or attempt.state != "running":
        return
    deadline = attempt.started + walltime if attempt.started and walltime else None
    left = time_left(detail.progress.end, deadline, now)
    if left is None:
        return
    if not left.is_walltime:
        later = f"; the walltime ends {brief(left.other - left.seconds)} later" if left.other else ""
        yield from _fields("left", [left_words(left) + later], width)
        return
    later = f", before the last step, which needs {brief(left.other)}" if left.other else ""
    style = "bold red" if left.other else ""
    yield from _fields("left", f"{left_words(left)}{later}".split(), width, style=style)


def _speed(progress: Progress) -> list[str]:
    words = []
    if progress.speed:
        words.append(f"{number(progress.speed.value)} {speed_unit(progress.speed.name)}")
    if progress.slowest_rank is not None:
        lag = f", {progress.slowest_lag:.0%} of a step behind" if progress.slowest_lag is not None else ""
        words.append(f"slowest rank {number(progress.slowest_rank)}{lag}")
    return words


def _devices(progress: Progress) -> list[str]:
    words = []
    if progress.utilization is not None:
        share = progress.utilization if progress.utilization <= 1 else progress.utilization / 100
        words.append(f"in use {share:.0%}")
    if progress.memory_gb is not None:
        words.append(f"{number(progress.memory_gb)} GB")
    return words
