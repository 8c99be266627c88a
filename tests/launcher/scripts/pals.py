"""The command line of PALS's mpiexec, as ALCF's pages and HPE's own client document it, and nothing beyond.

`mpiexec [OPTIONS] PROGRAM …`: https://docs.alcf.anl.gov/aurora/running-jobs-aurora/ (2026-08-19), the
pages on known issues, Copper and PyTorch, and HPE's `cray mpiexec`.
"""

from __future__ import annotations

import re
from typing import NamedTuple


class UsageError(ValueError):
    """What PALS would not take."""


class _Option(NamedTuple):
    name: str
    value: str | None = None
    """A regular expression; None: it takes no value."""


_CPU_BIND = r"(verbose,)?(none|depth|core|numa|socket|thread|list:.+|mask:[0-9a-fA-Fx:,]+)"
_VARIABLE = r"[A-Za-z_][A-Za-z0-9_]*=.*"

_OPTIONS = {
    **dict.fromkeys(("-n", "--np"), _Option("-n", r"[1-9][0-9]*")),
    **dict.fromkeys(("-ppn", "--ppn"), _Option("--ppn", r"[1-9][0-9]*")),
    **dict.fromkeys(("-d", "--depth"), _Option("--depth", r"[1-9][0-9]*")),
    **dict.fromkeys(("-l", "--label"), _Option("--label")),
    **dict.fromkeys(("-envall", "--envall"), _Option("--envall")),
    **dict.fromkeys(("-genvall", "--genvall"), _Option("--genvall")),
    **dict.fromkeys(("--rlimit", "--rlimits"), _Option("--rlimits", r"[A-Za-z,]+")),
    "--cpu-bind": _Option("--cpu-bind", _CPU_BIND),
    "--mem-bind": _Option("--mem-bind", r"list:[0-9,:-]+"),
    "--gpu-bind": _Option("--gpu-bind", r"list:[0-9.,:]+"),
    "--env": _Option("--env", _VARIABLE),
    "--genv": _Option("--genv", _VARIABLE),
    "--hostfile": _Option("--hostfile", r".+"),
    "--line-buffer": _Option("--line-buffer"),
    "--pmi": _Option("--pmi", r"cray|pmix|none"),
    "--no-vni": _Option("--no-vni"),
}


def parse(words: list[str]) -> tuple[dict[str, str], list[str]]:
    """The options under one name each, and the program with its arguments.

    Raises:
        UsageError: an option that is not documented, a value that is missing, wrong or too much, an option
            twice, or no program.
    """
    options: dict[str, str] = {}
    rest = list(words)
    while rest and rest[0].startswith("-"):
        word, joined, value = rest.pop(0).partition("=")
        option = _OPTIONS.get(word)
        if option is None:
            raise UsageError(f"{word} is not an option of PALS")
        if option.value is None:
            if joined:
                raise UsageError(f"{word} takes no value, but has {value!r}")
        else:
            if not joined:
                if not rest:
                    raise UsageError(f"{word} lacks its value")
                value = rest.pop(0)
            if not re.fullmatch(option.value, value):
                raise UsageError(f"{word} cannot be {value!r}")
        if option.name in options and option.name not in ("--env", "--genv"):
            raise UsageError(f"{word} stands twice")
        options[option.name] = value
    if not rest:
        raise UsageError("there is no program")
    _check(options)
    return options, rest


def _check(options: dict[str, str]) -> None:
    """What an option says of another."""
    ranks, each = int(options.get("-n", 1)), int(options.get("--ppn", 1))
    bind = options.get("--cpu-bind", "").removeprefix("verbose,")
    if bind.startswith("list:"):
        lists = bind.removeprefix("list:").split(":")
        for cpus in lists:
            if not re.fullmatch(r"[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*", cpus):
                raise UsageError(f"--cpu-bind: {cpus!r} is not a list of CPUs")
        if len(lists) < min(ranks, each):
            raise UsageError(f"--cpu-bind: {len(lists)} lists for {min(ranks, each)} ranks on a node")
