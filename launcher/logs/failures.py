"""Finds the rank of an attempt that failed first, and the part of its log that shows why: its last traceback,
or its last lines. If setup or the launcher failed, finds what that printed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from castoff.launcher.runs.directory import names_in
from castoff.launcher.runs.records import Failure
from castoff.launcher.runs.run import RunDirectory
from castoff.launcher.runs.states import AttemptStatus
from castoff.launcher.text.failure import HANG

_LOOK_BACK = 4 * 1024 * 1024
"""Number of bytes at the end of a log that are searched."""

_RECENT = 64 * 1024
"""Number of bytes read at the end of a running script's log, which may be read again every few seconds."""

_LAST = 40  # lines shown without a traceback
_AFTER = (30, 30)  # first and last lines shown after the exception's name
_STACK = 60  # lines shown of a rank's stacks
_WIDE = 4096  # bytes shown of a line

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

_BEGINS = re.compile(r"castoff: attempt (?:\d+ failed: .*; attempt )?(\d+) begins")
"""The line in a script's log that begins every attempt but the first."""
_WAITS = re.compile(r"castoff: after \d+ s these have not started: ")
_ALONE = re.compile(r"castoff: the only rank waits for others")
"""The message of a rank that waits alone; any later line shows that it waits no longer."""
_WORLDS = re.compile(r"castoff: rank \d+ has loaded MPI ")
_WAITED = re.compile(r"castoff: after \d+ s all have started")

_WHO = re.compile(rb"(?:\[rank\d+\]: )?")
"""The prefix that torch.distributed puts before each line of a traceback."""

_HEADER = re.compile(
    rb"(?P<fatal>Fatal Python error: )|(?:  \+ Exception Group )?Traceback \(most recent call last\):"
)
_CHAINED = (
    b"The above exception was the direct cause of the following exception:",
    b"During handling of the above exception, another exception occurred:",
)
_HARMLESS = (b"Exception ignored in", b"Exception in thread")
"""Beginnings of the line before the traceback of an exception that does not end its process."""

_TORCHRUN = b"ChildFailedError"
"""torchrun's own exception, which reports only that some rank failed."""

_TORCHRUN_SAYS = re.compile(rb"torch[./]distributed[./]elastic[./]multiprocessing[./]api\b")
"""Text in the lines in which torchrun reports that a rank failed and that it ends the others."""
_RANK_FAILED = b"failed (exitcode"

_ROOT_CAUSE = re.compile(rb"^Root Cause \(first observed failure\):\n.*?^ *rank +: (\d+)", re.S | re.M)
"""The line in which torchrun names the rank that failed first."""


class FailedRank(NamedTuple):
    """The rank of an attempt that failed first."""

    failure: Failure
    log: Path | None
    """The rank's log; None if it is unknown which rank failed, or if it has no log."""
    reason: str | None = None
    """The reason that the attempt's record gives."""
    stacks: Path | None = None
    """The folder with the stacks of all ranks, if none failed and all hung."""

    @property
    def time(self) -> float:
        """When the rank failed, in seconds since the epoch."""
        return self.failure.time or 0.0

    @property
    def stack(self) -> Path | None:
        """The file with the stack of a rank that hung, if it wrote one; that of rank 0 if no rank differs."""
        stack = None if self.stacks is None else self.stacks / f"rank-{self.failure.rank or 0:05d}.txt"
        return stack if stack is not None and stack.is_file() and stack.stat().st_size else None

    def excerpt(self) -> list[bytes]:
        """The lines that show why the rank failed: from its log, or from its stack if it hung and wrote one.
        A stopped process writes no stack; then the stacks of the other ranks show what they wait for.
        """
        if self.stack is not None:
            lines = _stack_lines(self.stack)
        else:
            lines = [] if self.log is None else excerpt_of(self.log, self.failure.rank)
        if self.stacks is not None and names_in(self.stacks):
            lines.append(f"all ranks' stacks: {self.stacks}".encode(errors="surrogateescape"))
        return lines


def failed_rank(run: RunDirectory, member: int, attempt: AttemptStatus) -> FailedRank | None:
    """The rank of an attempt that failed first or, if all hang, differs from the others; None if unknown."""
    failure = attempt.failure
    if failure is None:
        return None
    logs = run.log_folder / f"{member}.{attempt.attempt}"
    stacks = logs / "stacks" if failure.reason == HANG else None
    name = failure.log
    if name is None and failure.rank is not None:
        name = f"rank-{failure.rank:05d}.log"
    log = None if name is None or "/" in name or not (logs / name).is_file() else logs / name
    return FailedRank(failure, log, attempt.reason, stacks)


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
    """The line of the script's log that best explains a failed attempt without a recorded reason; None if
    there is none.
    """
    return None if attempt.reason else _of_failed(run, member, attempt, _RECENT).headline


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
        return [_narrow(line).decode(errors="replace") for line in file.read(most).split(b"\n")]


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
        return _Printed(last, last[-1].removeprefix("castoff: ") if last else None)
    # The launcher's first line explains most. castoff's lines come last, without the reason, shown anyway.
    own = [line for line in texts if line.startswith("castoff: ") and not line.startswith("castoff: not ")]
    messages = [line for line in texts[first:] if line.strip("- ") and not line.startswith("castoff: ")]
    shown = messages[:_OF_LAUNCHER_LINES] + [line.removeprefix("castoff: ") for line in own[-3:]]
    return _Printed(shown, next(iter(shown), None))


