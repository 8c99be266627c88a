"""Formats lines of logs: with their rank, in colours on a terminal, or as JSON for programs. Pure."""

from __future__ import annotations

import functools
import json
from abc import ABC, abstractmethod
from collections import defaultdict
from typing import Any, NamedTuple

import msgspec

from castoff.launcher.launchers.local.streams import PLAIN, RankLines, for_terminal
from castoff.launcher.launchers.local.tracebacks import ErrorLines, SeenErrors
from castoff.launcher.logs.failures import FailedRank
from castoff.launcher.logs.lines import Source, by_rank, is_zero_padded, ranks_and_texts
from castoff.launcher.runs.states import why

_COLOURS = (36, 33, 32, 35, 34, 96, 93, 92, 95, 94)
"""Terminal colour codes (SGR) of the ranks, in turn; red is for failures."""
_FAILURE = b"\x1b[1;31m"

LINE_PATIENCE = 2.0
"""Seconds after which an unfinished line is shown as it is.

castoff's launcher, which sees each write, waits less; a file may end in the middle of a buffer.
"""


class End(NamedTuple):
    """How a followed run has ended."""

    id: str
    """The run's id."""
    ending: str
    code: int | None
    """Its exit code; None if unknown."""
    reason: str | None
    """Why it ended that way, if more is known than `ending`."""
    failed: FailedRank | None
    """The rank that failed first."""


class Show(ABC):
    """Turns log lines into the bytes that go to standard output."""

    @abstractmethod
    def lines(self, source: Source, block: bytes) -> bytes:
        """Format whole lines of one source."""

    def merged(self, source: Source, block: bytes) -> bytes:
        """Format whole lines of an attempt, in which `[rank] ` precedes the ranks' lines."""
        parts = by_rank(block)
        return b"".join(self.lines(source._replace(rank=rank), part) for rank, part in parts)

    @abstractmethod
    def failure(self, source: Source, failed: FailedRank, excerpt: list[bytes]) -> bytes:
        """Format the rank that failed first, with the lines of its log that show why."""

    def end(self, end: End) -> bytes:
        """Format the end of the run; empty for people, who read it on standard error."""
        return b""

    def whole_lines(self, member: int, whose: str | None = None) -> RankLines:
        """A splitter for one log's lines. `whose`: the rank that wrote the whole log, as in `rank 3`."""
        return RankLines(b"", LINE_PATIENCE)


