"""Changing one value of a text that a person keeps: nothing else may change."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from castoff.launcher.typed.document import Document
from castoff.launcher.typed.editing import CannotEdit, has, put, put_block, remove

TEXT = """\
# ours
extends: slurm   # the base
queues:
  # for everybody
  gpu:
    ranges: [{max_nodes: 8, max_walltime: 24h}]  # by day
    source: a wiki
    date: 2026-11-20
  "odd name": {source: mail, date: 2026-01-01}
  empty:

# whose jobs
defaults:
  account: x   # mine
setup:
  - |
    a

    b

other: {}
"""


def changed(before: str, after: str) -> tuple[list[str], list[str]]:
    """The lines that went and that came."""
    old, new = before.splitlines(), after.splitlines()
    return [line for line in old if line not in new], [line for line in new if line not in old]


class TestPut:
    def test_a_value_that_is_there(self) -> None:
        """The comment behind it stays."""
        after = put(TEXT, ("queues", "gpu", "ranges"), [{"max_nodes": 4}])
        assert changed(TEXT, after) == (
            ["    ranges: [{max_nodes: 8, max_walltime: 24h}]  # by day"],
            ["    ranges: [{max_nodes: 4}]  # by day"],
        )

    def test_a_new_one_goes_behind_the_last(self) -> None:
        """And before the comments of what follows."""
        after = put(TEXT, ("queues", "gpu", "max_jobs"), 4)
        assert "    date: 2026-11-20\n    max_jobs: 4\n" in after
        after = put(TEXT, ("defaults", "queue"), "gpu")
        assert "  account: x   # mine\n  queue: gpu\nsetup:" in after

    def test_in_braces(self) -> None:
        assert '"odd name": {source: mail, date: 2026-01-01, max_jobs: 3}' in put(
            TEXT, ("queues", "odd name", "max_jobs"), 3
        )
        assert "other: {a: {b: 3}}" in put(TEXT, ("other", "a", "b"), 3)

    def test_mappings_that_are_not_there(self) -> None:
        assert put(TEXT, ("node", "memory"), "3G").endswith("other: {}\n\nnode:\n  memory: 3G\n")
        assert "  empty:\n    max_jobs: 3\n" in put(TEXT, ("queues", "empty", "max_jobs"), 3)
        assert put("# nothing yet\n", ("a", "b"), 1) == "# nothing yet\na:\n  b: 1\n"
        assert put("extends: x", ("a", "b"), 1) == "extends: x\na:\n  b: 1\n"

    def test_a_value_of_several_lines(self) -> None:
        assert "  account: x   # mine\nsetup: [x]\n\nother: {}" in put(TEXT, ("setup",), ["x"])

    def test_an_alias_becomes_a_value(self) -> None:
        text = "a: &one\n  x: 1\nb: *one  # the same\nc: 2\n"
        assert put(text, ("b",), {"x": 3}) == "a: &one\n  x: 1\nb: {x: 3}  # the same\nc: 2\n"

    @pytest.mark.parametrize("path", [("b", "x"), ("c", "x"), ("l", "x")])
    def test_what_cannot_be_changed_alone(self, path: tuple[str, ...]) -> None:
        """Through an alias, or in what is no mapping."""
        with pytest.raises(CannotEdit, match=f"{path[0]}.x: cannot be changed without"):
            put("a: &one\n  x: 1\nb: *one\nc: 2\nl: [1]\n", path, 3)

    def test_an_anchor_that_others_use(self) -> None:
        """A change of the one would change the others."""
        with pytest.raises(CannotEdit):
            put("a: &one\n  x: 1\nb: *one\n", ("a", "x"), 3)


class TestBlocks:
    def test_a_new_entry(self) -> None:
        lines = ["new:  # hidden", "  source: s", "  date: 2026-11-26"]
        after = put_block(TEXT, ("queues", "new"), lines)
        assert "  empty:\n  new:  # hidden\n    source: s\n    date: 2026-11-26\n\n# whose jobs\n" in after

    def test_in_place_of_another(self) -> None:
        after = put_block(TEXT, ("queues", "gpu"), ["gpu:", "  source: s"])
        assert '  # for everybody\n  gpu:\n    source: s\n  "odd name":' in after

    def test_not_in_braces(self) -> None:
        with pytest.raises(CannotEdit):
            put_block(TEXT, ("other", "x"), ["x:", "  a: 1"])


class TestRemove:
    def test_an_entry(self) -> None:
        gone, came = changed(TEXT, remove(TEXT, ("queues", "gpu")))
        assert (len(gone), came) == (4, [])

    def test_the_last_of_a_mapping(self) -> None:
        after = remove(TEXT, ("defaults", "account"))
        assert not has(after, ("defaults",)) and "# whose jobs\nsetup:" in after

    def test_one_that_is_not_there(self) -> None:
        assert remove(TEXT, ("queues", "none")) == TEXT
        assert remove("", ("a",)) == ""


NAMES = st.sampled_from(["a", "b-c", "d e", "true", "1", "é", "x.y"])
LEAVES = st.one_of(
    st.integers(0, 99),
    st.sampled_from(["", "w", "a: b", "- c", "# no", "two\nlines\n", "'", "24h"]),
    st.none(),
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.dictionaries(NAMES, inner, max_size=3) | st.lists(inner, max_size=2),
    max_leaves=8,
)
DOCUMENTS = st.dictionaries(NAMES, VALUES, min_size=1, max_size=4)


def paths(data: Any, so_far: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    found = []
    for name, value in data.items() if isinstance(data, dict) else ():
        found += [(*so_far, name), *paths(value, (*so_far, name))]
    return found


def commented(text: str) -> str:
    """With a comment before each key of the outermost mapping."""
    node = yaml.compose(text, Loader=yaml.SafeLoader)
    assert isinstance(node, yaml.MappingNode)
    lines = text.splitlines()
    for number, (key, _) in reversed(list(enumerate(node.value))):
        lines.insert(key.start_mark.line, f"# about {number}")
    return "\n".join(lines) + "\n"


@given(DOCUMENTS, st.data(), st.integers(100, 999))
def test_any_text(data: dict[str, Any], choice: st.DataObject, number: int) -> None:
    """What is meant is there, all else is as it was, and every comment stays."""
    text = commented(yaml.safe_dump(data, default_flow_style=False, allow_unicode=True, sort_keys=False))
    assert Document.parse(text, "t").data == data
    path = choice.draw(st.sampled_from(paths(data)))
    wanted = copy.deepcopy(data)
    inner = wanted
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = number
    after = put(text, path, number)
    assert Document.parse(after, "t").data == wanted
    comments = [line for line in text.splitlines() if line.startswith("# about")]
    assert [line for line in after.splitlines() if line.startswith("# about")] == comments
    without = remove(text, path)
    assert not has(without, path)
