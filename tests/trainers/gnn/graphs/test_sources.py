"""Words that change when, and only when, what they stand for does."""

from __future__ import annotations

import functools
import importlib
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.gnn.graphs.sources import state_of, text_of, texts_of


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], ModuleType]]:
    """Write a module of a user's, and import it anew."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def written(text: str) -> ModuleType:
        (tmp_path / "of_a_user.py").write_text(text)
        sys.modules.pop("of_a_user", None)
        importlib.invalidate_caches()
        return importlib.import_module("of_a_user")

    yield written
    sys.modules.pop("of_a_user", None)


def test_a_functions_module_is_its_text(module: Callable[[str], ModuleType]) -> None:
    text = (
        "def helper(x): return x\n"
        "def change(x): return helper(x)\n"
        "class Change:\n"
        "    def __call__(self, x): return x\n"
    )
    first = module(text)
    words = [text_of(first.change), text_of(first.helper), text_of(first.Change())]
    assert len(set(words)) == 3
    again = module(text)
    assert words == [text_of(again.change), text_of(again.helper), text_of(again.Change())]
    other = module(text.replace("return x\ndef", "return x + 1\ndef"))
    assert text_of(other.change) != words[0] and text_of(other.Change()) != words[2]


def test_what_is_bound_counts(module: Callable[[str], ModuleType]) -> None:
    found = module(
        "def add(x, by=1): return x + by\n"
        "def adding(by): return lambda x: x + by\n"
        "class Add:\n"
        "    def __init__(self, by): self.by = by\n"
        "    def add(self, x): return x + self.by\n"
    )
    for make in (
        lambda by: functools.partial(found.add, by=by),
        found.adding,
        lambda by: found.Add(by).add,
        found.Add,
    ):
        assert text_of(make(1)) == text_of(make(1)) != text_of(make(2))


def test_code_without_a_file_has_a_word_too() -> None:
    space: dict[str, Any] = {"__name__": "nowhere"}
    exec("def f(x): return x + 1\ndef g(x): return x + 2", space)
    assert text_of(space["f"]) != text_of(space["g"])
    assert text_of(len) != text_of(max) and text_of(None) == ""


def test_functions_that_share_a_name_have_words_of_their_own(module: Callable[[str], ModuleType]) -> None:
    """Two lambdas, or two inner functions, of one module."""
    found = module(
        "double, triple = lambda x: 2 * x, lambda x: 3 * x\n"
        "def first():\n    def inner(x): return x\n    return inner\n"
        "def either(one):\n"
        "    if one:\n        def inner(x): return [x * 2 for x in x]\n"
        "    else:\n        def inner(x): return [x * 3 for x in x]\n"
        "    return inner\n"
    )
    assert text_of(found.double) != text_of(found.triple)
    assert text_of(found.either(True)) != text_of(found.either(False))
    assert text_of(found.first()) == text_of(found.first())


@pytest.mark.parametrize(
    "text",
    [
        "def f(x): return 2 * x",
        "factor = 2\ndef f(x): return factor * x",
        "def helper(x): return 2 * x\ndef f(x): return [helper(x) for x in x]",
        "class F:\n    def __call__(self, x): return 2 * x\nf = F()",
        "class F:\n    factor = 2\n    def __call__(self, x): return self.factor * x\nf = F()",
    ],
)
def test_typed_lines_have_another_word_when_a_constant_is_changed(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They stand in no file whose text could be taken: a notebook, or what python reads from a pipe."""
    script = ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", script)

    def word(lines: str) -> str:
        exec(compile(lines, "<stdin>", "exec"), vars(script))
        return text_of(vars(script)["f"])

    assert word(text) == word(text) != word(text.replace("2", "3"))


def test_what_is_bound_has_one_word_in_every_process(module: Callable[[str], ModuleType]) -> None:
    """Sets are written in an order of their own, and other things by their addresses."""
    found = module(
        "class Bound:\n    def __init__(self, of): self.of = of\n    def __call__(self, x): return x\n"
        "def around(x):\n    def inner(x): return inner\n    return inner\n"
        "def early():\n    def inner(x): return later\n    yield inner\n    later = 1\n"
    )
    for one, other in (
        ({0, 8}, {8, 0}),
        (object(), object()),
        (threading.Lock(), threading.Lock()),
        (torch.ones(2, dtype=torch.bool), torch.ones(2, dtype=torch.bool)),
    ):
        assert text_of(found.Bound(one)) == text_of(found.Bound(other))
    assert text_of(found.Bound(torch.ones(2))) != text_of(found.Bound(torch.zeros(2)))
    assert text_of(found.Bound({0, 8})) != text_of(found.Bound({0, 9}))
    assert text_of(found.around(0)) == text_of(found.around(0))
    assert text_of(next(found.early())) == text_of(next(found.early()))


def test_a_folder_has_another_word_when_a_file_in_it_is_changed(tmp_path: Path) -> None:
    store = tmp_path / "a.zarr"
    (store / "x" / "y").mkdir(parents=True)
    file = store / "x" / "y" / "0.0"
    file.write_bytes(b"12")
    os.utime(file, ns=(1, 1))
    words = [state_of(store)]
    file.write_bytes(b"123")
    os.utime(file, ns=(1, 1))
    words.append(state_of(store))
    os.utime(file, ns=(2, 2))
    words.append(state_of(store))
    file.rename(file.with_name("0.1"))
    words.append(state_of(store))
    (store / "z").write_bytes(b"")
    words += [state_of(store), state_of(store / "z")]
    assert len(set(words)) == len(words) and state_of(store) == words[-2]


def test_what_cannot_be_read_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        state_of(tmp_path / "nothing")


def test_the_text_of_a_package_is_that_of_all_its_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "of_ours" / "below").mkdir(parents=True)
    (tmp_path / "of_ours" / "__init__.py").write_text("")
    deep = tmp_path / "of_ours" / "below" / "deep.py"
    deep.write_text("x = 1")
    importlib.import_module("of_ours")
    before = texts_of("of_ours")
    deep.write_text("x = 2")
    assert texts_of("of_ours") != before
    monkeypatch.delitem(sys.modules, "of_ours")
