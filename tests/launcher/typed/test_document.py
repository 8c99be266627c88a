"""YAML's core rules, places, spellings, --set, and everything that a hostile file may try."""

from __future__ import annotations

import fcntl
import json
import math
import os
import termios
import threading
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from castoff.launcher.errors import CastoffError, InvalidInput, Problem, printable
from castoff.launcher.typed.document import Document, dotted
from tests import patience
from tests.hostile import PRINTED, json_values


def read(text: str) -> Any:
    return Document.parse(text, "f.yaml").data


def refusal(text: str) -> str:
    with pytest.raises(InvalidInput) as caught:
        read(text)
    return str(caught.value)


class TestCoreRules:
    """https://yaml.org/spec/1.2.2/#103-core-schema, not YAML 1.1."""

    @pytest.mark.parametrize("word", ["no", "yes", "on", "off", "y", "n", "No", "ON", "tRUE", "nULL"])
    def test_yes_and_no_are_words(self, word: str) -> None:
        assert read(f"a: {word}") == {"a": word}

    @pytest.mark.parametrize(
        "word",
        [
            "1:30:00",
            "2026-11-20",
            "1_000",
            "0b11",
            "-0x1",
            "0o8",
            "1e",
            ".",
            "+",
            "e3",
            "1.2.3",
            "=",
            "<<",
        ],
    )
    def test_what_only_yaml_1_1_resolves_is_text(self, word: str) -> None:
        assert read(f"a: {word}") == {"a": word}

    @pytest.mark.parametrize(
        ("written", "value"),
        [
            ("010", 10),
            ("-7", -7),
            ("+7", 7),
            ("0o17", 15),
            ("0x1F", 31),
            ("1e-3", 0.001),
            ("1.", 1.0),
            (".5", 0.5),
            ("-1.5E+2", -150.0),
            (".inf", math.inf),
            ("-.INF", -math.inf),
            ("true", True),
            ("FALSE", False),
            ("null", None),
            ("~", None),
            ("", None),
            ("Null", None),
            ("'010'", "010"),
            ('"true"', "true"),
            ("!!str 4", "4"),
            ("!!int 4", 4),
        ],
    )
    def test_scalars(self, written: str, value: object) -> None:
        found = read(f"a: {written}")["a"]
        assert found == value
        assert type(found) is type(value)

    def test_not_a_number(self) -> None:
        assert math.isnan(read("a: .nan")["a"])

    def test_a_number_too_long_to_be_meant_as_one_stays_as_written(self) -> None:
        # Python refuses to convert more than 4300 digits; a job's hash of digits is text anyway.
        assert read("a: " + "9" * 5000) == {"a": "9" * 5000}
        assert read("a: 123456789012345678") == {"a": 123456789012345678}

    def test_keys_are_always_words(self) -> None:
        assert read("{1: a, true: b, ~: c, 1e3: d}") == {"1": "a", "true": "b", "~": "c", "1e3": "d"}

    def test_line_breaks_of_yaml_1_1_are_text_where_they_are_escaped(self) -> None:
        assert read('a: "x \\u2028 y\\u0085 \\u2029"') == {"a": "x \u2028 y\x85 \u2029"}

    @pytest.mark.parametrize("text", ["", "# only a comment\n", "---\n", "null"])
    def test_an_empty_document_is_null(self, text: str) -> None:
        assert read(text) is None

    def test_a_byte_order_mark_is_not_part_of_the_first_key(self) -> None:
        assert read("\ufeffa: 1") == {"a": 1}

    @given(
        json_values(
            st.none()
            | st.booleans()
            | st.integers(-(10**17), 10**17)
            | st.floats(allow_nan=False, allow_infinity=False)
            | PRINTED,
            keys=PRINTED,
        )
    )
    def test_what_a_yaml_1_2_writer_quotes_reads_back(self, data: object) -> None:
        # JSON is YAML 1.2's subset, and its strings are always quoted.
        assert read(json.dumps(data, ensure_ascii=False)) == data


class TestSpelling:
    @pytest.mark.parametrize("written", ["007", "1e-3", "0x1F", "TRUE", "1.50", "+1", "0o17"])
    def test_a_scalar_keeps_how_it_was_written(self, written: str) -> None:
        document = Document.parse(f"a: [{written}]", "f.yaml")
        assert document.text(("a", 0), document.data["a"][0]) == written

    def test_what_has_no_spelling_is_shown_as_python_does(self) -> None:
        assert Document({"a": 7}, "job").text(("a",), 7) == "7"


