"""Lines of `teardown`: what a script does after its launch line, and in its trap for EXIT. Pure."""

from __future__ import annotations

import re
import shlex

from launcher.importing.shell import Statement
from launcher.importing.words import value

_CODE = re.compile(r"(?<!\\)\$\?|\$\{\?\}|\$\{PIPESTATUS\[0\]\}")
_DONE = '[ "$CASTOFF_EXIT_CODE" = 0 ]'
_FAILED = _DONE.replace(" = ", " != ")


class Teardown:
    """What is gathered while a script is read."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        """What follows the launch line."""
        self._at_exit = ""
        self._code_is_of_ranks = True

    def at_exit(self, action: str) -> None:
        """A trap's action, in place of any before; `-` and nothing mean that there is none."""
        self._at_exit = "" if action == "-" else _CODE.sub("$CASTOFF_EXIT_CODE", action)

    def with_exit_code(self, statement: Statement) -> str:
        """A statement behind the launch line, in which `$?` is the ranks' code until a command has run."""
        text = statement.text
        if not self._code_is_of_ranks:
            return text
        first = statement.commands[0] if statement.commands else None
        self._code_is_of_ranks = first is not None and first.words[:1] == ["wait"]
        end = text.find(first.text) + len(first.text) if first else len(text)
        return _CODE.sub("$CASTOFF_EXIT_CODE", text[:end]) + text[end:]

    def texts(self) -> list[str]:
        """All that runs, in whatever order."""
        return [*self.lines, self._at_exit]

    def in_order(self) -> list[str]:
        """The lines of a job file: the trap's come last, as there; also where a line before them exits."""
        if not self._at_exit:
            return self.lines
        if any(re.search(r"\bexit\b", text) for text in self.lines):
            return [f"trap {shlex.quote(self._at_exit)} EXIT", *self.lines]
        return [*self.lines, self._at_exit]


def if_done(text: str) -> str:
    """Lines that run only if the ranks did not fail."""
    return _if(_DONE, text)


def if_failed(text: str) -> str:
    """Lines that run only if the ranks failed."""
    return _if(_FAILED, text)


def _if(test: str, text: str) -> str:
    plain = re.fullmatch(r"[^\n#]*[^\n#&;\s\\]", text) and "<<" not in text
    return f"if {test}; then {text}; fi" if plain else f"if {test}; then\n{text}\nfi"


def is_at_exit(trap: list[str]) -> bool:
    """Whether a trap's words name the end of the script."""
    return any(word.removeprefix("SIG") in ("EXIT", "0") for word in _operands(trap)[1:])


def action_of(trap: list[str]) -> str | None:
    """What a trap runs; None where nobody knows. Variables are worked out at the end, and not before."""
    text = next(iter(_operands(trap)), "")
    if re.fullmatch(r'"[^"\\`]*"', text):
        return text[1:-1]
    return value(text, {})


def _operands(trap: list[str]) -> list[str]:
    return [word for word in trap[1:] if word != "--"]
