"""Checks file systems: space, speed, locks and quotas of home, workdir and runs; and the index of runs."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from castoff.launcher.config.workdir import as_path
from castoff.launcher.diagnosis import quotas
from castoff.launcher.diagnosis.finding import Finding, Findings, Status, Subject
from castoff.launcher.errors import CastoffError
from castoff.launcher.runs.directory import HIDDEN
from castoff.launcher.runs.index import Index
from castoff.launcher.runs.owner import is_alive
from castoff.launcher.runs.run import RunDirectory
from castoff.launcher.schedulers.registry import queued
from castoff.launcher.text.quoting import visible_word
from castoff.launcher.text.words import size_words
from castoff.launcher.trust.mounts import Mount, current_mounts, mount_of

PATIENCE = 10.0
"""Seconds to wait for a file system or a quota tool."""

_SLOW = 0.5
"""Seconds for a small file above which a file system is slow: each attempt of a run writes about twenty."""

_LITTLE, _NEXT_TO_NOTHING = 1 << 30, 16 << 20
_FEW_FILES = 1000

_NEWEST = 200
"""The maximum number of runs whose locks are checked, the newest: on parallel file systems this is slow."""

_PROBE = Path(__file__).with_name("folder_probe.py")


def folders(subject: Subject) -> dict[str, Path]:
    """The folders that a job needs, by their names in findings."""
    workdir = as_path(subject.spec.workdir)
    home = subject.environ.get("HOME")
    named = {"home": Path(home)} if home else {}
    return {**named, "workdir": subject.directory / workdir, "runs": subject.runs}


def findings(subject: Subject) -> Findings:
    """Check each folder, and the quotas of their file systems."""
    paths = folders(subject)
    mounts = current_mounts()
    with ThreadPoolExecutor(len(paths)) as pool:
        answers = dict(zip(paths, pool.map(_ask, paths.values()), strict=True))
    used: dict[Mount, Path] = {}
    for about, path in paths.items():
        answer = answers[about]
        mount = mount_of(str(answer.get("real", path)), mounts)
        yield from _folder(about, path, answer, mount, subject)
        if mount is not None and "real" in answer:
            used.setdefault(mount, Path(str(answer["nearest"])))
    yield from quotas.findings(used, subject.environ, PATIENCE)


def _ask(path: Path) -> Mapping[str, Any]:
    """Run `folder_probe` on a folder and return its answer; `error` is the reason if there is none."""
    argv = [sys.executable, "-S", "-I", "-B", str(_PROBE), str(path)]
    process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        output, errors = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        _give_up(process)
        return {"hangs": True}
    try:
        answer: dict[str, Any] = json.loads(output)
    except ValueError:
        return {"error": errors.decode(errors="replace").strip().rpartition("\n")[2] or "cannot be accessed"}
    return answer


def _give_up(process: subprocess.Popen[bytes]) -> None:
    """Kill a process, and wait only briefly for its end: one that is blocked in the kernel may never end."""
    process.kill()
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(1)


def _folder(
    about: str, path: Path, answer: Mapping[str, Any], mount: Mount | None, subject: Subject
) -> Findings:
    place = f"{path} ({mount.kind})" if mount else str(path)
    if "hangs" in answer:
        fix = f"its file server does not answer: try `ls {path}`; if that hangs too, tell your site's support"
        yield Finding(
            about, "problem", f"{path}: no answer within {PATIENCE:g} s", _else(about, subject, fix)
        )
    elif "error" in answer:
        yield Finding(about, "problem", f"{path} {answer['error']}", _else(about, subject, "name a folder"))
    elif answer["nearest"] != str(path) and about != "runs":  # castoff creates the folder of runs
        yield Finding(about, "problem", f"{path} does not exist", _else(about, subject, f"mkdir -p {path}"))
    elif "failed" in answer:
        yield _unwritable(about, place, answer, subject)
    else:
        troubles = [*_troubles(about, path, answer, mount, subject)]
        yield from troubles
        if not troubles:
            free = f"{size_words(answer['free'])} free"
            yield Finding(about, "ok", f"{place}: writable, {free}, {answer['seconds'] * 1000:.0f} ms a file")


def _unwritable(about: str, place: str, answer: Mapping[str, Any], subject: Subject) -> Finding:
    if answer["code"] in ("ENOSPC", "EDQUOT"):
        state = "is full" if answer["code"] == "ENOSPC" else "is over its quota"
        return Finding(
            about, "problem", f"{place} {state}: {answer['failed']}", _to_free(about, answer, subject)
        )
    fact = f"{place} cannot be written to: {answer['failed']}"
    if about == "workdir":
        fix = "harmless if the program writes nothing there; otherwise choose another"
        return Finding(about, "warning", fact, _else(about, subject, fix))
    return Finding(about, "problem", fact, _else(about, subject, "choose another"))


def _troubles(
    about: str, path: Path, answer: Mapping[str, Any], mount: Mount | None, subject: Subject
) -> Iterator[Finding]:
    place = f"{path} ({mount.kind})" if mount else str(path)
    free, took = answer["free"], answer["seconds"]
    if free < _LITTLE:
        status: Status = "problem" if free < _NEXT_TO_NOTHING else "warning"
        fact = f"{place} has only {size_words(free)} free"
        yield Finding(about, status, fact, _to_free(about, answer, subject))
    if answer["files"] and answer["free_files"] < _FEW_FILES:  # some file systems do not count files
        status = "problem" if answer["free_files"] < 20 else "warning"
        fact = f"{place} has room for only {answer['free_files']} more files"
        yield Finding(about, status, fact, _else(about, subject, "remove or pack small files"))
    if took > _SLOW:
        fact = f"{place} is slow: {took:.1f} s for one small file"
        fix = "it may be busy only for a while; run `castoff doctor` again later"
        yield Finding(about, "warning", fact, _else(about, subject, fix))
    if about == "runs" and not answer["locks"]:
        fact = f"{place} has no locks (flock), by which castoff knows which runs are active"
        yield Finding(about, "warning", fact, _else(about, subject, "choose another"))
    if about != "home" and mount is not None and queued(subject.site.scheduler):
        if mount.seen_by == "one":
            fact = f"{place} is a disk of this host, which compute nodes may not see"
            fix = "`castoff doctor --nodes 2` tests whether they do; or use a shared file system"
            yield Finding(about, "warning", fact, _else(about, subject, fix))
        elif mount.seen_by == "unknown":
            fact = f"{place}: whether other nodes see such a file system is not known"
            yield Finding(about, "unknown", fact, "`castoff doctor --nodes 2` tests it")


def _to_free(about: str, answer: Mapping[str, Any], subject: Subject) -> str:
    """The remedy for a file system without space."""
    fix = f"to see what takes space: du -xsh {visible_word(str(answer['nearest']))}/* | sort -h; then delete "
    return _else(about, subject, f"{fix}some of it{'' if about == 'home' else ', or choose another folder'}")


def _else(about: str, subject: Subject, fix: str) -> str:
    """A remedy, with the option or field by which the user can choose another folder."""
    if about == "runs":
        return f"{fix} (--runs-dir FOLDER, or export CASTOFF_RUNS_DIR=FOLDER)"
    return f"{fix} ({subject.setting('workdir', 'FOLDER')})" if about == "workdir" else fix


def index(subject: Subject) -> Findings:
    """Check that the index of runs can be read, and that the directories of its runs exist."""
    try:
        entries = Index.of(subject.environ).entries()
    except CastoffError as error:
        fact, _, fix = str(error).partition("; ")
        yield Finding("index", "problem", fact, fix)
        return
    gone = [entry for entry in entries if not entry.is_there]
    if gone:
        fact = f"{len(gone)} of {len(entries)} listed runs have no directory now, for example {gone[-1].path}"
        fix = "`castoff list --scan FOLDER` finds runs that were moved; `castoff clean` forgets the others"
        yield Finding("index", "warning", fact, fix)
    else:
        yield Finding("index", "ok", f"{len(entries)} run{' is' if len(entries) == 1 else 's are'} listed")


def locks(subject: Subject) -> Findings:
    """Find locks that are held although their runs are over, and drafts of interrupted submissions."""
    try:
        names = sorted(path.name for path in subject.runs.iterdir())
    except OSError:  # the folder does not exist yet, or another finding reports the error
        return
    drafts = [name for name in names if HIDDEN.fullmatch(name)]
    stale = [name for name in names[-_NEWEST:] if _is_stale(subject.runs / name)]
    for name in stale:
        fact = f"{name} is over, but its lock is still held: by a lost host, or a process that the run left"
        lock = visible_word(str(subject.runs / name / "local.lock"))
        yield Finding(
            "locks", "warning", fact, f"to see its holder: fuser -v {lock}, on the host where it ran"
        )
    if drafts:
        fact = f"{len(drafts)} interrupted submissions or removals in {subject.runs}"
        yield Finding("locks", "warning", fact, "the next `castoff submit` there removes them")
    if not stale and not drafts:
        yield Finding("locks", "ok", "no interrupted submission left anything")


def _is_stale(path: Path) -> bool:
    """Whether the lock of a run under castoff's own scheduler is held although all attempts have ended."""
    try:
        run = RunDirectory(path)
        record = run.submission()
        if record is None or queued(record.scheduler) is not None:
            return False
        attempts = run.attempts()
        ended = all((folder / "settled").exists() for _, _, folder in attempts)
        return bool(attempts) and ended and is_alive(run)
    except CastoffError:
        return False
