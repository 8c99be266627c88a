"""The tokens of one statement of a bash script, and where it ends: where nothing is open. Pure."""

from __future__ import annotations

import re

from launcher.importing.lexing import Lexer, Token, Unfinished

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

_JOINS = ("&&", "||", "|", "|&")

_ENDS_A_PATTERN = (";;", ";&", ";;&")

_REST_OF_LINE = re.compile(r"[ \t]*(?:#[^\n]*)?(?=\n|$)")


class Scanner:
    """Walks over one statement and knows what is open."""

    def __init__(self, script: str):
        self.script = script
        self.lexer = Lexer(script)
        self.tokens: list[Token] = []
        self.at = 0
        self._opened: list[str] = []
        """What would end each command that is open."""
        self._command = True
        """Whether the next word may be a keyword."""
        self._pattern = False
        """Whether a pattern of a `case` may come."""
        self._function = False
        """Whether what was read is a function's name, whose body follows."""

    def statement(self, at: int) -> tuple[list[Token], int]:
        """The tokens of the statement that begins here, and where the next one may.

        Raises:
            Unfinished: something in it has no end.
        """
        self.at = at
        while self.at < len(self.script):
            if self._blank():
                continue
            if self.script[self.at] == "\n":
                if self._line_break():
                    return self.tokens, self.at
            elif not self._calculation():
                operator = self._operator_here()
                if operator is None:
                    self._word()
                elif self._operator(operator):
                    return self.tokens, self.at
        if self._opened:
            raise Unfinished(f"a command that {self._opened[-1]} would end")
        self.lexer.heredocs(self.at, self.tokens)
        return self.tokens, self.at

    def _innermost(self) -> str:
        return self._opened[-1] if self._opened else ""

    def _blank(self) -> bool:
        """Over what means nothing, if it stands here."""
        script, at = self.script, self.at
        if script.startswith("\\\n", at):
            self.at += 2
        elif script[at] in " \t\r":
            self.at += 1
        elif script[at] == "#":
            stop = script.find("\n", at)
            self.at = len(script) if stop < 0 else stop
            self.tokens.append(Token("comment", script[at : self.at], at))
        else:
            return False
        return True

    def _line_break(self) -> bool:
        """Over a line break and the here-documents behind it; whether it ends the statement."""
        self.at = self.lexer.heredocs(self.at + 1, self.tokens)
        last = _last(self.tokens)
        if not self._opened and last not in _JOINS and not self._function:
            return True
        self.tokens.append(Token("op", "\n", self.at - 1))
        self._command = True
        if self._innermost() == "esac" and last in (*_ENDS_A_PATTERN, "in"):
            self._pattern = True
        return False

    def _calculation(self) -> bool:
        """Over a `((…))`, if one stands here."""
        stop = (
            self.lexer.arithmetic(self.at) if self._command and self.script.startswith("((", self.at) else 0
        )
        if stop:
            self._take(stop)
            self._command = False
        return bool(stop)

    def _take(self, stop: int) -> str:
        text = self.script[self.at : stop]
        self.tokens.append(Token("word", text, self.at))
        self.at = stop
        return text

    def _operator_here(self) -> str | None:
        script, at = self.script, self.at
        if script[at] in "<>" and script.startswith("(", at + 1):
            return None  # a process substitution, a word
        found = next((one for one in _OPERATORS if script.startswith(one, at)), None)
        return found or (script[at] if script[at] in ";&|<>()" else None)

    def _operator(self, operator: str) -> bool:
        """Over an operator; whether it ends the statement."""
        self.tokens.append(Token("op", operator, self.at))
        self.at += len(operator)
        if operator in ("<<", "<<-"):
            self.at = self.lexer.delimiter(self.at, operator, self.tokens)
        elif operator == "(":
            if not self._pattern:
                self._opened.append(")")
                self._command = True
        elif operator == ")":
            self._closed()
        elif operator in _ENDS_A_PATTERN:
            self._pattern = self._command = True
        elif operator in (";", "&", *_JOINS):
            self._command = True
            return operator in (";", "&") and self._ends_here(operator)
        return False

    def _closed(self) -> None:
        """Behind a closing parenthesis."""
        if self._innermost() == ")":
            self._opened.pop()
            name = self.tokens[-3:-2]
            empty = [one.text for one in self.tokens[-2:]] == ["(", ")"]
            self._function = self._function or (empty and bool(name) and name[0].kind == "word")
            self._command = self._function
        elif self._innermost() == "esac":
            self._pattern, self._command = False, True

    def _ends_here(self, operator: str) -> bool:
        """Whether the statement ends behind a separator; the rest of an empty line belongs to it."""
        if self._opened or self._function or (operator == ";" and self.at >= len(self.script)):
            return False
        if self.lexer.pending:
            return False  # with the line, behind its here-documents
        rest = _REST_OF_LINE.match(self.script, self.at)
        self.at = rest.end() if rest else self.at
        return True

    def _word(self) -> None:
        """Over a word, which may open something or close it."""
        stop = self.lexer.word(self.at)
        text = self.script[self.at : stop]
        if text.isdecimal() and self.script[stop : stop + 1] in ("<", ">"):  # a descriptor
            operator = next(one for one in (*_OPERATORS, "<", ">") if self.script.startswith(one, stop))
            if operator not in ("<<", "<<-"):
                self.tokens.append(Token("op", text + operator, self.at))
                self.at = stop + len(operator)
                return
        if text == "[[" and self._command:
            self._take(self.lexer.test(stop))
            self._command = False
            return
        self._take(stop)
        if not self._pattern or text == "esac":
            self._keyword(text)

    def _keyword(self, text: str) -> None:
        if self._command:
            if text in OPENING:
                self._opened.append(OPENING[text])
                self._function = False
            elif text == self._innermost():
                self._opened.pop()
                self._pattern = False
            self._command = text in BEFORE_A_COMMAND
            if text == "function":
                self._function, self._command = True, False
        elif self._function and text in OPENING:
            self._opened.append(OPENING[text])
            self._function, self._command = False, True
        if text == "in" and self._innermost() == "esac":
            self._pattern = True
        if text == "do" and self._innermost() == "done":
            self._command = True


def _last(tokens: list[Token]) -> str:
    """The last token that is neither a line break nor a comment."""
    real = (one for one in reversed(tokens) if one.kind != "comment" and one.text != "\n")
    return next((one.text for one in real), "")
