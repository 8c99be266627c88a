"""What the user probably meant by an unknown name."""

from __future__ import annotations

from collections.abc import Iterable


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """`; did you mean X?` for a slip of the keyboard: `gpu` is not one of `cpu`."""
    meant = nearest(word, known)
    return "" if meant is None else f"; did you mean {meant}?"


def nearest(word: object, known: Iterable[str]) -> str | None:
    """What may be meant; None where nothing is near."""
    import difflib  # late: only a mistake needs it

    if not isinstance(word, str):
        return None
    names = {_folded(str(name)): str(name) for name in known}
    short = _folded(word)
    near = difflib.get_close_matches(short, names, n=1, cutoff=0.75)
    if not near:  # a first letter is seldom wrong
        begun_alike = [name for name in names if name[:1] == short[:1]]
        near = difflib.get_close_matches(short, begun_alike, n=1, cutoff=0.65)
    return names[near[0]] if near else None


def setting(field: str, value: str) -> str:
    """A field as a message suggests setting it: a line of a job file, `value` being YAML.

    Where the job is no file, the command line shows the same as flags: castoff.launcher.cli.flags.
    """
    outer, *inner = field.split(".")
    for name in reversed(inner):
        value = f"{{{name}: {value}}}"
    return f"`{outer}: {value}`"


def suggestion(word: object, known: Iterable[str]) -> str:
    """What might have been meant; else all that there is."""
    names = list(map(str, known))
    return did_you_mean(word, names) or (f"; there are: {', '.join(names)}" if names else "")


def _folded(name: str) -> str:
    return "".join(letter for letter in name if letter not in "-_ ").casefold()
