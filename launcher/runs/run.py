"""Run directories: one submission and everything that belongs to it.

castoff-runs/causets-20261120-231502-k3x9/   0700
  job.yaml         the job file, with the command line's overrides
  .gitignore       ignores the whole directory
  plan.json        every decision
  job.sh           the script
  secrets.sh       0600, only with env_from, and while the run needs it
  submission.json  how and where it was submitted, last and before
  cancelled.json   the run's jobs that castoff has cancelled
  code.json        the code at submission: commit, branch, changed files, and files left out of code.diff
  code.diff        the code's differences from that commit, if there are any
  code/            a copy of the code, only with `snapshot`; code.workdir links to the folder of submission
  functions/M.pkl  the Python function that member M runs, if it runs one
  local.lock       locked by every process that may still act for the run
  stop             `castoff stop` was called: nothing more of the run begins
  attempts/M.N/    member M's attempt N: start.json, ending.json, failure.json, outcome, stop; launched
                   (its ranks were started); metrics.jsonl, which its program reports; usage.json, what its
                   job used; ended/, with a file for each rank that has ended well; terminated (its ranks
                   were asked to end)
  notify/          EVENT=RECEIVER.json: messages about the run, sent or not
  set-aside/       HOST.json: hosts on which the run's jobs start no more ranks, and why
  logs/job-M.log   the output of member M's script
  logs/M.N/        a log per rank

Above 256 ranks, `ended` and `logs` have a few files for each host instead.

`castoff.launcher.runs.drafts` makes it, under another name until it is complete.
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

if TYPE_CHECKING:  # at runtime, only functions that read records load msgspec
    import msgspec

    from castoff.launcher.runs.records import Facts, Submission

RUNS_FOLDER = "castoff-runs"
"""The default folder of run directories, in the working directory."""
LOCK = "local.lock"
"""The file whose lock `submit` holds, then the scheduler that it starts, then also its scripts and ranks,
which inherit it. If it is free, no process is left that could still act for the run.
"""

RESUME = 75
"""Exit code of a program that has saved its state and wants to be resumed: EX_TEMPFAIL of sysexits.h. The
scripts use the same number.
"""

STOP = "stop"
"""The file that requests a stop. In a run directory: start nothing more. In an attempt's: stop early."""


class RunDirectory:
    """A run directory on disk, as `submit` returns it.

    Only the user can have written to it: the constructor checks this, and so do the methods that change it.
    All paths in it are relative to `path`, so that it can be moved. `castoff.launcher.status.watch.status`
    reads its state.
    """

    def __init__(self, path: Path):
        """Open the directory of a run, which may not exist.

        Raises:
            CastoffError: other users could have written to it.
        """
        check_trusted(path)
        self.path = path
        """The run directory, absolute."""

    def reopened(self) -> RunDirectory:
        """Open the same directory again after a wait, since others may have replaced it meanwhile.

        Raises:
            CastoffError: other users could have written to it.
        """
        return RunDirectory(self.path)

    @contextlib.contextmanager
    def locked(self, patience: float) -> Iterator[IO[str]]:
        """Open the directory again and hold its lock, so that nothing of the run begins or ends meanwhile.

        Raises:
            CastoffError: other users could have written to it.
            BlockingIOError: another process has held the lock for `patience` seconds.
            OSError: the lock file cannot be opened or locked.
        """
        with locked(self.reopened().path / LOCK, patience=patience) as lock:
            yield lock

    def write(self, name: str, record: msgspec.Struct) -> None:
        """Open the directory again, and write a record to `name`, a path relative to it.

        Raises:
            CastoffError: other users could have written to it.
            OSError: the file cannot be written.
        """
        from castoff.launcher.runs.records import encode

        path = self.reopened().path / name
        if "/" in name:  # never make the run directory itself, which may just have been removed
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
        """The scheduler's job id; None if the submission failed."""
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
        """How castoff submitted the run; None if the submission failed or its record is damaged.

        Raises:
            CastoffError: the record cannot be read.
        """
        from castoff.launcher.runs.records import Submission, read

        return read(self.path / "submission.json", Submission)

    def write_submission(self, record: Submission) -> None:
        """Write the record of the submission.

        Raises:
            OSError: the file cannot be written.
        """
        self.write("submission.json", record)

    def facts(self) -> Facts:
        """The facts from plan.json, or from the script if there is no plan.json.

        Raises:
            CastoffError: a file exists but cannot be read.
        """
        from castoff.launcher.runs.records import Facts, facts_of, read, record_bytes

        planned = read(self.path / "plan.json", Facts)
        return planned or facts_of(record_bytes(self.script).decode(errors="replace"))

    def attempts(self) -> list[tuple[int, int, Path]]:
        """(member, attempt, folder) of every attempt that has begun, in order.

        Raises:
            CastoffError: their folder cannot be read.
        """
        attempts = self.path / "attempts"
        begun = []
        for name in names_in(attempts):
            member, _, attempt = name.partition(".")
            if member.isdecimal() and attempt.isdecimal():
                begun.append((int(member), int(attempt), attempts / name))
        return sorted(begun)

    def script_log(self, member: int = 0) -> Path:
        """The log of a member's script."""
        return self.log_folder / f"job-{member}.log"


