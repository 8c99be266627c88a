"""The folder of runs and the index: who else could change them, and what interrupted commands left there."""

from __future__ import annotations

from pathlib import Path

from castoff.launcher.diagnosis.exposure import exposures, unknown_words
from castoff.launcher.diagnosis.finding import Finding, Findings
from castoff.launcher.diagnosis.subject import Subject
from castoff.launcher.errors import CastoffError
from castoff.launcher.runs.directory import HIDDEN
from castoff.launcher.runs.index import Index
from castoff.launcher.runs.owner import is_alive
from castoff.launcher.runs.run import RunDirectory
from castoff.launcher.schedulers.registry import queued
from castoff.launcher.text.quoting import visible_word
from castoff.launcher.trust.decision import fixes

_LOOKED_AT = 200
"""Runs whose locks are looked at, the newest: each is a file on a parallel file system."""


def index(subject: Subject) -> Findings:
    """Whether the index of runs can be read and lists what is there."""
    try:
        entries = Index.of(subject.environ).entries()
    except CastoffError as error:
        fact, _, fix = str(error).partition("; ")
        yield Finding("index", "problem", fact, fix)
        return
    gone = [entry for entry in entries if not entry.is_there]
    if len(gone) > 0:
        fact = f"{len(gone)} of {len(entries)} listed runs have no directory any more, as {gone[-1].path}"
        fix = "`castoff list --scan FOLDER` finds those that were moved; `castoff clean` forgets the others"
        yield Finding("index", "warning", fact, fix)
    else:
        yield Finding("index", "ok", f"{len(entries)} run{' is' if len(entries) == 1 else 's are'} listed")


def locks(subject: Subject) -> Findings:
    """Locks that nobody can hold any more, and drafts of submissions that were interrupted."""
    try:
        names = sorted(path.name for path in subject.runs.iterdir())
    except OSError:  # there is none yet, or the file systems' section says why
        return
    drafts = [name for name in names if HIDDEN.fullmatch(name)]
    held = [name for name in names[-_LOOKED_AT:] if _is_stale(RunDirectory(subject.runs / name))]
    for name in held:
        fact = f"{name} is over, and its lock is still held: by a host that is gone, or a process it left"
        where = visible_word(str(subject.runs / name / "local.lock"))
        yield Finding("locks", "warning", fact, f"who holds it: fuser -v {where}, on the host where it ran")
    if drafts:
        fact = f"{len(drafts)} interrupted submissions or removals in {subject.runs}"
        yield Finding("locks", "warning", fact, "the next `castoff submit` there takes them away")
    if not held and not drafts:
        yield Finding("locks", "ok", "nothing is left of interrupted submissions")


def _is_stale(run: RunDirectory) -> bool:
    """Whether something holds the lock of a run whose scheduler is castoff's own and whose attempts ended."""
    try:
        record = run.submission()
        if record is None or queued(record.scheduler) is not None:
            return False
        attempts = run.attempts()
        ended = all((folder / "settled").exists() for _, _, folder in attempts)
        return bool(attempts) and ended and is_alive(run)
    except CastoffError:
        return False


def trust(subject: Subject) -> Findings:
    """Who beside the user and root could change what will run; `castoff doctor --trust` lists all of it."""
    source = subject.source
    spec = subject.given if subject.given.command else None
    site = subject.site if spec else None
    found = exposures(source, spec, site, runs_dir=subject.runs, environ=subject.environ)
    weak = [one for one in found if one.refused]
    for one in weak:
        why = ", and ".join(f"{bad.path} {bad.why}" for bad in one.refused)
        fact = f"{one.what} {one.path}: {why}"
        yield Finding("trust", "problem", fact, "; ".join(fixes(one.refused)))
    if not weak:
        yield Finding("trust", "ok", "only you, root and those you trust can change what will run")
    for kind in dict.fromkeys(kind for one in found for kind in one.hidden):
        which = [f"{one.what} {one.path}" for one in found if kind in one.hidden]
        others = f" and {len(which) - 1} more" if len(which) > 1 else ""
        yield Finding("trust", "unknown", f"{which[0]}{others}: {unknown_words([kind])}")


def unusable(path: Path, error: CastoffError) -> Finding:
    """A file that castoff does not use, with its own words."""
    first, _, rest = str(error).partition("\n")
    return Finding("job", "problem", first or str(path), "; ".join(rest.splitlines()))
