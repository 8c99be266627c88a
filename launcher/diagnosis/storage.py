"""File systems: home, the working directory and the folder of runs; their space, speed, locks and quotas."""

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
from castoff.launcher.diagnosis.finding import Finding, Findings, Status
from castoff.launcher.diagnosis.subject import Subject
from castoff.launcher.schedulers.registry import queued
from castoff.launcher.text.quoting import visible_word
from castoff.launcher.text.words import size_words
from castoff.launcher.trust.mounts import Mount, current_mounts, mount_of

PATIENCE = 10.0
"""Seconds for a file system's answer, and for a quota's."""

_SLOW = 0.5
"""Seconds from which one small file takes long: each attempt of a run writes some twenty."""

_LITTLE, _NEXT_TO_NOTHING = 1 << 30, 16 << 20
_FEW_FILES = 1000

_PROBE = Path(__file__).with_name("folder_probe.py")


def folders(subject: Subject) -> dict[str, Path]:
    """What has to be there, by what messages call it."""
    workdir = as_path(subject.spec.workdir)
    home = subject.environ.get("HOME")
    named = {"home": Path(home)} if home else {}
    return {**named, "workdir": subject.directory / workdir, "runs": subject.runs}


def findings(subject: Subject) -> Findings:
    """What is to be said of each folder, and of the quotas of the file systems that they lie on."""
    places = folders(subject)
    mounts = current_mounts()
    with ThreadPoolExecutor(len(places)) as pool:
        answers = dict(zip(places, pool.map(_ask, places.values()), strict=True))
    used: dict[Mount, Path] = {}
    for about, path in places.items():
        answer = answers[about]
        mount = mount_of(str(answer.get("real", path)), mounts)
        yield from _folder(about, path, answer, mount, subject)
        if mount is not None and "real" in answer:
            used.setdefault(mount, Path(str(answer["there"])))
    yield from quotas.findings(used, subject.environ, PATIENCE)


def _ask(path: Path) -> Mapping[str, Any]:
    """What `folder_probe` says of a folder; `error`: why it says nothing."""
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
        return {"error": errors.decode(errors="replace").strip().rpartition("\n")[2] or "cannot be looked at"}
    return answer


def _give_up(process: subprocess.Popen[bytes]) -> None:
    """End a process, and wait for that only a moment: one in the kernel's hands may never end."""
    process.kill()
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(1)


def _folder(
    about: str, path: Path, answer: Mapping[str, Any], mount: Mount | None, subject: Subject
) -> Findings:
    place = f"{path}" + (f" ({mount.kind})" if mount else "")
    if "hangs" in answer:
        fix = (
            f"its file server does not answer: try `ls {path}`; if that hangs, too, tell your site's support"
        )
        yield Finding(
            about, "problem", f"{path}: no answer within {PATIENCE:g} s", _else(about, subject, fix)
        )
    elif "error" in answer:
        yield Finding(about, "problem", f"{path} {answer['error']}", _else(about, subject, "name a folder"))
    elif answer["there"] != str(path) and about != "runs":  # castoff makes that
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
        what = "is full" if answer["code"] == "ENOSPC" else "is over its quota"
        fix = f"free some: du -xsh {visible_word(answer['there'])}/* | sort -h"
        return Finding(about, "problem", f"{place} {what}: {answer['failed']}", _else(about, subject, fix))
    fact = f"{place} cannot be written to: {answer['failed']}"
    if about == "workdir":
        fix = "a program that writes nothing there does not mind; else name another"
        return Finding(about, "warning", fact, _else(about, subject, fix))
    return Finding(about, "problem", fact, _else(about, subject, "choose another"))


def _troubles(
    about: str, path: Path, answer: Mapping[str, Any], mount: Mount | None, subject: Subject
) -> Iterator[Finding]:
    place = f"{path}" + (f" ({mount.kind})" if mount else "")
    free, took = answer["free"], answer["seconds"]
    clean = f"free some: du -xsh {visible_word(str(answer['there']))}/* | sort -h"
    if free < _LITTLE:
        status: Status = "problem" if free < _NEXT_TO_NOTHING else "warning"
        yield Finding(
            about, status, f"{place} has only {size_words(free)} free", _else(about, subject, clean)
        )
    if answer["files"] and answer["free_files"] < _FEW_FILES:  # some file systems count none
        status = "problem" if answer["free_files"] < 20 else "warning"
        fact = f"{place} has room for {answer['free_files']} more files only"
        yield Finding(about, status, fact, _else(about, subject, "remove or pack small files"))
    if took > _SLOW:
        fact = f"{place} is slow: {took:.1f} s for one small file"
        fix = "often busy for a while only; `castoff doctor` again later"
        yield Finding(about, "warning", fact, _else(about, subject, fix))
    if about == "runs" and not answer["locks"]:
        fact = f"{place} has no locks (flock), by which castoff knows what still runs"
        yield Finding(about, "warning", fact, _else(about, subject, "choose another"))
    if about != "home" and mount is not None and queued(subject.site.scheduler):
        if mount.seen_by == "one":
            fact = f"{place} is a disk of this host, which compute nodes may not see"
            fix = "`castoff doctor --nodes 2` tries it; or use a shared file system"
            yield Finding(about, "warning", fact, _else(about, subject, fix))
        elif mount.seen_by == "unknown":
            fact = f"{place}: whether other nodes see such a file system is not known"
            yield Finding(about, "unknown", fact, "`castoff doctor --nodes 2` tries it")


def _else(about: str, subject: Subject, fix: str) -> str:
    """A remedy, and where another folder is named."""
    if about == "runs":
        return f"{fix} (--runs-dir FOLDER, or export CASTOFF_RUNS_DIR=FOLDER)"
    return f"{fix} ({subject.setting('workdir', 'FOLDER')})" if about == "workdir" else fix
