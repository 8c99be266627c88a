"""What a job's script printed about a failure that no rank caused, or about ranks that do not start."""

from __future__ import annotations

import itertools
import os
import re
from pathlib import Path
from typing import NamedTuple

from castoff.launcher.runs.directory import names_in
from castoff.launcher.runs.run import RunDirectory
from castoff.launcher.runs.states import AttemptStatus, MemberStatus, failed_because
from castoff.launcher.text.excerpt import shortened

_LOOK_BACK = 4 * 1024 * 1024
"""Number of bytes at the end of a log that are searched."""

_RECENT = 64 * 1024
"""Number of bytes read at the end of a running script's log, which may be read again every few seconds."""

_OF_SETUP = "setup ended the job with code "
"""Beginning of an attempt's recorded reason if the script's part `setup` failed."""
_OF_SETUP_LINES = 5

_OF_LAUNCHER = ("the launcher failed with code ", "not all ranks have started")
"""Beginnings of an attempt's recorded reason if no rank ended, mostly because no rank started."""
_OF_LAUNCHER_LINES = 6

_LAUNCHER_SAYS = re.compile(
    r"(?:srun|slurmstepd(?:-\S+)?|mpiexec[.\w]*|mpirun|orterun|prterun|flux[-\w]*|ssh)(?:\[\d+\])?: "
    r"|\[(?:mpiexec|proxy|prterun)\b|\d+\.\d+s: (?:job\.exception|flux-shell)"
)
"""Beginnings of launchers' messages. Seen with Slurm 22.05, MPICH 4.0, Intel MPI 2021 and Open MPI 4.1."""
_BEFORE_RANKS = re.compile(r"-{20,}$|\S+: line \d+: ")
"""Beginnings of further messages of Open MPI and of the script's bash; programs may print such lines, too."""

_OF_SCRIPT = re.compile(r"^\S+: line \d+: ")
"""What bash writes before a message: its script, often the scheduler's copy, and the line's number."""
_NOT_AGAIN = ("castoff: not started again: ", "castoff: not requeued: ")
"""Beginnings of castoff's messages that repeat an attempt's reason."""
_WRONG_LAUNCHER = "this job's launcher is "
"""Beginning of castoff's message about an MPI that is not the site's, which explains all that it printed."""

_BEGINS = re.compile(r"castoff: attempt (?:\d+ failed: .*; attempt )?(\d+) begins")
"""The line in a script's log that begins every attempt but the first."""
_WAITS = re.compile(r"castoff: after \d+ s these have not started: ")
_ALONE = re.compile(r"castoff: the only rank waits for others")
"""The message of a rank that waits alone; any later line shows that it waits no longer."""
_WORLDS = re.compile(r"castoff: rank \d+ has loaded MPI ")
_WAITED = re.compile(r"castoff: after \d+ s all have started")


def script_output(run: RunDirectory, member: int, attempt: AttemptStatus) -> list[str]:
    """The last lines that setup or the launcher printed, for an attempt whose ranks did not start, did not
    connect, or did not end; else empty.
    """
    reason = attempt.reason or ""
    if reason.startswith(_OF_SETUP):
        return _of_setup(_script_lines(run, member))
    if attempt.state == "running":
        waits = (run.path / "attempts" / f"{member}.{attempt.attempt}" / "starting").exists()
        lines = _of_attempt(_script_lines(run, member, _RECENT), attempt.attempt, is_newest=True)
        return _of_waiting(lines) if waits else _of_ranks(lines)
    if not reason or reason.startswith(_OF_LAUNCHER):
        return _of_failed(run, member, attempt, _LOOK_BACK).lines
    return []


def script_headline(run: RunDirectory, member: int, attempt: AttemptStatus) -> str | None:
    """The line of the script's log that best explains a failed attempt of which no record does; None if there
    is none.
    """
    if attempt.reason and not attempt.reason.startswith(_OF_LAUNCHER):
        return None
    headline = _of_failed(run, member, attempt, _RECENT).headline
    return headline and _OF_SCRIPT.sub("", headline)


def failure_reason(run: RunDirectory, members: list[MemberStatus], ending: str | None) -> str | None:
    """Why a run failed or was not started again, from its records or else from its script's log; None: not
    known.
    """
    reason = failed_because(members, ending)
    first = next((member for member in members if member.ending == ending and member.attempts), None)
    if first is None or ending != "failed" or not (reason is None or reason.startswith(_OF_LAUNCHER)):
        return reason
    headline = script_headline(run, first.member, first.attempts[-1])
    return "; ".join(filter(None, (headline, reason))) or None


class _Printed(NamedTuple):
    """What a script has printed about the failure of its attempt."""

    lines: list[str]
    headline: str | None
    """The line that best explains the failure."""


