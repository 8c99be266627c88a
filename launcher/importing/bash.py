"""Parse a bash script with tree-sitter: its statements, and the words of its simple commands. Pure
functions.
"""

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
    "negated_command": "negates an exit code",
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
"""A ~ that bash expands to a home folder: after a =, or in an assignment also after a colon."""
_IN_QUOTES = re.compile(rf"\\([$`\"\\])|\$({NAME})|\$\{{({NAME})\}}")


class Unparsed(Exception):
    """The script cannot be read as bash; the text is the reason."""


class Word(NamedTuple):
    """A word of a command."""

    source: str
    """The word as it is written."""
    parts: list[tuple[str, str]] | None
    """The word's parts: (text, "") for text, ("", NAME) for a variable; None if it has other expansions."""

    @property
    def literal(self) -> str | None:
        """The word's value; None if it contains a variable or another expansion."""
        return self.valued({})

    @property
    def variables(self) -> list[str]:
        """The names of the variables in the word."""
        return [name for _, name in self.parts or [] if name]

    def valued(self, known: dict[str, str]) -> str | None:
        """The word's value with these variables; None if it contains others, or another expansion."""
        if self.parts is None or any(name and name not in known for _, name in self.parts):
            return None
        return "".join(known[name] if name else text for text, name in self.parts)


class Case(NamedTuple):
    """A `case` that only sets variables."""

    subject: str
    """What chooses a branch, as it is written, without quotes."""
    branches: dict[str, list[tuple[str, Word]]]
    """The variables of each branch, by its number; the first branch of a number counts."""


class Statement(NamedTuple):
    """A statement at the script's top level."""

    line: int
    """Line number in the script, from 1."""
    start: int
    """Offset of the statement's beginning in the script, in bytes."""
    sets: list[tuple[str, Word]]
    """Variables that the statement sets: in the shell, or before a command for this command only."""
    words: list[Word]
    """The command's words; empty if the statement only sets variables."""
    problem: str = ""
    """The reason why the statement is not a simple command, as a predicate: "has a pipe"."""
    case: Case | None = None
    """What the statement is if it is a `case` that only sets variables."""


def statements(script: str) -> list[Statement]:
    """The statements of a script, without its comments.

    Raises:
        ImportError: tree-sitter is not installed.
        Unparsed: the script cannot be read as bash.
    """
    import tree_sitter_bash  # installed by the extra `import`
    from tree_sitter import Language, Parser

    source = script.encode()
    root = Parser(Language(tree_sitter_bash.language())).parse(source).root_node
    if root.has_error:
        wrong = next(_wrong(root), root)
        raise Unparsed(f"line {wrong.start_point[0] + 1} cannot be read as bash")
    parsed: list[Statement] = []
    for node in root.children:
        if node.type == "&":
            parsed[-1] = parsed[-1]._replace(problem="starts a program in the background")
        elif node.type == "heredoc_body":
            raise Unparsed(f"line {node.start_point[0] + 1} contains a here-document")
        elif node.is_named and node.type != "comment":
            parsed += _statements_of(node, source)
    return parsed


def _wrong(node: Node) -> Iterator[Node]:
    if node.is_error or node.is_missing:
        yield node
    for child in node.children:
        yield from _wrong(child)


