"""The tokens of a bash script, one statement at a time: what is open, and where it ends. Pure."""

from __future__ import annotations

import re
from typing import NamedTuple

_OPERATORS = (
    ";;&",
    "&>>",
    "<<<",
    "<<-",
    "&&",
    "||",
    ";;",
    ";&",
    "|&",
    "&>",
    ">>",
    "<<",
    "<&",
    ">&",
    "<>",
    ">|",
)
OPENING = {"if": "fi", "case": "esac", "for": "done", "while": "done", "until": "done", "select": "done"}
OPENING |= {"{": "}"}
BEFORE_A_COMMAND = {"then", "do", "else", "elif", "if", "while", "until", "!", "time", "{", "function"}


class Unfinished(Exception):
    """What began has no end; the text is what it was."""


class Token(NamedTuple):
    """A word or an operator."""

    kind: str
    """`word`, `op`, `heredoc` (its body) or `comment`."""
    text: str
    at: int
    """Where it begins in the script."""


class Scanner:
    """Walks over a script and knows what is open."""

    def __init__(self, script: str):
        self.script = script
        self.pending: list[tuple[str, bool]] = []

    def statement(self, at: int) -> tuple[list[Token], int]:
        """The tokens of the statement that begins here, and where the next one may."""
        tokens: list[Token] = []
        opened: list[str] = []
        command = True  # whether the next word may be a keyword
        pattern = False  # whether a pattern of a `case` may come
        function = False  # whether what was read is a function's name, whose body follows
        script, end = self.script, len(self.script)
        while at < end:
            char = script[at]
            if script.startswith("\\\n", at) or char in " \t\r":
                at += 2 if char == "\\" else 1
                continue
            if char == "#":
                stop = script.find("\n", at)
                stop = end if stop < 0 else stop
                tokens.append(Token("comment", script[at:stop], at))
                at = stop
                continue
            if char == "\n":
                at = self._heredocs(at + 1, tokens)
                continues = bool(tokens) and _last(tokens) in ("&&", "||", "|", "|&")
                if not opened and not continues and not function:
                    return tokens, at
                tokens.append(Token("op", "\n", at - 1))
                command = True
                pattern = pattern or (bool(opened) and opened[-1] == "esac" and _ends_pattern(tokens))
                continue
            if script.startswith("((", at) and command:
                stop = self._arithmetic(at)
                if stop:
                    tokens.append(Token("word", script[at:stop], at))
                    at, command = stop, False
                    continue
            operator = next((one for one in _OPERATORS if script.startswith(one, at)), None)
            operator = operator or (char if char in ";&|<>()" else None)
            if operator in ("<", ">") and script.startswith("(", at + 1):
                operator = None  # a process substitution, a word
            if operator:
                tokens.append(Token("op", operator, at))
                at += len(operator)
                if operator in ("<<", "<<-"):
                    at = self._delimiter(at, operator, tokens)
                elif operator == "(":
                    if pattern:
                        continue
                    opened.append(")")
                    command = True
                elif operator == ")":
                    if opened and opened[-1] == ")":
                        opened.pop()
                        is_function = [t.text for t in tokens[-2:]] == ["(", ")"]
                        function = function or (is_function and len(tokens) > 2 and tokens[-3].kind == "word")
                        command = function
                        if not function and not opened and self._ends(at):
                            continue
                    elif opened and opened[-1] == "esac":
                        pattern, command = False, True
                elif operator in (";;", ";&", ";;&"):
                    pattern, command = True, True
                elif operator in (";", "&"):
                    command = True
                    if not opened and not function:
                        if operator == "&" or not self._ends(at):
                            rest = re.compile(r"[ \t]*(?:#[^\n]*)?(?=\n|$)").match(script, at)
                            if rest and not self.pending:
                                at = rest.end()
                            elif self.pending:
                                continue
                            return tokens, at
                elif operator in ("&&", "||", "|", "|&"):
                    command = True
                continue
            stop = self.word(at)
            text = script[at:stop]
            if text.isdecimal() and script[stop : stop + 1] in ("<", ">"):  # a descriptor
                operator = next((one for one in _OPERATORS if script.startswith(one, stop)), script[stop])
                if operator not in ("<<", "<<-"):
                    tokens.append(Token("op", text + operator, at))
                    at = stop + len(operator)
                    continue
            tokens.append(Token("word", text, at))
            at = stop
            if text == "[[" and command:
                stop = self._test(at)
                tokens[-1] = Token("word", script[tokens[-1].at : stop], tokens[-1].at)
                at, command = stop, False
                continue
            if pattern and text != "esac":
                continue
            if command:
                if text in OPENING:
                    opened.append(OPENING[text])
                    function = False
                elif opened and text == opened[-1]:
                    opened.pop()
                    pattern = False
                command = text in BEFORE_A_COMMAND
                if text == "function":
                    function, command = True, False
                elif function and text == "{":
                    function = False
            elif function and text in OPENING:
                opened.append(OPENING[text])
                function, command = False, True
            if text == "in" and opened and opened[-1] == "esac":
                pattern = True
            if text == "do" and opened and opened[-1] == "done":
                command = True
        if opened:
            raise Unfinished(f"a command that {opened[-1]} would end")
        self._heredocs(end, tokens)
        return tokens, end

    def _ends(self, at: int) -> bool:
        return at >= len(self.script)

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
            stop = self._arithmetic(at + 1)
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

    def _arithmetic(self, at: int) -> int:
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
                at = self._delimiter(at + len(operator), operator, [])
            elif char == "\n":
                at = self._heredocs(at + 1, [])
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

    def _test(self, at: int) -> int:
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

    def _delimiter(self, at: int, operator: str, tokens: list[Token]) -> int:
        while self.script[at : at + 1] in (" ", "\t"):
            at += 1
        stop = self.word(at) if at < len(self.script) and self.script[at] not in "\n;&|" else at
        word = self.script[at:stop]
        tokens.append(Token("word", word, at))
        self.pending.append((re.sub(r"['\"\\]", "", word), operator == "<<-"))
        return stop

    def _heredocs(self, at: int, tokens: list[Token]) -> int:
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
    scanner = Scanner(text)
    found: list[str] = []
    blank = re.compile(r"(?:[ \t\r\n]|\\\n|#[^\n]*)*")
    at = 0
    try:
        while (at := blank.match(text, at).end()) < len(text):  # type: ignore[union-attr]
            if text[at] in ";&|()" or (text[at] in "<>" and not text.startswith("(", at + 1)):
                return None
            stop = scanner.word(at)
            found.append(text[at:stop])
            at = stop
    except Unfinished:
        return None
    return found


def _last(tokens: list[Token]) -> str:
    """The last token that is neither a line break nor a comment."""
    real = (one for one in reversed(tokens) if one.kind != "comment" and one.text != "\n")
    return next((one.text for one in real), "")


def _ends_pattern(tokens: list[Token]) -> bool:
    return _last(tokens) in (";;", ";&", ";;&", "in")
