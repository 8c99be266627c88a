"""Run directories: one request and all that belongs to it, and the index that finds them again.

castoff-runs/causets-20261120-231502-k3x9/   0700
  job.yaml         the job as it was asked for, overrides applied
  plan.json        every decision
  job.sh           the script
  secrets.sh       0600, only with env_from
  submission.json  how and where it was submitted
  attempts/M.N/    member M's attempt N: start.json, ending.json, failure.json, outcome, stop
  logs/job-M.log   what the script of member M wrote
  logs/M.N/        a log per rank
"""

from __future__ import annotations

import json
import os
import re
import secrets
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from launcher.errors import CastoffError

_UNSAFE = re.compile(r"[^A-Za-z0-9._+-]")


class Run:
    """A run directory on disk."""

    def __init__(self, path: Path):
        self.path = path

    @property
    def id(self) -> str:
        """The run's id: its directory's name."""
        return self.path.name

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
    """A JSON record; empty if it is not there, or is not yet whole."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


def write_file(path: Path, text: str, mode: int = 0o600) -> None:
    """Write a file so that it is either there whole or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


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
            path = folder.resolve() / f"{word}-{stamp}-{secrets.token_hex(2)}"
            try:
                path.mkdir(mode=0o700)
            except FileExistsError:
                continue
            break
        for inner in ("attempts", "logs"):
            (path / inner).mkdir(mode=0o700)
    except OSError as error:
        raise CastoffError(
            f"{folder}: the run directory cannot be made there: {error.strerror}; "
            "choose another folder with --runs-dir or CASTOFF_RUNS_DIR"
        ) from error
    return Run(path)


def runs_folder(environ: Mapping[str, str]) -> Path:
    """Where new run directories go: CASTOFF_RUNS_DIR, else castoff-runs in the working directory."""
    return Path(environ.get("CASTOFF_RUNS_DIR") or "castoff-runs").absolute()


class Index:
    """The user's runs, newest last: an append-only file, one JSON line each."""

    def __init__(self, path: Path):
        self.path = path

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Index:
        """The index in the user's state folder ($XDG_STATE_HOME, else ~/.local/state)."""
        home = Path(environ.get("HOME") or Path.home())
        state = Path(environ.get("XDG_STATE_HOME") or home / ".local" / "state")
        return cls(state / "castoff" / "runs.jsonl")

    def add(self, run: Run, name: str) -> None:
        """Append a run. One write, so that parallel writers do not mix."""
        line = json.dumps({"path": str(run.path), "name": name}) + "\n"
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(descriptor, line.encode())
        finally:
            os.close(descriptor)

    def runs(self) -> Iterator[tuple[Run, str]]:
        """Every run that is still on disk with its name, oldest first."""
        try:
            lines = self.path.read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return
        for line in lines:
            try:
                entry = json.loads(line)
                path, name = Path(entry["path"]), str(entry["name"])
            except (ValueError, KeyError, TypeError):
                continue  # a line cut off by a full disk; the others still count
            if (path / "job.sh").is_file():
                yield Run(path), name

    def find(self, reference: str) -> Run:
        """The run of a directory, an id, a unique beginning of an id, or a name (its newest run).

        Raises:
            CastoffError: there is none, or there are several.
        """
        at = Path(reference)
        if (at / "job.sh").is_file():
            return Run(at.resolve())
        known = list(self.runs())
        named = [run for run, name in known if name == reference]
        if named:
            return named[-1]
        begun = {run.path: run for run, _ in known if run.id.startswith(reference)}
        exact = [run for run in begun.values() if run.id == reference]
        if len(begun) == 1 or exact:
            return (exact or list(begun.values()))[0]
        if begun:
            ids = "\n  ".join(run.id for run in begun.values())
            raise CastoffError(f"{reference}: several runs begin so; say more:\n  {ids}")
        raise CastoffError(f"{reference}: there is no such run; `castoff status` lists them")
