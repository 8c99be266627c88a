"""The references in docs/ are what the types and docstrings say: `make docs` writes them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec
import pytest

import tests.geometric  # noqa: F401  # before what loads it
from docs.generate import fields
from docs.generate.fields import selected, table, takes
from docs.generate.pages import END, PAGES, wanted, written
from launcher.config.job import JobSpec
from launcher.config.job_fields import Duration, Word
from launcher.config.site import Site
from launcher.typed.descriptions import parts
from trainers.configuration.config import Config
from trainers.dpo import settings as dpo
from trainers.dpo.start.configuration import DEFAULT_OBJECTIVE, OBJECTIVES
from trainers.evaluation.early_stopping import DefaultEarlyStopping
from trainers.gnn import models
from trainers.gnn.causets.settings import Causets
from trainers.gnn.graphs.settings import Files, Generated
from trainers.sedd.start.configuration import Settings

Struct = type[msgspec.Struct]

GENERATED = [page for page in PAGES if list(wanted(page.read_text(encoding="utf-8")))]


@pytest.mark.parametrize("page", GENERATED, ids=lambda page: page.name)
def test_a_page_is_as_its_types_are(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert written(text) == text, f"docs/{page.name} is stale: run `make docs`"


@pytest.mark.parametrize(
    ("page", "roots"),
    [
        ("job-file.md", [JobSpec]),
        ("sites.md", [Site]),
        ("trainer-configuration.md", [Config]),
        ("sedd-configuration.md", [Settings]),
        ("dpo-configuration.md", [dpo.Dpo, dpo.Likelihood]),
        ("gnn-data.md", [Files, Generated, Causets]),
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


def test_tables_that_no_struct_is_behind() -> None:
    """Arguments of a function, and the choice of an objective."""
    stopping = _rows("trainer-configuration.md", "`early_stopping.kwargs`")
    signature = inspect.signature(DefaultEarlyStopping).parameters.values()
    assert {name: cells[1] for name, cells in stopping.items()} == {
        one.name: fields.written(one.default) for one in signature
    }
    assert _rows("dpo-configuration.md", "The whole")["objective"][:2] == [
        ", ".join(f"`{name}`" for name in OBJECTIVES),
        f"`{DEFAULT_OBJECTIVE}`",
    ]


@pytest.mark.parametrize(
    ("heading", "kind"),
    [
        ("## GNNModel", models.GNNModel),
        ("`Encoder`: ", models.Encoder),
        ("`GNNBlock`: ", models.GNNBlock),
        ("`LinearSequential`: ", models.LinearSequential),
        ("`Sequential`: ", models.Sequential),
        ("`GPSModel`, ", models.GPSModel),
    ],
)
def test_a_table_of_a_models_arguments(heading: str, kind: type) -> None:
    """All of them, in any order, and the default of the first in each row."""
    text = (PAGES[0].parent / "gnn-models.md").read_text(encoding="utf-8")
    table = text.partition(f"\n{heading}")[2].partition("\n|")[2].partition("\n\n")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]
    parameters = inspect.signature(kind).parameters
    shown = {name: cells for cells in rows for name in _names(cells[0])}
    assert shown.keys() == parameters.keys()
    for names, default, *_ in rows if "| default |" in table else []:
        first = parameters[_names(names)[0]].default
        needs_none = first is None or first is inspect.Parameter.empty
        assert default.strip("`") == ("" if needs_none else fields.written(first).strip('`"')), names


def _names(cell: str) -> list[str]:
    """The arguments of a cell: `act_type`, `_args` means act_args too."""
    first, *others = re.findall(r"`(\w+)`", cell)
    stem = first.rpartition("_")[0]
    return [first, *(f"{stem}{name}" if name.startswith("_") else name for name in others)]


def _rows(page: str, heading: str) -> dict[str, list[str]]:
    """The cells of the table below a heading, by its fields."""
    (path,) = [one for one in GENERATED if one.name == page]
    section = path.read_text(encoding="utf-8").partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("| `")]
    return {name.strip(" `"): [cell.strip() for cell in cells] for name, *cells in rows}


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
    asked = f"{text}\n<!-- fields launcher.config.job:Array -->\n{END}\nAfter.\n"
    made = written(asked)
    assert made.startswith(text) and made.endswith("\nAfter.\n") and "| `count` |" in made
    assert written(made) == made


def test_every_field_says_what_it_means() -> None:
    silent = {
        line.split("|")[1]
        for page in GENERATED
        for line in page.read_text(encoding="utf-8").splitlines()
        if line.startswith("| `") and line.endswith(("|  |", "| |")) and line.count("|") == 5
    }
    assert silent == set()
