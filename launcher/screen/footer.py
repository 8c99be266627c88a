"""The keys in the last line of a screen. Pure."""

from __future__ import annotations

from collections.abc import Mapping

_LAST_TO_GO = ("?", "q", "Esc", "Enter")


def footer(keys: Mapping[str, str], width: int) -> str:
    """Keys and what they do, as many as fit; those that a narrow screen goes without are in the help."""
    shown = dict(keys)
    others = [key for key in reversed([*keys]) if key not in _LAST_TO_GO]
    while len(_words(shown)) > width and others:
        shown.pop(others.pop(0))
    return _words(shown).ljust(width)


def _words(keys: Mapping[str, str]) -> str:
    return "  ".join(f"{key} {words}" for key, words in keys.items())
