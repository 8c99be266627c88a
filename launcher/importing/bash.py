"""A script in bash, parsed by tree-sitter: its statements and the words of simple commands. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tree_sitter import Node

NAME = r"[A-Za-z_][A-Za-z0-9_]*"

_KINDS = {
    "redirected_statement": "redirects what it reads or writes",
    "pipeline": "has a pipe",
    "list": "joins commands by && or ||",
    "function_definition": "defines a function",
    "for_statement": "is a loop",
    "c_style_for_statement": "is a loop",
    "while_statement": "is a loop",
    "if_statement": "is a condition",
    "case_statement": "is a condition",
    "test_command": "is a condition",
    "subshell": "is a subshell",
    "compound_statement": "is a group",
    "negated_command": "turns an exit code round",
}

_PIECE = re.compile(
    rf"""
    '(?P<raw>[^']*)' | \$(?P<name>{NAME}) | \$\{{(?P<braced>{NAME})\}} | \\(?P<escaped>[^\n])
    | "(?P<quoted>(?:[^"\\$`]|\\[^\n]|\$(?:{NAME}|\{{{NAME}\}}))*)"
    | (?P<plain>[^\s'"\\$`*?\[\]{{}}()<>|&;!~#]+|(?<=.)[~#!])
    """,
    re.VERBOSE,
)
_HOME = re.compile(rf"{NAME}=(?:\S*:)?~|(?:\S*:)~")
"""A home folder that bash fills in behind a = or, where it sets a variable, behind a colon."""
_IN_QUOTES = re.compile(rf"\\([$`\"\\])|\$({NAME})|\$\{{({NAME})\}}")


class Unparsed(Exception):
    """Why a script cannot be read as bash."""


class Word(NamedTuple):
    """A word of a command."""

    source: str
    """As it is written."""
    parts: list[tuple[str, str]] | None
    """Pieces: text, and variables, each as ("", NAME); None: it is more than literals and plain variables."""

    @property
    def literal(self) -> str | None:
        """What it means, if it holds no variable."""
        return self.valued({})

    @property
    def variables(self) -> list[str]:
        """Those that it holds."""
        return [name for _, name in self.parts or [] if name]

    def valued(self, known: dict[str, str]) -> str | None:
        """What it means with these variables; None: it holds others, or more than variables."""
        if self.parts is None or any(name and name not in known for _, name in self.parts):
            return None
        return "".join(known[name] if name else text for text, name in self.parts)


class Statement(NamedTuple):
    """A statement at the script's top level."""

    line: int
    """Of the script, from 1."""
    start: int
    """Where it begins, in bytes."""
    sets: list[tuple[str, Word]]
    """Variables that it sets: of the shell's, or of its command's alone."""
    words: list[Word]
    """Of its command; empty: it only sets variables."""
    problem: str = ""
    """What it does that a simple command does not."""


def statements(script: str) -> list[Statement]:
    """The statements of a script, without its comments.

    Raises:
        ImportError: tree-sitter is not installed.
        Unparsed: it cannot be read as bash.
    """
    import tree_sitter_bash  # an extra, for this alone
    from tree_sitter import Language, Parser

    source = script.encode()
    root = Parser(Language(tree_sitter_bash.language())).parse(source).root_node
    if root.has_error:
        wrong = next(_wrong(root), root)
        raise Unparsed(f"line {wrong.start_point[0] + 1} cannot be read as bash")
    found: list[Statement] = []
    for node in root.children:
        if node.type == "&":
            found[-1] = found[-1]._replace(problem="starts a program in the background")
        elif node.type == "heredoc_body":
            raise Unparsed(f"line {node.start_point[0] + 1} holds a here-document")
        elif node.is_named and node.type != "comment":
            found += _statements_of(node, source)
    return found


def _wrong(node: Node) -> Iterator[Node]:
    if node.is_error or node.is_missing:
        yield node
    for child in node.children:
        yield from _wrong(child)


