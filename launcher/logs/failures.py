"""The rank of an attempt that failed first, and what its log says about it: its last traceback, whole, or its
last lines. Where setup or the launcher failed instead, what it printed."""

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
"""Number of bytes read at the end of a running script's log: people look again and again."""

_LAST = 40  # lines that are shown where there is no traceback
_AFTER = (30, 30)  # first and last lines that are shown of what follows the exception's name
_STACK = 60  # lines that are shown of a rank's stacks
_WIDE = 4096  # bytes of a line that are shown

_OF_SETUP = "setup ended the job with code "
"""How the recorded reason of an attempt begins if the script's part `setup` failed."""
_OF_SETUP_LINES = 5

_OF_LAUNCHER = ("the launcher failed with code ", "not all ranks have started")
"""How the recorded reason of an attempt begins if no rank ended, mostly because none started."""
_OF_LAUNCHER_LINES = 6

_LAUNCHER_SAYS = re.compile(
    r"(?:srun|slurmstepd(?:-\S+)?|mpiexec[.\w]*|mpirun|orterun|prterun|flux[-\w]*|ssh)(?:\[\d+\])?: "
    r"|\[(?:mpiexec|proxy|prterun)\b|\d+\.\d+s: (?:job\.exception|flux-shell)"
)
"""How launchers' messages begin. Seen with Slurm 22.05, MPICH 4.0, Intel MPI 2021 and Open MPI 4.1."""
_BEFORE_RANKS = re.compile(r"-{20,}$|\S+: line \d+: ")
"""How further messages of Open MPI and of the script's bash begin; a program may print such lines, too."""

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
"""Words before the traceback of an exception that does not end its process."""

_TORCHRUN = b"ChildFailedError"
"""torchrun's own exception, which says only that some rank had one."""

_TORCHRUN_SAYS = re.compile(rb"torch[./]distributed[./]elastic[./]multiprocessing[./]api\b")
"""Words in the lines in which torchrun reports that a rank failed and that it ends the others."""
_RANK_FAILED = b"failed (exitcode"

_ROOT_CAUSE = re.compile(rb"^Root Cause \(first observed failure\):\n.*?^ *rank +: (\d+)", re.S | re.M)
"""The line in which torchrun names the rank that failed first."""


class FailedRank(NamedTuple):
    """The rank of an attempt that failed first."""

    failure: Failure
    log: Path | None
    """Its log; None if it is unknown which rank it was, or if it has no log."""
    reason: str | None = None
    """The reason that its attempt has recorded."""
    stacks: Path | None = None
    """The folder with the stacks of all ranks, if none failed and all hung."""

    @property
    def time(self) -> float:
        """When it failed, in seconds since the epoch."""
        return self.failure.time or 0.0

    @property
    def stack(self) -> Path | None:
        """Its stack, if it hung and wrote one; that of rank 0 if no rank differs."""
        stack = None if self.stacks is None else self.stacks / f"rank-{self.failure.rank or 0:05d}.txt"
        return stack if stack is not None and stack.is_file() and stack.stat().st_size else None

    def excerpt(self) -> list[bytes]:
        """The lines that show why it failed: of its log, or of its stack if it hung and wrote one. A stopped
        rank wrote no stack; then the other ranks' stacks tell what they wait for.
        """
        if self.stack is not None:
            lines = _stack_lines(self.stack)
        else:
            lines = [] if self.log is None else excerpt_of(self.log, self.failure.rank)
        if self.stacks is not None and names_in(self.stacks):
            lines.append(f"all ranks' stacks: {self.stacks}".encode(errors="surrogateescape"))
        return lines


def failed_rank(run: RunDirectory, member: int, attempt: AttemptStatus) -> FailedRank | None:
    """The rank of an attempt that failed first, or that differs if all hang; None if it is not known."""
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
    """The last lines of setup or of the launcher, for an attempt whose ranks did not start, did not meet, or
    did not end; empty otherwise, or if the script's log is elsewhere."""
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
    """The line at the end of the script's log that says best why an attempt failed, if no reason is recorded;
    None if there is none."""
    return None if attempt.reason else _of_failed(run, member, attempt, _RECENT).headline


class _Printed(NamedTuple):
    """What a script has printed about its attempt's failure."""

    lines: list[str]
    headline: str | None
    """The most telling line."""


def _of_failed(run: RunDirectory, member: int, attempt: AttemptStatus, most: int) -> _Printed:
    """The output of an attempt that no rank has ended, from the last bytes of its script's log."""
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
    own = [number for number, line in enumerate(before) if line.startswith("castoff: ")]
    return [line for line in before[own[-1] + 1 if own else 0 :] if line.strip()][-_OF_SETUP_LINES:]


