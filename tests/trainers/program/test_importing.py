"""Large packages are imported without looking for garbage meanwhile, or among them later."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from importlib import import_module

import pytest

from castoff.trainers.program.importing import without_collections


@pytest.fixture(params=[True, False])
def enabled(request: pytest.FixtureRequest) -> Iterator[bool]:
    """Whether garbage is collected before."""
    before = gc.isenabled()
    (gc.enable if request.param else gc.disable)()
    yield request.param
    (gc.enable if before else gc.disable)()


def test_what_is_there_by_then_stays(enabled: bool) -> None:
    before = gc.get_freeze_count()
    with without_collections():
        assert not gc.isenabled()
        made: list[list[int]] = [[] for _ in range(1000)]
    assert gc.get_freeze_count() >= before + len(made)
    assert gc.isenabled() is enabled


def test_an_import_that_fails(enabled: bool) -> None:
    with pytest.raises(ModuleNotFoundError), without_collections():
        import_module("no_such_module")
    assert gc.isenabled() is enabled
