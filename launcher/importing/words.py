"""Shell words as they are written: what they mean where that is known, and which variables they use. Pure."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterator, Mapping

from launcher.importing.lexing import words_of

NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_ASSIGNMENT = re.compile(rf"({NAME})(?:\[([^\]=]*)\])?(\+?)=(.*)", re.DOTALL)
_PLAIN_VARIABLE = re.compile(rf"\$(?:({NAME})|\{{({NAME})\}})")
_USED = re.compile(rf"\$(?:\{{[#!]?)?({NAME}|[0-9@*#?!-])")
_LONGEST = 1 << 18

MOST_WORDS = 20_000
"""Words of a command line."""

_ARITHMETIC: dict[type, Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}

Substitute = Callable[[str], "str | None"]
"""What a command's output is known to be, without running it; None: nobody knows."""


def assignment(word: str) -> tuple[str, str] | None:
    """Name and value of a word that assigns; None: it does not. Both as they are written."""
    found = _ASSIGNMENT.fullmatch(word)
    return (found[1], found[4]) if found else None


def extends(word: str) -> bool:
    """Whether a word that assigns adds to what is there, or sets an element."""
    found = _ASSIGNMENT.fullmatch(word)
    return bool(found and (found[3] or found[2] is not None))


def without_single_quotes(text: str) -> str:
    """Text without what stands in single quotes, where nothing is replaced."""
    found: list[str] = []
    at, double = 0, False
    while at < len(text):
        char = text[at]
        if char == "\\":
            at += 2
            continue
        if char == '"':
            double = not double
        if char == "'" and not double:
            stop = text.find("'", at + 1)
            at = len(text) if stop < 0 else stop + 1
            continue
        found.append(char)
        at += 1
    return "".join(found)


def variables(text: str) -> set[str]:
    """The names of the variables that text uses, those within substitutions and arithmetic too."""
    bare = without_single_quotes(text)
    used = set(_USED.findall(bare))
    for inner in re.findall(r"\(\((.*?)\)\)", bare, re.DOTALL):
        used |= set(re.findall(NAME, inner))
    for inner in re.findall(
        r"(?m)(?:^|[;&|({]\s*|\b(?:then|do|else)\s+)(?:let|(?:declare|typeset) -\w*i)\s+(.*)", bare
    ):
        used |= set(re.findall(NAME, inner))
    for inner in re.findall(rf"\$\{{{NAME}\[([^\]]*)\]", bare):
        used |= set(re.findall(NAME, inner))
    return used


def literal(word: str) -> str | None:
    """What a word means, if nothing in it has to be worked out; None: something has."""
    return value(word, {})


def value(word: str, known: Mapping[str, str], substitute: Substitute = lambda _: None) -> str | None:
    """What a word means, by what is known of variables and commands; None: nobody knows.

    A pattern for files' names is not known either, nor what would be split into several words, nor what would
    be longer than any word of a command line may be.
    """
    pieces: list[str] = []
    at = 0
    while at < len(word):
        char = word[at]
        if char == "'":
            stop = word.find("'", at + 1)
            if stop < 0:
                return None
            pieces.append(word[at + 1 : stop])
            at = stop + 1
        elif char == '"':
            stop, inner = _double(word, at + 1, known, substitute)
            if inner is None:
                return None
            pieces.append(inner)
            at = stop
        elif char == "\\":
            after = word[at + 1 : at + 2]
            pieces.append("" if after == "\n" else after or "\\")
            at += 2
        elif char in "$`":
            if word[at + 1 : at + 2] in ("'", '"'):  # $'…' and $"…"
                return None
            stop, found = _expansion(word, at, known, substitute)
            if found is None or re.search(r"[\s*?\[]", found):
                return None
            pieces.append(found)
            at = stop
        elif (
            char in "*?["
            or (char == "~" and at == 0)
            or (char == "{" and ("," in word[at:] or ".." in word[at:]))
        ):
            return None
        else:
            pieces.append(char)
            at += 1
    return _bounded("".join(pieces))


def _bounded(text: str) -> str | None:
    """A text that is no longer than what Linux hands a program (MAX_ARG_STRLEN), or little more."""
    return text if len(text) <= _LONGEST else None


