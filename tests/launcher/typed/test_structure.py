"""Plain data into structs: every problem at once, each in words that a person can act on."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from castoff.launcher.errors import Problem
from castoff.launcher.typed.document import Document, FieldPath
from castoff.launcher.typed.structure import convert, fields_of, takes

Small = Annotated[int, takes("a whole number of at least 1", ge=1)]
Name = Annotated[str, takes("a name", many="names", pattern="^[a-z]+$")]


Share = Annotated[float, msgspec.Meta(ge=0, le=1)]


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
    several: list[Inner] = []
    texts: dict[Name, str] = {}
    perhaps: bool | Inner | None = None
    colours: list[Literal["red", "green"]] = []
    pair: tuple[Share, Share] = (0.0, 1.0)
    files: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)] = ("a",)
    every: Small | None = 5
    anything: Any = None
    named: Annotated[dict[str, Any], msgspec.Meta(examples=[{"rate": 1}])] = {}


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
        ("pair: [0, 0.5]", Outer(pair=(0.0, 0.5))),
        ("files: [a, 7, 1e-3]", Outer(files=("a", "7", "1e-3"))),
        ("every: null", Outer(every=None)),
        ("anything: {a: [1, .inf]}", Outer(anything={"a": [1, float("inf")]})),
        ("named: {a: 1e-3}", Outer(named={"a": 0.001})),
        # A field with nothing behind its colon says nothing.
        ("number:\nshare:\nflag:\nnames:\nvalue:\ninner:\ninners:\neither:\n", Outer()),
    ],
)
def test_converts(text: str, expected: Outer) -> None:
    assert struct(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("numbr: 4", "numbr: there is no such field; did you mean number?"),
        ("[1]", "is a list, but takes fields: number, share"),
        ("number: 0", "number: is 0, but takes a whole number of at least 1"),
        ("number: '4'", "number: is '4', but takes a whole number of at least 1"),
        ("number: 2.0", "number: is 2.0, but takes a whole number of at least 1"),
        ("number: 1e3", "number: is 1e3, but takes"),
        ("number: true", "number: is true, but takes a whole number"),
        ("number: [4]", "number: is a list, but takes a whole number"),
        ("number: {a: 4}", "number: is a mapping, but takes"),
        ("share: lots", "share: is 'lots', but takes a number"),
        ("flag: yes", "flag: is 'yes', but takes true or false; use `flag: true`"),
        ("flag: 1", "flag: is 1, but takes true or false"),
        ("word: ''", "word: is '', but takes a name"),
        ("either: al", "either: is 'al', but takes one of none, all or a list of names; did you mean all?"),
        ("either: [a, 1]", "either.1: is 1, but takes a name"),
        ("value: {A: x}", "value.A: is 'A', but takes as its name a name"),
        ("value: {a: [x]}", "value.a: is a list, but takes a name or true or false"),
        ("value: [a]", "value: is a list, but takes names, each with a name or true or false"),
        (
            "value: [A=1, B=x y]",
            "value: is a list, but takes names, each with a name or true or false or null; "
            'use `value: {A: "1", B: "x y"}`',
        ),
        ("several: [4]", "several.0: is 4, but takes fields: needed, choice; write {needed: 4}"),
        ("names: a", "names: is 'a', but takes a list of names"),
        ("inner: {}", "inner.needed: is missing; it takes a whole number of at least 1"),
        ("inner: {neded: 1}", "inner.neded: there is no such field; did you mean needed?"),
        ("inner: {needed: }", "inner.needed: is empty, but takes a whole number of at least 1"),
        ("inner: 4", "inner: is 4, but takes fields: needed, choice; use `inner: {needed: 4}`"),
        ("texts: {a: }", 'texts.a: is empty, but takes text; use `texts: {a: ""}`'),
        ("inner: 0", "inner: is 0, but takes fields: needed, choice"),
        ("inner: true", "inner: is true, but takes fields: needed, choice"),
        ("inners: {a: }", "inners.a: is empty, but takes fields"),
        ("perhaps: yes", "perhaps: is 'yes', but takes true or false or the fields needed, choice"),
        ("perhaps: {needed: 0}", "perhaps.needed: is 0, but takes a whole number of at least 1"),
        ("colours: [gren]", "colours.0: is 'gren', but takes one of red, green; did you mean green?"),
        ("colours: red", "colours: is 'red', but takes a list of red, green"),
        ("word: " + "x1" * 60, "..., but takes a name"),
        ("share: .inf", "share: is inf, but takes a number"),
        ("share: -.nan", "share: is '-.nan', but takes a number"),
        ("pair: [0, 2]", "pair.1: is 2, but takes a number from 0 to 1"),
        ("pair: [0]", "pair: is [0], but takes a list of 2 numbers from 0 to 1"),
        ("files: []", "files: is [], but takes a list of texts, not empty"),
        ("every: 0", "every: is 0, but takes a whole number of at least 1 or null"),
        ("named: [1]", "named: is a list, but takes names, each with a value"),
        ("needed: 1", "needed: there is no such field; did you mean inner.needed or perhaps.needed?"),
        ("rate: 1", "rate: there is no such field; did you mean named.rate?"),
        ("inner: {needed: 1, files: 2}", "inner.files: there is no such field; did you mean files?"),
    ],
)
def test_the_error_has_the_value_and_what_is_allowed(text: str, message: str) -> None:
    (only,) = said(text)
    assert only.startswith("f.yaml")
    assert message in only
    assert len(only) < 200


def test_everything_at_once_with_its_line() -> None:
    text = "numbr: 4\nnumber: x\ninner:\n  choice: blue\n  more: 1\nnames: [a,\n  B, 3]\n"
    assert [message.split(": ")[:2] for message in said(text)] == [
        ["f.yaml:1", "numbr"],
        ["f.yaml:2", "number"],
        ["f.yaml:7", "names.1"],
        ["f.yaml:7", "names.2"],
        ["f.yaml:5", "inner.more"],
        ["f.yaml:3", "inner.needed"],
        ["f.yaml:4", "inner.choice"],
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


def test_a_part_is_reported_with_its_whole_path() -> None:
    problems: list[Problem] = []
    convert(Document({"choise": "red", "needed": 0}, "job"), Inner, problems, at=("inners", "a"))
    assert [problem.path for problem in problems] == ["inners.a.choise", "inners.a.needed"]


def test_what_a_caller_knows_of_a_field_comes_first() -> None:
    problems: list[Problem] = []
    document = Document.parse("colour: red\nnumbr: 3\n", "f.yaml")

    def hint(kind: str, path: FieldPath, known: list[str]) -> str:
        assert kind == "Outer" and "inner" in known
        return "; here: colours" if path == ("colour",) else ""

    convert(document, Outer, problems, hint=hint)
    assert [problem.message for problem in problems] == [
        "there is no such field; here: colours",
        "there is no such field; did you mean number?",
    ]


def test_a_name_that_python_has_no_text_for() -> None:
    """As PyYAML reads on, off, yes and no."""
    problems: list[Problem] = []
    convert(Document({"named": {True: 1}}, "job"), Outer, problems)
    assert [str(each) for each in problems] == [
        "job: named: has a field True, whose name is not text; put it in quotes"
    ]


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.booleans() | st.integers(), inner),
)


@given(ANY | st.dictionaries(st.sampled_from([*fields_of(Outer), *fields_of(Inner)]), ANY))
def test_any_data_is_converted_or_refused_in_words(data: object) -> None:
    problems: list[Problem] = []
    converted = convert(Document(data, "job"), Outer, problems)
    assert converted is not None or problems
    for problem in problems:
        assert problem.message and problem.where == "job"
        str(problem).encode(errors="surrogatepass")
