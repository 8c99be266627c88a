"""The references in docs/ are what the types and docstrings say: `make docs` writes them."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin

import msgspec
import pytest

from castoff.launcher.cli.help import VERBS
from castoff.launcher.config.job import JobSpec
from castoff.launcher.config.job_fields import Duration, Word
from castoff.launcher.config.site import Site
from castoff.launcher.typed.descriptions import parts
from castoff.trainers.configuration.config import Config
from castoff.trainers.dpo import settings as dpo
from castoff.trainers.evaluation.early_stopping import Watching
from castoff.trainers.gnn.causets.settings import Causets
from castoff.trainers.gnn.graphs.settings import Files, Generated
from castoff.trainers.sedd.start.configuration import Settings
from docs.generate import classes, tables
from docs.generate.fields import selected, table, takes
from docs.generate.manual import FILE, manual
from docs.generate.pages import END, PAGES, wanted, written

Struct = type[msgspec.Struct]

GENERATED = [page for page in PAGES if list(wanted(page.read_text(encoding="utf-8")))]


@pytest.mark.parametrize("page", GENERATED, ids=lambda page: page.name)
def test_a_page_is_as_its_types_are(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert written(text) == text, f"docs/{page.name} is stale: run `make docs`"


def test_the_manual_is_as_the_help_is() -> None:
    """And roff reads it: nothing but its requests begins with a dot, and all is ASCII."""
    text = FILE.read_text(encoding="utf-8")
    assert text == manual(), "docs/castoff.1 is stale: run `make docs`"
    requests = {line.split()[0] for line in text.splitlines() if line.startswith((".", "'"))}
    assert text.isascii() and requests == {".TH", ".SH", ".SS", ".PP", ".TP"}
    verbs = {line.split()[2] for line in text.splitlines() if line.startswith(".SS castoff ")}
    assert verbs == {*VERBS}


@pytest.mark.parametrize(
    ("page", "roots"),
    [
        ("job-file.md", [JobSpec]),
        ("sites.md", [Site]),
        ("trainer-configuration.md", [Config, Watching]),
        ("sedd-configuration.md", [Settings]),
        ("dpo-configuration.md", [dpo.Dpo, dpo.Likelihood]),
        ("gnn-data-configuration.md", [Files, Generated, Causets]),
    ],
)
def test_a_page_has_every_field(page: str, roots: list[Struct]) -> None:
    (path,) = [one for one in GENERATED if one.name == page]
    shown = set(_shown(path.read_text(encoding="utf-8")))
    needed = {field for root in roots for field in _needed(root)}
    assert {(kind.__name__, field) for kind, field in needed - shown} == set()


def _shown(text: str) -> Iterator[tuple[Struct, str]]:
    """The fields that a page's tables have, each with all structs that have it from the same one."""
    for what in wanted(text):
        module, _, name = what.of.partition(":")
        if what.what == "fields":
            root: Struct = getattr(import_module(module), name)
            for path in selected(root, what.links):
                kind = _owner(root, path)
                for one in (*kind.__mro__, *_derived(kind)):
                    yield one, path.rpartition(".")[2]


def _owner(kind: Struct, path: str) -> Struct:
    name, _, rest = path.partition(".")
    if not rest:
        return kind
    (field,) = [one for one in msgspec.structs.fields(kind) if one.encode_name == name]
    return _owner(parts(field.type)[0], rest)


def _derived(kind: Struct) -> Iterator[Struct]:
    for one in kind.__subclasses__():
        yield one
        yield from _derived(one)


def _needed(kind: Struct) -> Iterator[tuple[Struct, str]]:
    """All fields of a struct and of its parts, but for those that only hold a part which is always there."""
    for field in msgspec.structs.fields(kind):
        inner = [
            one for one in (*parts(field.type), *_valued(field.type)) if one is not JobSpec
        ]  # has a page
        if not (inner and (field.required or isinstance(field.default, msgspec.Struct))):
            yield kind, field.encode_name
        for one in inner:
            yield from _needed(one)


def _valued(hint: Any) -> list[Struct]:
    """The structs that a mapping has for values."""
    return parts(get_args(hint)[1]) if get_origin(hint) is dict else []


class Inner(msgspec.Struct, frozen=True):
    """A part."""

    size: Annotated[int, msgspec.Meta(ge=1)] = 2
    """How large. Not too large."""


class Sample(msgspec.Struct):
    """Fields of several kinds."""

    name: str
    """What it is called: a | b."""
    inner: Inner = Inner()
    """A part."""
    share: Annotated[float, msgspec.Meta(gt=0, le=1)] | None = 0.5
    """A share."""
    said: Annotated[list[int], msgspec.Meta(description="What the type says.")] = []
    """And what stands below."""


