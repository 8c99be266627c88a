"""What is wrong with a job that contains a batch script (`script`), and which program runs the script.
Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from castoff.launcher.config.job_fields import LauncherOptions
from castoff.launcher.errors import shown
from castoff.launcher.typed.document import FieldPath
from castoff.launcher.typed.structure import fields_of

OF_RANKS = frozenset(
    {
        *(
            "command",
            "ranks_per_node",
            "ranks",
            "binding",
            "setup",
            "teardown",
            "snapshot",
            "python",
            "shell",
        ),
        *("launcher", "container", "stage", "restart", "preflight", "templates"),
    }
)
"""Fields that say how castoff starts ranks: a job that holds a script has none of them."""

_DIRECTIVE = re.compile(r"#(?:SBATCH|PBS)\b|#[ \t]*flux:")
_SHEBANG = re.compile(r"#!\s*(\S.*)")


def problems(spec: msgspec.Struct, script: str | None) -> Iterator[tuple[FieldPath, str]]:
    """Why a job with this script is none."""
    if script is None:
        return
    for name, field in fields_of(type(spec)).items():
        default = field.default_factory() if field.default is msgspec.NODEFAULT else field.default
        given = getattr(spec, name)
        if name in OF_RANKS and given not in (default, LauncherOptions(driver=True)):
            yield (name,), "excludes script, which castoff runs as it is: drop one of the two"
    if not script.strip():
        yield ("script",), "is empty: write the lines that the job runs"
    head = next(directive_lines(script), None)
    if head is not None:
        where = "name its fields here; castoff import FILE does it for a whole script"
        yield ("script",), f"holds {shown(head)}, which a scheduler would not read here: {where}"


def directive_lines(script: str) -> Iterator[str]:
    """Lines above a script's first command that look like a scheduler's directives."""
    for line in script.split("\n"):
        if line.strip() and not line.startswith("#"):
            return
        if _DIRECTIVE.match(line):
            yield line


def interpreter(script: str) -> list[str]:
    """The program that a script's first line names, and its argument; bash if it names none.

    All that follows the program's name is one argument, as Linux takes it (execve(2)).
    """
    found = _SHEBANG.match(script.split("\n", 1)[0])
    return found[1].rstrip().split(None, 1) if found else ["/bin/bash"]
