"""Environment variables that affect any program: those of the loader, the C library, shells, common tools and
Python. Pure.

All other variables of a job's `env` also reach the launcher and other programs around the ranks: they may be
meant for an mpiexec, a container runtime or torchrun.
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
"""Matches variables that affect any program. LD_LIBRARY_PATH is excluded, since launchers need it for
themselves.
"""

_PYTHON = re.compile(r"PYTHON(?!PATH)\w+", re.ASCII)
"""Matches variables that affect Python. PYTHONPATH is excluded, since the imports of castoff or a launcher
may depend on it.
"""


def for_program_alone(env: Mapping[str, str | None], *, torchrun: bool) -> list[str]:
    """Return the variables of a job that only its program may see: the launcher, shells and castoff must
    start without them.

    torchrun has to find the same modules as its ranks.
    """
    given = [name for name, value in env.items() if value is not None]
    return [name for name in given if _ANY.fullmatch(name) or (_PYTHON.fullmatch(name) and not torchrun)]