def begun_attempts(run: RunDirectory) -> dict[int, list[int]]:
    """The numbers of the attempts of each member that has begun, in order.

    Raises:
        CastoffError: their folder cannot be read.
    """
    numbers: dict[int, list[int]] = {}
    for member, number, _ in run.attempts():
        numbers.setdefault(member, []).append(number)
    return numbers


def request_stop(run: RunDirectory) -> None:
    """Ask running members to stop early, and start no further ones.

    The requests are files, which scripts and programs check under every scheduler.

    Raises:
        CastoffError: the files cannot be written.
    """
    from castoff.launcher.runs.records import ending_of

    run = run.reopened()
    try:
        # In this order: an attempt that began too early to see the first file gets the second.
        (run.path / STOP).touch(mode=0o600)
        for _, _, folder in run.attempts():
            if ending_of(folder) is None:
                (folder / STOP).touch(mode=0o600)
    except OSError as error:
        raise CastoffError(
            f"{run.path}: cannot be written; {run.id} is still active: {error.strerror}"
        ) from error


def stop_requested(run: RunDirectory) -> bool:
    """Whether somebody asked the run to stop, and nobody has resubmitted it since."""
    return (run.path / STOP).exists()


USAGE = "usage.json"
"""The file in the folder of a job's last attempt with what the job used in all its attempts."""

SETTLED = "settled"
"""The file in an attempt's folder by which the local scheduler marks that it has checked the ending and ended
all that was left of the attempt.

Without it, an ending is only what the script recorded: a cancelled attempt may have recorded `done`.
"""


def wants_resume(outcome: Path) -> bool:
    """Whether a program has written to its outcome file that it wants to be resumed."""
    try:
        return outcome.read_text(encoding="utf-8").strip() == "resume"
    except (OSError, UnicodeDecodeError):
        return False


def runs_folder(environ: Mapping[str, str]) -> Path:
    """The folder for new run directories: CASTOFF_RUNS_DIR, else castoff-runs in the working directory."""
    return Path(environ.get("CASTOFF_RUNS_DIR") or RUNS_FOLDER).absolute()


def inherited_lock(environ: Mapping[str, str]) -> list[int]:
    """The descriptor of the run's lock, as a list; empty if no scheduler has passed it to this process."""
    try:
        lock = (Path(environ["CASTOFF_RUN_DIR"]) / LOCK).stat()
        descriptors = [int(name) for name in os.listdir("/dev/fd")]  # noqa: PTH208
    except (KeyError, OSError, ValueError):
        return []
    for descriptor in descriptors:
        with contextlib.suppress(OSError):  # listdir's own descriptor is closed by now
            if os.path.samestat(os.fstat(descriptor), lock):
                return [descriptor]
    return []
