"""A table of what a class is made with, from its source: names, default, meaning.

The meanings stand below `Args:` in its docstring, a line for each argument or as `norm, norm_kwargs: …`.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from docs.generate.fields import written

_CHECKOUT = Path(__file__).resolve().parents[2]
_HEAD = "| argument | default | meaning |\n|---|---|---|\n"


def arguments(of: str) -> str:
    """The table of a class, `module:name`.

    Raises:
        ValueError: its docstring does not describe all of its arguments, each once.
    """
    module, _, name = of.partition(":")
    tree = ast.parse((_CHECKOUT / (module.replace(".", "/") + ".py")).read_text(encoding="utf-8"))
    (kind,) = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name)
    (init,) = (node for node in kind.body if isinstance(node, ast.FunctionDef) and node.name == "__init__")
    defaults = dict(_defaults(init.args))
    described = list(_described(ast.get_docstring(kind) or ""))
    if (found := sorted(one for names, _ in described for one in names)) != sorted(defaults):
        raise ValueError(f"{of} describes {', '.join(found)}, and takes {', '.join(sorted(defaults))}")
    return _HEAD + "\n".join(_row(names, defaults[names[0]], meaning) for names, meaning in described)


def _defaults(args: ast.arguments) -> Iterator[tuple[str, object]]:
    names = [each.arg for each in args.args[1:]]
    values = [ast.literal_eval(each) for each in args.defaults]
    yield from zip(names, [msgspec.NODEFAULT] * (len(names) - len(values)) + values, strict=True)


def _described(docstring: str) -> Iterator[tuple[list[str], str]]:
    """The names of each line below `Args:`, and what it says."""
    section = docstring.partition("\nArgs:\n")[2].partition("\n\n")[0]
    for line in re.split(r"\n(?! )", inspect.cleandoc(section)):
        names, _, meaning = line.partition(": ")
        yield names.split(", "), " ".join(meaning.split())


def _row(names: list[str], default: object, meaning: str) -> str:
    cells = (", ".join(f"`{name}`" for name in names), written(default), meaning)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
