"""Run directories: one submission and everything that belongs to it.

castoff-runs/causets-20261120-231502-k3x9/   0700
  job.yaml         the job as it was asked for, overrides applied
  .gitignore       so that git takes nothing of it for code
  plan.json        every decision
  job.sh           the script
  secrets.sh       0600, only with env_from, and until nothing of the run needs it any more
  submission.json  how and where it was submitted, last and before
  cancelled.json   the jobs of it that castoff has cancelled
  code.json        the code it was submitted with: commit, branch, what is in code.diff and what is not
  code.diff        how the code differed from that commit, if it did
  code/            a copy of the code, only with `snapshot`; code.workdir leads to the submission's folder
  functions/M.pkl  the Python function that member M runs, if it runs one
  local.lock       held by whatever may still do something for the run
  stop             `castoff stop` was here: nothing of it begins any more
  attempts/M.N/    member M's attempt N: start.json, ending.json, failure.json, outcome, stop; launched
                   since its ranks were started; metrics.jsonl of what its program reports; usage.json of
                   what its job used; ended/, a file of each rank that has ended well;
                   terminated once its ranks were asked to end
  set-aside/       HOST.json: hosts that get no ranks of a job any more, and why
  logs/job-M.log   what the script of member M wrote
  logs/M.N/        a log per rank

`castoff.launcher.runs.drafts` makes it, under another name until it is whole.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING

from castoff.launcher.errors import CastoffError
from castoff.launcher.process import files
from castoff.launcher.process.locks import locked
from castoff.launcher.runs.directory import check_trusted, names_in

if TYPE_CHECKING:  # at runtime only what reads records loads msgspec
    import msgspec

    from castoff.launcher.runs.records import Facts, Submission

RUNS_FOLDER = "castoff-runs"
"""Where run directories go if nobody says otherwise, in the working directory."""
LOCK = "local.lock"
"""Held by `submit`, then by the scheduler that it starts, then also by the scripts and ranks of these:
each inherits it. So whoever finds it free finds nothing left that could still do something."""

RESUME = 75
"""Exit code of what has saved and said `resume`: EX_TEMPFAIL of sysexits.h; the scripts have it, too."""

STOP = "stop"
"""At the top of a run directory: nothing of it begins any more. In an attempt's: stop early, please."""


class RunDirectory:
    """A run directory on disk: what `submit` returns.

    Nobody but the user can have written what lies in it: that is checked when it is opened, which is here,
    and again by what changes it. Everything in it is found relative to `path`, so that a directory that was
    moved still tells what became of it. `castoff.launcher.status.watch.status` reads its state.
    """

    def __init__(self, path: Path):
        """Open the directory of a run, which may be gone or not be there yet.

        Raises:
            CastoffError: others could have written what lies there.
        """
        check_trusted(path)
        self.path = path
        """The run directory, absolute."""

    def reopened(self) -> RunDirectory:
        """The same directory, opened again after a wait: others may have put theirs in its place meanwhile.

        Raises:
            CastoffError: others could have written what lies there.
        """
        return RunDirectory(self.path)

    @contextlib.contextmanager
    def locked(self, patience: float) -> Iterator[IO[str]]:
        """Open the directory again, and hold its lock: nothing of the run begins or ends meanwhile.

        Raises:
            CastoffError: others could have written what lies there.
            BlockingIOError: something has held the lock for `patience` seconds.
            OSError: it cannot be locked.
        """
        with locked(self.reopened().path / LOCK, patience=patience) as lock:
            yield lock

    def write(self, name: str, record: msgspec.Struct) -> None:
        """Open the directory again, and write a record at `name` in it, a path relative to it.

        Raises:
            CastoffError: others could have written what lies there.
            OSError: it cannot be written.
        """
        from castoff.launcher.runs.records import encode

        path = self.reopened().path / name
        if "/" in name:  # never the run directory itself, which somebody may just have removed
            path.parent.mkdir(mode=0o700, exist_ok=True)
        files.replace(path, encode(record) + "\n")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.path)!r})"

    @property
    def id(self) -> str:
        """The run's id: its directory's name."""
        return self.path.name

    @property
    def job(self) -> str | None:
        """The scheduler's id; None where the submission did not come about."""
        record = self.submission()
        return record.job if record else None

    @property
    def script(self) -> Path:
        """The submitted script."""
        return self.path / "job.sh"

    @property
    def log_folder(self) -> Path:
        """The folder of logs."""
        return self.path / "logs"

    def submission(self) -> Submission | None:
        """How castoff submitted it; None if that never came about, or its record is damaged.

        Raises:
            CastoffError: it cannot be read.
        """
        from castoff.launcher.runs.records import Submission, read

        return read(self.path / "submission.json", Submission)

    def write_submission(self, record: Submission) -> None:
        """Write down how it was submitted.

        Raises:
            OSError: it cannot be written.
        """
        self.write("submission.json", record)

    def facts(self) -> Facts:
        """What was planned, by plan.json; by the script where that is all there is.

        Raises:
            CastoffError: they are there and cannot be read.
        """
        from castoff.launcher.runs.records import Facts, facts_of, read, record_bytes

        planned = read(self.path / "plan.json", Facts)
        return planned or facts_of(record_bytes(self.script).decode(errors="replace"))

    def attempts(self) -> list[tuple[int, int, Path]]:
        """(member, attempt, folder) of every attempt that began, in order.

        Raises:
            CastoffError: their folder cannot be read.
        """
        attempts = self.path / "attempts"
        found = []
        for name in names_in(attempts):
            member, _, attempt = name.partition(".")
            if member.isdecimal() and attempt.isdecimal():
                found.append((int(member), int(attempt), attempts / name))
        return sorted(found)

    def script_log(self, member: int = 0) -> Path:
        """The log of a member's script."""
        return self.log_folder / f"job-{member}.log"


