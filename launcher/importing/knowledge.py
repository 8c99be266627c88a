"""What castoff knows of a script's variables without running it. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from launcher.importing.programs import OF_RANKS
from launcher.importing.shell import Command, Statement
from launcher.importing.words import NAME, Substitute, array, assignment, extends, split, value, variables

_DECLARES = re.compile("export|declare|typeset|readonly|local")
_READS = ("read", "mapfile", "readarray", "getopts", "let", "unset")


class Knowledge:
    """Variables as they are where a statement begins; `pass_over` moves behind one."""

    def __init__(self, of_scheduler: Mapping[str, str], output_of: Substitute, body: list[Statement]):
        self.known = dict(of_scheduler)
        """What is known of them, by what the directives ask for too."""
        self.constants: dict[str, str] = {}
        """What they are whatever the job is given."""
        self.lists: dict[str, list[str]] = {}
        """The words of those that hold several, each as it is written."""
        self.output_of = output_of
        self._times: dict[str, int] = {}
        for statement in body:
            for name in _assigned(statement):
                self._times[name] = self._times.get(name, 0) + 1

    def copy(self) -> Knowledge:
        """The same, which stays as it is now."""
        other = Knowledge(self.known, self.output_of, [])
        other.constants, other.lists = dict(self.constants), dict(self.lists)
        other._times = self._times
        return other

    def pass_over(self, statement: Statement) -> None:
        """Take into account what a statement sets."""
        pairs = plain_assignments(statement)
        if pairs is None:
            for name in _assigned(statement):
                self._forget(name)
            return
        for name, word, adds in pairs:
            self._set(name, word, adds)

    def _set(self, name: str, word: str, adds: bool) -> None:
        elements = array(word)
        if adds:
            more = elements if elements is not None else split(_inner(word))
            before = self.lists.get(name)
            self._forget(name)
            if before is not None:
                self.lists[name] = [*before, *more]
            return
        self._forget(name)
        if elements is not None:
            self.lists[name] = elements
            inner = value(elements[0], self.known, self.output_of) if len(elements) == 1 else None
            if "$(" in word or "`" in word:
                counted = re.fullmatch(r"\(\s*(?:\$\((.*)\)|`(.*)`)\s*\)", word, re.DOTALL)
                command = (counted[1] or counted[2] or "").strip() if counted else ""
                inner = self.output_of(f"{command} | wc -l")
                if inner is not None:
                    self.known[f"#{name}"] = inner
            else:
                self.known[f"#{name}"] = str(len(elements))
            return
        found = value(word, self.known, self.output_of)
        if found is not None:
            self.known[name] = found
        constant = value(word, self.constants)
        if constant is not None and self._times.get(name) == 1 and name not in OF_RANKS:
            self.constants[name] = constant
        if found == "":
            self.lists[name] = []
        elif re.search(r"\s", word):
            self.lists[name] = split(_inner(word))
        elif (copied := re.fullmatch(rf'\(?"?\$\{{?({NAME})(?:\[[@*]\])?\}}?"?\)?', word)) and copied[
            1
        ] in self.lists:
            self.lists[name] = self.lists[copied[1]]

    def _forget(self, name: str) -> None:
        self.lists.pop(name, None)
        for held in (name, f"#{name}"):
            self.known.pop(held, None)
            self.constants.pop(held, None)


def _inner(word: str) -> str:
    """Text in quotes as words, so that what it holds is split as the shell does where it is used bare."""
    if len(word) > 1 and word[0] == word[-1] and word[0] in "\"'":
        return word[1:-1].replace("\\\n", " ").replace('\\"', '"')
    return word


def plain_assignments(statement: Statement) -> list[tuple[str, str, bool]] | None:
    """Names, words and whether they add, of a statement that assigns and no more; None: it is another."""
    if statement.compound or statement.broken or len(statement.commands) != 1:
        return None
    command = statement.commands[0]
    words = command.words
    if command.redirections or command.heredocs or command.after == "&":
        return None
    declares = bool(words) and _DECLARES.fullmatch(words[0]) is not None
    if declares:
        words = [word for word in words[1:] if not word.startswith("-")]
    if not words or not all(assignment(word) or (declares and re.fullmatch(NAME, word)) for word in words):
        return None
    return [(pair[0], pair[1], extends(word)) for word in words if (pair := assignment(word))]


def exports(statement: Statement) -> bool:
    """Whether it hands what it sets to programs."""
    words = statement.commands[0].words if statement.commands else []
    return words[:1] == ["export"] or (words[:1] in (["declare"], ["typeset"]) and "-x" in words)


def exported_names(body: list[Statement]) -> set[str]:
    """The variables that some line exports."""
    found: set[str] = set()
    for command in (command for one in body for command in one.commands):
        if command.words[:1] == ["export"]:
            found |= {word.partition("=")[0] for word in command.words[1:] if not word.startswith("-")}
    return found


def _assigned(statement: Statement) -> list[str]:
    """The variables that a statement sets, in compounds too."""
    found: list[str] = []
    for command in statement.commands:
        found += _assigned_by(command)
    found += re.findall(rf"\b(?:for|select)\s+({NAME})\b", statement.text)
    return found


def _assigned_by(command: Command) -> list[str]:
    words = command.words
    if words[:1] and _DECLARES.fullmatch(words[0]):
        return [pair[0] for word in words[1:] if (pair := assignment(word))]
    if words[:1] and words[0] in _READS:
        return [word.partition("=")[0] for word in words[1:] if re.match(NAME, word)]
    found = []
    for word in words:
        pair = assignment(word)
        if pair is None:
            break
        found.append(pair[0])
    if len(found) < len(words):
        return []  # in front of a command they are its alone
    return found


def used(texts: list[str]) -> set[str]:
    """The variables that some text uses."""
    return set().union(*(variables(text) for text in texts)) if texts else set()
