"""Where words of a bash script end, with their quotes and substitutions, and here-documents. Pure."""

from __future__ import annotations

import re
from typing import NamedTuple


class Unfinished(Exception):
    """What began has no end; the text is what it was."""


class Token(NamedTuple):
    """A word or an operator."""

    kind: str
    """`word`, `op`, `heredoc` (its body) or `comment`."""
    text: str
    at: int
    """Where it begins in the script."""


class Lexer:
    """Finds ends in a script; the here-documents that have begun are kept in mind."""

    def __init__(self, script: str):
        self.script = script
        self.pending: list[tuple[str, bool]] = []

    def word(self, at: int) -> int:
        """Where the word that begins here ends."""
        script, end, start = self.script, len(self.script), at
        while at < end:
            char = script[at]
            if char == "\\":
                at += 2
            elif char in "'\"`$":
                at = self._quoted(at)
            elif char in "<>" and script.startswith("(", at + 1):
                at = self._parenthesis(at + 1)
            elif char == "(" and script[at - 1] in "=@?*+!" and at > start:
                at = self._parenthesis(at)
            elif char in " \t\r\n;&|<>()":
                break
            else:
                at += 1
        if at == start:
            at += 1
        return min(at, end)

    def _quoted(self, at: int) -> int:
        """Where a quote, or what a $ begins, ends."""
        script = self.script
        char = script[at]
        if char == "'":
            return self._find("'", at + 1, "a quote (')")
        if char == "`":
            return self._escaped("`", at + 1, "a quote (`)")
        if char == '"':
            return self._double(at + 1)
        if script.startswith("$'", at):
            return self._escaped("'", at + 2, "a quote ($')")
        if script.startswith('$"', at):
            return self._double(at + 2)
        if script.startswith("$((", at):
            stop = self.arithmetic(at + 1)
            if stop:
                return stop
        if script.startswith("$(", at):
            return self._parenthesis(at + 1)
        if script.startswith("${", at):
            return self._brace(at + 2)
        return at + 1

    def _find(self, what: str, at: int, name: str) -> int:
        stop = self.script.find(what, at)
        if stop < 0:
            raise Unfinished(name)
        return stop + 1

    def _escaped(self, what: str, at: int, name: str) -> int:
        while at < len(self.script):
            if self.script[at] == "\\":
                at += 2
            elif self.script[at] == what:
                return at + 1
            else:
                at += 1
        raise Unfinished(name)

    def _double(self, at: int) -> int:
        while at < len(self.script):
            char = self.script[at]
            if char == "\\":
                at += 2
            elif char == '"':
                return at + 1
            elif char == "`" or (char == "$" and self.script[at + 1 : at + 2] in ("(", "{")):
                at = self._quoted(at)
            else:
                at += 1
        raise Unfinished('a quote (")')

    def _brace(self, at: int) -> int:
        while at < len(self.script):
            char = self.script[at]
            if char == "\\":
                at += 2
            elif char == "}":
                return at + 1
            elif char in '"`$' or (char == "'" and self.script.find("'", at + 1) > 0):
                at = self._quoted(at)
            else:
                at += 1
        raise Unfinished("a ${")

    def arithmetic(self, at: int) -> int:
        """Where `((…))` ends that begins here; 0: it is none."""
        depth = 0
        start = at
        while at < len(self.script):
            char = self.script[at]
            if char == "(":
                depth += 1
            elif char == ")":
                depth -= 1
                if depth == 0:
                    return at + 1 if self.script[at - 1] == ")" and at - 1 > start else 0
            elif char == "\\":
                at += 1
            elif char in "\"'`" or self.script.startswith("${", at) or self.script.startswith("$(", at):
                at = self._quoted(at)
                continue
            at += 1
        return 0

    def _parenthesis(self, at: int) -> int:
        """Where a parenthesis ends that begins here: of a substitution, an array or a pattern."""
        start, depth, outer = at, 0, self.pending
        self.pending = []
        while at < len(self.script):
            char = self.script[at]
            if char == "\\":
                at += 2
            elif char in "'\"`$":
                at = self._quoted(at)
            elif char == "#" and self.script[at - 1] in " \t\n;(":
                at = self._find("\n", at, "a parenthesis") - 1
            elif self.script.startswith("<<", at) and not self.script.startswith("<<<", at):
                operator = "<<-" if self.script.startswith("<<-", at) else "<<"
                at = self.delimiter(at + len(operator), operator, [])
            elif char == "\n":
                at = self.heredocs(at + 1, [])
            elif char == "(":
                depth += 1
                at += 1
            elif char == ")":
                depth -= 1
                at += 1
                if depth == 0:
                    self.pending = outer
                    return at
            else:
                at += 1
        raise Unfinished(f"a parenthesis, in {self.script[start : start + 20]!r}")

    def test(self, at: int) -> int:
        """Where a `[[` ends."""
        while at < len(self.script):
            if self.script[at] in "'\"`$":
                at = self._quoted(at)
            elif self.script[at] == "\\":
                at += 2
            elif re.compile(r"\]\](?=[\s;&|)]|$)").match(self.script, at) and self.script[at - 1].isspace():
                return at + 2
            else:
                at += 1
        raise Unfinished("a [[")

    def delimiter(self, at: int, operator: str, tokens: list[Token]) -> int:
        """Where the word ends that a here-document begins with, which is kept in mind."""
        while self.script[at : at + 1] in (" ", "\t"):
            at += 1
        stop = self.word(at) if at < len(self.script) and self.script[at] not in "\n;&|" else at
        word = self.script[at:stop]
        tokens.append(Token("word", word, at))
        self.pending.append((re.sub(r"['\"\\]", "", word), operator == "<<-"))
        return stop

    def heredocs(self, at: int, tokens: list[Token]) -> int:
        """Over the here-documents that begin at this line."""
        for delimiter, tabs in self.pending:
            start = at
            while True:
                if at >= len(self.script):
                    self.pending = []
                    raise Unfinished(f"a here-document, which {delimiter or 'an empty line'} would end")
                stop = self.script.find("\n", at)
                stop = len(self.script) if stop < 0 else stop
                line = self.script[at:stop].rstrip("\r")
                at = stop + 1
                if (line.lstrip("\t") if tabs else line) == delimiter:
                    break
            tokens.append(Token("heredoc", self.script[start : min(at, len(self.script))], start))
        self.pending = []
        return min(at, len(self.script))


def words_of(text: str) -> list[str] | None:
    """The words of a text over as many lines as it has, without comments; None: it holds more than words."""
    lexer = Lexer(text)
    found: list[str] = []
    blank = re.compile(r"(?:[ \t\r\n]|\\\n|#[^\n]*)*")
    at = 0
    try:
        while (at := blank.match(text, at).end()) < len(text):  # type: ignore[union-attr]
            if text[at] in ";&|()" or (text[at] in "<>" and not text.startswith("(", at + 1)):
                return None
            stop = lexer.word(at)
            found.append(text[at:stop])
            at = stop
    except Unfinished:
        return None
    return found
