"""The index: which runs a user has, and how a word at the command line finds one of them."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from launcher.errors import CastoffError
from launcher.runs import Run


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

    def prepare(self) -> None:
        """Make sure that `add` can write, before anything else is made.

        Raises:
            CastoffError: it cannot.
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600))
        except OSError as error:
            raise self._unusable("written", error) from error

    def add(self, run: Run, name: str) -> None:
        """Append a run.

        Raises:
            CastoffError: it cannot be written.
        """
        line = json.dumps({"path": str(run.path), "name": name}) + "\n"
        self.prepare()
        try:
            with self.path.open("ab+") as file:
                with contextlib.suppress(OSError):  # a file system without locks: one write will do
                    fcntl.flock(file, fcntl.LOCK_EX)
                if file.seek(0, os.SEEK_END):
                    file.seek(-1, os.SEEK_END)
                    if file.read(1) != b"\n":  # a line that a full disk cut off must not eat ours
                        line = "\n" + line
                file.write(line.encode())
        except OSError as error:
            raise self._unusable("written", error) from error

    def runs(self) -> Iterator[tuple[Run, str]]:
        """Every run that is still on disk with its name, oldest first."""
        return ((run, name) for run, name in self._entries() if run.script.is_file())

    def find(self, reference: str) -> Run:
        """The run of a path, a name (its newest run), an id, its unique beginning, a scheduler's id.

        What holds a `/` is a path; anything else is one only if no run is called so.

        Raises:
            CastoffError: there is none, or there are several.
        """
        at = Path(reference)
        if "/" in reference or reference == ".":
            if not _is_run_directory(at):
                raise CastoffError(f"{reference}: is no run directory: no job.sh beside attempts/ is there")
            return Run(at.resolve())
        known = list(self.runs()) if reference else []
        for matches in (
            [run for run, name in known if name == reference],
            [run for run, _ in known if run.id == reference],
        ):
            if matches:
                return matches[-1]
        if begun := {run.path: run for run, _ in known if run.id.startswith(reference)}:
            return _only(reference, list(begun.values()))
        if reference and _is_run_directory(at):
            return Run(at.resolve())
        for run, _ in reversed(known):
            if run.job == reference:
                return run
        raise CastoffError(f"{reference or 'an empty name'}: {self._missing(reference)}")

    def _missing(self, reference: str) -> str:
        for run, name in self._entries():
            if reference in (run.id, name):
                return f"its directory {run.path} is gone; if it was moved, name its new path"
        return "there is no such run; `castoff status` lists them"

    def _entries(self) -> Iterator[tuple[Run, str]]:
        try:
            lines = self.path.read_bytes().splitlines()
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            raise self._unusable("read", error) from error
        for line in lines:
            try:
                entry = json.loads(line)
                yield Run(Path(entry["path"])), str(entry["name"])
            except (ValueError, KeyError, TypeError):
                continue  # a line cut off by a full disk; the others still count

    def _unusable(self, verb: str, error: OSError) -> CastoffError:
        return CastoffError(
            f"{self.path}: the index of runs cannot be {verb}: {error.strerror}; "
            "set XDG_STATE_HOME to a folder of yours"
        )


def _is_run_directory(path: Path) -> bool:
    try:
        return (path / "job.sh").is_file() and (path / "attempts").is_dir()
    except OSError:  # a word that is no path: too long, say
        return False


def _only(reference: str, runs: list[Run]) -> Run:
    if len(runs) == 1:
        return runs[0]
    ids = ", ".join(run.id for run in runs)
    raise CastoffError(f"{reference}: {len(runs)} runs begin so, say more: {ids}")
