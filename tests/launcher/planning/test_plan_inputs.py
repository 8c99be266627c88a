"""Where a plan's inputs come from, which of them wins, and that nothing else decides."""

from __future__ import annotations

import builtins
import os
import random
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from castoff.launcher.config.job import JobSpec
from castoff.launcher.config.site import Search, Site
from castoff.launcher.errors import InvalidInput
from castoff.launcher.planning.planner import plan
from castoff.launcher.runs.plan import Plan
from castoff.launcher.runs.records import encode
from tests.hostile import any_text

SITES = ["aurora", "slurm", "pbs", "local"]

AURORA: dict[str, Any] = {
    "command": ["python", "train.py"],
    "account": "a",
    "walltime": "30m",
    "directives": {"filesystems": "home:flare"},
}


def planned(site: Site | str, **fields: Any) -> Plan:
    at = Site.load(site) if isinstance(site, str) else site
    base = AURORA if at.name == "aurora" else {"command": ["python", "train.py"]}
    return plan(JobSpec.of({**base, **fields}), at)


def refused(site: Site | str, **fields: Any) -> dict[str, str]:
    with pytest.raises(InvalidInput) as caught:
        planned(site, **fields)
    return {problem.path: problem.message for problem in caught.value.problems}


def derived(name: str, **fields: Any) -> Site:
    """A built-in site with some of its fields changed."""
    return msgspec.convert({**msgspec.to_builtins(Site.load(name)), **fields}, Site)


class TestDefaults:
    def test_site_defaults_apply_where_the_job_sets_nothing(self) -> None:
        defaults = {
            "account": "site",
            "walltime": "1h",
            "nodes": 2,
            "env": {"A": "site", "B": "site"},
            "setup": ["default"],
            "directives": {"comment": "site", "hint": "site"},
            "launcher": {"name": "hydra", "args": ["-v"]},
            "requeue": {"max": 2},
            "env_from": ["KEY"],
        }
        at = derived("slurm", defaults=defaults, setup=["site"], env={"A": "env", "C": "env"})
        found = planned(at)
        assert (found.nodes, found.walltime, found.requeue_max, found.env_from) == (2, 3600, 2, ["KEY"])
        assert found.launcher == "hydra"
        found = planned(
            at,
            account="job",
            nodes=1,
            env={"B": "job"},
            setup=["job"],
            directives={"hint": "job"},
            launcher={"torchrun": True},
            env_from=["MINE"],
        )
        assert dict(found.directives)["account"] == "job"
        assert dict(found.directives)["comment"] == "site"
        assert dict(found.directives)["hint"] == "job"
        assert found.nodes == 1
        assert found.variables == {"A": "site", "B": "job", "C": "env", "OMP_NUM_THREADS": "1"}
        assert found.setup == ["site", "default", "job"]
        assert (found.launcher, found.torchrun, found.start[-1]) == ("hydra", True, "-v")
        assert found.env_from == ["MINE"]

    def test_directives_of_one_scheduler_and_of_another(self) -> None:
        of_site = {"comment": "site", "hint": "site", "pbs": {"site": "pbs"}}
        fields: dict[str, Any] = {
            "directives": {"hint": "job", "pbs": {"site": "x"}, "slurm": {"comment": "job", "network": None}}
        }
        at = derived("slurm", defaults={"directives": of_site}, directives={"slurm": {"network": "a"}})
        found = dict(planned(at, **fields).directives)
        assert (found["comment"], found["hint"]) == ("job", "job")
        assert not {"network", "site", "pbs", "slurm"} & set(found)
        del fields["directives"]["hint"]
        found = dict(planned("pbs", **fields).directives)
        assert found["site"] == "x" and not {"comment", "network", "slurm"} & set(found)
        here = planned("local", **fields)
        assert not here.directives and not [note for note in here.notes if "directives" in note]

    def test_ranks_and_ranks_per_node_displace_each_other(self) -> None:
        assert planned(derived("slurm", defaults={"ranks_per_node": 4}), ranks=3).layout == [(3, 1)]
        assert planned(derived("slurm", defaults={"ranks": 3}), ranks_per_node=4).layout == [(4, 1)]

    def test_a_default_can_be_wrong_for_a_job(self) -> None:
        found = refused(derived("slurm", defaults={"nodes": 4}), ranks=2)
        assert set(found) == {"ranks"}
        assert "2 for 4 nodes" in found["ranks"]
        with pytest.raises(InvalidInput) as caught:
            planned(derived("aurora", defaults={"nodes": 4}), ranks=2)
        assert len(caught.value.problems) == 1, "and nothing that only follows from it"
        assert set(refused(derived("pbs", defaults={"python": "bin/python"}))) == {"python"}


