"""A parser of command lines whose errors are one line in castoff's words."""

from __future__ import annotations

import argparse
import re
from typing import NoReturn

from castoff.launcher.typed.suggestion import did_you_mean

_TAKES = {"int": "a whole number", "float": "a number", "range": "a range, as in 10-20"}
"""What a type takes, by its name."""


class Parser(argparse.ArgumentParser):
    """Reports a wrong command line in one line: what was typed, and what to type instead."""

    def error(self, message: str) -> NoReturn:
        """Report a wrong command line, and exit with 2."""
        self.exit(2, f"{self.prog}: {self._worded(message)} (see {self.prog} --help)\n")

    def _worded(self, message: str) -> str:
        if found := re.match(r"unrecognized arguments: (\S+)", message):
            return self._unknown(found[1])
        if found := re.match(r"the following arguments are required: (.*)", message):
            return f"{found[1]} {'are' if ',' in found[1] else 'is'} missing"
        about, _, problem = re.sub("^argument ", "", message).partition(": ")
        option = about.partition("/")[0]
        if found := re.match(r"invalid choice: (.*?) \(choose from (.*)\)", problem):
            choices = [choice.strip("'") for choice in found[2].split(", ")]
            near = did_you_mean(found[1].strip("'"), choices)
            return f"{option}: is {found[1]}, but takes one of {', '.join(choices)}{near}"
        if found := re.match(r"invalid (\S+) value: (.*)", problem):
            return f"{option}: is {found[2]}, but takes {_TAKES.get(found[1], found[1])}"
        if found := re.match(r"not allowed with argument ([^ /]*)", problem):
            return f"{option} excludes {found[1]}: drop one of the two"
        if problem.startswith("expected "):
            return f"{option} needs a value"
        if problem.startswith("ignored explicit argument"):
            return f"{option} takes no value"
        return re.sub("^argument ", "", message)

    def _unknown(self, word: str) -> str:
        """The message about a word that is no argument."""
        if not word.startswith("-"):
            return f"takes no word {word!r}"
        option = word.partition("=")[0]
        known = [name for action in self._actions for name in action.option_strings if name.startswith("--")]
        return f"no option {option}{did_you_mean(option, known)}"
