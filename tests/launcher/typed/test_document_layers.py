"""One document laid over another: --set, and profiles that extend others."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from castoff.launcher.errors import InvalidInput, printable
from castoff.launcher.typed.document import Document


class TestSet:
    def document(self) -> Document:
        return Document.parse("nodes: 2\nenv: {A: x}\nsetup: [one, two]\nmail:\n", "f.yaml")

    @pytest.mark.parametrize(
        ("assignment", "path", "value"),
        [
            ("nodes=4", ("nodes",), 4),
            ("nodes = 4", ("nodes",), 4),
            ("env.B=1e-3", ("env", "B"), 0.001),
            ("env.A=null", ("env", "A"), None),
            ("env.A=", ("env", "A"), None),
            ("env.A=''", ("env", "A"), ""),
            ("env.A='a=b #c'", ("env", "A"), "a=b #c"),
            ("env.A=a=b", ("env", "A"), "a=b"),
            ("env.A=x # c", ("env", "A"), "x # c"),
            ("env.A=# c", ("env", "A"), "# c"),
            ("env.A=4 # c", ("env", "A"), "4 # c"),
            ("env.A=' x ' # c", ("env", "A"), " x "),
            ("env.A=a#b", ("env", "A"), "a#b"),
            ("setup.1=three", ("setup", 1), "three"),
            ("setup=[x, 'y z']", ("setup",), ["x", "y z"]),
            ("array={count: 8}", ("array",), {"count": 8}),
            ("array.count=8", ("array", "count"), 8),
            ("mail.to=me", ("mail", "to"), "me"),
            ("a.b.c=d", ("a", "b", "c"), "d"),
        ],
    )
    def test_reaches_any_field(self, assignment: str, path: tuple[str | int, ...], value: object) -> None:
        document = self.document()
        document.override(assignment)
        found = document.data
        for part in path:
            found = found[part]
        assert found == value
        assert document.where(path) == f"--set {assignment}"

    def test_the_spelling_is_the_command_lines(self) -> None:
        document = Document.parse("env: {A: 007}", "f.yaml")
        assert document.text(("env", "A"), 7) == "007"
        document.override("env.A=1e-3")
        assert document.text(("env", "A"), 0.001) == "1e-3"
        document.override("env={A: 0x10}")
        assert document.text(("env", "A"), 16) == "0x10"
        assert document.where(("env", "A")) == "--set env={A: 0x10}"

    def test_the_others_keep_their_places(self) -> None:
        document = self.document()
        document.override("env.B=1")
        assert document.where(("env", "A")) == "f.yaml:2"
        assert document.where(("setup", 1)) == "f.yaml:3"

    def test_what_was_there_before_leaves_no_place_and_no_spelling(self) -> None:
        document = Document.parse("a: {b: 0x10, c: [1]}\nd: 1\n", "f.yaml")
        document.override("a={c: 5}")
        assert document.where(("a", "b")) == document.where(("a", "c", 0)) == "--set a={c: 5}"
        assert document.text(("a", "b"), 16) == "16"

    @pytest.mark.parametrize(
        ("assignment", "words"),
        [
            ("nodes", "write it as --set FIELD=VALUE"),
            ("=4", "write it as --set FIELD=VALUE"),
            ("a..b=4", "write it as --set FIELD=VALUE"),
            ("nodes.x=4", "nodes: is 2, which has no field 'x'"),
            ("setup.2=x", "setup: 2 is not an index of this list; it has 2 entries"),
            ("setup.x=x", "setup: x is not an index"),
            ("setup.-1=x", "setup: -1 is not an index"),
            ("nodes=[", "is not valid YAML"),
            ("env={A: 1, A: 2}", "A: appears twice"),
            ("env.A=!!python/name:os.system", "is not allowed here"),
            ("env.A=\udcff", "is not UTF-8 text"),
            ("env.A=a: b: c", "is not valid YAML"),
        ],
    )
    def test_bad_forms(self, assignment: str, words: str) -> None:
        with pytest.raises(InvalidInput) as caught:
            self.document().override(assignment)
        message = str(caught.value)
        assert words in message
        assert message.startswith(f"--set {printable(assignment)}: ")
        message.encode()

    def test_starts_from_nothing(self) -> None:
        document = Document({}, "the command line")
        document.override("env.A=1")
        assert document.data == {"env": {"A": 1}}

    def test_copies_what_it_is_given(self) -> None:
        words = ["python", "x.py"]
        document = Document({}, "job")
        document.put(["command"], Document(words, "--"), "--")
        document.override("command.0=python3")
        assert words == ["python", "x.py"]

    def test_changes_nothing_that_others_hold(self) -> None:
        fields = {"env": {"A": [1, {"B": 2}]}, "mail": None}
        document = Document(fields, "job")
        document.override("env.A.1.B=3")
        document.override("mail.to=me")
        assert document.data == {"env": {"A": [1, {"B": 3}]}, "mail": {"to": "me"}}
        assert fields == {"env": {"A": [1, {"B": 2}]}, "mail": None}

    def test_what_was_set_is_known(self) -> None:
        document = Document.parse("a: {b: 1, c: 2}\n", "f.yaml")
        document.override("a={b: 3}")
        assert document.given(("a", "b")) and document.given(("a",))
        assert not document.given(("a", "c")) and not Document.parse("a: 1", "f").given(("a",))

    def test_other_data_keep_the_places_of_these(self) -> None:
        document = Document.parse("\na: 1\n", "f.yaml")
        other = document.holding({"a": 2})
        other.override("b=1")
        assert other.where(("a",)) == "f.yaml:2" and document.where(("b",)) == "f.yaml"


class TestMerge:
    def test_fields_merge_and_the_rest_is_replaced(self) -> None:
        below = Document.parse("a: {b: 1, c: [1, 2]}\nd: 4\n", "below.yaml")
        above = Document.parse("\na: {c: [3], e: 0x10}\n", "above.yaml")
        below.merge(above)
        assert below.data == {"a": {"b": 1, "c": [3], "e": 16}, "d": 4}
        assert below.where(("a", "b")) == "below.yaml:1"
        assert below.where(("a", "c", 0)) == "above.yaml:2"
        assert below.where(("a", "c", 1)) == "above.yaml:2", "the list that it was in is gone"
        assert below.where(("d",)) == "below.yaml:2"
        assert below.text(("a", "e"), 16) == "0x10"

    def test_null_replaces(self) -> None:
        below = Document.parse("a: {b: 1}", "below.yaml")
        below.merge(Document.parse("a: null", "above.yaml"))
        assert below.data == {"a": None}
        assert below.where(("a", "b")) == "above.yaml:1"

    data = st.recursive(
        st.integers(0, 9) | st.none(),
        lambda inner: (
            st.dictionaries(st.sampled_from("abc"), inner, max_size=3) | st.lists(inner, max_size=2)
        ),
        max_leaves=8,
    )
    mappings = st.dictionaries(st.sampled_from("abc"), data, max_size=3)

    @given(mappings, mappings)
    def test_agrees_with_a_merge_of_plain_data(self, below: dict[str, Any], above: dict[str, Any]) -> None:
        def merged(under: Any, over: Any) -> Any:
            if isinstance(under, dict) and isinstance(over, dict):
                both = {key: merged(under.get(key), value) for key, value in over.items()}
                return {**under, **both}
            return over

        document = Document.parse(yaml.safe_dump(below), "below")
        document.merge(Document.parse(yaml.safe_dump(above), "above"))
        assert document.data == merged(below, above)
