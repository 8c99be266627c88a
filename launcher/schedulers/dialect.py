"""What a scheduler's own directives may be. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple


class Dialect(NamedTuple):
    """What a scheduler's directives may be."""

    owned: Mapping[str, str]
    """Those that castoff decides from a field, because the rest of the script depends on it."""
    typed: Mapping[str, str]
    """Those that a field says, by which castoff knows what the job asks for, and checks it."""
    needed: Mapping[str, str]
    """Those that may be changed but not removed, and why."""
    words: frozenset[str]
    """Names that no other scheduler's directives have."""
    meant: Callable[[str], str]
    """The directive that a spelling of its name means to the scheduler: the name itself, or a longer one."""
    misplaced: Callable[[str], str | None]
    """What is wrong with a name whatever its value."""
    line: Callable[[str, str | bool], str]
    """How it is written into a script."""
    inside: Mapping[str, str] = {}
    """Words that stand inside another directive, and the field that says each."""
    beyond: Callable[[str, str | bool], bool] = lambda name, value: False
    """Whether a value says what the field of a typed directive cannot."""
    excluded: Mapping[str, str] = {}
    """Directives that exclude a field which the job may have set."""
