"""Environment variables that change any program: the loader's, the C library's, shells', common tools' and
Python's. Pure.

All others of a job's `env` reach its launcher and what runs around the ranks, too: an mpiexec, a container's
runtime or torchrun may be meant by any of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_ANY = re.compile(
    r"LD_(?!LIBRARY_PATH|RUN_PATH)\w+|GLIBC_TUNABLES|MALLOC_\w+|(A|HWA|L|M|T|UB)SAN_OPTIONS"
    r"|LC_\w+|LANG(UAGE)?|LOCPATH|NLSPATH|GCONV_PATH|TZ(DIR)?"
    r"|BASH_ENV|ENV|CDPATH|GLOBIGNORE|TMOUT|TIMEFORMAT"
    r"|_POSIX2_VERSION|((DF|DU|LS)_)?BLOCK_?SIZE|QUOTING_STYLE|TIME_STYLE|AWK(LIB)?PATH|GREP_\w+"
    r"|TAR_OPTIONS|UNZIP(OPT)?|GZIP|XZ_(OPT|DEFAULTS)|ZSTD_\w+",
    re.ASCII,
)
"""LD_LIBRARY_PATH is excluded, since launchers need it for themselves."""

_PYTHON = re.compile(r"PYTHON(?!PATH)\w+", re.ASCII)
"""PYTHONPATH is excluded, since castoff or a launcher's imports may depend on it."""


def for_program_alone(env: Mapping[str, str | None], *, torchrun: bool) -> list[str]:
    """The variables of a job that only its program may see: its launcher, its shells and castoff must not
    begin with them.

    torchrun has to find the same modules as its ranks.
    """
    given = [name for name, value in env.items() if value is not None]
    return [name for name in given if _ANY.fullmatch(name) or (_PYTHON.fullmatch(name) and not torchrun)]