def _statements_of(node: Node, source: bytes) -> list[Statement]:
    """The statements of a node. They may be several, because the grammar takes a line of assignments for the
    beginning of the next command.
    """
    line, start = node.start_point[0] + 1, node.start_byte
    if node.type in ("variable_assignment", "variable_assignments"):
        assignments = [node] if node.type == "variable_assignment" else node.children
        return [Statement(line, start, [_assignment(child) for child in assignments], [])]
    if node.type == "case_statement" and (case := _case(node)):
        return [Statement(line, start, [], [], case=case)]
    if node.type not in ("command", "declaration_command", "unset_command"):
        return [Statement(line, start, [], [], _KINDS.get(node.type, "is not a simple command"))]
    if node.type != "command":
        sets = [_assignment(child) for child in node.children if child.type == "variable_assignment"]
        keyword = Word(_text(node.children[0]), [(_text(node.children[0]), "")])
        others = [_word(child) for child in node.children[1:] if child.type != "variable_assignment"]
        return [Statement(line, start, sets, [keyword, *others])]
    parsed: list[Statement] = []
    end = start
    for child in node.children:
        is_new = not parsed or "\n" in re.sub(r"\\\n", "", source[end : child.start_byte].decode())
        if is_new and parsed and parsed[-1].words:
            raise Unparsed(f"line {child.start_point[0] + 1} cannot be read as bash")
        if is_new:
            parsed.append(Statement(child.start_point[0] + 1, child.start_byte, [], []))
        end, last = child.end_byte, parsed[-1]
        if child.type == "variable_assignment":
            parsed[-1] = last._replace(sets=[*last.sets, _assignment(child)])
        elif "redirect" in child.type:
            parsed[-1] = last._replace(problem=_KINDS["redirected_statement"])
        else:
            parsed[-1] = last._replace(words=[*last.words, _word(child)])
    return [_declared(statement) for statement in parsed]


def _case(node: Node) -> Case | None:
    """A `case` whose patterns are numbers and whose branches only set variables; None for any other."""
    subject = node.child_by_field_name("value")
    branches: dict[str, list[tuple[str, Word]]] = {}
    for item in (child for child in node.named_children if child.type == "case_item"):
        patterns = [_text(value).strip("\"'") for value in item.children_by_field_name("value")]
        rest = item.named_children[len(patterns) :]
        assignments = [
            one for child in rest for one in (child.named_children if child.type.endswith("s") else [child])
        ]
        plain = all(
            child.type in ("variable_assignment", "variable_assignments", "comment") for child in rest
        )
        ends = {child.type for child in item.children} & {";&", ";;&"}
        if not plain or ends or not all(re.fullmatch(r"0|[1-9][0-9]*", pattern) for pattern in patterns):
            return None
        sets = [_assignment(one) for one in assignments if one.type == "variable_assignment"]
        if any(not name for name, _ in sets):
            return None
        for pattern in patterns:
            branches.setdefault(pattern, sets)
    return Case(_text(subject).strip('"'), branches) if subject is not None else None


def _declared(statement: Statement) -> Statement:
    """If the parser took `export A=1` for a command, move its assignments from the words to `sets`."""
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
        return name or "", Word(_text(node), None)  # an array's element, or +=
    return name, word_of(value)


def _word(node: Node) -> Word:
    return word_of(_text(node))


def _text(node: Node) -> str:
    return (node.text or b"").decode()


def word_of(source: str) -> Word:
    """Split a word as it is written in bash into its parts."""
    parts: list[tuple[str, str]] = []
    end = 0
    if _HOME.match(source):
        return Word(source, None)
    while end < len(source):
        piece = _PIECE.match(source, end)
        if piece is None:
            return Word(source, None)
        end = piece.end()
        if piece["quoted"] is not None:
            parts += _quoted(piece["quoted"])
        elif name := piece["name"] or piece["braced"]:
            parts.append(("", name))
        else:
            texts = (piece["raw"], piece["escaped"], piece["plain"])
            parts.append((next(text for text in texts if text is not None), ""))
    return Word(source, parts or [("", "")])


def _quoted(text: str) -> list[tuple[str, str]]:
    """The parts of a text in double quotes, in which a backslash escapes only few characters."""
    parts: list[tuple[str, str]] = []
    end = 0
    for special in _IN_QUOTES.finditer(text):
        parts.append((text[end : special.start()], ""))
        parts.append((special[1], "") if special[1] else ("", special[2] or special[3]))
        end = special.end()
    return [*parts, (text[end:], "")]