class TestWhere:
    """A site's refusal stands at the line that it refuses."""

    def test_lines_flags_and_defaults(self, tmp_path: Path) -> None:
        path = tmp_path / "job.yaml"
        path.write_text(
            "command: [train.py]\nnodes: 4\nqueue: debug\ndirectives:\n  x: y\n  N: n\nwalltime: 30m\n"
        )
        at = derived("aurora", defaults={"qos": "high"})
        spec = JobSpec.load(path, flags={"name": "1st"}, overrides=["grace=2h"])
        with pytest.raises(InvalidInput) as caught:
            plan(spec, at)
        assert {problem.path: problem.where for problem in caught.value.problems} == {
            "queue": f"{path}:3",
            "directives.N": f"{path}:6",
            "name": "--name",
            "grace": "--set grace=2h",
            "account": str(path),
            "directives.filesystems": f"{path}:4",
            "qos": "defaults of site aurora",
        }

    def test_directives_under_a_schedulers_name(self, tmp_path: Path) -> None:
        path = tmp_path / "job.yaml"
        path.write_text(
            "command: [x]\naccount: a\nwalltime: 1h\ndirectives:\n  pbs:\n    k: oe\n  slurm:\n    time: 1h\n"
        )
        overrides = ["directives.pbs.filesystems=hoome"]
        with pytest.raises(InvalidInput) as caught:
            plan(JobSpec.load(path, overrides=overrides), Site.load("aurora"))
        assert {problem.path: problem.where for problem in caught.value.problems} == {
            "directives.pbs.k": f"{path}:6",
            "directives.pbs.filesystems": f"--set {overrides[0]}",
        }

    def test_without_a_file(self) -> None:
        with pytest.raises(InvalidInput, match=r"^train on local: nodes: is 2"):
            planned("local", nodes=2)
        with pytest.raises(InvalidInput, match=r"^--nodes: is 2"):
            plan(JobSpec.load(None, flags={"command": ["x"], "nodes": 2}), Site.load("local"))

    def test_a_function_too(self, tmp_path: Path) -> None:
        path = tmp_path / "job.yaml"
        path.write_text("command: [x]\nnodes: 2\n")
        with pytest.raises(InvalidInput, match=r"job\.yaml:2: nodes: is 2"):
            plan(JobSpec.load(path), Site.load("local"), function=True)


def test_the_command_line_wins_over_the_file_over_the_site(tmp_path: Path) -> None:
    at = derived("slurm", defaults={"queue": "site", "account": "site", "qos": "site", "nodes": 9})
    path = tmp_path / "job.yaml"
    path.write_text("command: [x]\naccount: file\nqos: file\nnodes: 3\n")
    found = plan(JobSpec.load(path, flags={"nodes": 2}, overrides=["qos=set"]), at)
    directives = dict(found.directives)
    assert [directives[name] for name in ("partition", "account", "qos", "nodes")] == [
        "site",
        "file",
        "set",
        "2",
    ]


jobs = st.fixed_dictionaries(
    {
        "command": st.lists(any_text(min_size=1), min_size=1, max_size=3).filter(
            lambda found: found[0][0] != "-"
        ),
    },
    optional={
        "nodes": st.integers(1, 20),
        "ranks_per_node": st.integers(1, 50),
        "cores_per_rank": st.integers(1, 10),
        "devices_per_rank": st.integers(0, 3),
        "walltime": st.sampled_from(["10m", "1h", "01:00:00"]),
        "account": st.just("a"),
        "queue": st.sampled_from(["debug", "capacity", "other"]),
        "directives": st.just({"filesystems": "home"}) | st.just({"comment": "x"}),
        "array": st.fixed_dictionaries({"count": st.integers(1, 9)}),
        "requeue": st.fixed_dictionaries({"max": st.integers(0, 2)}),
        "launcher": st.fixed_dictionaries({}, optional={"torchrun": st.booleans(), "args": st.just(["-v"])}),
        "inherit": st.sampled_from(["none", "all"]),
        "memory": st.just("4G"),
        "exclusive": st.booleans(),
        "mail": st.just({"to": "me"}),
    },
)


