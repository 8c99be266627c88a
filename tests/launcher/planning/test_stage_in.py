"""Staging, decided: places, kinds, and what cannot be. How it runs is tested in scripts/."""

from __future__ import annotations

from typing import Any

import pytest

from castoff.launcher.config.job import JobSpec
from castoff.launcher.config.job_fields import Stage
from castoff.launcher.errors import InvalidInput
from tests.launcher.planning.test_plan_inputs import derived, planned, refused


def staged(*items: dict[str, Any], site: str = "slurm", **fields: Any) -> list[Stage]:
    return planned(site, stage=[*items], **fields).stage


@pytest.mark.parametrize(
    ("source", "to", "unpack"),
    [
        ("/a/env.tar.gz", "env", True),
        ("/a/env.tar", "env", True),
        ("/a/v1.2.tar.zst", "v1.2", True),
        ("/a/env.tgz", "env", True),
        ("/a/images.zip", "images", True),
        ("/a/shards", "shards", False),
        ("/a/shards/", "shards", False),
        ("/a/words.txt", "words.txt", False),
        ("/a/words.gz", "words.gz", False),
        ("/a/.tar", ".tar", False),
    ],
)
def test_places_and_kinds_by_name(source: str, to: str, unpack: bool) -> None:
    (item,) = staged({"from": source})
    assert (item.source, item.to, item.unpack) == (source, to, unpack)


def test_the_jobs_own_fields_of_an_item_are_used() -> None:
    (item,) = staged({"from": "/a", "sha256": "AB" * 32})
    assert item.sha256 == "ab" * 32  # as sha256sum prints it
    (item,) = staged({"from": "shard.tar", "unpack": False})
    assert (item.source, item.to, item.unpack) == ("./shard.tar", "shard.tar", False)
    (item,) = staged({"from": "-x.tar", "to": "a//b/./c/", "unpack": True, "activate": True})
    assert (item.source, item.to, item.activate) == ("./-x.tar", "a/b/c", True)


@pytest.mark.parametrize("to", ["/abs", "..", "a/../b", ".", ".castoff", ".castoff-sum/x"])
def test_places_that_are_none(to: str) -> None:
    problems = refused("slurm", stage=[{"from": "/a"}, {"from": "/x", "to": to}])
    assert list(problems) == ["stage.1.to"]
    assert "takes a place under CASTOFF_STAGE_DIR" in problems["stage.1.to"]


@pytest.mark.parametrize(("first", "second"), [("a", "a"), ("a", "a/b"), ("a/b", "a"), ("a", "./a")])
def test_places_in_each_other(first: str, second: str) -> None:
    problems = refused("slurm", stage=[{"from": "/x", "to": first}, {"from": "/y", "to": second}])
    assert "neither may lie in the other" in problems["stage.1.to"]


def test_neighbours_are_fine() -> None:
    assert [item.to for item in staged({"from": "/x", "to": "a/b"}, {"from": "/y", "to": "a/bc"})] == [
        "a/b",
        "a/bc",
    ]


def test_the_same_name_from_two_folders() -> None:
    assert list(refused("slurm", stage=[{"from": "/a/x"}, {"from": "/b/x.tar"}])) == ["stage.1.to"]


def test_other_problems() -> None:
    items: list[dict[str, Any]] = [
        {"from": "/a/words.txt", "unpack": True},
        {"from": "/a/all*.zip"},
        {"from": "/a/env", "to": "a:b", "activate": True},
        {"from": "/"},
    ]
    problems = refused("slurm", stage=items)
    assert sorted(problems) == ["stage.0.unpack", "stage.1.from", "stage.2.to", "stage.3.to"]
    assert ".tar.zst" in problems["stage.0.unpack"]


def test_problems_of_form() -> None:
    items = [{"to": "x"}, {"from": "/a", "sha256": "abc"}, {"from": "/a\nb"}, {"from": "/a", "too": "x"}]
    with pytest.raises(InvalidInput) as caught:
        JobSpec.of({"command": ["x"], "stage": items})
    found = {problem.path: problem.message for problem in caught.value.problems}
    assert sorted(found) == ["stage.0.from", "stage.1.sha256", "stage.2.from", "stage.3.too"]
    assert "a SHA-256 sum: 64 hexadecimal digits" in found["stage.1.sha256"]


@pytest.mark.parametrize(
    ("site", "argv"),
    [
        ("aurora", ["mpiexec", "-n", "2", "--ppn", "1", "--line-buffer", "--pmi=pmix"]),
        ("pbs", ["mpiexec", "-n", "2"]),
        (
            "slurm",
            [
                *("srun", "--nodes=2", "--ntasks=2", "--ntasks-per-node=1"),
                *("--kill-on-bad-exit=1", "--wait=0", "--export=ALL"),
            ],
        ),
    ],
)
def test_one_process_on_each_node(site: str, argv: list[str]) -> None:
    fields = {"nodes": 2, "ranks_per_node": 4, "cores_per_rank": 2, "launcher": {"args": ["--label"]}}
    found = planned(site, stage=[{"from": "/a"}], **fields)
    assert found.stage_start == argv
    assert planned(site, **fields).stage_start == []


def test_the_local_storage_of_each_site() -> None:
    assert planned("local", stage=[{"from": "/a"}]).local_storage is None
    at = derived("slurm", local_storage="/local/scratch")
    assert planned(at, stage=[{"from": "/a"}]).local_storage == "/local/scratch"
    assert planned(at).local_storage is None