class TestPlaces:
    BLOCK = "\n".join(
        [
            "# a comment",
            "name: x",
            "env:",
            "  A: 1",
            "",
            "  B: >",
            "    folded",
            "    text",
            "setup:",
            "  - one",
            "  - two",
            "mail: {to: me,",
            "       on: [begin,",
            "            end]}",
        ]
    )

    @pytest.mark.parametrize(
        ("path", "line"),
        [
            (("name",), 2),
            (("env",), 3),
            (("env", "A"), 4),
            (("env", "B"), 6),
            (("setup",), 9),
            (("setup", 0), 10),
            (("setup", 1), 11),
            (("mail",), 12),
            (("mail", "to"), 12),
            (("mail", "on"), 13),
            (("mail", "on", 1), 14),
            # What is not there stands where the nearest thing around it does.
            (("mail", "cc"), 12),
            (("env", "C", "d"), 3),
        ],
    )
    def test_block_and_flow_style(self, path: tuple[str | int, ...], line: int) -> None:
        assert Document.parse(self.BLOCK, "f.yaml").where(path) == f"f.yaml:{line}"

    def test_a_missing_field_has_no_line(self) -> None:
        assert Document.parse(self.BLOCK, "f.yaml").where(("walltime",)) == "f.yaml"

    def test_an_alias_has_the_place_where_it_is_used(self) -> None:
        document = Document.parse("a: &x {k: 1}\nb: *x\n", "f.yaml")
        assert document.where(("b",)) == "f.yaml:2"
        assert document.data == {"a": {"k": 1}, "b": {"k": 1}}
        document.data["b"]["k"] = 2
        assert document.data["a"] == {"k": 1}, "an alias is a copy, not the same thing twice"


