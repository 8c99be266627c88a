"""A profile of a real Slurm: made from what it says, completed by a node, and used."""

from __future__ import annotations

import json
from pathlib import Path

import psutil
import pytest

from tests.patience import until

from .desk import Desk
from .slurm import MAX_ARRAY_SIZE, SlurmCluster

pytestmark = pytest.mark.costly


@pytest.fixture
def sites(tmp_path: Path) -> Path:
    """Where the user's profiles lie."""
    return tmp_path / "config" / "castoff" / "sites"


@pytest.fixture
def desk(slurm: SlurmCluster, tmp_path: Path) -> Desk:
    made = Desk(slurm, tmp_path / "desk")
    made.environ["XDG_CONFIG_HOME"] = str(tmp_path / "config")
    return made


def test_a_profile_from_what_it_says(desk: Desk) -> None:
    assert desk.castoff("sites", "new", "lab").code == 0
    answer = desk.castoff("sites", "check", "lab")
    assert answer.code == 0 and answer.output.startswith("lab and Slurm: nothing differs\n"), answer.output
    site = json.loads(desk.castoff("sites", "lab", "--json").output)
    assert (site["default_queue"], list(site["queues"])) == ("main", ["main", "urgent"])
    assert (site["node"]["sockets"], site["node"]["devices"]) == (["0-11"], [4])
    assert site["array"]["max_count"] == MAX_ARRAY_SIZE
    job = ("--name", "ranks", "--nodes", "2", "--ranks-per-node", "2", "--walltime", "1m")
    answer = desk.castoff("submit", "--site", "lab", *job, "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES")
    assert answer.code == 0 and "castoff sites new" not in answer.errors, answer.errors
    assert desk.castoff("wait", "ranks").code == 0
    assert len(desk.castoff("logs", "ranks").output.splitlines()) == 4


def test_where_nobody_has_described_the_machine(desk: Desk) -> None:
    """submit says how to, and once somebody has, which profile that is."""
    words = ("submit", "--walltime", "1m", "--", "true")
    assert "`castoff sites new NAME` makes a profile" in desk.castoff(*words).errors
    assert desk.castoff("sites", "new", "lab").code == 0
    assert "your own profiles may know them (lab): --site lab, or" in desk.castoff(*words).errors
    assert "this machine's queues" not in desk.castoff(*words, env={"CASTOFF_SITE": "lab"}).errors


def test_without_its_accounting(desk: Desk, sites: Path, slurm: SlurmCluster) -> None:
    with slurm.without_accounting():
        assert desk.castoff("sites", "new", "lab").code == 0
    text = (sites / "lab.yaml").read_text()
    assert "# ? Nothing is known about qos, because the query failed: `sacctmgr " in text
    assert "# ? Nothing is known about user, because the query failed: `sacctmgr " in text
    assert "\nqos:" not in text and "\ndefaults:" not in text


class TestProbe:
    @pytest.fixture
    def bare(self, sites: Path) -> Path:
        """A profile that says nothing of nodes."""
        sites.mkdir(parents=True)
        path = sites / "bare.yaml"
        path.write_text("# ours\ndescription: d\nextends: slurm\ndefaults: {queue: urgent}\n")
        return path

    def test_what_a_node_has(self, desk: Desk, bare: Path) -> None:
        answer = desk.castoff("sites", "probe", "bare")
        assert answer.code == 0, answer.errors
        assert f"wrote      {bare}\n" in answer.output and "ssh to another host is closed" in answer.output
        node = json.loads(desk.castoff("sites", "bare", "--json").output)["node"]
        rows = desk.run("lscpu", "-p=CPU,CORE,SOCKET").output.splitlines()
        cores = {tuple(row.split(",")[1:]) for row in rows if not row.startswith("#")}
        assert node["source"] == "castoff sites probe" and node["memory"]
        assert len(node["sockets"]) == len({socket for _, socket in cores})
        assert bare.read_text().startswith("# ours\ndescription: d\nextends: slurm\n")

    def test_one_that_does_not_begin(self, desk: Desk, bare: Path, slurm: SlurmCluster) -> None:
        """The profile is as it was, and what to type later is said."""
        held = bare.read_text()
        words = ("--set", "directives={hold: true}", "--timeout", "1s")
        answer = desk.castoff("sites", "probe", "bare", *words)
        assert answer.code == 1 and bare.read_text() == held
        (run,) = desk.folder.glob("castoff-runs/castoff-probe-*")
        assert f"run {run.name} is still pending" in answer.errors
        later = f"castoff sites probe bare --run {run.name}"
        assert later in answer.errors and f"castoff cancel {run.name}" in answer.errors
        job = json.loads((run / "submission.json").read_text())["job"]
        desk.slurm("scontrol", "release", job)
        until(lambda: desk.castoff("wait", run.name, "--timeout", "1").code == 0, "the probe")
        answer = desk.run(*later.split())
        assert answer.code == 0 and "castoff sites probe" in bare.read_text(), answer.errors

    def test_nodes_that_are_not_what_slurm_says(self, desk: Desk, sites: Path) -> None:
        """These claim 12 cores each: nothing of another kind is written, and it is said."""
        if psutil.cpu_count(logical=False) == 12:
            pytest.skip("this machine has as many")
        answer = desk.castoff("sites", "new", "lab", "--probe")
        assert answer.code == 0, answer.errors
        assert "and the profile's nodes have 12: it is another kind of node" in answer.output
        assert 'sockets: ["0-11"]' in (sites / "lab.yaml").read_text()

    def test_what_slurm_refuses(self, desk: Desk, bare: Path) -> None:
        answer = desk.castoff("sites", "probe", "bare", "--set", "queue=none-such")
        assert answer.code == 1 and "invalid partition specified: none-such" in answer.errors, answer.errors
