"""Plain data into structs: every problem at once, each in words that a person can act on."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
import pytest

from launcher.config.document import Document
from launcher.config.structure import convert, takes
from launcher.errors import Problem

Small = Annotated[int, takes("a whole number of at least 1", ge=1)]
Name = Annotated[str, takes("a name", many="names", pattern="^[a-z]+$")]


class Inner(msgspec.Struct, frozen=True):
    needed: Small
    choice: Literal["red", "green"] = "red"


class Outer(msgspec.Struct, frozen=True):
    number: Small | None = None
    share: float = 0.5
    word: Name = "x"
    flag: bool = False
    either: Literal["none", "all"] | list[Name] | None = None
    value: dict[Name, Name | bool | None] = {}
    names: list[Name] = []
    inner: Inner | None = None
    inners: dict[Name, Inner] = {}
    perhaps: bool | Inner | None = None
    colours: list[Literal["red", "green"]] = []


def struct(text: str) -> Outer:
    problems: list[Problem] = []
    converted = convert(Document.parse(text, "f.yaml"), Outer, problems)
    assert not problems
    assert converted is not None
    return converted


def said(text: str) -> list[str]:
    problems: list[Problem] = []
    convert(Document.parse(text, "f.yaml"), Outer, problems)
    return [str(problem) for problem in problems]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{}", Outer()),
        ("number: 4", Outer(number=4)),
        ("share: 1", Outer(share=1.0)),
        ("share: 1e-3", Outer(share=0.001)),
        ("word: no", Outer(word="no")),
        ("either: all", Outer(either="all")),
        ("either: [a, b]", Outer(either=["a", "b"])),
        (
            "value: {a: true, b: null, c: 'x', d: false}",
            Outer(value={"a": True, "b": None, "c": "x", "d": False}),
        ),
        ("inner: {needed: 1}", Outer(inner=Inner(1))),
        ("inners: {a: {needed: 1, choice: green}}", Outer(inners={"a": Inner(1, "green")})),
        ("perhaps: true", Outer(perhaps=True)),
        ("perhaps: {needed: 1}", Outer(perhaps=Inner(1))),
        # A field with nothing behind its colon says nothing.
        ("number:\nshare:\nflag:\nnames:\nvalue:\ninner:\ninners:\neither:\n", Outer()),
    ],
)
def test_converts(text: str, expected: Outer) -> None:
    assert struct(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("numbr: 4", "numbr: is not a field; did you mean number?"),
        ("[1]", "is a list, but holds fields: number, share"),
        ("number: 0", "number: is 0, but takes a whole number of at least 1"),
        ("number: '4'", "number: is '4', but takes a whole number of at least 1"),
        ("number: 2.0", "number: is 2.0, but takes a whole number of at least 1"),
        ("number: 1e3", "number: is 1e3, but takes"),
        ("number: true", "number: is true, but takes a whole number"),
        ("number: [4]", "number: is a list, but takes a whole number"),
        ("number: {a: 4}", "number: is a mapping, but takes"),
        ("share: lots", "share: is 'lots', but takes a number"),
        ("flag: yes", "flag: is 'yes', but takes true or false"),
        ("flag: 1", "flag: is 1, but takes true or false"),
        ("word: ''", "word: is '', but takes a name"),
        ("either: al", "either: is 'al', but takes one of none, all or a list of names; did you mean all?"),
        ("either: [a, 1]", "either.1: is 1, but takes a name"),
        ("value: {A: x}", "value.A: is 'A', but takes as its name a name"),
        ("value: {a: [x]}", "value.a: is a list, but takes a name or true or false"),
        ("value: [a]", "value: is a list, but takes names, each with a name or true or false"),
        ("names: a", "names: is 'a', but takes a list of names"),
        ("inner: {}", "inner.needed: is missing; it takes a whole number of at least 1"),
        ("inner: {needed: }", "inner.needed: is empty, but takes a whole number of at least 1"),
        ("inner: 4", "inner: is 4, but holds fields: needed, choice"),
        ("inners: {a: }", "inners.a: is empty, but holds fields"),
        ("perhaps: yes", "perhaps: is 'yes', but takes true or false or the fields needed, choice"),
        ("perhaps: {needed: 0}", "perhaps.needed: is 0, but takes a whole number of at least 1"),
        ("colours: [gren]", "colours.0: is 'gren', but takes one of red, green; did you mean green?"),
        ("colours: red", "colours: is 'red', but takes a list of red, green"),
        ("word: " + "x1" * 60, "..., but takes a name"),
    ],
)
def test_says_what_is_there_and_what_is_allowed(text: str, message: str) -> None:
    (only,) = said(text)
    assert only.startswith("f.yaml")
    assert message in only
    assert len(only) < 200


def test_everything_at_once_with_its_line() -> None:
    text = "numbr: 4\nnumber: x\ninner:\n  choice: blue\n  more: 1\nnames: [a,\n  B, 3]\n"
    assert [message.partition(":")[2].partition(": is")[0] for message in said(text)] == [
        "1: numbr",
        "2: number",
        "7: names.1",
        "7: names.2",
        "5: inner.more",
        "3: inner.needed",
        "4: inner.choice",
    ]


def test_what_is_right_is_kept_for_further_checks() -> None:
    problems: list[Problem] = []
    document = Document.parse("number: x\nword: y\nnames: [a, 1]\n", "f.yaml")
    assert convert(document, Outer, problems) == Outer(word="y")
    assert len(problems) == 2
    assert convert(Document.parse("choice: green", "f.yaml"), Inner, problems) is None


@pytest.mark.parametrize(
    "data",
    [{"word": "a\udcff"}, {"names": ["a", "\ud800"]}, {"value": {"\udcff": "x"}}, {"colours": ["\udcff"]}],
)
def test_a_byte_that_is_not_utf8_is_refused_in_words_that_can_be_printed(data: dict[str, Any]) -> None:
    problems: list[Problem] = []
    convert(Document(data, "job"), Outer, problems)
    (problem,) = problems
    assert "is not UTF-8 text" in problem.message
    str(problem).encode()


def test_pythons_tuples_are_lists() -> None:
    problems: list[Problem] = []
    assert convert(Document({"names": ("a", "b")}, "job"), Outer, problems) == Outer(names=["a", "b"])
