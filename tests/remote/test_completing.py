"""The TAB key behind --on: the machine's runs, over the connection that is shared already, or nothing."""

from __future__ import annotations

import shlex

import pytest

from tests.patience import until
from tests.remote.conftest import Laptop

pytestmark = pytest.mark.costly


def offered(laptop: Laptop, *words: str, on: str | None = None) -> list[str]:
    asked = {"_CASTOFF_COMPLETE": "bash_complete", "COMP_WORDS": shlex.join(["castoff", *words])}
    answer = laptop(env={**asked, "COMP_CWORD": str(len(words)), "CASTOFF_ON": on})
    assert (answer.returncode, answer.stderr) == (0, "")
    return [line.partition(",")[2] for line in answer.stdout.splitlines() if line]


def test_runs_there(laptop: Laptop) -> None:
    laptop.add("far")
    assert offered(laptop, "--on", "far", "logs", "") == [], "there is no connection yet"
    run = str(laptop.submitted("far", "submit", laptop.a_job())["id"])
    assert laptop("--on", "far", "wait", run).returncode == 0
    # A busy machine may answer too late.
    until(lambda: offered(laptop, "--on", "far", "logs", "") == ["toy"], "its run is not offered")
    until(lambda: offered(laptop, "--on=far", "logs", "toy-") == [run], "its id is not offered")
    until(lambda: offered(laptop, "wait", "", on="far") == ["toy"], "CASTOFF_ON is not respected")
    assert offered(laptop, "--on", "far", "cancel", "") == [], "it is over"
    assert offered(laptop, "logs", "") == [], "here are none"
    assert offered(laptop, "--on", "far", "lo") == ["logs"]
    assert offered(laptop, "--on", "far", "logs", "--foll") == ["--follow"]
    laptop.machine.disconnect()
    assert offered(laptop, "--on", "far", "logs", "") == []
    assert offered(laptop, "--on", "nowhere", "logs", "") == []
