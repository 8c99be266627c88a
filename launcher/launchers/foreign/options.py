"""Options of a command line as getopt_long(3) and its like read them. Pure."""

from __future__ import annotations

from typing import NamedTuple


class Option(NamedTuple):
    """One option of a command line."""

    name: str
    """Its long name, or its letter if it has no other; as it was written if nobody knows it."""
    value: str | None
    known: bool


class Table:
    """Which options a program has."""

    def __init__(self, *, values: str, flags: str, optional: str = "", one_dash: bool = False):
        """Names in words: `nodes,N` are one option. `one_dash`: long names may follow a single one."""
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
        found: list[Option] = []
        at = 0
        while at < len(words):
            word = words[at]
            at += 1
            if word == "--":
                break
            if not word.startswith("-") or word == "-":
                at -= 1
                break
            name, equals, value = word.lstrip("-").partition("=")
            letter = not word.startswith("--") and not (self.one_dash and self._long(name) in self.takes)
            if letter and not (self.one_dash and word[1:2] not in self.meant):
                at = self._letters(word[1:], words, at, found)
                continue
            meant = self._long(name)
            kind = self.takes.get(meant)
            if kind == "value" and not equals:
                value = words[at] if at < len(words) else ""
                at += 1
            has_value = bool(equals) or kind == "value"
            found.append(Option(meant, value if has_value else None, kind is not None))
        return found, words[at:]

    def _long(self, name: str) -> str:
        """The option's full name; an unambiguous beginning is enough."""
        if name in self.meant:
            return self.meant[name]
        begun = {self.meant[one] for one in self.meant if len(one) > 1 and one.startswith(name)}
        return begun.pop() if len(begun) == 1 and len(name) > 1 else name

    def _letters(self, letters: str, words: list[str], at: int, found: list[Option]) -> int:
        while letters:
            letter, letters = letters[0], letters[1:]
            meant = self.meant.get(letter, letter)
            kind = self.takes.get(meant)
            if kind == "value":
                value = letters.removeprefix("=") if self.one_dash else letters
                if not letters:
                    value = words[at] if at < len(words) else ""
                    at += 1
                found.append(Option(meant, value, True))
                return at
            if kind == "optional" and letters:  # its value stands right behind it, or nowhere
                found.append(Option(meant, letters, True))
                return at
            found.append(Option(meant, None, kind is not None))
            if kind is None:
                return at
        return at
