"""What is wrong with a job whatever the site: fields that are right one by one, but not together."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from launcher.errors import shown
from launcher.typed.document import FieldPath

if TYPE_CHECKING:
    from launcher.config.job import JobSpec

_OURS = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT")

_KEPT_BY_SHELLS = frozenset(
    {
        # Read-only, or counted by the shell itself. What is given to some of them is evaluated as
        # arithmetic, where a[$(…)] runs a command.
        *("BASHOPTS", "BASH_VERSINFO", "EUID", "PPID", "SHELLOPTS", "UID", "HISTCMD", "OPTIND", "OPTERR"),
        *("RANDOM", "SRANDOM", "SECONDS", "LINENO", "EPOCHREALTIME", "EPOCHSECONDS", "BASH_MONOSECONDS"),
        *("BASH", "BASHPID", "BASH_ALIASES", "BASH_ARGC", "BASH_ARGV", "BASH_ARGV0", "BASH_CMDS"),
        *("BASH_COMMAND", "BASH_EXECUTION_STRING", "BASH_LINENO", "BASH_REMATCH", "BASH_SOURCE"),
        *("BASH_SUBSHELL", "BASH_TRAPSIG", "BASH_VERSION", "COMP_WORDBREAKS", "DIRSTACK", "FUNCNAME"),
        *("GROUPS", "PIPESTATUS", "PWD", "OLDPWD", "SHLVL", "_"),
        # A shell that starts as sh sets these anew.
        *("PS1", "PS2", "PS4"),
        # They change how the script itself is read.
        *("IFS", "BASH_COMPAT", "BASH_XTRACEFD", "EXECIGNORE", "FUNCNEST", "POSIXLY_CORRECT"),
    }
)
"""Variables that no script can hand to a program as they are given (bash(1), sh(1))."""

_LONGEST_WORD = 131_071
"""Bytes of an argument, or of a variable with its name and the =: Linux's MAX_ARG_STRLEN less the
NUL at the end (execve(2))."""


def together(spec: JobSpec) -> Iterator[tuple[FieldPath, str]]:
    """What is wrong with a job whatever the site; one that has no command yet is none."""
    if not spec.command:
        pass
    elif not spec.command[0]:
        yield ("command", 0), "is empty: its first word must name the program"
    elif spec.command[0].startswith("-"):
        yield ("command", 0), f"is {shown(spec.command[0])}, which reads like an option: write ./ before it"
    if spec.ranks is not None and spec.ranks_per_node is not None:
        message = "excludes ranks_per_node: give the ranks in all or those of a node, not both"
        yield ("ranks",), f"{message} (--set ranks_per_node=null clears it)"
    if spec.ranks is not None and spec.ranks < (spec.nodes or 1):
        needed = f"is {spec.ranks} for {spec.nodes} nodes, and each node needs a rank"
        yield ("ranks",), f"{needed}: lower nodes to {spec.ranks}, or raise ranks"
    if spec.python is not None and not spec.python.startswith("/"):
        yield ("python",), f"is {shown(spec.python)}, but must be absolute: the job's PATH is not yours"
    elif spec.python is not None and ":" in str(PurePosixPath(spec.python).parent):
        yield ("python",), f"is {shown(spec.python)}, but PATH can hold no folder with a colon in its name"
    for name in spec.env:
        if name in spec.env_from:
            yield ("env", name), "is in env_from too; keep one of the two"
    variables: dict[FieldPath, str] = {("env", name): name for name in spec.env}
    variables |= {("env_from", number): name for number, name in enumerate(spec.env_from)}
    for path, name in variables.items():
        if problem := variable_problem(name):
            yield path, problem
    words: dict[FieldPath, str] = {("command", number): word for number, word in enumerate(spec.command)}
    words |= {("env", name): f"{name}={value}" for name, value in spec.env.items()}
    for path, text in words.items():
        if (size := len(text.encode())) > _LONGEST_WORD:
            most = f"is {size:,} bytes long, but Linux hands a program {_LONGEST_WORD:,} at the most"
            yield path, f"{most}: write it to a file, and name that"
    copied = None if isinstance(spec.snapshot, bool) else spec.snapshot
    for field in ("paths", "link") if copied else ():
        for number, name in enumerate(getattr(copied, field)):
            if name.startswith("/"):
                counts = "counts from where the job is submitted: no / at its beginning"
                yield ("snapshot", field, number), f"is {name!r}, but {counts}"
    if spec.mail is not None and not spec.mail.on:
        yield ("mail", "on"), "is empty: name events (begin, end, fail) or drop mail"
    for condition, names in spec.after.items():
        if not names:
            yield ("after", condition), "is empty: name the runs or job ids to wait for"


def variable_problem(name: str) -> str | None:
    """Why a script cannot hand a variable of this name to the ranks; None if it can."""
    if name in _OURS or name.startswith("CASTOFF_"):
        return "is set by castoff in each rank; drop it here"
    if name in _KEPT_BY_SHELLS:
        return f"is {name}, which shells keep for themselves: no program would see this value; drop it"
    if name.startswith("castoff_"):
        return f"is {name}, but names that begin with castoff_ are reserved for the script; use another"
    return None
