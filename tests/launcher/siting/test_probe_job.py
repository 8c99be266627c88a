"""The job that asks a node what it has."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from castoff.launcher.config.site import Search, Site
from castoff.launcher.errors import InvalidInput
from castoff.launcher.planning.planner import decide
from castoff.launcher.planning.render import rendered
from castoff.launcher.preflight.syntax import check_syntax
from castoff.launcher.schedulers.machine_info import MachineInfo, NodeKind
from castoff.launcher.siting import probe_job as job
from castoff.launcher.siting.probe_job import probe_job

PATH = Path("/nowhere/castoff/sites/here.yaml")
NODES = MachineInfo(nodes=[NodeKind(8, nodes=5)])


def site(text: str = "", base: str = "slurm") -> Site:
    draft = (PATH, f"description: d\nextends: {base}\n{text}")
    return Site.load("here", search=Search({"XDG_CONFIG_HOME": "/nowhere"}, None, draft=draft))


def queue(ranges: str) -> str:
    return f"default_queue: q\nqueues: {{q: {{ranges: {ranges}, source: s, date: 2026-01-01}}}}\n"


@pytest.mark.parametrize("base", ["slurm", "pbs", "flux"])
def test_its_script_is_right(base: str) -> None:
    at = site(base=base)
    plan, own = decide(probe_job(at, NODES), at)
    check_syntax(plan, rendered(plan, own))


@pytest.mark.parametrize(
    ("ranges", "nodes", "walltime"),
    [
        ("[]", 2, "2m"),
        ("[{max_nodes: 1}]", 1, "2m"),
        ("[{min_nodes: 10, min_walltime: 5m}]", 10, "5m"),
        ("[{min_nodes: 256}, {min_nodes: 1, max_nodes: 4, min_walltime: 10m}]", 2, "10m"),
    ],
)
def test_two_nodes_where_the_queue_takes_them(ranges: str, nodes: int, walltime: str) -> None:
    job = probe_job(site(queue(ranges)), NODES)
    assert (job.nodes, job.walltime) == (nodes, walltime)


def test_one_where_there_are_no_two() -> None:
    assert probe_job(site(), MachineInfo(nodes=[NodeKind(8)])).nodes == 1
    assert probe_job(site(), MachineInfo()).nodes == 2, "nobody says how many there are"
    own = 'node: {sockets: ["0-7"], source: s, date: 2026-01-01}\n'
    kinds = MachineInfo(nodes=[NodeKind(4, nodes=9), NodeKind(8)])
    assert probe_job(site(own), kinds).nodes == 1, "others of its kind there are none"


def test_what_a_person_adds() -> None:
    assert probe_job(site(), NODES, ["account=phys", "nodes=1"]).account == "phys"
    with pytest.raises(InvalidInput, match="accuont"):
        probe_job(site(), NODES, ["accuont=phys"])


def run(script: Path, **env: str) -> dict[str, list[str]]:
    """The sections of what the program says here, in such an environment."""
    done = subprocess.run(["bash", str(script)], env=env, capture_output=True, text=True, check=True)
    parts: dict[str, list[str]] = {}
    for line in done.stdout.splitlines():
        if line.startswith("== "):
            held = parts.setdefault(line[3:], [])
        else:
            held.append(line)
    return parts


class TestProgram:
    PROGRAM = Path(job.__file__).with_name("probe_job.sh")

    def test_shellcheck_finds_nothing(self) -> None:
        checker = Path(sys.executable).with_name("shellcheck")
        done = subprocess.run(
            [checker, "--shell=bash", "--exclude=SC2154", self.PROGRAM], capture_output=True, text=True
        )
        assert (done.returncode, done.stdout) == (0, "")

    def test_here(self, tmp_path: Path) -> None:
        said = run(self.PROGRAM, PATH="/usr/bin:/bin", TMPDIR=str(tmp_path))
        assert list(said) == [
            *(
                "host",
                "cpus",
                "memory",
                "devices",
                "nvidia",
                "kfd",
                "disks",
                "modules",
                "mpiexec",
                "remote",
                "end",
            )
        ]
        assert said["memory"][0].startswith("MemTotal:") and said["host"]
        assert any(line.endswith(str(tmp_path)) for line in said["disks"])

    def test_where_nothing_is(self, tmp_path: Path) -> None:
        """No program of these is there, and it comes to its end."""
        for name in ("bash", "grep"):
            (tmp_path / name).symlink_to(f"/bin/{name}")
        said = run(self.PROGRAM, PATH=str(tmp_path), castoff_hosts="other", castoff_remote="pbs_tmrsh")
        assert "end" in said and said["reach other"] == []

    def test_other_hosts(self, tmp_path: Path) -> None:
        """By ssh, and by the scheduler's own program; one that hangs is given up."""
        programs: dict[str, Any] = {"ssh": '[[ " $* " == *" open "* ]]', "own": "[[ $1 != closed ]]"}
        for name, line in programs.items():
            (tmp_path / name).write_text(f"#!/bin/bash\n{line}\n")
            (tmp_path / name).chmod(0o755)
        path = f"{tmp_path}:/usr/bin:/bin"
        said = run(self.PROGRAM, PATH=path, castoff_hosts="open half closed", castoff_remote="own")
        assert said["remote"] == [str(tmp_path / "own")]
        assert (said["reach open"], said["reach half"], said["reach closed"]) == (
            ["ssh", "remote"],
            ["remote"],
            [],
        )
