"""Variables that change any program: of the loader, the C library, shells, common tools and Python. Pure.

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
"""Without LD_LIBRARY_PATH, which launchers need for themselves."""

_PYTHON = re.compile(r"PYTHON(?!PATH)\w+", re.ASCII)
"""Without PYTHONPATH, where castoff or what the launcher imports may lie."""


def for_program_alone(env: Mapping[str, str | None], *, torchrun: bool) -> list[str]:
    """Those of a job's variables that its launcher, its shells and castoff must not begin with.

    torchrun has to find the same modules as its ranks.
    """
    given = [name for name, value in env.items() if value is not None]
    return [name for name in given if _ANY.fullmatch(name) or (_PYTHON.fullmatch(name) and not torchrun)]
