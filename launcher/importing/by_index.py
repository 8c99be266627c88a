"""Variables to which a script gives a value by its array's index, from a list or in a `case`. Pure functions.

Only values of one plain word count, since a shell would split or expand others where they are used.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from castoff.launcher.config.array_indices import indices
from castoff.launcher.importing.bash import NAME, Case, Word, word_of

_PLAIN = re.compile(r"[\w./:=,@%+-]+")


class ByIndex:
    """What a script's variables are for each member of its array."""

    def __init__(self, index: str, array: dict[str, Any] | None):
        """`index`: the scheduler's variable with a member's number; `array`: the job's field."""
        members = indices(str(array["indices"])) if array and index else []
        self._count = len(members) if members == [*range(len(members))] else 0  # else castoff renumbers them
        self._concurrent = (array or {}).get("max_concurrent")
        self._index = index
        self._element = re.compile(rf"\$\{{({NAME})\[(?:\$?{index}|\$\{{{index}\}})\]\}}")
        self._lists: dict[str, list[str]] = {}
        self._values: dict[str, list[str]] = {}
        self._set: set[str] = set()

    def sets(self, name: str, value: str) -> None:
        """A statement gives a variable this value, as it is written."""
        listed = re.fullmatch(r"\((.*)\)", value, re.DOTALL)
        element = self._element.fullmatch(value.strip('"'))
        if name in self._set:
            self.forgets(name)
        elif listed and "#" not in value:
            words = [word_of(word).literal for word in listed[1].split()]
            if all(word and _PLAIN.fullmatch(word) for word in words) and len(words) >= self._count > 0:
                self._lists[name] = [word or "" for word in words[: self._count]]
        elif element and element[1] in self._lists:
            self._values[name] = self._lists[element[1]]
        self._set.add(name)

    def forgets(self, name: str) -> None:
        """A variable has no certain value any more."""
        self._lists.pop(name, None)
        self._values.pop(name, None)

    def cases(self, case: Case) -> list[str] | None:
        """A `case` sets variables; their names, or None if it does not choose by the array's index."""
        if case.subject not in (f"${self._index}", f"${{{self._index}}}") or not self._index:
            return None
        names = list(dict.fromkeys(name for branch in case.branches.values() for name, _ in branch))
        for name in names:
            values = [dict(case.branches.get(str(member), [])).get(name) for member in range(self._count)]
            texts = [value.literal if value else None for value in values]
            plain = [text for text in texts if text and _PLAIN.fullmatch(text)]
            if plain and len(plain) == len(texts) and name not in self._set:
                self._values[name] = plain
            else:
                self.forgets(name)
            self._set.add(name)
        return names

    def command(self, words: Sequence[Word], certain: set[str]) -> tuple[list[str], dict[str, Any]] | None:
        """A command as a job file writes it, and the field `array` with its parameters; None if its words
        depend on anything else. `certain`: the variables that nothing has changed since.
        """
        parameters: dict[str, list[str]] = {}
        texts = []
        for word in words:
            parts = word_of(self._element.sub(r"${\1}", word.source)).parts
            if parts is None or any("{" in text or "}" in text for text, _ in parts):
                return None
            whole = self._element.findall(word.source)
            for name in (name for _, name in parts if name):
                values = (self._lists if name in whole else self._values).get(name)
                if values is None or name not in certain or parameters.setdefault(name, values) != values:
                    return None
            texts.append("".join(f"{{{name}}}" if name else text for text, name in parts))
        if not parameters:
            return None
        together: dict[str, Any] = {"zip": parameters} if len(parameters) > 1 else parameters
        most = {"max_concurrent": self._concurrent} if self._concurrent else {}
        return texts, {"parameters": together, **most}


def lines_by_index(index: str, script: str, directives: set[int]) -> list[int]:
    """The lines of a script that use its array's index."""
    used = re.compile(rf"\$\{{?{index}\b|\[\s*{index}\s*\]") if index else None
    lines = enumerate(script.split("\n"), 1)
    return [
        number
        for number, line in lines
        if used and number not in directives and not line.lstrip().startswith("#") and used.search(line)
    ]
