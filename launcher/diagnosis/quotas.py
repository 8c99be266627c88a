"""Quotas of the file systems that a job uses, from each file system's own tool.

Sources: lfs-quota(1), `mmlsquota -Y` (https://www.ibm.com/docs/en/storage-scale), quota(1) of quota-tools.
"""

from __future__ import annotations

import getpass
import re
import shutil
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from castoff.launcher.diagnosis.finding import Finding, Findings
from castoff.launcher.schedulers.command import SchedulerUnreachable, run_to_end
from castoff.launcher.text.quoting import visible_word
from castoff.launcher.text.words import size_words
from castoff.launcher.trust.mounts import Mount

_NEARLY = 0.9
"""Fraction of a quota above which doctor warns."""


class Usage(NamedTuple):
    """The use of a quota. A limit of 0 means no limit."""

    bytes: int
    soft: int
    hard: int
    files: int
    soft_files: int
    hard_files: int


class _Tool(NamedTuple):
    """The program that reports a quota."""

    argv: list[str]
    parse: Callable[[str, Mount], Usage | None]


def findings(folders: Mapping[Mount, Path], environ: Mapping[str, str], patience: float) -> Findings:
    """Report the user's quota on each file system; `folders`: a folder that the job uses, by file system."""
    tools = {mount: tool for mount in folders if (tool := _tool(mount, environ))}
    if not tools:
        return
    with ThreadPoolExecutor(len(tools)) as pool:
        answers = pool.map(lambda mount: _ask(tools[mount], mount, environ, patience), tools)
        for mount, answer in zip(tools, answers, strict=True):
            if isinstance(answer, Usage):
                yield from _judge(mount, folders[mount], answer)
            elif answer is None:
                yield Finding("quota", "ok", f"{mount.point} has no quota for you")
            else:
                program, *arguments = tools[mount].argv
                command = " ".join(map(visible_word, [Path(program).name, *arguments]))
                fix = f"`{command}` by hand; over its quota, a job fails at its first write"
                yield Finding("quota", "unknown", f"{mount.point}: {answer}", fix)


def _tool(mount: Mount, environ: Mapping[str, str]) -> _Tool | None:
    """The quota tool of a file system, if this host has it."""
    user = getpass.getuser()
    if mount.kind == "lustre":
        tool = _Tool(["lfs", "quota", "-q", "-u", user, mount.point], parse_lfs)
    elif mount.kind == "gpfs":
        device = mount.source.removeprefix("/dev/")
        tool = _Tool(["mmlsquota", "-u", user, "-Y", "--block-size", "1K", device], parse_mmlsquota)
    elif mount.kind.startswith(("nfs", "ext")) or mount.kind == "xfs":
        tool = _Tool(["quota", "-w", "-p"], parse_quota)
    else:
        return None
    path = environ.get("PATH", "") + ":/usr/lpp/mmfs/bin"  # IBM's programs, which PATH does not have
    program = shutil.which(tool.argv[0], path=path)
    return tool._replace(argv=[program, *tool.argv[1:]]) if program else None


def _ask(tool: _Tool, mount: Mount, environ: Mapping[str, str], patience: float) -> Usage | str | None:
    """Ask for a quota: its use, None if there is no quota, or the reason why it is unknown."""
    try:
        done = run_to_end(tool.argv, patience, environ)
    except SchedulerUnreachable as error:
        return str(error)
    usage = tool.parse(done.stdout, mount)  # quota exits with 1 if a limit is exceeded
    if usage is None and done.returncode:
        return " ".join((done.stderr or done.stdout).split())[:200] or f"exit code {done.returncode}"
    return usage


def _judge(mount: Mount, folder: Path, usage: Usage) -> Findings:
    clean = (
        f"to see what takes space: du -xsh {visible_word(str(folder))}/* | sort -h; then delete some of it"
    )
    space = (f"{size_words(usage.bytes)} of {size_words(usage.soft or usage.hard)}", *usage[:3])
    files = (f"{usage.files} of {usage.soft_files or usage.hard_files} files", *usage[3:])
    for words, used, soft, hard in (space, files):
        limit, fact = soft or hard, f"{mount.point}: {words}"
        if not limit:
            continue
        if hard and used >= hard:
            yield Finding("quota", "problem", f"{fact}: it is full", clean)
        elif used >= limit:
            yield Finding(
                "quota", "problem", f"{fact}: over it, so writes fail when its grace period ends", clean
            )
        elif used >= _NEARLY * limit:
            yield Finding("quota", "warning", f"{fact}, nearly all of it", clean)
        else:
            yield Finding("quota", "ok", fact)


def parse_lfs(text: str, _mount: Mount) -> Usage | None:
    """Parse `lfs quota -q`: one line, or two if the name is long; in KiB, with `*` after an
    exceeded value.
    """
    return _usage(text.split()[1:])


def parse_quota(text: str, mount: Mount) -> Usage | None:
    """Parse `quota -wp`: a line for each file system, beginning with its device; in KiB."""
    for line in text.splitlines():
        name, *words = line.split() or [""]
        if name in (mount.source, mount.point):
            return _usage(words)
    return None


def _usage(words: list[str]) -> Usage | None:
    """Parse use, quota, limit and grace, in KiB and then in files; in brackets if a server did not answer."""
    values = [re.fullmatch(r"\[?(\d+)\]?\*?", word) for word in (*words[:3], *words[4:7])]
    if len(values) < 6 or not all(values):
        return None
    return _of_kib(*(int(value[1]) for value in values if value))


def _of_kib(blocks: int, soft: int, hard: int, *files: int) -> Usage:
    return Usage(blocks << 10, soft << 10, hard << 10, *files)


def parse_mmlsquota(text: str, _mount: Mount) -> Usage | None:
    """Parse `mmlsquota -Y`: fields between colons, named by a header. If there are several rows, the user's
    first one counts.
    """
    rows = [line.split(":") for line in text.splitlines() if line.startswith("mmlsquota:")]
    header = next((row for row in rows if row[2:3] == ["HEADER"]), [])
    row = next((row for row in rows if "USR" in row), [])
    fields = dict(zip(header, row, strict=False))
    names = ("blockUsage", "blockQuota", "blockLimit", "filesUsage", "filesQuota", "filesLimit")
    try:
        return _of_kib(*(int(fields[name]) for name in names))
    except (KeyError, ValueError):
        return None