def test_a_table() -> None:
    assert table(Sample, {}).splitlines() == [
        "| field | takes | default | meaning |",
        "|---|---|---|---|",
        r"| `name` | text | required | What it is called: a \| b. |",
        "| `inner` | section |  | A part. |",
        "| `share` | number above 0, up to 1, or null | `0.5` | A share. |",
        "| `said` | list of whole numbers |  | What the type says. And what stands below. |",
    ]
    assert table(Sample, {"inner.*": "", "name": "x.md"}).splitlines()[2:] == [
        "| `inner.size` | whole number from 1 | `2` | How large. Not too large. |",
        r"| `name` | text | required | What it is called: a \| b. [More](x.md). |",
    ]
    with pytest.raises(ValueError, match=r"Sample has no field inner\.sice"):
        table(Sample, {"inner.sice": ""})


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (bool | Inner | None, "true or false, or section"),
        (Literal["a", "b"] | list[Word], "`a`, `b`, or list of texts"),
        (tuple[float, float], "list of 2 numbers"),
        (list[tuple[int, int]], "list of lists of 2 whole numbers"),
        (dict[str, Any], "fields by name"),
        (dict[str, Inner], "names, each with section"),
        (Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)], "whole number"),
        (Annotated[float, msgspec.Meta(ge=0, lt=1)], "number from 0 to below 1"),
        (Duration, "duration"),
        (Any, "any value"),
    ],
    ids=str,
)
def test_what_a_field_takes(kind: Any, words: str) -> None:
    assert takes(kind) == words


def test_only_what_was_asked_for_is_written() -> None:
    text = "# Page\n\n| field | takes |\n|---|---|\n| `mine` | all |\n"
    assert written(text) == text
    asked = f"{text}\n<!-- fields castoff.launcher.config.job:Array -->\n{END}\nAfter.\n"
    made = written(asked)
    assert made.startswith(text) and made.endswith("\nAfter.\n") and "| `count` |" in made
    assert written(made) == made


def test_what_a_class_is_made_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = """
class Layer:
    '''One.

    Args:
        width: Numbers,
            one each.
        norm, norm_kwargs: What keeps them | small.

    Raises:
        ValueError: never.
    '''

    speed: float = 0.5
    '''How
    fast.'''

    def __init__(self, width: int, norm: str = "batch", norm_kwargs: object = None): ...

    def keep(self, it: int, *, twice: bool = False) -> str | None:
        '''Keep it.

        Or not.

        Raises:
            OSError: never.
        '''
"""
    (tmp_path / "layers.py").write_text(source)
    monkeypatch.setattr(classes, "_CHECKOUT", tmp_path)
    assert classes.arguments("layers:Layer").splitlines()[2:] == [
        "| `width` | required | Numbers, one each. |",
        r"| `norm`, `norm_kwargs` | `batch` | What keeps them \| small. |",
    ]
    assert classes.members("layers:Layer", ["keep", "speed"]).splitlines()[2:] == [
        r"| `keep(it, *, twice=False) -> str \| None` | Keep it. Or not. |",
        "| `speed = 0.5` | How fast. |",
    ]
    (tmp_path / "layers.py").write_text(source.replace("width: int", "wide: int"))
    with pytest.raises(ValueError, match="describes norm, norm_kwargs, width, and takes"):
        classes.arguments("layers:Layer")


class Choice(NamedTuple):
    """One of several."""

    defaults: dict[str, Any]


def test_what_the_code_keeps_by_name() -> None:
    assert tables.names({"a": "x | y", "b": "z", "c": ("d", "e")}, ["name", "means"]).splitlines() == [
        "| name | means |",
        "|---|---|",
        r"| `a` | x \| y |",
        "| `b` | z |",
        "| `c` | `d`, `e` |",
    ]
    choices = {"one": Choice({"rate": 0.5, "data": {}}), "other": Choice({"name": "o"})}
    assert tables.defaults(choices).splitlines() == [
        "| field | one | other |",
        "|---|---|---|",
        "| `rate` | `0.5` |  |",
        "| `name` |  | `o` |",
    ]


def test_every_field_says_what_it_means() -> None:
    silent = {
        line.split("|")[1]
        for page in GENERATED
        for line in page.read_text(encoding="utf-8").splitlines()
        if line.startswith("| `") and line.endswith(("|  |", "| |")) and line.count("|") == 5
    }
    assert silent == set()
