"""Whether the environment modules that a job's setup loads exist here.

Lmod and Environment Modules make `module` a function of the shell (https://lmod.readthedocs.io,
https://modules.readthedocs.io), so a shell is asked. In a hierarchy, a module is known only once those before
it are loaded: only where one is not known by itself are they loaded first. A dry run may be of a stranger's
job, so nothing else of it is run, and no module files of anybody's but root's.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from castoff.launcher.trust.paths import weaknesses

PATIENCE = 5.0
"""Seconds that the shell may take; if it takes longer, nothing is reported."""

_DEFINED = """\
[[ $(type -t module) == function ]] || . "$MODULESHOME/init/bash"
[[ $(type -t module) == function ]] || exit
castoff_known() { module is-avail "$1"; } >/dev/null 2>&1
castoff_known castoff-no-such-module && exit # it knows no is-avail
"""


_PLAIN_LINE = re.compile(r"(module|ml)(\s+(-{1,2}|/)?[A-Za-z0-9][A-Za-z0-9_.+:=@/-]*)+")
"""A line of names, options and absolute paths only, with nothing that a shell would expand."""


def unknown_modules(
    loads: Sequence[tuple[str, str]], setup: Sequence[str], environ: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """The field of each module that does not exist on this host, and the message. `loads`: the field and name
    of each. `setup`: all lines of the job, in order.
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
    """Whether a line does nothing but load modules of the machine's own."""
    if not _PLAIN_LINE.fullmatch(line.rstrip()):
        return False
    _, *words = line.split()
    uses = words[:1] == ["use"]
    return all(
        _is_roots(Path(word)) if "/" in word[:1] else not uses or word[0] == "-" for word in words[uses:]
    )


def _is_roots(path: Path) -> bool:
    """Whether only root can change what is at a path."""
    try:
        return path.stat().st_uid == 0 and not weaknesses(path)
    except OSError:
        return False


def _ask(
    names: Iterable[str],
    before: Sequence[str],
    environ: Mapping[str, str],
) -> set[str]:
    """The names that the shell does not know after these lines; empty if it does not answer."""
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
