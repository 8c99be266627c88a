"""Checks that this is Linux, which starting ranks needs: its processes, cores and signals."""

from __future__ import annotations

import sys

from castoff.launcher.errors import CastoffError


def check_linux() -> None:
    """Refuse to start ranks on another system.

    Raises:
        CastoffError: this is not Linux.
    """
    if sys.platform != "linux":
        system = {"darwin": "macOS"}.get(sys.platform, sys.platform)
        raise CastoffError(
            f"castoff starts ranks on Linux only, and this is {system}: `castoff render` prints the script "
            "here, and `castoff --on NAME submit` runs the job on a cluster; `castoff on add` names one"
        )
