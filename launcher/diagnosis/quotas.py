"""Quotas of the file systems that a job uses, from the tool of each.

Sources: lfs-quota(1), `mmlsquota -Y` (https://www.ibm.com/docs/en/storage-scale), beegfs-ctl's
ModeGetQuotaInfo.cpp, quota(1) of quota-tools.
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
"""Which part of a quota is nearly all of it."""


class Usage(NamedTuple):
    """What is used of a quota; a limit of 0 is none."""

    bytes: int
    soft: int
    hard: int
    files: int
    soft_files: int
    hard_files: int


class _Tool(NamedTuple):
    argv: list[str]
    parse: Callable[[str, Mount], Usage | None]


def findings(used: Mapping[Mount, Path], environ: Mapping[str, str], patience: float) -> Findings:
    """What is to be said of the quota on each file system; `used`: a folder of ours on each."""
    asked = [(mount, folder, tool) for mount, folder in used.items() if (tool := _tool(mount, environ))]
    if not asked:
        return
    with ThreadPoolExecutor(len(asked)) as pool:
        answers = pool.map(lambda one: _ask(one[2], one[0], environ, patience), asked)
        for (mount, folder, tool), answer in zip(asked, answers, strict=True):
            yield from _judge(mount, folder, tool, answer)


def _tool(mount: Mount, environ: Mapping[str, str]) -> _Tool | None:
    """What is asked about a file system, where that is here."""
    me = getpass.getuser()
    device = mount.source.removeprefix("/dev/")
    tools = {
        "lustre": _Tool(["lfs", "quota", "-q", "-u", me, mount.point], parse_lfs),
        "gpfs": _Tool(["mmlsquota", "-u", me, "-Y", "--block-size", "1K", device], parse_mmlsquota),
        "beegfs": _Tool(
            ["beegfs-ctl", f"--mount={mount.point}", "--getquota", "--csv", "--uid", me], parse_beegfs
        ),
    }
    plain = _Tool(["quota", "-w", "-p"], parse_quota)
    has_plain = mount.kind.startswith(("nfs", "ext")) or mount.kind == "xfs"
    tool = tools.get(mount.kind, plain if has_plain else None)
    path = environ.get("PATH", "") + ":/usr/lpp/mmfs/bin"  # where IBM's own is and no PATH leads
    program = tool and shutil.which(tool.argv[0], path=path)
    return tool._replace(argv=[program, *tool.argv[1:]]) if tool and program else None


def _ask(tool: _Tool, mount: Mount, environ: Mapping[str, str], patience: float) -> Usage | str | None:
    """What is used; None: there is no quota; else why that is not known."""
    try:
        done = run_to_end(tool.argv, patience, environ)
    except SchedulerUnreachable as why:
        return str(why)
    usage = tool.parse(done.stdout, mount)  # quota exits with 1 where one is exceeded
    if usage is None and done.returncode:
        return " ".join((done.stderr or done.stdout).split())[:200] or f"exit code {done.returncode}"
    return usage


def _judge(mount: Mount, folder: Path, tool: _Tool, answer: Usage | str | None) -> Findings:
    command = " ".join(map(visible_word, [Path(tool.argv[0]).name, *tool.argv[1:]]))
    if isinstance(answer, str):
        fix = f"`{command}` by hand; a full quota fails a job at its first write"
        yield Finding("quota", "unknown", f"{mount.point}: {answer}", fix)
        return
    if answer is None:
        yield Finding("quota", "ok", f"{mount.point} has none for you")
        return
    clean = f"free some: du -xsh {visible_word(str(folder))}/* | sort -h"
    for used, soft, hard, what in (
        (answer.bytes, answer.soft, answer.hard, "space"),
        (answer.files, answer.soft_files, answer.hard_files, "files"),
    ):
        limit = soft or hard
        if not limit:
            continue
        words = (size_words(used), size_words(limit)) if what == "space" else (str(used), str(limit))
        fact = f"{mount.point}: {words[0]} of {words[1]}" + (" files" if what == "files" else "")
        if hard and used >= hard:
            yield Finding("quota", "problem", f"{fact}: it is full", clean)
        elif used >= limit:
            yield Finding("quota", "problem", f"{fact}: over it, so writing ends with its grace", clean)
        elif used >= _NEARLY * limit:
            yield Finding("quota", "warning", f"{fact}, nearly all of it", clean)
        else:
            yield Finding("quota", "ok", fact)


def parse_lfs(text: str, _mount: Mount) -> Usage | None:
    """`lfs quota -q`: a line, of which a long name has one to itself; KiB, `*` behind what is exceeded."""
    return _of_words(text.split()[1:])


def parse_quota(text: str, mount: Mount) -> Usage | None:
    """`quota -wp`: a line for each file system, by what is mounted; KiB."""
    for line in text.splitlines():
        words = line.split()
        if words[:1] in ([mount.source], [mount.point]):
            return _of_words(words[1:])
    return None


def _of_words(words: list[str]) -> Usage | None:
    """Used, quota, limit and grace, of KiB and then of files; brackets where a server did not answer."""
    found = [re.fullmatch(r"\[?(\d+)\]?\*?", word) for word in (*words[:3], *words[4:7])]
    if len(found) < 6 or not all(found):
        return None
    blocks, soft, hard, files, soft_files, hard_files = (int(one[1]) for one in found if one)
    return Usage(blocks << 10, soft << 10, hard << 10, files, soft_files, hard_files)


def parse_mmlsquota(text: str, _mount: Mount) -> Usage | None:
    """`mmlsquota -Y`: fields between colons, named by the line before; the first row is the user's."""
    rows = [line.split(":") for line in text.splitlines() if line.startswith("mmlsquota:")]
    header = next((row for row in rows if row[2:3] == ["HEADER"]), None)
    row = next((row for row in rows if "USR" in row), None)
    if header is None or row is None:
        return None
    held = dict(zip(header, row, strict=False))
    names = ("blockUsage", "blockQuota", "blockLimit", "filesUsage", "filesQuota", "filesLimit")
    try:
        blocks, soft, hard, files, soft_files, hard_files = (int(held[name]) for name in names)
    except (KeyError, ValueError):
        return None
    return Usage(blocks << 10, soft << 10, hard << 10, files, soft_files, hard_files)


def parse_beegfs(text: str, _mount: Mount) -> Usage | None:
    """`beegfs-ctl --getquota --csv`: name,id,size,hard,files,hard; bytes, or `unlimited`."""
    lines = text.splitlines()
    start = next((at for at, line in enumerate(lines) if line.startswith("name,id,size")), None)
    if start is None or start + 1 >= len(lines):
        return None
    values = [int(word) if word.isdecimal() else 0 for word in lines[start + 1].split(",")[2:6]]
    if len(values) < 4:
        return None
    return Usage(values[0], 0, values[1], values[2], 0, values[3])
