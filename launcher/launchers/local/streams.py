"""The ranks' output: unchanged in a log for each rank, and as whole lines with prefixes in one merged stream.

The merged stream is for people, the logs are the record. So a log gets every byte as it was written, while
the merged stream may shorten progress bars and, if there are logs, skip lines that nobody reads; the stream
reports skipped lines.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import select
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from castoff.launcher import clock
from castoff.launcher.errors import CastoffError
from castoff.launcher.process.files import make_folders

LINE_LIMIT = 64 * 1024
"""The number of bytes after which an unfinished line is shown as it is."""
LINE_PATIENCE = 0.5
"""Seconds after which an unfinished line is shown as it is."""
PROGRESS_PATIENCE = 5.0
"""Seconds after which a progress bar that never pauses is shown as it is."""
BACKLOG_LIMIT = 1024 * 1024
"""If more bytes than this wait for a stream's reader, the ranks have to wait."""
STALL = 10.0
"""Seconds after which a reader who reads nothing no longer delays ranks that have logs."""
_PIECE = 16 * 1024  # bytes in one write; small, so that even a slow reader makes progress


PLAIN = b"\x1b[0m"
"""The control sequence that ends all colours."""

_CONTROL = re.compile(
    # all sequences begin with one of these bytes, by which `re` skips other text ten times as fast
    rb"[\x00-\x08\x0b-\x1f\x7f\xc2](?:"
    rb"(?<=\x1b)(?:(?P<colour>\[[0-9;:]*m)"
    rb"|\[[0-?]*[ -/]*[@-~]"  # any other CSI: moves the cursor, clears the screen
    rb"|[\]PX^_][^\n]*?(?:\x07|\x1b\\|$)"  # strings: titles, clipboards
    rb"|[ -/]*[0-~])"  # other escapes
    rb"|(?<=\xc2)[\x80-\x9f]"  # C1 controls in UTF-8
    rb"|(?P<char>(?<!\xc2)))",
    re.MULTILINE,
)
_COLOURED = re.compile(rb"^.*\x1b\[.*$", re.MULTILINE)


def for_terminal(lines: bytes) -> bytes:
    """Return lines without control sequences that could make a terminal do more than show text; colours end
    with the line.
    """
    lines = _CONTROL.sub(_harmless, lines)
    return _COLOURED.sub(rb"\g<0>" + PLAIN, lines) if b"\x1b" in lines else lines


def _harmless(match: re.Match[bytes]) -> bytes:
    if match["colour"]:
        return match[0]
    return b"^%c" % (match[0][0] ^ 0x40) if match["char"] is not None else b""


def _visible(line: bytes) -> bytes:
    """Return the part of `line` that a terminal would show: the text after the last carriage return."""
    if b"\r" not in line:
        return line
    return line.rstrip(b"\r").rpartition(b"\r")[2]


class RankLines:
    """One rank's output, turned into whole lines that each start with `prefix`."""

    def __init__(self, prefix: bytes, patience: float = LINE_PATIENCE, *, terminal: bool = False):
        """`patience`: seconds after which an unfinished line is due. `terminal`: whether to remove control
        sequences.
        """
        self._harmless: Callable[[bytes], bytes] = for_terminal if terminal else bytes
        self._prefix = prefix
        self._patience = patience
        self._pending = bytearray()
        self._progress = False  # the pending line has carriage returns
        self._continued = False  # the pending line's beginning has been shown
        self._began = self._last = 0.0

    @property
    def pending(self) -> int:
        """The number of bytes of an unfinished line that is not shown yet."""
        return len(self._pending)

    @property
    def holds(self) -> bool:
        """Whether whole lines are held back."""
        return False

    def feed(self, data: bytes, now: float) -> bytes:
        """Take `data`, read at `now` (monotonic seconds), and return the lines to show."""
        complete, newline, rest = data.rpartition(b"\n")
        shown = b""
        if newline:
            shown = self._lines(bytes(self._pending) + complete)
            self._pending.clear()
            self._progress = False
        if rest:
            if not self._pending:
                self._began = now
            self._pending += rest
            self._last = now
            if b"\r" in rest:
                self._drop_overwritten()
            while len(self._pending) > LINE_LIMIT:
                shown += self._head()
        return self._harmless(shown)

    def due(self) -> float | None:
        """When the pending line should be shown unfinished (monotonic seconds); None if no line is
        pending.
        """
        if not self._pending:
            return None
        due = self._last + self._patience
        return min(due, self._began + max(PROGRESS_PATIENCE, self._patience)) if self._progress else due

    def flush(self) -> bytes:
        """Return the pending line with a newline; further output starts a new line."""
        text = _visible(bytes(self._pending))
        blank = not text or (self._progress and not text.strip())
        self._pending.clear()
        self._progress = False
        if blank:
            return b""
        self._continued = True
        return self._harmless(self._prefix + text + b"\n")

    def _lines(self, text: bytes) -> bytes:
        if self._continued:
            self._continued = False
            first, more, others = text.partition(b"\n")
            if not _visible(first):  # only the end of a line that has been shown
                if not more:
                    return b""
                text = others
        if b"\r" in text:
            text = b"\n".join(map(_visible, text.split(b"\n")))
        return self._prefix + text.replace(b"\n", b"\n" + self._prefix) + b"\n"

    def _drop_overwritten(self) -> None:
        self._progress = True
        # A carriage return at the end stays: it may be the first half of a line's end.
        end = b"\r" if self._pending.endswith(b"\r") else b""
        self._pending[:] = _visible(bytes(self._pending)) + end

    def _head(self) -> bytes:
        cut = LINE_LIMIT
        while cut > LINE_LIMIT - 4 and self._pending[cut] & 0xC0 == 0x80:
            cut -= 1  # not in the middle of a UTF-8 character
        head = self._prefix + self._pending[:cut] + b"\n"
        del self._pending[:cut]
        self._continued = True
        return head