def request_stop(run: RunDirectory) -> None:
    """Ask running members to stop early, and start no further ones.

    The request is files, for which the run's script and its program look under every scheduler.

    Raises:
        CastoffError: they cannot be written.
    """
    from castoff.launcher.runs.records import ending_of

    run = run.reopened()
    try:
        # In this order: an attempt that began too early to see the first is there for the second.
        (run.path / STOP).touch(mode=0o600)
        for _, _, folder in run.attempts():
            if ending_of(folder) is None:
                (folder / STOP).touch(mode=0o600)
    except OSError as error:
        raise CastoffError(
            f"{run.path}: cannot be written; {run.id} is still active: {error.strerror}"
        ) from error


def stop_requested(run: RunDirectory) -> bool:
    """Whether somebody asked the run to stop, and has not submitted it again since."""
    return (run.path / STOP).exists()


USAGE = "usage.json"
"""Stands in the folder of a job's last attempt: what the job used, all its attempts together."""

SETTLED = "settled"
"""Stands in an attempt's folder when its local scheduler has looked at its ending and ended what it left.

Before, an ending is the script's word alone: one that was cancelled may call itself done.
"""


def wants_resume(outcome: Path) -> bool:
    """Whether a program has written into its outcome file that it wants to be resumed."""
    try:
        return outcome.read_text(encoding="utf-8").strip() == "resume"
    except (OSError, UnicodeDecodeError):
        return False


def runs_folder(environ: Mapping[str, str]) -> Path:
    """Where new run directories go: CASTOFF_RUNS_DIR, else castoff-runs in the working directory."""
    return Path(environ.get("CASTOFF_RUNS_DIR") or RUNS_FOLDER).absolute()


def inherited_lock(environ: Mapping[str, str]) -> list[int]:
    """The run's lock, if this process has it from its scheduler: file descriptors, at most one."""
    try:
        lock = (Path(environ["CASTOFF_RUN_DIR"]) / LOCK).stat()
        descriptors = [int(name) for name in os.listdir("/dev/fd")]  # noqa: PTH208
    except (KeyError, OSError, ValueError):
        return []
    for descriptor in descriptors:
        with contextlib.suppress(OSError):  # the one with which they were listed
            if os.path.samestat(os.fstat(descriptor), lock):
                return [descriptor]
    return []
