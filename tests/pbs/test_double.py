"""The PBS of the tests, against what was recorded from a real OpenPBS.

Where it is the double, this proves the double; where it is OpenPBS, it proves the record.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from .cluster import PbsCluster
from .record import ALONE, AT_ONCE, SCENES, Entry, differences, play

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def played(
    pbs: PbsCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Future[list[Entry]]]]:
    """All scenes that are in nobody's way, at the same time."""
    folder = tmp_path_factory.mktemp("scenes")
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield {name: pool.submit(play, pbs, folder, name) for name in SCENES}


def agree(name: str, entries: list[Entry]) -> None:
    """Fail with all that differs from the record."""
    if found := "\n\n".join(differences(name, entries)):
        pytest.fail(found, pytrace=False)


@pytest.mark.parametrize("name", SCENES)
def test_what_it_says(name: str, played: dict[str, Future[list[Entry]]]) -> None:
    agree(name, played[name].result())


@pytest.mark.parametrize("name", ALONE)
def test_what_it_says_when_things_fail(
    name: str,
    played: dict[str, Future[list[Entry]]],
    pbs: PbsCluster,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    for other in played.values():
        other.exception()
    agree(name, play(pbs, tmp_path_factory.mktemp("alone"), name))
