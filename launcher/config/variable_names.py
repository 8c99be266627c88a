"""Names of environment variables that a job file may set."""

from __future__ import annotations

_OURS = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT")

_KEPT_BY_SHELLS = frozenset(
    {
        # Read-only, or set by the shell itself. Some evaluate what is assigned to them as arithmetic, in
        # which a[$(…)] runs a command.
        *("BASHOPTS", "BASH_VERSINFO", "EUID", "PPID", "SHELLOPTS", "UID", "HISTCMD", "OPTIND", "OPTERR"),
        *("RANDOM", "SRANDOM", "SECONDS", "LINENO", "EPOCHREALTIME", "EPOCHSECONDS", "BASH_MONOSECONDS"),
        *("BASH", "BASHPID", "BASH_ALIASES", "BASH_ARGC", "BASH_ARGV", "BASH_ARGV0", "BASH_CMDS"),
        *("BASH_COMMAND", "BASH_EXECUTION_STRING", "BASH_LINENO", "BASH_REMATCH", "BASH_SOURCE"),
        *("BASH_SUBSHELL", "BASH_TRAPSIG", "BASH_VERSION", "COMP_WORDBREAKS", "DIRSTACK", "FUNCNAME"),
        *("GROUPS", "PIPESTATUS", "PWD", "OLDPWD", "SHLVL", "_"),
        # A shell that starts as sh resets these.
        *("PS1", "PS2", "PS4"),
        # These change how the shell reads the script itself.
        *("IFS", "BASH_COMPAT", "BASH_XTRACEFD", "EXECIGNORE", "FUNCNEST", "POSIXLY_CORRECT"),
    }
)
"""Variables that a script cannot pass to a program, because shells change or reject them (bash(1), sh(1))."""


def variable_problem(name: str) -> str | None:
    """The reason why a script cannot pass a variable of this name to the ranks; None if it can."""
    if name in _OURS or name.startswith("CASTOFF_"):
        return "is set by castoff in each rank; drop it here"
    if name in _KEPT_BY_SHELLS:
        return f"is {name}, which shells reserve: no program would see this value; drop it"
    if name.startswith("castoff_"):
        return f"is {name}, but names that begin with castoff_ are reserved for the script; use another"
    return None
