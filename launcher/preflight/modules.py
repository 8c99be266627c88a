"""Checks that the environment modules that a job's setup loads exist on this host.

Lmod and Environment Modules define `module` as a shell function (https://lmod.readthedocs.io,
https://modules.readthedocs.io), so a shell is asked. In a hierarchy, a module may be known only after others
are loaded; these are loaded only if a module is not known by itself. Nothing else of the job is run, and only
module files that belong to root, since the user may only look at another person's job (`--dry-run`).
"""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from castoff.launcher.trust.paths import weaknesses

PATIENCE = 5.0
"""Seconds that the shell may take; after that, nothing is reported."""

_DEFINED = """\
[[ $(type -t module) == function ]] || . "$MODULESHOME/init/bash"
[[ $(type -t module) == function ]] || exit
castoff_known() { module is-avail "$1"; } >/dev/null 2>&1
castoff_known castoff-no-such-module && exit # is-avail is not supported
"""


_PLAIN_LINE = re.compile(r"(module|ml)(\s+(-{1,2}|/)?[A-Za-z0-9][A-Za-z0-9_.+:=@/-]*)+")
"""A line with only names, options and absolute paths, in which a shell would expand nothing."""


def unknown_modules(
    loads: Sequence[tuple[str, str]], setup: Sequence[str], environ: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """Find modules that do not exist on this host, as pairs of field and message. `loads`: the field and
    name of each module. `setup`: all lines of the job, in order.
    """
    names = dict.fromkeys(name for _, name in loads)
    if not names or not {"MODULESHOME", "LMOD_CMD"} & set(environ):
        return
    before = [line for line in setup if line.split()[:1] in (["module"], ["ml"])]
    unknown = _ask(names, [], environ)
    if unknown and len(before) > 1:
        unknown = _ask(unknown, before, environ) if all(map(_only_loads, before)) else set()
    for field, name in loads:
        if name in unknown:
            yield field, f"loads {name}, a module that is not known on this host: see `module avail {name}`"


def _only_loads(line: str) -> bool:
    """Whether a line only loads modules that root has installed."""
    if not _PLAIN_LINE.fullmatch(line.rstrip()):
        return False
    _, *words = line.split()
    uses = words[:1] == ["use"]
    return all(
        _is_roots(Path(word)) if "/" in word[:1] else not uses or word[0] == "-" for word in words[uses:]
    )


def _is_roots(path: Path) -> bool:
    """Whether only root can change the file or folder at a path."""
    try:
        return path.stat().st_uid == 0 and not weaknesses(path)
    except OSError:
        return False


def _ask(
    names: Iterable[str],
    before: Sequence[str],
    environ: Mapping[str, str],
) -> set[str]:
    """The names that the shell, after these lines, does not know as modules; empty if the shell does not
    answer.
    """
    lines = [f"{{ {line}\n}} >/dev/null 2>&1 || :\n" for line in before]
    asks = [f"castoff_known {shlex.quote(name)} || printf '%s\\n' {shlex.quote(name)}\n" for name in names]
    script = "".join([_DEFINED, *lines, *asks, "printf '%s\\n' castoff-asked\n"])
    try:
        answer = subprocess.run(
            ["bash"],
            input=script,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            env={**environ},
            check=False,
        ).stdout.splitlines()
    except (OSError, subprocess.TimeoutExpired):
        return set()
    return set(answer[:-1]) if answer[-1:] == ["castoff-asked"] else set()
