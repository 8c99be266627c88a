"""The PBS of the tests, against what was recorded from real OpenPBSs.

Where it is the double, this proves the double, which is like one of them; where it is OpenPBS, it proves the
records: it may be any version of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from .cluster import PbsCluster
from .record import ALONE, AT_ONCE, SCENES, VERSIONS, Entry, differences, play

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def played(
    pbs: PbsCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Future[list[Entry]]]]:
    """All scenes that are in nobody's way, at the same time."""
    folder = tmp_path_factory.mktemp("scenes")
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield {name: pool.submit(play, pbs, folder, name) for name in SCENES}


def agree(name: str, entries: list[Entry], pbs: PbsCluster) -> None:
    """Fail with all that differs from the record that is the most like it."""
    versions = VERSIONS if pbs.is_real else VERSIONS[:1]
    if found := min((list(differences(name, entries, version)) for version in versions), key=len):
        pytest.fail("\n\n".join(found), pytrace=False)


@pytest.mark.parametrize("name", SCENES)
def test_the_simulator_answers_as_pbs_does(
    name: str, played: dict[str, Future[list[Entry]]], pbs: PbsCluster
) -> None:
    agree(name, played[name].result(), pbs)


@pytest.mark.parametrize("name", ALONE)
def test_the_simulator_fails_as_pbs_does(
    name: str,
    played: dict[str, Future[list[Entry]]],
    pbs: PbsCluster,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    for other in played.values():
        other.exception()
    agree(name, play(pbs, tmp_path_factory.mktemp("alone"), name), pbs)
