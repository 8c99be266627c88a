"""What a job asks of its scheduler, layer upon layer."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from castoff.launcher.config.job import JobSpec
from castoff.launcher.config.site import Site
from castoff.launcher.importing.script import read_script
from castoff.launcher.launchers.base import Layout, Request
from castoff.launcher.planning import planner
from castoff.launcher.schedulers import registry
from castoff.launcher.schedulers.dialect import own_dependency
from castoff.launcher.schedulers.registry import scheduler_of

REQUEST = Request(Layout([(4, 2)]), 8, [], 1, 4, Site.load("slurm"), name="job", walltime=5400, grace=120)


def site(scheduler: str, **fields: Any) -> Site:
    launcher = {"slurm": "srun", "pbs": "pals"}[scheduler]
    return Site(name="s", description="d", scheduler=scheduler, launcher=launcher, **fields)  # type: ignore[arg-type]


def spec(**fields: Any) -> JobSpec:
    return JobSpec.of({"command": ["x"], **fields})


def slurm(request: Request = REQUEST, at: Site | None = None, **fields: Any) -> dict[str, str | bool]:
    pairs = scheduler_of("slurm").directives(spec(**fields), at or site("slurm"), request)
    assert len({name for name, _ in pairs}) == len(pairs), "no directive twice"
    return dict(pairs)


def pbs(request: Request = REQUEST, at: Site | None = None, **fields: Any) -> dict[str, str | bool]:
    pairs = scheduler_of("pbs").directives(spec(**fields), at or site("pbs"), request)
    assert len({name for name, _ in pairs}) == len(pairs), "no directive twice"
    return dict(pairs)


class TestSlurm:
    def test_least(self) -> None:
        request = replace(REQUEST, cores=None, devices=0, node_devices=0, walltime=None)
        assert scheduler_of("slurm").directives(spec(), site("slurm"), request) == [
            ("job-name", "job"),
            ("nodes", "2"),
            ("ntasks-per-node", "4"),
            ("output", "%x-%j.out"),
            ("open-mode", "append"),
            ("no-requeue", True),
            ("export", "NIL"),
        ]

    def test_every_field(self) -> None:
        found = slurm(
            account="a",
            queue="q",
            qos="high",
            constraint="gpu&hbm80g",
            reservation="r",
            exclude="n[1-3]",
            exclusive=True,
            memory="64G",
            mail={"to": "me@x", "on": ["begin", "fail"]},
            array={"count": 8, "max_concurrent": 4},
            requeue={"max": 2},
            inherit=["A", "B"],
            env_from=["KEY"],
        )
        assert list(found.items()) == [
            ("job-name", "job"),
            ("account", "a"),
            ("partition", "q"),
            ("qos", "high"),
            ("constraint", "gpu&hbm80g"),
            ("reservation", "r"),
            ("exclude", "n[1-3]"),
            ("exclusive", True),
            ("nodes", "2"),
            ("ntasks-per-node", "4"),
            ("cpus-per-task", "8"),
            ("gpus-per-node", "4"),
            ("mem", "64G"),
            ("time", "01:30:00"),
            ("array", "0-7%4"),
            ("mail-user", "me@x"),
            ("mail-type", "BEGIN,FAIL"),
            ("output", "%x-%A_%a.out"),
            ("open-mode", "append"),
            ("signal", "B:USR2@120"),
            ("requeue", True),
            ("export", "A,B,KEY"),
        ]

    @pytest.mark.parametrize(
        ("how", "expected"),
        [
            (None, ("gpus-per-node", "4")),
            ("gpus-per-node", ("gpus-per-node", "4")),
            ("gres", ("gres", "gpu:4")),
            ("gpus-per-task", ("gpus-per-task", "1")),
        ],
    )
    def test_devices_are_spelled_as_the_site_wants_them(self, how: Any, expected: tuple[str, str]) -> None:
        # submitit 1710, 1657, 1769
        found = slurm(at=site("slurm", gpu_request=how))
        assert [pair for pair in found.items() if "gpu" in f"{pair}"] == [expected]

    def test_of_whole_nodes_srun_alone_divides_the_devices(self) -> None:
        # Frontier's nodes come with all their devices; seen too with --exclusive on Slurm 22.05.8.
        whole = replace(REQUEST, whole_nodes=True)
        at = site("slurm", gpu_request="gpus-per-task")
        assert not [name for name in slurm(whole, at) if "gpu" in name]
        assert slurm(whole, site("slurm"))["gpus-per-node"] == "4"

    def test_cores_in_what_slurm_counts(self) -> None:
        assert slurm(at=Site.load("perlmutter"))["cpus-per-task"] == "16"
        assert slurm(at=Site.load("frontier"))["cpus-per-task"] == "8"

    def test_a_job_without_devices_asks_for_none(self) -> None:
        none = replace(REQUEST, devices=0, node_devices=0)
        assert not [name for name in slurm(none, site("slurm", gpu_request="gres")) if "g" in name[:1]]

    @pytest.mark.parametrize(
        ("inherit", "export"),
        [(None, "NIL"), ("none", "NIL"), ([], "NIL"), ("all", "ALL"), (["A"], "A")],
    )
    def test_the_environment_is_decided(self, inherit: Any, export: str) -> None:
        assert slurm(inherit=inherit)["export"] == export

    def test_nothing_that_a_site_might_not_know(self) -> None:
        # submitit 1632: a --wckey that nobody asked for; torchx 359: a --mem.
        assert not {"wckey", "mem", "comment", "gres"} & set(slurm())


class TestPbs:
    def test_least(self) -> None:
        assert scheduler_of("pbs").directives(spec(), site("pbs"), replace(REQUEST, walltime=None)) == [
            ("N", "job"),
            ("select", "2"),
            ("place", "scatter"),
            ("j", "oe"),
            ("r", "n"),
        ]

    def test_every_field(self) -> None:
        found = pbs(
            replace(REQUEST, after="afterok:7.host"),
            account="a",
            queue="q",
            exclusive=True,
            mail={"to": "me@x", "on": ["begin", "end", "fail"]},
            array={"count": 8, "max_concurrent": 4},
            inherit=["A", "B"],
            directives={"filesystems": "home:flare"},
        )
        assert list(found.items()) == [
            ("N", "job"),
            ("A", "a"),
            ("q", "q"),
            ("select", "2"),
            ("place", "scatter:excl"),
            ("walltime", "01:30:00"),
            ("filesystems", "home:flare"),
            ("J", "0-7%4"),
            ("W", "depend=afterok:7.host"),
            ("M", "me@x"),
            ("m", "bea"),
            ("v", "A,B"),
            ("j", "oe"),
            ("r", "y"),
        ]

    @pytest.mark.parametrize(
        ("spelled", "select"),
        [
            ([], "2"),
            (["ncpus"], "2:ncpus=32"),
            (["ncpus", "mpiprocs", "ngpus", "mem"], "2:ncpus=32:mpiprocs=4:ngpus=4:mem=64gb"),
            (["mem", "ngpus"], "2:mem=64gb:ngpus=4"),
        ],
    )
    def test_a_chunk_spells_out_what_the_site_wants(self, spelled: list[str], select: str) -> None:
        # dask-jobqueue 99, 458
        assert pbs(at=site("pbs", requested_resources=spelled), memory="64G")["select"] == select

    def test_a_chunk_without_memory_or_devices(self) -> None:
        none = replace(REQUEST, node_devices=0, cores=None)
        at = site("pbs", requested_resources=["ncpus", "mpiprocs", "ngpus", "mem"])
        assert pbs(none, at)["select"] == "2:ncpus=4:mpiprocs=4"

    def test_an_array_of_one_is_none(self) -> None:
        # PBS refuses -J 0-0; an array must be rerunnable, which any other job must not be.
        found = pbs(array={"count": 1})
        assert "J" not in found
        assert found["r"] == "n"

    @pytest.mark.parametrize(
        ("indices", "expected"),
        [
            ("7", "7-8:2"),
            ("1-5", "1-5"),
            ("10-20:5", "10-20:5"),
            ("3,11", "3-11:8"),
            ("1,3-5,10-20:2", "0-9"),
            ("0-4", "0-4"),
        ],
    )
    def test_an_array_with_gaps(self, indices: str, expected: str) -> None:
        found = pbs(array={"indices": indices})
        assert (found["J"], found["r"]) == (expected, "y")
        assert pbs(array={"indices": indices, "max_concurrent": 3})["J"] == f"{expected}%3"

    @pytest.mark.parametrize(
        ("inherit", "expected"),
        [(None, {}), ("none", {}), ("all", {"V": True}), (["A"], {"v": "A"}), ([], {})],
    )
    def test_the_environment_is_decided(self, inherit: Any, expected: dict[str, object]) -> None:
        assert {name: value for name, value in pbs(inherit=inherit).items() if name in "vV"} == expected


class TestLayers:
    """castoff's own < the site's < the job's fields < the job's `directives`."""

    def test_each_wins_over_the_one_below(self) -> None:
        at = site(
            "slurm", directives={"open-mode": "truncate", "account": "site", "comment": "site", "x": "site"}
        )
        found = slurm(at=at, account="job", directives={"comment": "directive", "partition": "p"}, queue="q")
        assert found["open-mode"] == "truncate"
        assert found["account"] == "job"
        assert found["comment"] == "directive"
        assert found["x"] == "site"
        assert found["partition"] == "p"

    @pytest.mark.parametrize("gone", [None, False])
    def test_null_and_false_take_away(self, gone: bool | None) -> None:
        at = site("slurm", directives={"comment": "x", "hold": True, "open-mode": gone})
        found = slurm(at=at, account="a", directives={"comment": gone, "account": gone, "never": gone})
        assert not {"comment", "account", "never", "open-mode"} & set(found)
        assert found["hold"] is True

    def test_true_is_a_bare_flag(self) -> None:
        assert slurm(directives={"spread-job": True})["spread-job"] is True

    def test_exclusive_false_takes_the_sites_away(self) -> None:
        at = site("slurm", directives={"exclusive": True})
        assert slurm(at=at)["exclusive"] is True
        assert "exclusive" not in slurm(at=at, exclusive=False)

    def test_any_raw_flag_follows_the_known_ones(self) -> None:
        found = list(slurm(directives={"nodelist": "n1", "network": "disable_rdzv_get"}))
        assert found[-2:] == ["nodelist", "network"]

    values = st.none() | st.booleans() | st.sampled_from(["a", "b"])
    layers = st.dictionaries(st.sampled_from(["comment", "account", "hold", "open-mode", "zz"]), values)

    @given(layers, layers, st.none() | st.just("typed"))
    def test_the_last_word_counts(
        self, of_site: dict[str, Any], of_job: dict[str, Any], account: str | None
    ) -> None:
        found = slurm(at=site("slurm", directives=of_site), account=account, directives=of_job)
        for name in ("comment", "account", "hold", "open-mode", "zz"):
            said = [{"open-mode": "append"}, of_site, {"account": account} if account else {}, of_job]
            last = next((layer[name] for layer in reversed(said) if name in layer), None)
            assert found.get(name) == (last or None)


@pytest.mark.parametrize(
    ("after", "words"),
    [
        ({}, None),
        ({"afterok": ["123"]}, "afterok:123"),
        ({"afterok": ["123", "7_4"], "afterany": ["9.host"]}, "afterok:123:7_4,afterany:9.host"),
        ({"afterok": ["7[].aurora-pbs-0001.host"]}, "afterok:7[].aurora-pbs-0001.host"),
        ({"afterok": ["preprocess"]}, None),
        ({"afterok": ["123", "preprocess"]}, None),
        ({"afterok": ["123 --uid=0"]}, None),
        ({"afterok": ["123\n"]}, None),
        ({"afterok": ["\u0661\u0662", "7_\u0663", "7[\u0663]"]}, None),  # digits, but not Slurm's
    ],
)
def test_a_dependency_is_in_the_script_if_it_names_ids_alone(
    after: dict[str, list[str]], words: str | None
) -> None:
    assert own_dependency(after) == words


def test_which_schedulers_have_directives_is_known_without_them() -> None:
    with_dialect = [name for name in registry.NAMES if registry.scheduler_of(name).dialect is not None]
    assert list(registry.HAVE_DIRECTIVES) == with_dialect


NICE = {
    "slurm": {"#SBATCH --nice=5": 5, "#SBATCH --nice": 100, "#SBATCH --nice=-3": -3},
    "pbs": {"#PBS -p -5": 5, "#PBS -p 1023": -1023, "#PBS -p +7": -7},
    "flux": {"#flux: --urgency=11": 5, "#flux: --urgency=30": -14},
}


@pytest.mark.parametrize(("scheduler", "line"), [(name, line) for name in NICE for line in NICE[name]])
def test_nice_is_written_and_imported(scheduler: str, line: str) -> None:
    value = NICE[scheduler][line]
    imported = read_script(f"#!/bin/bash\n{line}\n./prog\n", "job.sh")
    assert (imported.fields["nice"], imported.refused) == (value, [])
    assert JobSpec.of({"script": imported.fields["script"], "nice": value}).nice == value
    own = scheduler_of(scheduler)
    assert own.dialect is not None
    pairs = own.directives(spec(nice=value), Site.load(scheduler), REQUEST)
    (written,) = (own.dialect.line(*pair) for pair in pairs if pair[0] in ("nice", "p", "urgency"))
    again = read_script(f"#!/bin/bash\n{line.split()[0]} {written}\n./prog\n", "job.sh")
    assert again.fields["nice"] == value


def test_what_nice_cannot_say() -> None:
    """Flux's special urgencies remain directives; what qsub would refuse is no field of a job."""
    assert read_script("#!/bin/sh\n#flux: --urgency=hold\nprog\n", "x").fields["directives"] == {
        "flux": {"urgency": "hold"}
    }
    (refused,) = read_script("#!/bin/sh\n#PBS -p 5000\nprog\n", "x").refused
    assert refused.why == "-p is 5000, which is not from -1024 to 1023"
    noted = planner.plan(spec(nice=5), Site.load("local"))
    assert "nice: only affects jobs of a scheduler, and has no effect here" in noted.notes
