"""Installs castoff on another machine, on request or after asking the user."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from castoff.launcher.cli.output import report
from castoff.launcher.errors import CastoffError
from castoff.launcher.remote.entries import entries_file

if TYPE_CHECKING:
    from castoff.launcher.remote.machine import Machine


def install_there(machine: Machine, *, asks: bool) -> bool:
    """Install castoff on a machine; False: the user would rather not.

    Raises:
        CastoffError: it cannot be.
    """
    from castoff.launcher.remote.install import Installation

    if machine.entry.castoff is not None:
        raise CastoffError(
            f"{machine.entry.name}: its entry names {machine.entry.castoff}, so castoff installs none there; "
            f"take `castoff:` out of {entries_file(os.environ)} first"
        )
    installation = Installation(machine, os.environ, report)
    if asks and not click.confirm(f"{installation.question()}?", default=True, err=True):
        return False
    installation.run()
    return True
