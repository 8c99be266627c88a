"""Reads the options of a command line like getopt_long(3) and similar functions. Pure."""

from __future__ import annotations

from typing import NamedTuple


class Option(NamedTuple):
    """One option of a command line."""

    name: str
    """The option's long name, or its letter if it has no long name; as written if it is not in the table."""
    value: str | None
    known: bool


class Table:
    """The options of a program."""

    def __init__(self, *, values: str, flags: str, optional: str = "", one_dash: bool = False):
        """Each word lists the names of one option: `nodes,N`. `one_dash`: long names may follow a single
        dash.
        """
        self.takes: dict[str, str] = {}
        self.meant: dict[str, str] = {}
        self.one_dash = one_dash
        for kind, text in (("value", values), ("flag", flags), ("optional", optional)):
            for names in text.split():
                first, *others = names.split(",")
                self.takes[first] = kind
                self.meant |= dict.fromkeys([first, *others], first)

    def read(self, words: list[str]) -> tuple[list[Option], list[str]]:
        """Split words into leading options and the rest."""
        options: list[Option] = []
        position = 0
        while position < len(words):
            word = words[position]
            position += 1
            if word == "--":
                break
            if not word.startswith("-") or word == "-":
                position -= 1
                break
            name, equals, value = word.lstrip("-").partition("=")
            letter = not word.startswith("--") and not (self.one_dash and self._long(name) in self.takes)
            if letter and not (self.one_dash and word[1:2] not in self.meant):
                position = self._letters(word[1:], words, position, options)
                continue
            meant = self._long(name)
            kind = self.takes.get(meant)
            if kind == "value" and not equals:
                value = words[position] if position < len(words) else ""
                position += 1
            has_value = bool(equals) or kind == "value"
            options.append(Option(meant, value if has_value else None, kind is not None))
        return options, words[position:]

    def _long(self, name: str) -> str:
        """Return an option's full name for an unambiguous beginning of it."""
        if name in self.meant:
            return self.meant[name]
        matches = {self.meant[known] for known in self.meant if len(known) > 1 and known.startswith(name)}
        return matches.pop() if len(matches) == 1 and len(name) > 1 else name

    def _letters(self, letters: str, words: list[str], position: int, options: list[Option]) -> int:
        while letters:
            letter, letters = letters[0], letters[1:]
            meant = self.meant.get(letter, letter)
            kind = self.takes.get(meant)
            if kind == "value":
                value = letters.removeprefix("=") if self.one_dash else letters
                if not letters:
                    value = words[position] if position < len(words) else ""
                    position += 1
                options.append(Option(meant, value, True))
                return position
            if kind == "optional" and letters:  # an optional value follows the letter at once
                options.append(Option(meant, letters, True))
                return position
            options.append(Option(meant, None, kind is not None))
            if kind is None:
                return position
        return position
