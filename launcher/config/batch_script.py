"""Check a job that contains a batch script (`script`), and find the program that runs the script. Pure
functions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

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
"""Fields that control how castoff starts ranks; a job with a batch script must not set them."""

_DIRECTIVE = re.compile(r"#[A-Z]{3,}[ \t]+--?[A-Za-z]|#[ \t]*flux:")
"""A mark in capitals and an option, as in `#SBATCH -N 2`, or Flux's mark."""
_SHEBANG = re.compile(r"#!\s*(\S.*)")


def problems(spec: msgspec.Struct, script: str | None) -> Iterator[tuple[FieldPath, str]]:
    """The problems of a job with this batch script."""
    if script is None:
        return
    for name, field in fields_of(type(spec)).items():
        default = field.default_factory() if field.default is msgspec.NODEFAULT else field.default
        value = getattr(spec, name)
        if name in OF_RANKS and value not in (default, LauncherOptions(driver=True)):
            yield (name,), "excludes script, which castoff runs unchanged: drop one of the two"
    if not script.strip():
        yield ("script",), "is empty: write the lines that the job runs"
    head = next(directive_lines(script), None)
    if head is not None:
        fix = "use castoff's fields instead; castoff import FILE converts a whole script"
        yield ("script",), f"holds {shown(head)}, which the scheduler would not read here: {fix}"


def directive_lines(script: str) -> Iterator[str]:
    """Lines above a script's first command that look like a scheduler's directives."""
    for line in script.split("\n"):
        if line.strip() and not line.startswith("#"):
            return
        if _DIRECTIVE.match(line):
            yield line


def variables(script: str, prefixes: Iterable[str]) -> list[str]:
    """The variables with such prefixes that a script uses without a default."""
    used = re.compile(rf"\$\{{?((?:{'|'.join(map(re.escape, prefixes))})_\w+)(?![\w:=+?-])")
    code = (line for line in script.split("\n") if not line.lstrip().startswith("#"))
    return [*dict.fromkeys(name for line in code for name in used.findall(line))]


def interpreter(script: str) -> list[str]:
    """The program in a script's first line and its argument; bash if the line has none.

    Everything after the program's name is one argument, as on Linux (execve(2)).
    """
    shebang = _SHEBANG.match(script.split("\n", 1)[0])
    return shebang[1].rstrip().split(None, 1) if shebang else ["/bin/bash"]