def _ranks_wrote(logs: Path) -> bool:
    """Whether any rank wrote something: the script itself creates the first rank's log, empty."""
    names = [name for name in names_in(logs) if name.startswith(("rank-", "node-"))]
    return any((logs / name).stat().st_size for name in names if (logs / name).is_file())


def _stack_lines(stack: Path) -> list[bytes]:
    """The lines of a rank's stacks."""
    with stack.open("rb") as file:
        lines = [_narrow(line) for line in file.read(_LOOK_BACK).splitlines()]
    left = len(lines) - _STACK
    if left > 0:
        lines = [*lines[:_STACK], _note(f"{left}", str(stack))]
    return lines


def excerpt_of(log: Path, rank: int | None = None) -> list[bytes]:
    """The lines of a log that show why a rank failed. `rank`: the rank, if several may write to the log."""
    with log.open("rb") as file:
        begin = max(0, file.seek(0, os.SEEK_END) - _LOOK_BACK)
        file.seek(begin)
        return excerpt(file.read(_LOOK_BACK), str(log), cut=begin > 0, rank=rank)


def excerpt(text: bytes, path: str, *, cut: bool = False, rank: int | None = None) -> list[bytes]:
    """The lines to show of `text`, the end of a log; a first line counts the lines left out and gives the
    log's `path`. `cut`: whether `text` is not the whole log. `rank`: the rank whose failure to show, if
    known.
    """
    lines = [_narrow(line) for line in text.split(b"\n")]
    if not lines[-1]:
        lines.pop()
    writers = {prefix[0] for line in lines if (prefix := _WHO.match(line))}
    tracebacks = sorted((*numbers, writer) for writer in writers for numbers in _tracebacks(lines, writer))
    if not tracebacks:
        lines = _before_torchrun(lines)
        left = len(lines) - _LAST
        if left > 0 or cut:
            many = f"more than {max(left, 0)}" if cut else f"{left}"
            return [_note(many, path), *lines[-_LAST:]]
        return lines
    if rank is None and (causes := _ROOT_CAUSE.findall(text)):
        rank = int(causes[-1])
    of_rank = [
        traceback for traceback in tracebacks if rank is not None and traceback[2] == b"[rank%d]: " % rank
    ]
    name, begin, writer = (of_rank or tracebacks)[-1]
    shown = [line for line in lines[begin : name + 1] if line.startswith(writer) or not line.strip()]
    after = [line for line in lines[name + 1 :] if line.startswith(writer) or not line.strip()]
    first, last = _AFTER
    if len(after) > first + last:
        after = [*after[:first], _note(f"{len(after) - first - last}", path), *after[-last:]]
    return shown + after


def _before_torchrun(lines: list[bytes]) -> list[bytes]:
    """The lines before torchrun's last failure report, which has a traceback of its own."""
    says = [number for number, line in enumerate(lines) if _TORCHRUN_SAYS.search(line)]
    failed = [number for number in says if _RANK_FAILED in lines[number]]
    if not failed:
        return lines
    before = failed[-2] if len(failed) > 1 else -1  # there may have been restarts
    return lines[: next(number for number in says if number > before)] or lines


def _tracebacks(lines: list[bytes], writer: bytes) -> Iterator[tuple[int, int]]:
    """Each traceback that may have ended its process, as two line numbers: the line that names the exception
    (the first that is not indented), and the first line of the chain of exceptions that led to it.
    """
    begin, harmless, unnamed, before = 0, False, False, b""
    for number, line in enumerate(lines):
        if not line.strip() or not line.startswith(writer):
            continue
        words = line[len(writer) :]
        if unnamed and words[:1] not in (b" ", b"\t"):
            unnamed = False
            if _TORCHRUN not in words:
                yield number, begin
        if header := _HEADER.match(words):
            chained = before.startswith(_CHAINED)
            begin = begin if chained else number
            harmless = before.startswith(_HARMLESS) or (chained and harmless)
            unnamed = not harmless and not header["fatal"]
            if header["fatal"]:
                yield number, begin
        before = words
    if unnamed:
        yield len(lines) - 1, begin


def _narrow(line: bytes) -> bytes:
    """A line as a terminal would show it, limited to `_WIDE` bytes."""
    line = line.rstrip(b"\r").rpartition(b"\r")[2]
    return line if len(line) <= _WIDE else line[:_WIDE] + f" … ({len(line)} bytes)".encode()


def _note(many: str, path: str) -> bytes:
    return f"… {many} lines are not shown here: {path}".encode(errors="surrogateescape")
