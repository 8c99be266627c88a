"""castoff doctor on PBS."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.cluster.desk import Desk

from .cluster import PbsCluster

pytestmark = pytest.mark.costly


def test_a_queue_and_two_nodes(pbs: PbsCluster, tmp_path: Path) -> None:
    desk = Desk(pbs, tmp_path / "desk")
    words = ("doctor", "--json", "--site", "pbs", "-t", "2m", "--python", sys.executable)
    answer = desk.castoff(*words, "-q", "wrkq")
    assert answer.code == 1
    found = {one["about"]: one for one in map(json.loads, answer.output.splitlines())}
    assert found["queue"]["fact"].startswith("wrkq does not exist here; there are: ")
    assert found["queue"]["remedy"] == "--queue workq"
    answer = desk.castoff(*words, "-A", "proj", "--nodes", "2")
    assert answer.code == 0, answer.output + answer.errors
    found = {one["about"]: one for one in map(json.loads, answer.output.splitlines())}
    assert found["account"]["status"] == "unknown"  # PBS does not say
    assert found["nodes"]["fact"].startswith("2 ranks ran on n1, n2 ")
    assert found["preflight"]["fact"] == "n1, n2: devices, memory, disks, clock and network"
    assert found["all-reduce"]["fact"].startswith("exact on 2 ranks; ")
