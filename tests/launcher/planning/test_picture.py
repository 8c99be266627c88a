"""castoff render --picture: the picture of a node shows what the plan decides."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from castoff import JobSpec, Plan, Site, plan
from castoff.launcher.config.quantities import cpus
from castoff.launcher.planning.picture import picture

from ..conftest import Castoff

SVG = "{http://www.w3.org/2000/svg}"
NEEDS: dict[str, dict[str, Any]] = {
    "aurora": {"queue": "debug", "directives": {"filesystems": "home"}},
    "polaris": {"queue": "debug", "directives": {"filesystems": "home"}},
    "perlmutter": {"constraint": "gpu"},
}


def planned(site: str, **fields: Any) -> tuple[Plan, Site]:
    job = {"command": ["true"], "name": "j", "nodes": 1, "walltime": "10m", **NEEDS.get(site, {}), **fields}
    known = Site.load(site)
    return plan(JobSpec.of({"account": "x", **job}), known), known


def titles(svg: str) -> list[str]:
    """What stands for each element where the pointer rests on it."""
    return [one.text or "" for one in ElementTree.fromstring(svg).iterfind(f"{SVG}g/{SVG}title")]


def owned(svg: str, what: str) -> dict[int, set[int]]:
    """The local ranks of each core, or device."""
    found = (re.fullmatch(rf"{what} (\d+): ranks? (\S+)", title) for title in titles(svg))
    return {int(one[1]): {*cpus(one[2])} for one in found if one}


@pytest.mark.parametrize("name", ["aurora", "polaris", "perlmutter", "frontier", "tuolumne"])
def test_every_rank_has_the_cores_of_the_plan(name: str) -> None:
    decided, site = planned(name)
    assert site.node is not None
    svg = picture(decided, site.node)
    expected = {
        core: {rank}
        for rank, listed in enumerate(decided.cpu_lists)
        for core in site.node.cores_of(cpus(listed))
    }
    assert owned(svg, "core") == expected
    assert len([title for title in titles(svg) if title.startswith("core ")]) == len(site.node.cores)
    ranks = range(decided.ranks)
    assert sorted(rank for of in owned(svg, "device").values() for rank in of) == [*ranks]


@pytest.mark.parametrize(
    ("name", "devices"),
    [
        ("aurora", {number: {number} for number in range(12)}),
        ("polaris", {3: {0}, 2: {1}, 1: {2}, 0: {3}}),
        ("frontier", {4: {0}, 5: {1}, 2: {2}, 3: {3}, 6: {4}, 7: {5}, 0: {6}, 1: {7}}),
    ],
)
def test_devices_have_the_nodes_numbers(name: str, devices: dict[int, set[int]]) -> None:
    decided, site = planned(name)
    assert owned(picture(decided, site.node), "device") == devices


def test_ranks_that_share_a_device_and_ranks_with_several() -> None:
    decided, site = planned("aurora", ranks_per_node=24)
    svg = picture(decided, site.node)
    assert owned(svg, "device") == {number: {2 * number, 2 * number + 1} for number in range(12)}
    decided, site = planned("aurora", ranks_per_node=3, devices_per_rank=4)
    assert owned(picture(decided, site.node), "device") == {number: {number // 4} for number in range(12)}


def test_hardware_threads_are_those_of_their_core() -> None:
    decided, site = planned("aurora", ranks_per_node=2, binding="1,105:2,106", devices_per_rank=0)
    assert owned(picture(decided, site.node), "core") == {1: {0}, 2: {1}}


@pytest.mark.parametrize("site", ["slurm", "pbs", "flux", "local"])
def test_a_machine_of_which_nothing_is_known(site: str) -> None:
    decided, known = planned(site, ranks_per_node=3, **({"account": None} if site == "local" else {}))
    svg = picture(decided, known.node)
    assert titles(svg) == ["rank 0", "rank 1", "rank 2"] and "Cores: chosen on the node" in svg


def test_what_a_user_writes_is_text() -> None:
    decided, site = planned("slurm", name="a&b", ranks_per_node=1)
    assert "a&amp;b on slurm" in picture(decided, site.node)
    ElementTree.fromstring(picture(decided, site.node))


def test_the_option(castoff: Castoff, tmp_path: Path) -> None:
    words = ("render", "--site", "slurm", "--picture", "node.svg")
    answer = castoff(*words, "--", "true", cwd=tmp_path)
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, "", "")
    assert (tmp_path / "node.svg").read_text().startswith("<svg ")
    both = castoff(*words, "-o", "job.sh", "--", "true", cwd=tmp_path)
    assert (both.returncode, (tmp_path / "job.sh").read_text()[:2]) == (0, "#!")
    nowhere = castoff(*words[:-1], "no/node.svg", "--", "true", cwd=tmp_path)
    assert nowhere.returncode == 1 and "castoff: no/node.svg: cannot be written: " in nowhere.stderr