@pytest.fixture(scope="module")
def sites() -> dict[str, Site]:
    return {name: Site.load(name) for name in SITES}


@given(fields=jobs, name=st.sampled_from(SITES))
@settings(max_examples=100)
def test_a_plan_follows_from_its_inputs_alone(
    sites: dict[str, Site], fields: dict[str, Any], name: str
) -> None:
    spec, site = JobSpec.of(fields), sites[name]
    before = msgspec.json.encode([spec, site])

    def outcome() -> Plan | str:
        try:
            return plan(spec, site)
        except InvalidInput as error:
            return str(error)

    first = outcome()
    assert outcome() == first
    assert msgspec.json.encode([spec, site]) == before, "its inputs are left alone"
    if isinstance(first, Plan):
        text = encode(first)
        assert msgspec.json.decode(text, type=Plan) == first
        assert first.ranks == sum(count * times for count, times in first.layout)
        assert first.nodes == sum(times for _, times in first.layout)


def test_planning_asks_nothing_of_the_world(monkeypatch: pytest.MonkeyPatch) -> None:
    sites = {name: Site.load(name) for name in SITES}
    expected = {name: planned(site, nodes=1) for name, site in sites.items()}

    class Nothing(dict[str, str]):
        def __getitem__(self, name: str) -> str:
            raise AssertionError(f"the environment was asked for {name}")

        get = __contains__ = __iter__ = __getitem__  # type: ignore[assignment]

    def forbidden(*_args: object, **_more: object) -> None:
        raise AssertionError("planning reached out")

    with monkeypatch.context() as patched:
        for holder, name in (
            *((subprocess, name) for name in ("Popen", "run", "check_output")),
            *((socket, name) for name in ("socket", "gethostname", "getfqdn", "create_connection")),
            *((time, name) for name in ("time", "monotonic", "sleep", "strftime")),
            *((os, name) for name in ("getcwd", "stat", "listdir", "scandir", "getpid", "urandom", "system")),
            *((random, "random"), (builtins, "open")),
        ):
            patched.setattr(holder, name, forbidden)
        patched.setattr(os, "environ", Nothing())
        found = {name: planned(site, nodes=1) for name, site in sites.items()}
    assert found == expected


@pytest.mark.parametrize("site", ["slurm", "local"])
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "pbs: home",
            {
                "pbs": "is 'home', but pbs holds PBS's own directives by their names, as in `directives: "
                "{pbs: {comment: home}}`"
            },
        ),
        ("slurm: true", {"slurm": "is True, but slurm holds Slurm's own"}),
        ("condor: {x: y}", {"condor": "holds directives, but only flux, slurm, pbs, lsf hold their own"}),
        ("comment: a, slurm: {comment: b}", {"slurm.comment": "appears in directives.comment too; keep one"}),
        ("pbs: , slurm: {}", {}),
    ],
)
def test_directives_of_one_scheduler(site: str, line: str, expected: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(f"command: [x]\ndirectives: {{{line}}}\n")
    found = {}
    try:
        plan(JobSpec.load(tmp_path / "job.yaml"), Site.load(site))
    except InvalidInput as error:
        found = {problem.path.removeprefix("directives."): problem.message for problem in error.problems}
    assert set(found) == set(expected)
    assert all(words in found[name] for name, words in expected.items())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "scheduler: condor",
            "scheduler: is 'condor', which castoff does not know; there are: flux, slurm, pbs",
        ),
        ("scheduler: slum", "did you mean slurm?"),
        (
            "scheduler: slurm\ndevice_type_resource: gpu_type",
            "device_type_resource: is not supported by Slurm, the scheduler of this site: drop",
        ),
        (
            "scheduler: pbs\ngpu_bind: closest",
            "gpu_bind: is not supported by PBS, the scheduler of this site",
        ),
    ],
)
def test_a_profile_of_no_scheduler_that_is_known(text: str, expected: str, tmp_path: Path) -> None:
    folder = tmp_path / ".castoff" / "sites"
    folder.mkdir(parents=True)
    (folder / "mine.yaml").write_text(f"description: d\nlauncher: hydra\n{text}\n")
    site = Site.load("mine", search=Search({}, tmp_path))
    with pytest.raises(InvalidInput, match=r"^site mine: ") as caught:
        plan(JobSpec.of({"command": ["x"]}), site)
    assert expected in str(caught.value)
