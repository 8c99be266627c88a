"""A project's .castoff/config.yaml: the default site and machine of its commands."""

# No `from __future__ import annotations`: msgspec would compile each annotation at every start.

from pathlib import Path

import msgspec

from castoff.launcher.config.job_fields import Word
from castoff.launcher.errors import InvalidInput, Problem
from castoff.launcher.trust.decision import check
from castoff.launcher.typed.document import Document
from castoff.launcher.typed.structure import convert


class _Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    site: Word | None = None
    on: Word | None = None
    """The default of `castoff --on`."""


def project_site(path: Path) -> str | None:
    """The site that a project's config.yaml names.

    Raises:
        InvalidInput: with every problem of the file.
        CastoffError: the file cannot be read, or others could have written it.
    """
    return _project_config(path).site


def project_machine(path: Path) -> str | None:
    """The machine for `--on` that a project's config.yaml names; raises as `project_site`."""
    return _project_config(path).on


def _project_config(path: Path) -> _Config:
    check(path)
    problems: list[Problem] = []
    config = convert(Document.read(path), _Config, problems)
    if config is None or problems:
        raise InvalidInput(problems)
    return config
