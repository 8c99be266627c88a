"""A bash script as statements: where each begins and ends, and which commands stand in it. Pure.

No statement is understood further than that. Every script comes apart: where a quote, a here-document or a
compound command has no end, its first line is a statement of its own that says so (`Statement.broken`).
"""

from __future__ import annotations

import re
from bisect import bisect_left
from typing import NamedTuple

from launcher.importing.lexing import Token, Unfinished
from launcher.importing.scanner import BEFORE_A_COMMAND, OPENING, Scanner

_SEPARATORS = {";", "&", "&&", "||", "|", "|&", ";;", ";&", ";;&", "\n", "(", ")"}

_BLANK = re.compile(r"(?:[ \t\n;]|\\\n|#[^\n]*)*")

_BROKEN = 20
"""Statements without an end that are kept apart; each takes a look at all that follows."""


class Command(NamedTuple):
    """A simple command: words as they are written, quotes and all."""

    words: list[str]
    redirections: list[str]
    """As `2>&1` or `> log`."""
    heredocs: list[str]
    """The bodies of its here-documents."""
    before: str
    """The operator that it follows, as `&&`; empty: none."""
    after: str
    """The operator behind it."""
    depth: int
    """How many compound commands it stands in."""
    text: str


class Statement(NamedTuple):
    """What ends at a line break or a semicolon outside of all else."""

    first: int
    """The number of its first line, from 1."""
    last: int
    text: str
    """Without comments behind it, and without the separator."""
    commands: list[Command]
    compound: str
    """The word that makes it a compound command: `if`, `for`, `(`, `function` …; empty: it is none."""
    broken: str
    """What has no end; empty: nothing."""


def statements(script: str) -> list[Statement]:
    """A script's statements in order; comments and empty lines are none."""
    found: list[Statement] = []
    lines = _Lines(script)
    at, broken = 0, 0
    while at < len(script):
        start = _skip_blank(script, at)
        if start >= len(script):
            break
        try:
            tokens, end = Scanner(script).statement(start)
        except Unfinished as error:
            broken += 1
            line_end = script.find("\n", start)
            at = len(script) if line_end < 0 or broken > _BROKEN else line_end + 1
            text = script[start:at].rstrip("\n")
            found.append(
                Statement(lines.number(start), lines.number(start + len(text)), text, [], "", str(error))
            )
            continue
        if any(token.kind != "comment" for token in tokens):
            found.append(_statement(script, lines, start, tokens))
        at = max(end, start + 1)
    return found


def _skip_blank(script: str, at: int) -> int:
    match = _BLANK.match(script, at)
    return match.end() if match else at


class _Lines:
    """Where a script's lines begin."""

    def __init__(self, script: str):
        self._ends = [found.start() for found in re.finditer("\n", script)]

    def number(self, at: int) -> int:
        """The number of the line that a place is in, from 1."""
        return bisect_left(self._ends, at) + 1


def _statement(script: str, lines: _Lines, start: int, tokens: list[Token]) -> Statement:
    real = [token for token in tokens if token.kind != "comment"]
    while len(real) > 1 and real[-1].kind == "op" and real[-1].text in (";", "\n"):
        real.pop()
    end = real[-1].at + len(real[-1].text)
    return Statement(
        lines.number(start),
        lines.number(max(end - 1, start)),
        script[start:end].rstrip("\n"),
        _commands(script, real),
        _compound(real),
        "",
    )


def _compound(tokens: list[Token]) -> str:
    first = tokens[0]
    if first.text in OPENING or first.text in ("(", "((", "[[", "function"):
        return "" if first.text in ("((", "[[") else first.text
    if [token.text for token in tokens[1:3]] == ["(", ")"] and first.kind == "word":
        return "function"
    return ""


def _commands(script: str, tokens: list[Token]) -> list[Command]:
    """The simple commands, in a compound too; a function's name and what a loop runs over are none."""
    found: list[Command] = []
    words: list[Token] = []
    redirections: list[str] = []
    heredocs: list[str] = []
    before, depth, skipping = "", 0, ""
    expecting = ""  # a redirection without its target

    def flush(after: str) -> None:
        nonlocal before
        if words or redirections:
            ends = [word.at + len(word.text) for word in words] or [0]
            text = script[words[0].at : ends[-1]] if words else ""
            found.append(
                Command([w.text for w in words], [*redirections], [*heredocs], before, after, depth, text)
            )
        words.clear()
        redirections.clear()
        heredocs.clear()
        before = after.strip("\n")

    for token in tokens:
        if token.kind == "heredoc":
            if heredocs or words or redirections:
                heredocs.append(token.text)
            elif found:
                found[-1].heredocs.append(token.text)
            continue
        if skipping == "pattern":  # of a case, up to its parenthesis
            depth -= token.text == "esac"
            skipping = "" if token.text in (")", "esac") else skipping
            continue
        if token.kind == "op" and token.text in _SEPARATORS:
            if token.text == "(" and words and len(words) == 1:
                words.clear()  # a function's name
            flush(token.text)
            depth += {"(": 1, ")": -1}.get(token.text, 0)
            skipping = "pattern" if token.text in (";;", ";&", ";;&") else ""
            continue
        if expecting:
            redirections.append(expecting + token.text)
            expecting = ""
            continue
        if token.kind == "op":
            expecting = token.text
            continue
        if not words and not skipping:
            if token.text in ("for", "select", "case", "function"):
                depth += token.text != "function"
                skipping = token.text
                continue
            if token.text in OPENING:
                depth += 1
                continue
            if token.text in ("fi", "esac", "done", "}"):
                depth -= 1
                continue
            if token.text in BEFORE_A_COMMAND or token.text == "in":
                continue
        if skipping:
            if token.text == "in" and skipping == "case":
                skipping = "pattern"
            elif token.text in ("do", "{"):
                depth += token.text == "{"
                skipping = ""
            continue
        words.append(token)
    flush("")
    return found