def _of_waiting(lines: list[str]) -> list[str]:
    """What a launcher waits for that has not yet started all ranks, in its words and castoff's."""
    begins = [number for number, line in enumerate(lines) if _WAITS.match(line)]
    if not begins or any(_WAITED.match(line) for line in lines[begins[-1] :]):
        return []
    before = [line for line in lines[: begins[-1]] if _LAUNCHER_SAYS.match(line)]
    after = [
        line for line in lines[begins[-1] :] if line.startswith("castoff: ") or _LAUNCHER_SAYS.match(line)
    ]
    return [*before, *(line.removeprefix("castoff: ") for line in after)][:_OF_LAUNCHER_LINES]


def _of_ranks(lines: list[str]) -> list[str]:
    """What castoff has noticed about running ranks: each is an MPI world of its own, or a lone rank waits."""
    said = [line for line in lines if line.strip()]
    found = [line for line in said if _WORLDS.match(line)] or [
        line for line in said[-1:] if _ALONE.match(line)
    ]
    return [line.removeprefix("castoff: ") for line in found[-1:]]


def _of_attempt(lines: list[str], attempt: int, *, is_newest: bool) -> list[str]:
    """The lines of one attempt: from the line that begins it to the line that begins the next."""
    begins = [(at, int(found[1])) for at, line in enumerate(lines) if (found := _BEGINS.match(line))]
    own = [at + 1 for at, which in begins if which == attempt]
    if own:
        return lines[own[-1] : next((at for at, _ in begins if at >= own[-1]), len(lines))]
    if begins:  # its own line is not there: it is the first, or the log is longer than what was read of it
        return lines[: begins[0][0]] if begins[0][1] == attempt + 1 else []
    return lines if is_newest else []


def _of_launcher(lines: list[str], *, began: bool) -> _Printed:
    """The launcher's messages, from its first one on; if ranks wrote too, only the lines that look like a
    launcher's."""
    if began:
        its = [line for line in lines if _LAUNCHER_SAYS.match(line)][:_OF_LAUNCHER_LINES]
        return _Printed(its, next(iter(its), None))
    said = [line for line in lines if line.strip()]
    first = next(
        (n for n, line in enumerate(said) if _LAUNCHER_SAYS.match(line) or _BEFORE_RANKS.match(line)), None
    )
    if first is None:
        last = said[-_OF_LAUNCHER_LINES:]
        return _Printed(last, last[-1].removeprefix("castoff: ") if last else None)
    # Its first line says most, and castoff's own come last, but for what is the attempt's reason anyway.
    own = [line for line in said if line.startswith("castoff: ") and not line.startswith("castoff: not ")]
    its = [line for line in said[first:] if line.strip("- ") and not line.startswith("castoff: ")]
    found = its[:_OF_LAUNCHER_LINES] + [line.removeprefix("castoff: ") for line in own[-3:]]
    return _Printed(found, next(iter(found), None))


def _ranks_wrote(logs: Path) -> bool:
    """Whether any rank wrote something. The script creates the log of the first rank."""
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
    """The lines to show of `text`, the end of a log; a first line tells what was left out, with the log's
    `path`. `cut`: whether `text` is not the whole log. `rank`: the rank whose failure is to be shown, if
    known.
    """
    lines = [_narrow(line) for line in text.split(b"\n")]
    if not lines[-1]:
        lines.pop()
    writers = {found[0] for line in lines if (found := _WHO.match(line))}
    tracebacks = sorted((*found, who) for who in writers for found in _tracebacks(lines, who))
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
    name, begin, who = (of_rank or tracebacks)[-1]
    own = [line for line in lines[begin : name + 1] if line.startswith(who) or not line.strip()]
    after = [line for line in lines[name + 1 :] if line.startswith(who) or not line.strip()]
    first, last = _AFTER
    if len(after) > first + last:
        after = [*after[:first], _note(f"{len(after) - first - last}", path), *after[-last:]]
    return own + after


def _before_torchrun(lines: list[bytes]) -> list[bytes]:
    """The lines before torchrun's last failure report, which has a traceback of its own."""
    says = [number for number, line in enumerate(lines) if _TORCHRUN_SAYS.search(line)]
    failed = [number for number in says if _RANK_FAILED in lines[number]]
    if not failed:
        return lines
    before = failed[-2] if len(failed) > 1 else -1  # there may have been restarts
    return lines[: next(number for number in says if number > before)] or lines


def _tracebacks(lines: list[bytes], who: bytes) -> Iterator[tuple[int, int]]:
    """Each traceback that may have ended its process, as two line numbers: of the line that names the
    exception (the first that is not indented), and of the first line of all exceptions it was raised from."""
    begin, harmless, unnamed, before = 0, False, False, b""
    for number, line in enumerate(lines):
        if not line.strip() or not line.startswith(who):
            continue
        words = line[len(who) :]
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
    """A line as a terminal would show it, cut to a readable length."""
    line = line.rstrip(b"\r").rpartition(b"\r")[2]
    return line if len(line) <= _WIDE else line[:_WIDE] + f" … ({len(line)} bytes)".encode()


def _note(many: str, path: str) -> bytes:
    return f"… {many} lines are not shown here: {path}".encode(errors="surrogateescape")
