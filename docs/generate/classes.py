"""Tables of a class, from its source: what it is made with, and its methods and attributes.

The meanings of arguments stand below `Args:` in its docstring, a line for each or as `norm, norm_kwargs: …`.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Collection, Iterator
from itertools import pairwise
from pathlib import Path

import msgspec

from docs.generate.fields import written

_CHECKOUT = Path(__file__).resolve().parents[2]


def arguments(of: str) -> str:
    """The table of what a class is made with; the class as `module:name`.

    Raises:
        ValueError: its docstring does not describe all of its arguments, each once.
    """
    kind = _class(of)
    (init,) = (node for node in kind.body if isinstance(node, ast.FunctionDef) and node.name == "__init__")
    names = [each.arg for each in init.args.args[1:]]
    values = [ast.literal_eval(each) for each in init.args.defaults]
    required = [msgspec.NODEFAULT] * (len(names) - len(values))
    defaults = dict(zip(names, [*required, *values], strict=True))
    described = list(_described(ast.get_docstring(kind) or ""))
    if (found := sorted(one for names, _ in described for one in names)) != sorted(defaults):
        raise ValueError(f"{of} describes {', '.join(found)}, and takes {', '.join(sorted(defaults))}")
    rows = [
        _row(", ".join(f"`{name}`" for name in names), written(defaults[names[0]]), meaning)
        for names, meaning in described
    ]
    return "\n".join(["| argument | default | meaning |", "|---|---|---|", *rows])


def members(of: str, names: Collection[str]) -> str:
    """The table of a class's methods and attributes, in this order.

    Raises:
        KeyError: there is none of that name, or nobody has said what it means.
    """
    known = dict(_members(_class(of)))
    return "\n".join(["| name | meaning |", "|---|---|", *(_row(*known[name]) for name in names)])


def _class(of: str) -> ast.ClassDef:
    module, _, name = of.partition(":")
    place = _CHECKOUT / module.replace(".", "/")
    path = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    tree = ast.parse(path.read_text(encoding="utf-8"))
    (kind,) = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name)
    return kind


def _described(docstring: str) -> Iterator[tuple[list[str], str]]:
    """The names of each line below `Args:`, and what it says."""
    section = docstring.partition("\nArgs:\n")[2].partition("\n\n")[0]
    for line in re.split(r"\n(?! )", inspect.cleandoc(section)):
        names, _, meaning = line.partition(": ")
        yield names.split(", "), " ".join(meaning.split())


def _members(kind: ast.ClassDef) -> Iterator[tuple[str, tuple[str, str]]]:
    """The methods and attributes by name: how each is written, and what its docstring says."""
    for node, after in pairwise([*kind.body, ast.Pass()]):
        if isinstance(node, ast.FunctionDef) and (said := ast.get_docstring(node)):
            yield node.name, (f"`{_call(node)}`", " ".join(said.partition("\n\nRaises:")[0].split()))
        elif isinstance(node, ast.AnnAssign) and isinstance(after, ast.Expr):
            value = "" if node.value is None else f" = {ast.unparse(node.value)}"
            text = inspect.cleandoc(str(ast.literal_eval(after.value)))
            yield ast.unparse(node.target), (f"`{ast.unparse(node.target)}{value}`", " ".join(text.split()))


def _call(node: ast.FunctionDef) -> str:
    """A method as it is called: without types, and with what it returns."""
    args = node.args
    args.args = args.args[1:]
    for each in (*args.args, *args.kwonlyargs):
        each.annotation = None
    returned = "" if node.returns is None else ast.unparse(node.returns)
    return f"{node.name}({ast.unparse(args)})" + (f" -> {returned}" if returned not in ("", "None") else "")


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
