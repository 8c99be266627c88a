"""Variables of the dynamic loader and the C library, which change every program started with them. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

_LOADING = re.compile(
    r"LD_(?!LIBRARY_PATH|RUN_PATH)\w+|GLIBC_TUNABLES|MALLOC_\w+|(A|HWA|L|M|T|UB)SAN_OPTIONS", re.ASCII
)
"""Without LD_LIBRARY_PATH, which launchers need for themselves."""


def for_program_alone(env: Mapping[str, str | None]) -> list[str]:
    """Those of a job's variables that its launcher, its shells and castoff must not begin with."""
    return [name for name, value in env.items() if value is not None and _LOADING.fullmatch(name)]
