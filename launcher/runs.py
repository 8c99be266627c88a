"""Run directories: one request and all that belongs to it.

castoff-runs/causets-20261120-231502-k3x9/   0700
  job.yaml         the job as it was asked for, overrides applied
  plan.json        every decision
  job.sh           the script
  secrets.sh       0600, only with env_from
  submission.json  how and where it was submitted
  *.lock           held by the process that sees to the run
  attempts/M.N/    member M's attempt N: start.json, ending.json, failure.json, outcome, stop
  logs/job-M.log   what the script of member M wrote
  logs/M.N/        a log per rank
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from launcher.errors import CastoffError

_UNSAFE = re.compile(r"[^A-Za-z0-9._+-]")


class Run:
    """A run directory on disk: what `submit` returns.

    Everything in it is found relative to `path`, so that a directory that was moved still tells
    what became of it. `launcher.watch.status` reads its state.
    """

    def __init__(self, path: Path):
        self.path = path
        """The run directory, absolute."""

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"

    @property
    def id(self) -> str:
        """The run's id: its directory's name."""
        return self.path.name

    @property
    def job(self) -> str | None:
        """The scheduler's id; None where the submission did not come about."""
        return self.submission().get("job")

    @property
    def script(self) -> Path:
        """The submitted script."""
        return self.path / "job.sh"

    @property
    def logs(self) -> Path:
        """The folder of logs."""
        return self.path / "logs"

    def submission(self) -> dict[str, Any]:
        """How it was submitted; empty if that never came about."""
        return read_record(self.path / "submission.json")

    def plan(self) -> dict[str, Any]:
        """The plan, as plain data."""
        return read_record(self.path / "plan.json")

    def attempts(self) -> list[tuple[int, int, Path]]:
        """(member, attempt, folder) of every attempt that began, in order."""
        found = []
        for folder in (self.path / "attempts").glob("*.*"):
            member, _, attempt = folder.name.partition(".")
            if member.isdecimal() and attempt.isdecimal():
                found.append((int(member), int(attempt), folder))
        return sorted(found)

    def script_log(self, member: int = 0) -> Path:
        """What a member's script wrote."""
        return self.logs / f"job-{member}.log"


def read_record(path: Path) -> dict[str, Any]:
    """A JSON record; empty if it is not there, or is not yet whole.

    Raises:
        CastoffError: it is there and cannot be read.
    """
    try:
        record = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError, ValueError, RecursionError):
        return {}
    except OSError as error:
        raise CastoffError(f"{path}: cannot be read: {error.strerror}") from error
    return record if isinstance(record, dict) else {}


def write_file(path: Path, text: str, mode: int = 0o600, *, new: bool = False) -> None:
    """Write a file so that it is either there whole or not at all; with `new`, never over another.

    Bytes that are no UTF-8, which Python holds as surrogates, are written as they were.

    Raises:
        FileExistsError: `new`, and something is there already.
        OSError: it cannot be written there.
    """
    if path.exists() and not path.is_file() and not path.is_dir() and not new:
        path.write_text(text, encoding="utf-8", errors="surrogateescape")  # /dev/stdout, a pipe
        return
    if not new:
        path = Path(os.path.realpath(path))  # a link stays one
    # Not derived from the file's own name, which may be as long as names can be.
    draft = path.with_name(f".castoff-{os.urandom(6).hex()}")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogateescape", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        if new:
            _publish(draft, path)
        else:
            draft.replace(path)
    finally:
        with contextlib.suppress(OSError):  # it is not there: renamed, or never made
            draft.unlink()


def _publish(draft: Path, path: Path) -> None:
    """Give a draft its name, which must be free."""
    try:
        os.link(draft, path)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links: it may be seen half written
        with path.open("xb") as file:
            file.write(draft.read_bytes())


@contextlib.contextmanager
def locked(path: Path, *, patience: float = 5.0) -> Iterator[None]:
    """Hold the lock file `path`; the kernel lets go of it however this process dies.

    Raises:
        BlockingIOError: somebody else has held it for `patience` seconds.
    """
    # A reader's look (`is_locked`) holds it too, for a moment: hence the patience.
    give_up = time.monotonic() + patience
    with path.open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > give_up:
                    raise
                time.sleep(0.01)
        yield


def is_locked(path: Path) -> bool:
    """Whether a living process holds the lock file `path`."""
    try:
        with path.open("r") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except BlockingIOError:
        return True
    except OSError as error:
        raise CastoffError(f"{path}: cannot be looked at: {error.strerror}") from error
    return False


def new_run(name: str, folder: Path) -> Run:
    """Make the directory of a new run in `folder`.

    Raises:
        CastoffError: it cannot be made there.
    """
    word = _UNSAFE.sub("_", name)[:60].lstrip(".-") or "run"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        while True:
            stamp = time.strftime("%Y%m%d-%H%M%S")
            path = folder.resolve() / f"{word}-{stamp}-{os.urandom(2).hex()}"
            try:
                path.mkdir(mode=0o700)
            except FileExistsError:
                if not path.is_dir():
                    raise
                continue
            break
        try:
            for inner in ("attempts", "logs"):
                (path / inner).mkdir(mode=0o700)
        except OSError:
            import shutil

            shutil.rmtree(path, ignore_errors=True)
            raise
    except OSError as error:
        raise CastoffError(
            f"{folder}: the run directory cannot be made there: {error.strerror}; "
            "choose another folder with --runs-dir or CASTOFF_RUNS_DIR"
        ) from error
    return Run(path)


def runs_folder(environ: Mapping[str, str]) -> Path:
    """Where new run directories go: CASTOFF_RUNS_DIR, else castoff-runs in the working directory."""
    return Path(environ.get("CASTOFF_RUNS_DIR") or "castoff-runs").absolute()
