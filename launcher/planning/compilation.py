"""Compiles castoff's templates for the heads of scripts to Python.

`python -m castoff.launcher.planning.compilation` writes the compiled heads into the module `heads`.

A script is then rendered without Jinja, whose import and compiler would take as long as the rest of `castoff
render`. Only the part of Jinja's language that castoff's own heads use is supported; Jinja renders users'
heads.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from jinja2 import nodes

from castoff.launcher.planning.templates import environment
from castoff.launcher.schedulers.registry import NAMES

_FOLDER = Path(__file__).parents[2] / "templates"
_HEAD = "head.sh.j2"

_BEGIN = '''\
"""The heads of castoff's scripts, made by `python -m castoff.launcher.planning.compilation`."""

# ruff: noqa
# fmt: off
from __future__ import annotations

from typing import Any
'''


def compiled() -> str:
    """Return the text of the module `castoff.launcher.planning.heads`.

    Raises:
        ValueError: a template uses a part of Jinja's language that is not supported.
    """
    sums = {file: zlib.crc32((_FOLDER / file).read_bytes()) for file in (_HEAD, *map(_file, NAMES))}
    functions = ["\n".join([*_function(name), ""]) for name in NAMES]
    return "\n\n".join([f"{_BEGIN}\nHEAD = {_HEAD!r}\nSOURCES = {sums}\n", *functions])


def _file(scheduler: str) -> str:
    return f"{scheduler}.sh.j2"


def _function(scheduler: str) -> Iterator[str]:
    """Return the lines of the function that renders the head of a scheduler's scripts."""
    head, own = map(_parsed, (_HEAD, _file(scheduler)))
    names = [*head.find_all(nodes.Name), *own.find_all(nodes.Name)]
    variables = {one.name for one in names} - {one.name for one in names if one.ctx == "store"}
    blocks = {block.name: block.body for block in own.find_all(nodes.Block)}
    given = ", ".join(f"{name}: Any" for name in sorted(variables))
    yield f"def {scheduler}(_filters: Any, *, {given}, **_: Any) -> str:"
    yield "    _parts: list[str] = []"
    yield "    _add = _parts.append"
    yield from _statements(head.body, blocks, "    ")
    yield '    return "".join(_parts)'


def _parsed(file: str) -> nodes.Template:
    return environment(_FOLDER, None, {}).parse((_FOLDER / file).read_text(encoding="utf-8"), file)


def _statements(
    body: list[nodes.Node], blocks: dict[str, list[nodes.Node]], indent: str = ""
) -> Iterator[str]:
    """Yield the lines of Python that print a template's nodes; a block's lines replace the call of
    the block.
    """

    def inner(body: list[nodes.Node]) -> Iterator[str]:
        return _statements(body, blocks, indent + "    ")

    if not body:
        yield f"{indent}pass"
    for node in body:
        match node:
            case nodes.Block():
                yield from _statements(blocks.get(node.name, node.body), blocks, indent)
            case nodes.Output():
                yield f"{indent}_add({' + '.join(map(_piece, node.nodes))})"
            case nodes.If():
                for word, branch in [("if", node), *(("elif", other) for other in node.elif_)]:
                    yield f"{indent}{word} {_value(branch.test)}:"
                    yield from inner(branch.body)
                if node.else_:
                    yield f"{indent}else:"
                    yield from inner(node.else_)
            case nodes.For(else_=[], test=None, recursive=False):
                yield f"{indent}for {_value(node.target)} in {_value(node.iter)}:"
                yield from inner(node.body)
            case _:
                raise ValueError(f"line {node.lineno}: {type(node).__name__} is not known here")


def _piece(node: nodes.Expr) -> str:
    return repr(node.data) if isinstance(node, nodes.TemplateData) else f"str({_value(node)})"


def _value(node: nodes.Node) -> str:
    match node:
        case nodes.Const():
            return repr(node.value)
        case nodes.Name():
            return node.name
        case nodes.Getattr():
            return f"{_value(node.node)}.{node.attr}"
        case nodes.Call(kwargs=[], dyn_args=None, dyn_kwargs=None):
            return f"{_value(node.node)}({_several(node.args)})"
        case nodes.Tuple():
            return f"({_several(node.items)},)"
        case nodes.List():
            return f"[{_several(node.items)}]"
        case nodes.Filter():
            return _filtered(node)
        case nodes.Test(name="string"):
            return f"isinstance({_value(node.node)}, str)"
        case nodes.Not():
            return f"(not {_value(node.node)})"
        case nodes.And() | nodes.Or() | nodes.Add():
            return f"({_value(node.left)} {node.operator} {_value(node.right)})"
        case nodes.Concat():
            return f'"".join(map(str, ({_several(node.nodes)},)))'
        case nodes.Compare(ops=[one]):
            return f"({_value(node.expr)} {_COMPARED[one.op]} {_value(one.expr)})"
        case nodes.CondExpr():
            other = '""' if node.expr2 is None else _value(node.expr2)
            return f"({_value(node.expr1)} if {_value(node.test)} else {other})"
    raise ValueError(f"line {node.lineno}: {type(node).__name__} is not known here")


_COMPARED = {"eq": "==", "ne": "!=", "in": "in", "notin": "not in"}


def _several(some: Iterable[nodes.Node]) -> str:
    return ", ".join(map(_value, some))


def _filtered(node: nodes.Filter) -> str:
    assert node.node is not None
    given = _value(node.node)
    if node.name == "join":
        return f"{_several(node.args)}.join(map(str, {given}))"
    if node.name == "format":
        return f"({given} % ({_several(node.args)},))"
    return f"_filters[{node.name!r}]({', '.join([given, *map(_value, node.args)])})"


if __name__ == "__main__":
    Path(__file__).with_name("heads.py").write_text(compiled(), encoding="utf-8")