def _double(word: str, at: int, known: Mapping[str, str], substitute: Substitute) -> tuple[int, str | None]:
    pieces: list[str] = []
    while at < len(word):
        char = word[at]
        if char == '"':
            return at + 1, "".join(pieces)
        if char == "\\":
            after = word[at + 1 : at + 2]
            pieces.append(after if after in '$`"\\' else "" if after == "\n" else "\\" + after)
            at += 2
        elif char in "$`":
            stop, found = _expansion(word, at, known, substitute)
            if found is None:
                return stop, None
            pieces.append(found)
            at = stop
        else:
            pieces.append(char)
            at += 1
    return at, None


def _expansion(
    word: str, at: int, known: Mapping[str, str], substitute: Substitute
) -> tuple[int, str | None]:
    """What stands behind a $ or a backquote, and where it ends."""
    plain = _PLAIN_VARIABLE.match(word, at)
    if plain:
        return plain.end(), known.get(plain[1] or plain[2])
    if word.startswith("$((", at) and (stop := word.find("))", at)) > 0:
        return stop + 2, arithmetic(word[at + 3 : stop], known)
    if word.startswith("$(", at):
        stop = closing(word, at + 1)
        return stop, substitute(word[at + 2 : stop - 1].strip())
    if word[at] == "`":
        stop = word.find("`", at + 1)
        return (len(word), None) if stop < 0 else (stop + 1, substitute(word[at + 1 : stop].strip()))
    counted = re.compile(rf"\$\{{#({NAME})\[[@*]\]\}}").match(word, at)
    if counted:
        return counted.end(), known.get(f"#{counted[1]}")
    defaulted = re.compile(rf"\$\{{({NAME}):?-[^{{}}$`'\"]*\}}").match(word, at)
    if defaulted:
        return defaulted.end(), known.get(defaulted[1])
    if word.startswith("${", at):
        return word.find("}", at) + 1 or len(word), None
    if re.compile(r"\$[\w@*#?!$-]").match(word, at):
        return at + 2, None
    return at + 1, word[at]


def closing(word: str, at: int) -> int:
    """Where the parenthesis ends that begins here."""
    depth = 0
    while at < len(word):
        if word[at] == "\\":
            at += 1
        elif word[at] == "'" and (stop := word.find("'", at + 1)) > 0:
            at = stop
        depth += {"(": 1, ")": -1}.get(word[at : at + 1], 0)
        at += 1
        if depth == 0:
            return at
    return len(word)


def arithmetic(text: str, known: Mapping[str, str]) -> str | None:
    """What `$((text))` is; None: nobody knows."""
    plain = re.sub(rf"\$\{{?({NAME})\}}?", r"\1", text).replace("/", "//")
    try:
        tree = ast.parse(plain.strip(), mode="eval")
        return str(_number(tree.body, known))
    except (SyntaxError, ValueError, KeyError, ZeroDivisionError, RecursionError, MemoryError):
        return None


def _number(node: ast.expr, known: Mapping[str, str]) -> int:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.Name):
        return int(known[node.id])
    if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
        left, right = _number(node.left, known), _number(node.right, known)
        if max(abs(left), abs(right)) < 1 << 40:
            return _ARITHMETIC[type(node.op)](left, right)
    raise ValueError(ast.dump(node))


def split(text: str) -> list[str]:
    """The words of a text, each as it is written; as they come where the shell would see more than words."""
    found = words_of(text)
    return text.split() if found is None else found


def array(word: str) -> list[str] | None:
    """The elements of an array as it is assigned, each as it is written; None: it is none."""
    return split(word[1:-1]) if word.startswith("(") and word.endswith(")") else None


class Overgrown(Exception):
    """Variables within variables hold more words than a command line has."""


def inlined(words: list[str], texts: Mapping[str, list[str]]) -> Iterator[str]:
    """Words with the words of lists in the place of variables that hold them: `$ARGS`, `"${ARGS[@]}"`.

    Raises:
        Overgrown: there are too many.
    """
    for number, word in enumerate(_inlined(words, texts)):
        if number > MOST_WORDS:
            raise Overgrown
        yield word


def _inlined(words: list[str], texts: Mapping[str, list[str]]) -> Iterator[str]:
    for word in words:
        found = re.fullmatch(rf"\$({NAME})|\$\{{({NAME})\}}|\"?\$\{{({NAME})\[[@*]\]\}}\"?", word)
        name = found and (found[1] or found[2] or found[3])
        if name and name in texts:
            yield from _inlined(texts[name], {one: of for one, of in texts.items() if one != name})
        else:
            yield word
