"""A finding: one fact about what a job needs, whether it is in order, and what to do if not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple, TypeAlias

Status: TypeAlias = Literal["ok", "warning", "problem", "unknown"]
"""`unknown`: it was asked, and there was no answer."""


class Finding(NamedTuple):
    """One fact."""

    about: str
    """What it is about, in one word: account, queue, quota …"""
    status: Status
    fact: str
    remedy: str = ""
    """What to do about it, with the user's own values; empty where it is well."""
    values: Mapping[str, Any] | None = None
    """What was measured, for programs."""


Findings: TypeAlias = Iterator[Finding]


def has_problem(found: Iterable[Finding]) -> bool:
    """Whether something would keep a job from running."""
    return any(one.status == "problem" for one in found)
