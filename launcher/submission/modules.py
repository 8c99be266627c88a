"""Whether the environment modules that a job's setup loads exist here.

Lmod and Environment Modules make `module` a function of the shell (https://lmod.readthedocs.io,
https://modules.readthedocs.io), so a shell is asked. In a hierarchy, a module is known only once those before
it are loaded: only where one is not known by itself are they loaded first.
"""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence

PATIENCE = 5.0
"""Seconds that the shell may take; nothing is said where it takes longer."""

_DEFINED = """\
[[ $(type -t module) == function ]] || . "$MODULESHOME/init/bash"
[[ $(type -t module) == function ]] || exit
castoff_known() { module is-avail "$1"; } >/dev/null 2>&1
castoff_known castoff-no-such-module && exit # it knows no is-avail
"""


def unknown_modules(
    loads: Sequence[tuple[str, str]], setup: Sequence[str], environ: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """The field of each module that is not known on this host, and what to say.

    `loads`: the field and the name of each; `setup`: all lines of the job, in their order.
    """
    names = dict.fromkeys(name for _, name in loads)
    if not names or not {"MODULESHOME", "LMOD_CMD"} & set(environ):
        return
    before = [line for line in setup if line.split()[:1] in (["module"], ["ml"])]
    unknown = _ask(names, [], environ)
    if unknown and len(before) > 1:
        unknown = _ask(unknown, before, environ)
    for field, name in loads:
        if name in unknown:
            yield field, f"loads {name}, a module that is not known on this host: see `module avail {name}`"


def _ask(
    names: Iterable[str],
    before: Sequence[str],
    environ: Mapping[str, str],
) -> set[str]:
    """Those that are not known after these lines; none where the shell does not say."""
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