def _of_failed(run: RunDirectory, member: int, attempt: AttemptStatus, most: int) -> _Printed:
    """The output about a failure that no rank caused, from the last `most` bytes of the script's log."""
    if attempt.ending != "failed" or attempt.failure:
        return _Printed([], None)
    is_newest = not (run.path / "attempts" / f"{member}.{attempt.attempt + 1}").exists()
    lines = _of_attempt(_script_lines(run, member, most), attempt.attempt, is_newest=is_newest)
    return _of_launcher(lines, began=_ranks_wrote(Path(attempt.logs)))


def _script_lines(run: RunDirectory, member: int, most: int = _LOOK_BACK) -> list[str]:
    """The last lines of the script's log."""
    log = run.script_log(member)
    if not log.is_file():
        return []
    with log.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - most))
        return [shortened(line).decode(errors="replace") for line in file.read(most).split(b"\n")]


def _of_setup(lines: list[str]) -> list[str]:
    ends = [number for number, line in enumerate(lines) if line.startswith(f"castoff: {_OF_SETUP}")]
    if not ends:
        return []
    before = lines[: ends[-1]]
    messages = [number for number, line in enumerate(before) if line.startswith("castoff: ")]
    begin = messages[-1] + 1 if messages else 0
    return [line for line in before[begin:] if line.strip()][-_OF_SETUP_LINES:]


def _of_waiting(lines: list[str]) -> list[str]:
    """The messages of the launcher and of castoff about ranks that have not started yet."""
    begins = [number for number, line in enumerate(lines) if _WAITS.match(line)]
    if not begins or any(_WAITED.match(line) for line in lines[begins[-1] :]):
        return []
    before = [line for line in lines[: begins[-1]] if _LAUNCHER_SAYS.match(line)]
    after = [
        line for line in lines[begins[-1] :] if line.startswith("castoff: ") or _LAUNCHER_SAYS.match(line)
    ]
    return [*before, *(line.removeprefix("castoff: ") for line in after)][:_OF_LAUNCHER_LINES]


def _of_ranks(lines: list[str]) -> list[str]:
    """castoff's last message that each rank is its own MPI world, or that the only rank waits for others."""
    printed = [line for line in lines if line.strip()]
    messages = [line for line in printed if _WORLDS.match(line)] or [
        line for line in printed[-1:] if _ALONE.match(line)
    ]
    return [line.removeprefix("castoff: ") for line in messages[-1:]]


def _of_attempt(lines: list[str], attempt: int, *, is_newest: bool) -> list[str]:
    """The lines of one attempt: from the line that begins it to the line that begins the next."""
    begins = [(number, int(match[1])) for number, line in enumerate(lines) if (match := _BEGINS.match(line))]
    starts = [number + 1 for number, begun in begins if begun == attempt]
    if starts:
        return lines[starts[-1] : next((number for number, _ in begins if number >= starts[-1]), len(lines))]
    if begins:  # no line begins this attempt: it is the first, or only the log's end was read
        return lines[: begins[0][0]] if begins[0][1] == attempt + 1 else []
    return lines if is_newest else []


def _of_launcher(lines: list[str], *, began: bool) -> _Printed:
    """The launcher's messages. If ranks have written, too, only lines that look like a launcher's."""
    if began:
        messages = [line for line in lines if _LAUNCHER_SAYS.match(line)][:_OF_LAUNCHER_LINES]
        return _Printed(messages, next(iter(messages), None))
    texts = [line for line in lines if line.strip()]
    first = next(
        (n for n, line in enumerate(texts) if _LAUNCHER_SAYS.match(line) or _BEFORE_RANKS.match(line)), None
    )
    if first is None:
        last = texts[-_OF_LAUNCHER_LINES:]
        best = next((line for line in reversed(last) if not line.startswith(_NOT_AGAIN)), None)
        return _Printed(last, best and best.removeprefix("castoff: "))
    # The launcher's first line explains most. castoff's lines come last, without the reason, shown anyway.
    own = [line for line in texts if line.startswith("castoff: ") and not line.startswith(_NOT_AGAIN)]
    messages = [line for line in texts[first:] if line.strip("- ") and not line.startswith("castoff: ")]
    shown = messages[:_OF_LAUNCHER_LINES] + [line.removeprefix("castoff: ") for line in own[-3:]]
    wrong = (line for line in shown if line.startswith(_WRONG_LAUNCHER))
    of_script = (line for line in reversed(messages) if _OF_SCRIPT.match(line))  # the last ended the script
    ranked = (wrong, of_script if not _LAUNCHER_SAYS.match(texts[first]) else (), shown)
    return _Printed(shown, next(itertools.chain(*ranked), None))


def _ranks_wrote(logs: Path) -> bool:
    """Whether any rank wrote something: the script itself creates the first rank's log, empty."""
    names = [name for name in names_in(logs) if name.startswith(("rank-", "node-"))]
    return any((logs / name).stat().st_size for name in names if (logs / name).is_file())