def _statements_of(node: Node, source: bytes) -> list[Statement]:
    """Of one node. The grammar takes a line of several assignments for the beginning of the next command."""
    line, start = node.start_point[0] + 1, node.start_byte
    if node.type in ("variable_assignment", "variable_assignments"):
        several = [node] if node.type == "variable_assignment" else node.children
        return [Statement(line, start, [_assignment(one) for one in several], [])]
    if node.type not in ("command", "declaration_command", "unset_command"):
        return [Statement(line, start, [], [], _KINDS.get(node.type, "is not a simple command"))]
    if node.type != "command":
        sets = [_assignment(one) for one in node.children if one.type == "variable_assignment"]
        keyword = Word(_text(node.children[0]), [(_text(node.children[0]), "")])
        others = [_word(one) for one in node.children[1:] if one.type != "variable_assignment"]
        return [Statement(line, start, sets, [keyword, *others])]
    found: list[Statement] = []
    end = start
    for one in node.children:
        is_new = not found or "\n" in re.sub(r"\\\n", "", source[end : one.start_byte].decode())
        if is_new and found and found[-1].words:
            raise Unparsed(f"line {one.start_point[0] + 1} cannot be read as bash")
        if is_new:
            found.append(Statement(one.start_point[0] + 1, one.start_byte, [], []))
        end, last = one.end_byte, found[-1]
        if one.type == "variable_assignment":
            found[-1] = last._replace(sets=[*last.sets, _assignment(one)])
        elif "redirect" in one.type:
            found[-1] = last._replace(problem=_KINDS["redirected_statement"])
        else:
            found[-1] = last._replace(words=[*last.words, _word(one)])
    return [_declared(one) for one in found]


def _declared(statement: Statement) -> Statement:
    """`export A=1` that was taken for a command's words."""
    words = statement.words
    if not words or words[0].source not in ("export", "declare", "typeset", "readonly"):
        return statement
    pairs = [(word, re.match(rf"({NAME})=(.*)", word.source, re.DOTALL)) for word in words[1:]]
    sets = [(pair[1], word_of(pair[2])) for _, pair in pairs if pair]
    problem = "sets variables for one command" if statement.sets else statement.problem
    others = [word for word, pair in pairs if not pair]
    return statement._replace(sets=sets, words=[words[0], *others], problem=problem)


def _assignment(node: Node) -> tuple[str, Word]:
    name, sign, value = re.match(rf"({NAME})?(\+?=)?(.*)", _text(node), re.DOTALL).groups()  # type: ignore[union-attr]
    if sign != "=" or not name:
        return name or "", Word(_text(node), None)  # an array's element, or a text that grows
    return name, word_of(value)


def _word(node: Node) -> Word:
    return word_of(_text(node))


def _text(node: Node) -> str:
    return (node.text or b"").decode()


def word_of(source: str) -> Word:
    """A word as it is written."""
    parts: list[tuple[str, str]] = []
    at = 0
    if _HOME.match(source):
        return Word(source, None)
    while at < len(source):
        found = _PIECE.match(source, at)
        if found is None:
            return Word(source, None)
        at = found.end()
        if found["quoted"] is not None:
            parts += _quoted(found["quoted"])
        elif name := found["name"] or found["braced"]:
            parts.append(("", name))
        else:
            parts.append(
                (next(t for t in (found["raw"], found["escaped"], found["plain"]) if t is not None), "")
            )
    return Word(source, parts or [("", "")])


def _quoted(text: str) -> list[tuple[str, str]]:
    """The pieces of what stands between double quotes, where a backslash keeps few characters."""
    parts: list[tuple[str, str]] = []
    at = 0
    for found in _IN_QUOTES.finditer(text):
        parts.append((text[at : found.start()], ""))
        parts.append((found[1], "") if found[1] else ("", found[2] or found[3]))
        at = found.end()
    return [*parts, (text[at:], "")]
