"""What became of each line of a script. None is ever lost: whatever is read gets an entry here."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

Fate: TypeAlias = Literal["directive", "setup", "env", "launch", "teardown", "dropped", "not expressed"]

_ORDER = {"not expressed": 0, "dropped": 1}


class Entry(NamedTuple):
    """What became of some lines."""

    first: int
    last: int
    fate: Fate
    text: str
    """As the script has it, in one line."""
    why: str = ""
    """Why it was dropped or is not expressed; else what a reader should know of it."""

    @property
    def what(self) -> str:
        """Its lines and its text for people."""
        return f"{self.place}: {self.text}" if self.text else self.place

    @property
    def place(self) -> str:
        """Its lines for people."""
        return f"line {self.first}" if self.first == self.last else f"lines {self.first}-{self.last}"


class Account:
    """The entries, in the order of the lines."""

    def __init__(self) -> None:
        self._entries: list[Entry] = []

    def add(self, first: int, last: int, fate: Fate, text: str, why: str = "") -> None:
        """Write down what became of some lines; the same lines may have several fates."""
        one = Entry(first, last, fate, brief(text), why)
        if one not in self._entries:
            self._entries.append(one)

    def of(self, fate: Fate) -> list[Entry]:
        """Those of one fate."""
        return sorted(one for one in self._entries if one.fate == fate)

    @property
    def entries(self) -> list[Entry]:
        """All of them."""
        return sorted(self._entries, key=lambda one: (one.first, one.last, _ORDER.get(one.fate, 2)))


def brief(text: str, width: int = 70) -> str:
    """Text on one line, cut short."""
    words = " ".join(text.replace("\\\n", " ").split())
    return words if len(words) <= width else f"{words[: width - 1]}…"