class TestRefusals:
    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("a: 1\nb: 2\na: 3\n", ["f.yaml:3: a:", "twice", "first at f.yaml:1"]),
            ("env: {\n A: 1,\n A: 2}", ["f.yaml:3: env.A:", "first at f.yaml:2"]),
            ("a: [1,\n\n2]]", ["f.yaml:3:"]),
            ("a: [1,\n\n2", ["f.yaml:4:", "begins in line 1"]),
            ("a: 1\n\tb: 2", ["f.yaml:2:", "a tab character"]),
            ("a:\n\tb: 2", ["f.yaml:2:", "spaces, not tabs"]),
            ("a: @x", ["f.yaml:1:", "quote a value"]),
            ("a: 1\n---\nb: 2", ["single document"]),
            ("a: *nope", ["f.yaml:1:", "undefined alias"]),
            ("? [x, y]\n: 1", ["f.yaml:1:", "must be a word"]),
            ("a: 1\nb: x\x00y", ["f.yaml:2:", "U+0000"]),
            ('a: "\\ud800"', ["f.yaml:1:", "Unicode"]),
            ("a: 1\nb: \udcff", ["f.yaml:2:", "not UTF-8", "\\udcff"]),
            ("a: b: c", ["f.yaml:1:", "not valid YAML", "same column", "quote a value"]),
            ("a: 1\nb: 'x\u2028y'", ["f.yaml:2:", "a raw U+2028", "\\u2028 in double quotes"]),
            ("a: 1  # note\x85b: 2", ["f.yaml:1:", "a raw U+0085"]),
            ("a: x\u2029", ["f.yaml:1:", "a raw U+2029"]),
            ("a: !!int four", ["f.yaml:1: a:", "'four' is not of type int"]),
            ("a: !!float x", ["f.yaml:1: a:", "not of type float"]),
            ("a: !!bool maybe", ["f.yaml:1: a:", "not of type bool"]),
            ("a: !!null x", ["f.yaml:1: a:", "not of type null"]),
        ],
    )
    def test_the_error_has_the_place_and_the_reason(self, text: str, words: list[str]) -> None:
        message = refusal(text)
        assert all(word in message for word in words), message

    @pytest.mark.parametrize(
        "text",
        [
            "a: !!python/object/apply:os.system [touch CANARY]",
            "!!python/object/apply:os.system [touch CANARY]",
            "a: !!python/object/new:os.system [touch CANARY]",
            "a: !!python/name:os.system",
            "a: !!python/module:os",
            "? !!python/name:os.system\n: 1",
            "a: !!binary aGk=",
            "a: !!set {x: }",
            "a: !!omap [x: 1]",
            "a: !!timestamp 2026-11-20",
            "!foo {a: 1}",
            "a: !local b",
            "!!str {a: 1}",
        ],
    )
    def test_a_tag_constructs_nothing(
        self, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        assert "is not allowed here" in refusal(text)
        assert not list(tmp_path.iterdir())

    def test_every_duplicate_and_every_tag_is_reported_at_once(self) -> None:
        with pytest.raises(InvalidInput) as caught:
            read("a: 1\na: 2\nb: !x 1\nc: {d: !!set {}, d: 1}\n")
        assert [problem.path for problem in caught.value.problems] == ["a", "b", "c.d", "c.d"]

    def test_an_alias_that_holds_itself(self) -> None:
        assert "f.yaml:1: a.0: contains itself" in refusal("a: &x [*x]")
        assert "contains itself" in refusal("a: &x {b: [{c: *x}]}")

    def test_a_billion_laughs(self) -> None:
        lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
        lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 20)]
        assert "exceeds the limit of" in refusal("\n".join(lines))

    @pytest.mark.parametrize("text", ["[" * 100_000, "{a: " * 50_000, "- " * 100_000, "[" * 200 + "]" * 200])
    def test_deep_nesting_is_refused_not_a_crash_of_the_interpreter(self, text: str) -> None:
        refused = refusal(text)  # newer PyYAML refuses some by itself
        assert "levels deep" in refused or "maximum nesting depth" in refused

    def test_files(self, tmp_path: Path) -> None:
        bad = tmp_path / "bad.yaml"
        bad.write_bytes(b"a: 1\nb: \xff\n")
        with pytest.raises(CastoffError, match=r"bad\.yaml: is not UTF-8 text \(line 2\)"):
            Document.read(bad)
        with pytest.raises(CastoffError, match="no such file"):
            Document.read(tmp_path / "none.yaml")
        with pytest.raises(CastoffError, match="cannot be read: Is a directory"):
            Document.read(tmp_path)
        with pytest.raises(CastoffError, match="cannot be read"):
            Document.read(Path("a\x00b"))

    def test_no_file_is_larger_than_a_person_writes(self, tmp_path: Path) -> None:
        with pytest.raises(CastoffError, match="/dev/zero: is larger than 1 MB"):
            Document.read(Path("/dev/zero"))
        large = tmp_path / "large.yaml"
        large.write_bytes(b"#" * 1_000_000)
        assert Document.read(large).data is None
        large.write_bytes(b"#" * 1_000_001)
        with pytest.raises(CastoffError, match=r"large\.yaml: is larger than 1 MB"):
            Document.read(large)

    def test_a_pipe_is_read_to_its_end(self) -> None:
        """As of `castoff submit <(make-job)`, whose first line is there and whose second is not."""
        reading, writing = os.pipe()
        os.write(writing, b"a: 1\r\n")

        def finish() -> None:
            patience.until(
                lambda: not any(fcntl.ioctl(reading, termios.FIONREAD, b"    ")), "nobody reads the pipe"
            )
            os.write(writing, b"b: 2\n")
            os.close(writing)

        threading.Thread(target=finish).start()
        try:
            assert Document.read(Path(f"/dev/fd/{reading}")).data == {"a": 1, "b": 2}
        finally:
            os.close(reading)

    def test_a_file_whose_name_is_not_utf8_can_still_be_read_and_named(self, tmp_path: Path) -> None:
        path = tmp_path / os.fsdecode(b"caf\xe9.yaml")
        path.write_text("a: [")
        with pytest.raises(InvalidInput) as caught:
            Document.read(path)
        assert "caf\\udce9.yaml:" in str(caught.value)
        str(caught.value).encode()

    @given(st.text(max_size=60))
    @settings(max_examples=300)
    def test_any_text_is_read_or_refused(self, text: str) -> None:
        try:
            document = Document.parse(text, "f.yaml")
        except InvalidInput as error:
            str(error).encode()
        else:
            assert document.data is None or isinstance(document.data, (str, int, float, bool, list, dict))

    @given(st.lists(st.sampled_from(list("[]{}:,-&*!?|>'\"%@`# \n\tab01~<")), max_size=40).map("".join))
    @settings(max_examples=500)
    def test_any_punctuation_is_read_or_refused(self, text: str) -> None:
        try:
            Document.parse(text, "f.yaml")
        except InvalidInput:
            return
        yaml.compose(text, Loader=yaml.CSafeLoader)  # so it was YAML


def test_names() -> None:
    assert dotted(("mail", "on", 0)) == "mail.on.0"
    assert dotted(("env", "A\n\udcff")) == "env.A\\n\\udcff"
    assert printable("Zürich, 東京") == "Zürich, 東京"


def test_problems_of_a_file_come_in_the_order_of_its_lines() -> None:
    places = ["a.yaml:10", "--set x=1", "a.yaml:9", "b.yaml:2", "", "a.yaml:9", "b.yaml:1"]
    given = [Problem(place, "", str(number)) for number, place in enumerate(places)]
    ordered = InvalidInput(given).problems
    assert [problem.where for problem in ordered] == [
        *("a.yaml:9", "--set x=1", "a.yaml:9", "b.yaml:1", "", "a.yaml:10", "b.yaml:2")
    ]
    assert [problem.message for problem in ordered if problem.where == "a.yaml:9"] == ["2", "5"]