class Text(Show):
    """Output for people: `[rank] ` before each line, or `[member.attempt:rank] ` if several members are
    shown; `[job:rank] ` or `[job:member.attempt:rank] ` if several jobs are."""

    def __init__(
        self,
        *,
        several: bool,
        terminal: bool,
        colours: bool,
        labels: bool = True,
        job: str = "",
        place: int | None = None,
    ):
        """`terminal`: remove control characters. `labels`: False if only one rank is shown. `job`: the name
        of a job among several. `place`: its place among them, by which its lines are coloured.
        """
        self._job, self._place = job, place
        self._several = several
        self._terminal = terminal
        self._colours = colours
        self._labels = labels
        self._is_plain = labels and not (several or terminal or colours or job)
        """Whether the lines of castoff's launcher are shown unchanged."""
        self._seen: defaultdict[int, SeenErrors] = defaultdict(SeenErrors)  # by member
        self._failed: dict[int, int] = {}  # by member, the attempt whose failure was shown last

    def lines(self, source: Source, block: bytes) -> bytes:
        """See `Show`."""
        if not block:
            return b""
        label = self._label(source)
        if self._terminal:
            block = for_terminal(block)
        return label + block[:-1].replace(b"\n", b"\n" + label) + b"\n" if label else block

    def merged(self, source: Source, block: bytes) -> bytes:
        """See `Show`. Formats all lines at once, which is faster if ranks take turns line by line."""
        if not block or (self._is_plain and not is_zero_padded(block)):
            return block
        ranks, texts = ranks_and_texts(block)
        if self._terminal:
            texts = for_terminal(b"\n".join(texts)).split(b"\n")
        numbers = {rank: None if rank is None else int(rank) for rank in {*ranks}}
        labels = {rank: self._label(source._replace(rank=number)) for rank, number in numbers.items()}
        return b"".join([b"%b%b\n" % (labels[rank], text) for rank, text in zip(ranks, texts, strict=True)])

    def failure(self, source: Source, failed: FailedRank, excerpt: list[bytes]) -> bytes:
        """See `Show`."""
        member = f"{source.member}.{source.attempt}" if self._several else ""
        where = "".join(f"{word}: " for word in (self._job, member) if word)
        if self._failed.setdefault(source.member, source.attempt) != source.attempt:
            self._seen[source.member].forget()  # show a restart's failure in full even if it is the same
        self._failed[source.member] = source.attempt
        first = failed.failure
        if first.detail and any(first.detail.encode() in line for line in excerpt):
            first = msgspec.structs.replace(first, detail=None)  # the excerpt below shows it
        words = "; ".join(why(first, failed.reason))
        header = f"--- {where}{words} ---".encode(errors="surrogateescape")
        block = self._seen[source.member].shown_above(excerpt)
        if self._terminal:
            header, block = for_terminal(header), for_terminal(block)
        return self._red(header) + block + self._red(b"--- all ranks ---")

    def whole_lines(self, member: int, whose: str | None = None) -> RankLines:
        """See `Show`. An error that several ranks report is shown once."""
        where = None if whose is None else f"as on {whose}".encode()
        return ErrorLines(b"", LINE_PATIENCE, seen=self._seen[member], where=where)

    def _red(self, line: bytes) -> bytes:
        return (_FAILURE + line + PLAIN if self._colours else line) + b"\n"

    @functools.cache  # noqa: B019 - one for each command
    def _label(self, source: Source) -> bytes:
        who = f"node {source.node}" if source.node is not None else source.rank
        member = f"{source.member}.{source.attempt}" if self._several else ""
        words = ":".join(str(word) for word in (self._job, member, who) if word not in ("", None))
        if not words or not self._labels:
            return b""
        label = b"[%s]" % words.encode()
        if self._colours:
            number = source.member if source.rank is None else source.rank
            number = number if self._place is None else self._place
            label = b"\x1b[%dm%s%s" % (_COLOURS[number % len(_COLOURS)], label, PLAIN)
        return label + b" "


class Json(Show):
    """Output for programs: one JSON object per line, each with its `event`, and the `job` among several."""

    def __init__(self, job: str = ""):
        self._job = {"job": job} if job else {}

    def lines(self, source: Source, block: bytes) -> bytes:
        """See `Show`."""
        return b"".join(
            _event("line", **self._job, **source._asdict(), text=line.decode(errors="replace"))
            for line in block.split(b"\n")[:-1]
        )

    def failure(self, source: Source, failed: FailedRank, excerpt: list[bytes]) -> bytes:
        """See `Show`."""
        where = {"member": source.member, "attempt": source.attempt}
        return _event("failure", **self._job, **where, **failure_facts(failed, excerpt))

    def end(self, end: End) -> bytes:
        """See `Show`."""
        return _event("end", **self._job, id=end.id, ending=end.ending, code=end.code, reason=end.reason)


def failure_facts(failed: FailedRank, excerpt: list[bytes]) -> dict[str, Any]:
    """A failure as the fields of a JSON object."""
    text = b"".join(line + b"\n" for line in excerpt).decode(errors="replace")
    log = None if failed.log is None else str(failed.log)
    stacks = None if failed.stacks is None else str(failed.stacks)
    return {**msgspec.to_builtins(failed.failure), "log": log, "stacks": stacks, "excerpt": text}


def _event(event: str, **fields: Any) -> bytes:
    return json.dumps({"event": event, **fields}).encode() + b"\n"
