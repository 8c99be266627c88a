"""Suggestions for an unknown name: the most similar known name."""

from __future__ import annotations

from collections.abc import Iterable


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """`; did you mean X?` for a likely typing error; empty for names that differ as much as `gpu` and
    `cpu`.
    """
    meant = nearest(word, known)
    return "" if meant is None else f"; did you mean {meant}?"


def nearest(word: object, known: Iterable[str]) -> str | None:
    """The known name most similar to a word; None if none is similar."""
    import difflib  # late: only a mistake needs it

    if not isinstance(word, str):
        return None
    names = {_folded(str(name)): str(name) for name in known}
    short = _folded(word)
    near = difflib.get_close_matches(short, names, n=1, cutoff=0.75)
    if not near:  # the first letter is rarely mistyped
        same_first_letter = [name for name in names if name[:1] == short[:1]]
        near = difflib.get_close_matches(short, same_first_letter, n=1, cutoff=0.65)
    return names[near[0]] if near else None


def setting(field: str, value: str) -> str:
    """A line of a job file that sets a field, in backticks; `value` is YAML.

    For a job without a file, castoff.launcher.cli.flags turns it into flags.
    """
    outer, *inner = field.split(".")
    for name in reversed(inner):
        value = f"{{{name}: {value}}}"
    return f"`{outer}: {value}`"


def suggestion(word: object, known: Iterable[str]) -> str:
    """A suggestion of the most similar known name; else a list of all known names."""
    names = list(map(str, known))
    return did_you_mean(word, names) or (f"; there are: {', '.join(names)}" if names else "")


def _folded(name: str) -> str:
    return "".join(letter for letter in name if letter not in "-_ ").casefold()