class RankLog:
    """One rank's log file, which is written without a buffer. A failure to write is reported once."""

    def __init__(self, path: Path):
        """Create or empty the file at `path`; raises CastoffError if the file cannot be created."""
        self.path = path
        self._written = 0
        try:
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
        except OSError as error:
            fix = "make room or choose another folder for the logs"
            if error.errno == errno.EMFILE:
                fix = "raise `ulimit -n` (a rank needs 3) or start fewer ranks"
            raise CastoffError(f"cannot write the log {path}: {error.strerror}; {fix}") from error

    def write(self, data: bytes) -> str | None:
        """Append `data`; return a message if the log is incomplete from here on."""
        view = memoryview(data)
        while view and self._file >= 0:
            try:
                count = os.write(self._file, view)
            except OSError as error:
                self.close()
                return self._incomplete(error)
            self._written += count
            view = view[count:]
        return None

    def close(self) -> str | None:
        """Close the file; return a message if the end of the file may be missing."""
        file, self._file = self._file, -1
        if file >= 0:
            try:
                os.close(file)  # a network file system may report a full disk only now
            except OSError as error:
                return self._incomplete(error)
        return None

    def _incomplete(self, error: OSError) -> str:
        return f"{self.path} is incomplete after {self._written} bytes: {error.strerror}"


def open_logs(folder: Path, ranks: int, stack: contextlib.ExitStack, first: int = 0) -> list[RankLog]:
    """Create `folder` (0700) and an empty log in it for each rank from `first` on: `rank-00000.log` …

    `stack` closes the logs. Raises CastoffError if the folder or a log cannot be created.
    """
    folder = folder.absolute()  # the path as messages will show it
    try:
        make_folders(folder)
    except OSError as error:
        raise CastoffError(
            f"cannot create the folder for logs {folder}: {error.strerror}; choose another"
        ) from error
    logs: list[RankLog] = []
    for rank in range(first, first + ranks):
        logs.append(RankLog(folder / f"rank-{rank:05d}.log"))
        stack.callback(logs[-1].close)
    return logs


class Sink:
    """Writes to a stream from a separate thread, so that a reader who stops reading never stops the job.

    A thread is needed because a terminal or pipe that other processes use too must not be made non-blocking:
    the setting would affect them as well.
    """

    def __init__(self, stream: IO[Any], *, lossy: bool):
        """`lossy`: skip lines rather than wait for a reader who has read nothing for `STALL` seconds."""
        self.error: OSError | None = None
        """Why nothing more can be written; None if writing is possible."""
        self.skipped = 0
        """The number of skipped lines that the stream has not reported yet."""
        self._lossy = lossy
        self._stream = stream  # kept open, because the file must not be closed before the thread ends
        # writes bypass Python's buffer: flushing bytes left in the buffer may fail at Python's exit
        stream.flush()
        self._file = stream.fileno()
        self._queue: deque[bytes] = deque()
        self._backlog = 0
        self._progress = clock.now()
        self._skipping = self._closing = False
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def put(self, data: bytes) -> None:
        """Queue whole lines for writing."""
        with self._changed:
            if not data or self.error or self._closing:
                return
            if self._skipping and self._backlog > BACKLOG_LIMIT // 2:
                self.skipped += data.count(b"\n")
                return
            if self._skipping:
                notice = b"castoff: %d lines are only in the logs: nobody read them here\n"
                self._append(notice % self.skipped)
                self._skipping, self.skipped = False, 0
            self._append(data)
            self._changed.notify_all()

    def full(self) -> bool:
        """Whether writers should wait until the reader has read more."""
        with self._changed:
            if self._backlog < BACKLOG_LIMIT or self.error:
                return False
            if self._lossy and self.stalled(STALL):
                self._skipping = True
            return not self._skipping

    def stalled(self, seconds: float) -> bool:
        """Whether output has been waiting, unread, for `seconds`."""
        with self._changed:
            return bool(self._backlog) and clock.now() - self._progress > seconds

    def settle(self, seconds: float) -> bool:
        """Wait up to `seconds` until all lines are written; return whether they were written, or can no
        longer be.
        """
        with self._changed:
            return bool(self._changed.wait_for(lambda: self.error or not self._backlog, seconds))

    def close(self) -> None:
        """Drop lines that are not written yet, and end the thread unless it is stuck in a write."""
        with self._changed:
            self._closing = True
            stuck = self._backlog > 0
            for waiting in self._queue:
                self.skipped += waiting.count(b"\n")
            self._queue.clear()
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(0.05 if stuck else None)

    def _append(self, data: bytes) -> None:
        if not self._backlog:
            self._progress = clock.now()
        self._queue.append(data)
        self._backlog += len(data)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="castoff-sink", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue or self._closing)
                if not self._queue:
                    return
                data = self._queue.popleft()
            try:
                for start in range(0, len(data), _PIECE):
                    piece = data[start : start + _PIECE]
                    _write_file(self._file, piece)
                    with self._changed:
                        self._backlog -= len(piece)
                        self._progress = clock.now()
                        self._changed.notify_all()
            except OSError as error:
                with self._changed:
                    self.error = error
                    self._queue.clear()
                    self._backlog = 0
                    self._changed.notify_all()
                return


def _write_file(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(file, view) :]
        except BlockingIOError:  # whoever opened the stream made it non-blocking
            waiter = select.poll()
            waiter.register(file, select.POLLOUT)
            with contextlib.suppress(OSError):
                waiter.poll(1000)
