"""What somebody may have meant by a word that is not known."""

from __future__ import annotations

from collections.abc import Iterable

_PREFIX = 2
"""Letters that are too few to be the beginning of a word that was meant."""


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """`; did you mean X?` for a slip of the keyboard: `gpu` is none of `cpu`."""
    import difflib  # late: only a mistake needs it

    if not isinstance(word, str):
        return ""
    names = {_folded(str(name)): str(name) for name in known}
    short = _folded(word)
    near = difflib.get_close_matches(short, names, n=1, cutoff=0.75)
    if not near and len(short) > _PREFIX:
        longer = [name for name in names if name.startswith(short)]
        near = longer if len(longer) == 1 else []
    return f"; did you mean {names[near[0]]}?" if near else ""


def suggestion(word: object, known: Iterable[str]) -> str:
    """What might have been meant; else all that there is."""
    names = list(map(str, known))
    return did_you_mean(word, names) or (f"; there are: {', '.join(names)}" if names else "")


def _folded(name: str) -> str:
    return "".join(letter for letter in name if letter not in "-_ ").casefold()
