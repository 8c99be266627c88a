"""Which allocation an environment tells of, and what becomes of a job and its script inside one."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from castoff import CastoffError, InvalidInput, JobSpec, Plan, Site
from castoff.launcher.interactive.in_allocation import find, plan_in, rank_here, submission_only
from castoff.launcher.schedulers.base_allocation import Allocation
from castoff.launcher.schedulers.command import SchedulerUnreachable
from castoff.launcher.schedulers.flux.allocation import FluxAllocation
from castoff.launcher.schedulers.pbs.allocation import PbsAllocation
from castoff.launcher.schedulers.registry import in_allocation
from castoff.launcher.schedulers.slurm.allocation import SlurmAllocation

RECORDED = Path(__file__).parents[1] / "environments"
TWO = {"SLURM_JOB_ID": "12", "SLURM_JOB_NODELIST": "n[1-2]"}
THREE = SlurmAllocation("12", ["n1", "n2", "n3"])


def recorded(name: str) -> list[dict[str, str]]:
    """What each process of a recording had in its environment."""
    ranks: list[dict[str, str]] = json.loads((RECORDED / f"{name}.json").read_text())["ranks"]
    return ranks


class TestFind:
    @pytest.mark.parametrize("environ", [{}, {"SLURM_JOB_ID": "", "PBS_JOBID": ""}, {"SLURM_CONF": "/x"}])
    def test_none(self, environ: dict[str, str]) -> None:
        assert find(environ) == []

    @pytest.mark.parametrize("name", ["salloc-command", "salloc-shell"])
    def test_salloc(self, name: str) -> None:
        (environ,) = recorded(name)
        (found,) = find(environ)
        assert found.hosts == ["n1", "n2"]
        assert found.cpus == (3, 1)
        assert not found.in_step
        assert str(found) == f"Slurm job {environ['SLURM_JOB_ID']} (2 hosts: n1, n2)"

    def test_what_salloc_was_asked_for(self) -> None:
        (found,) = find({**TWO, "SLURM_JOB_CPUS_PER_NODE": "16(x2)"})
        assert found.cpus == (16, 16)
        (found,) = find({**TWO, "SLURM_JOB_CPUS_PER_NODE": "1(x2)", "SLURM_OVERCOMMIT": "1"})
        assert found.cpus == ()

    def test_a_step_of_one_task(self) -> None:
        environ = recorded("srun-one-node")[0]
        ones = ("STEP_NUM_TASKS", "STEP_TASKS_PER_NODE", "NPROCS", "NTASKS", "TASKS_PER_NODE")
        alone = {**environ, **{f"SLURM_{name}": "1" for name in ones}, "SLURM_GTIDS": "0"}
        (found,) = find(alone)
        assert found.in_step
        assert rank_here(alone) is None

    def test_qsub(self) -> None:
        environ = {"PBS_JOBID": "7.head", "PBS_NODEFILE": "/aux/7.head"}
        (found,) = find(environ, {"/aux/7.head": "x1.a\nx1.a\nx2.a\n"}.__getitem__)
        assert found == PbsAllocation("7.head", ["x1.a", "x2.a"])
        assert str(found) == "PBS job 7.head (2 hosts: x1.a, x2.a)"

    def test_many_hosts_are_reported_in_short(self) -> None:
        (found,) = find({"SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "n[001-128]"})
        assert str(found) == "Slurm job 1 (128 hosts: n001, n002, n003, …, n128)"
        assert str(find({"SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "n7"})[0]) == "Slurm job 1 (1 host: n7)"

    def test_both(self) -> None:
        environ = {**TWO, "PBS_JOBID": "7", "PBS_NODEFILE": "f"}
        assert [one.scheduler for one in find(environ, lambda _: "x1\n")] == ["slurm", "pbs"]

    @pytest.mark.parametrize(
        ("environ", "said"),
        [
            ({"SLURM_JOB_ID": "5"}, "SLURM_JOB_ID=5 is set, but SLURM_JOB_NODELIST"),
            ({"PBS_JOBID": "5"}, "PBS_NODEFILE is not set"),
            ({"PBS_JOBID": "5", "PBS_NODEFILE": "/none"}, "/none cannot be read: No such file or directory"),
            ({"PBS_JOBID": "5", "PBS_NODEFILE": "/dev/null"}, "PBS_NODEFILE=/dev/null is empty"),
        ],
    )
    def test_unknown_hosts_are_reported(self, environ: dict[str, str], said: str) -> None:
        with pytest.raises(CastoffError) as caught:
            find(environ)
        assert said in str(caught.value)
        assert "unset " in str(caught.value) and "castoff launch --here" in str(caught.value)


ANSWERS = Path(__file__).parents[1] / "answers" / "flux"
FLUX = {"FLUX_ENCLOSING_ID": "ƒMU7MvhV", "FLUX_URI": "local:///tmp/flux-XxlURQ/local-0"}
"""As recorded with these answers."""


def flux_answers(monkeypatch: pytest.MonkeyPatch, **other: str | None) -> None:
    """Have flux answer as it was recorded in an allocation, but for what is given; None: it fails."""
    recorded = {"getattr": "jobid-path.txt", "resource": "resource-R.json"}
    said = {
        **{name: (ANSWERS / file).read_text() for name, file in recorded.items()},
        "job": "599\n",
        **other,
    }

    def answer(argv: list[str], *_: object) -> str:
        if (text := said[argv[1]]) is None:
            raise SchedulerUnreachable("flux failed with exit code 1: flux: flux_open: No such file")
        return text

    monkeypatch.setattr("castoff.launcher.schedulers.flux.allocation.answer_of", answer)


class TestFlux:
    def test_its_hosts_and_what_they_have(self, monkeypatch: pytest.MonkeyPatch) -> None:
        flux_answers(monkeypatch)
        (found,) = find(FLUX)
        assert str(found) == "Flux job 779167465472 (3 hosts: fx0, fx1, fx2)"
        assert found.cpus == found.device_counts == (2, 2, 2)
        monkeypatch.setattr("time.time", lambda: 1000.0)
        assert found.end(FLUX) == 1599.0
        flux_answers(monkeypatch, job="4294967295\n")
        assert found.end(FLUX) is None

    def test_hosts_that_differ(self, monkeypatch: pytest.MonkeyPatch) -> None:
        held = json.loads((ANSWERS / "resource-R.json").read_text())
        held["execution"]["R_lite"] = [
            {"rank": "0,2", "children": {"core": "4-11", "gpu": "1"}},
            {"rank": "1", "children": {"core": "0,5"}},
        ]
        flux_answers(monkeypatch, resource=json.dumps(held))
        (found,) = find(FLUX)
        assert (found.cpus, found.device_counts) == ((8, 2, 8), (1, 0, 1))

    def test_the_machines_own_instance_is_no_allocation(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("castoff.launcher.schedulers.flux.allocation.answer_of", None)
        assert find({"FLUX_URI": "local:///run/flux/local"}) == []
        assert not in_allocation({"FLUX_URI": "local:///run/flux/local"})

    @pytest.mark.parametrize(
        ("answers", "said"),
        [
            ({"getattr": None}, "are not known: flux failed with exit code 1"),
            ({"getattr": "/\n"}, "flux on this host reaches the instance /, which is not that job's"),
            ({"resource": "{}"}, "the answer of flux resource R cannot be read"),
        ],
    )
    def test_unknown_hosts_are_reported(
        self, answers: dict[str, str | None], said: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        flux_answers(monkeypatch, **answers)
        with pytest.raises(CastoffError) as caught:
            find(FLUX)
        assert "FLUX_ENCLOSING_ID=ƒMU7MvhV is set, but its hosts" in str(caught.value)
        assert said in str(caught.value) and "flux uri --local ƒMU7MvhV" in str(caught.value)

    def test_a_rank_holds_cores_for_which_others_would_wait(self) -> None:
        with pytest.raises(CastoffError, match="was itself started by flux run in Flux job ƒMU7MvhV"):
            find({**FLUX, "FLUX_TASK_RANK": "0", "FLUX_JOB_SIZE": "1"})

    def test_a_job_on_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        flux_answers(monkeypatch)
        (found,) = find(FLUX)
        fewer = decided(found, "flux", nodes=2, ranks_per_node=2)
        assert (fewer.layout, fewer.cores_per_rank) == ([(2, 2)], 1)
        assert "--requires=host:fx0,fx1" in fewer.start
        assert "--gpus-per-task=2" in decided(found, "flux", devices_per_rank=2).start
        for fields, said in (
            (
                {"nodes": 4},
                "has only 3: ask for at most that many (--nodes 3), or for a larger allocation (f",
            ),
            ({"ranks_per_node": 3}, "need 3 CPUs, but Flux job 779167465472 (3 hosts: fx0, fx1, fx2) has 2"),
            ({"devices_per_rank": 3}, "--nslots=3 --cores-per-slot=2 --gpus-per-slot=3)"),
        ):
            with pytest.raises(InvalidInput) as caught:
                decided(found, "flux", **fields)
            assert said in str(caught.value)


class TestRankHere:
    @pytest.mark.parametrize(
        "name", ["srun-two-nodes", "srun-one-node", "hydra-in-slurm", "openmpi-uneven", "torchrun-in-srun"]
    )
    def test_one_of_several(self, name: str) -> None:
        for number, environ in enumerate(recorded(name)):
            placement = rank_here(environ)
            assert placement is not None
            assert placement.world_size == 4 or name == "srun-one-node", number

    @pytest.mark.parametrize(
        "name",
        ["salloc-command", "salloc-shell", "batch-body", "batch-body-one-task", "batch-body-from-a-step"],
    )
    def test_a_shell_or_a_script_is_none(self, name: str) -> None:
        assert rank_here(recorded(name)[0]) is None

    def test_pals_without_a_size(self) -> None:
        pmix = recorded("documented-pals-pmix")[0]
        placement = rank_here({name: pmix[name] for name in pmix if name != "PBS_NODEFILE"})
        assert placement is not None and placement.launcher == "pals"

    def test_a_rank_of_castoff(self) -> None:
        reported = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}
        mine = {**reported, "CASTOFF_LAUNCHER": "local", "CASTOFF_RANK": "1/2", **TWO}
        placement = rank_here(mine)
        assert placement is not None and placement.launcher == "local"

    @pytest.mark.parametrize(
        "left",
        [
            {"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "3"},
            {"RANK": "3"},
            {"PMI_RANK": "2"},
            {"SLURM_PROCID": "5", "SLURM_STEP_NUM_TASKS": "9"},
            {"CASTOFF_LAUNCHER": "srun", "RANK": "0", "WORLD_SIZE": "4", "LOCAL_RANK": "0"},
            {"CASTOFF_LAUNCHER": "nobody"},
        ],
    )
    def test_what_was_left_over_is_none(self, left: dict[str, str]) -> None:
        assert rank_here({**TWO, **left}) is None


def decided(allocation: Allocation, site: Site | str = "slurm", env: Any = None, **fields: Any) -> Plan:
    spec = JobSpec.of({"command": ["train"], **fields})
    on = Site.load(site) if isinstance(site, str) else site
    return plan_in(allocation, spec, on, env or {})[0]


class TestJob:
    def test_all_hosts_or_the_first_ones(self) -> None:
        assert decided(THREE, ranks_per_node=2).layout == [(2, 3)]
        assert "--nodelist" not in " ".join(decided(THREE).start)
        fewer = decided(THREE, nodes=2, launcher={"args": ["--label"]})
        assert (fewer.nodes, fewer.start[-2:]) == (2, ["--label", "--nodelist=n1,n2"])
        assert decided(THREE, ranks=2).nodes == 2

    def test_an_mpiexec_is_given_a_host_file_anyway(self) -> None:
        assert "--nodelist" not in " ".join(decided(THREE, nodes=2, launcher={"name": "hydra"}).start)

    def test_more_hosts_than_there_are(self) -> None:
        with pytest.raises(InvalidInput) as caught:
            decided(THREE, nodes=4)
        assert caught.value.problems[0].path == "nodes"
        assert "is 4, but Slurm job 12 (3 hosts: n1, n2, n3) has only 3: ask for at most that many" in str(
            caught.value
        )

    def test_nothing_is_asked_of_a_queue(self) -> None:
        """Neither what Aurora insists on nor what its queues refuse matters on hosts that are given."""
        hosts = PbsAllocation("7", ["x1", "x2", "x3"])
        asked = {"queue": "debug", "qos": "fast", "array": {"count": 99}, "requeue": {"max": 3}}
        found = decided(hosts, "aurora", after={"afterok": ["x"]}, **asked)
        assert (found.ranks, found.array_count, found.requeue_max, found.after) == (36, None, 0, {})
        assert found.variables["CCL_KVS_MODE"] == "mpi"
        assert not {"A", "q", "J", "W", "filesystems"} & {name for name, _ in found.directives}

    def test_kinds_of_chunks_say_how_many_ranks_a_host_has(self) -> None:
        hosts = PbsAllocation("7", ["x1", "x2", "x3", "x4"])
        kinds = [{"ranks_per_node": 1, "model": "cpu"}, {"nodes": 2, "ranks_per_node": 4, "model": "gpu"}]
        assert decided(hosts, "pbs", select=kinds).layout == [(1, 1), (4, 2)]
        with pytest.raises(
            InvalidInput, match=r"select: asks for 3 nodes, but PBS job 7 \(2 hosts: x1, x2\) has 2"
        ):
            decided(PbsAllocation("7", ["x1", "x2"]), "pbs", select=kinds)
        assert decided(hosts, "pbs", select={"model": "x"}).layout == [(1, 4)]

    def test_a_cluster_without_select_gives_hosts_all_the_same(self) -> None:
        site = Site.load("pbs").changed(request_form="ncpus")
        spec = JobSpec.of({"command": ["x"]})
        assert plan_in(PbsAllocation("7", ["x1", "x2"]), spec, site, {})[0].nodes == 2

    def test_walltime(self) -> None:
        assert decided(THREE, walltime="30m").walltime is None  # Slurm tells when the allocation ends
        assert decided(THREE, walltime="1m").grace == 120
        assert decided(PbsAllocation("7", ["x1"]), "pbs", walltime="30m").walltime == 1800

    def test_ranks_may_wait_for_those_of_another_launch(self) -> None:
        assert decided(THREE).start_timeout is None
        assert decided(THREE, launcher={"timeout": "2m"}).start_timeout == 120

    @pytest.mark.parametrize(
        ("environ", "fields", "ranks"),
        [
            ({}, {}, 4),
            ({"SLURM_GPUS_PER_NODE": "2"}, {}, 2),
            ({"SLURM_GPUS_PER_NODE": "a100:2"}, {}, 2),
            ({"SLURM_GPUS_PER_NODE": "2"}, {"devices_per_rank": 2}, 1),
            ({"SLURM_GPUS_PER_NODE": "2"}, {"devices_per_rank": 0}, 1),
            ({"SLURM_GPUS_PER_NODE": "2"}, {"ranks_per_node": 4}, 4),
            ({"SLURM_GPUS_PER_NODE": "8"}, {}, 4),
            ({"SLURM_GPUS_PER_NODE": "a100:1,h100:1"}, {}, 4),
            ({"SHOWN": " Nodes=n[1-2] CPU_IDs=0 Mem=0 GRES="}, {}, 1),
            ({"SHOWN": " Nodes=n[1-2] CPU_IDs=0 Mem=0 GRES="}, {"ranks_per_node": 3}, 3),
            (
                {"SHOWN": " Nodes=n1 Mem=0 GRES=gpu:a100:3(IDX:0-2)\n Nodes=n2 GRES=gpu:2(S:0)"},
                {},
                2,
            ),
        ],
    )
    def test_fewer_devices_than_a_node_has(
        self, environ: dict[str, str], fields: dict[str, Any], ranks: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A rank for each device of the node would start some without one."""

        def answer(argv: list[str], *_: object) -> str:
            if "SHOWN" not in environ:
                raise SchedulerUnreachable("no scontrol")
            return f"JobId=12\n   JOB_GRES=(null)\n{environ['SHOWN']}\n   MinMemoryCPU=0\n"

        monkeypatch.setattr("castoff.launcher.schedulers.slurm.allocation.answer_of", answer)
        (found,) = find({**TWO, **environ})
        node = {
            "devices": [4],
            "device_variable": "CUDA_VISIBLE_DEVICES",
            "source": "x",
            "date": "2026-11-27",
        }
        site = Site.load("slurm").changed(node=node)
        made = plan_in(found, JobSpec.of({"command": ["x"], **fields}), site, environ)[0]
        assert made.layout == [(ranks, 2)]
        if environ.get("SHOWN", "").endswith("="):
            assert made.devices_per_rank == 0

    @pytest.mark.parametrize(
        ("vnodes", "environ", "node", "ranks"),
        [
            ("(n1:ncpus=4:ngpus=2)+(n2:ncpus=4:ngpus=3:mem=5kb)", {}, {}, 2),
            ("(n1:ncpus=4:ngpus=1+n1:ngpus=2)+(n2:ngpus=3)", {}, {}, 3),
            ("(n1[0]:ncpus=2:ngpus=1+n1[1]:ncpus=2:ngpus=1)+(n2[0]:ngpus=2)", {}, {}, 2),
            ("(n1:ncpus=4)+(n2:ncpus=4:ngpus=1)", {}, {}, 1),  # the first has none
            ("(n1:ncpus=4)+(n2:ncpus=4)", {}, {}, 4),  # says nothing of them
            ("(a:ngpus=1)+(b:ngpus=1)+(c:ngpus=1)", {}, {}, 4),  # not these hosts
            ("(n1:ngpus=1)+(n2:ngpus=1)", {}, {"exclusive": True}, 4),
            (None, {}, {}, 4),
            (None, {"CUDA_VISIBLE_DEVICES": "GPU-5,GPU-7"}, {}, 2),
            ("(n1:ncpus=4)+(n2:ncpus=4)", {"CUDA_VISIBLE_DEVICES": ""}, {}, 1),  # as the hook of cgroups
            ("(n1:ngpus=3)+(n2:ngpus=3)", {"CUDA_VISIBLE_DEVICES": "2"}, {}, 1),
            ("(n1:ngpus=2)+(n2:ngpus=2)", {"CUDA_VISIBLE_DEVICES": "0,1,2"}, {}, 2),
            (None, {"CUDA_VISIBLE_DEVICES": "0.0,0.1"}, {"device_names": ["0.0", "0.1", "1.0", "1.1"]}, 4),
        ],
    )
    def test_fewer_devices_in_a_job_of_pbs(
        self,
        vnodes: str | None,
        environ: dict[str, str],
        node: dict[str, Any],
        ranks: int,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """As its chunks have, or as a mask shows; silence is no answer."""

        def answer(argv: list[str], *_: object) -> str:
            assert argv == ["qstat", "-f", "-w", "7.head"]
            if vnodes is None:
                raise SchedulerUnreachable("no qstat")
            return f"Job Id: 7.head\n    job_state = R\n    exec_vnode = {vnodes}\n    mtime = 1\n\n"

        monkeypatch.setattr("castoff.launcher.schedulers.pbs.allocation.answer_of", answer)
        known = {"devices": [4], "device_variable": "CUDA_VISIBLE_DEVICES", "source": "x"}
        site = Site.load("pbs").changed(node={**known, "date": "2026-11-28", **node})
        hosts, spec = PbsAllocation("7.head", ["n1", "n2"]), JobSpec.of({"command": ["x"]})
        made = plan_in(hosts, spec, site, environ)[0]
        assert made.layout == [(ranks, 2)]
        assert made.devices_per_rank == (1 if ranks > 1 or "2" in environ.values() else 0)

    def test_cores_are_shared_out(self) -> None:
        given = replace(THREE, cpus=(12, 9, 12))
        found = decided(given, ranks_per_node=4)
        assert (found.cores_per_rank, found.variables["OMP_NUM_THREADS"]) == (2, "2")
        assert "--cpus-per-task=2" in found.start
        assert decided(given, ranks=10).cores_per_rank == 3  # 4, 3 and 3 of them
        assert decided(given, ranks_per_node=4, cores_per_rank=1).cores_per_rank == 1
        assert decided(THREE).cores_per_rank is None
        node = {"sockets": ["0-15"], "source": "x", "date": "2026-11-27"}
        site = Site.load("slurm").changed(node=node)
        assert decided(given, site, ranks_per_node=2).cores_per_rank == 4  # not half of the node
        assert decided(replace(THREE, cpus=(16, 16, 16)), site, ranks_per_node=2).cores_per_rank == 8

    def test_the_shells_own_number_of_threads(self) -> None:
        given = {"OMP_NUM_THREADS": "5"}
        assert decided(THREE, env=given).variables["OMP_NUM_THREADS"] == "5"
        mine = JobSpec.of({"command": ["x"], "env": {"OMP_NUM_THREADS": "3"}})
        assert plan_in(THREE, mine, Site.load("slurm"), given)[0].variables["OMP_NUM_THREADS"] == "3"

    def test_pbss_number_of_threads_is_that_of_a_chunk(self) -> None:
        pbs, reported = PbsAllocation("7", ["x1"]), {"NCPUS": "208", "OMP_NUM_THREADS": "208"}
        assert decided(pbs, "pbs", env=reported).variables["OMP_NUM_THREADS"] == "1"
        own = decided(pbs, "pbs", env={**reported, "OMP_NUM_THREADS": "4"})
        assert own.variables["OMP_NUM_THREADS"] == "4"

    def test_problems_still_name_their_place(self, tmp_path: Path) -> None:
        (tmp_path / "job.yaml").write_text("command: [x]\nnodes: 3\nranks_per_node: 500\n")
        spec = JobSpec.load(tmp_path / "job.yaml")
        with pytest.raises(InvalidInput, match=r"job\.yaml:3: ranks_per_node: is 500"):
            plan_in(PbsAllocation("12", THREE.hosts), spec, Site.load("aurora"), {})
        with pytest.raises(InvalidInput, match=r"job\.yaml:2: nodes: is 3, but Slurm job 12 \(1 host: n1\)"):
            plan_in(replace(THREE, hosts=["n1"]), spec, Site.load("slurm"), {})


class TestEnvironment:
    def environment(self, allocation: Allocation, given: dict[str, str], nodes: int = 3) -> dict[str, str]:
        end = {"SLURM_JOB_END_TIME": "1"} if allocation.reports_end_time else {}  # nothing is asked then
        made = allocation.environment(nodes, {**given, **end}, Path("/runs/r"), "/work")
        return {name: text for name, text in made.items() if name not in end}

    def test_slurm(self) -> None:
        made = self.environment(
            THREE,
            {
                **{"SLURM_RESTART_COUNT": "2", "CASTOFF_ATTEMPT": "4", "SLURM_SUBMIT_DIR": "/home"},
                **{"CASTOFF_SITE": "mine", "SLURM_JOB_NODELIST": "n[1-3]", "PATH": "/bin"},
            },
        )
        assert made == {
            **{"CASTOFF_SITE": "mine", "PATH": "/bin", "SLURM_JOB_ID": "12", "SLURM_JOB_NODELIST": "n[1-3]"},
            **{"SLURM_SUBMIT_DIR": "/work", "CASTOFF_RUN_DIR": "/runs/r"},
        }

    def test_fewer_hosts(self) -> None:
        made = self.environment(THREE, {"SLURM_NNODES": "3"}, nodes=2)
        assert made["SLURM_JOB_NODELIST"] == made["SLURM_NODELIST"] == "n1,n2"
        assert made["SLURM_NNODES"] == made["SLURM_JOB_NUM_NODES"] == "2"

    def test_a_step_that_holds_the_cores(self) -> None:
        bound = {
            "SLURM_CPU_BIND": "mask_cpu:0x1",
            "SLURM_CPU_BIND_TYPE": "mask_cpu:",
            "SLURM_DISTRIBUTION": "x",
        }
        made = self.environment(replace(THREE, in_step=True), bound)
        assert made["SLURM_OVERLAP"] == "1"
        assert not bound.keys() & made.keys()
        assert bound.items() <= self.environment(THREE, bound).items()

    def test_pbs(self, tmp_path: Path) -> None:
        hosts = PbsAllocation("7", ["a", "b"])
        reported = {"PBS_O_WORKDIR": "/home", "PBS_NODEFILE": "/aux/7"}
        assert self.environment(hosts, reported, nodes=2) == {
            "CASTOFF_RUN_DIR": "/runs/r",
            "PBS_O_WORKDIR": "/work",
            "PBS_NODEFILE": "/aux/7",
        }
        fewer = hosts.environment(1, reported, tmp_path, "/work")
        assert Path(fewer["PBS_NODEFILE"]).read_text() == "a\n"

    def test_flux(self, tmp_path: Path) -> None:
        """A file that is of this job alone: a batch job may resume the same run."""
        hosts = FluxAllocation("7", ["a", "b"])
        assert hosts.environment(1, FLUX, tmp_path, "/work") == {**FLUX, "CASTOFF_RUN_DIR": str(tmp_path)}
        assert (tmp_path / "hosts-7").read_text() == "a\n"


@pytest.mark.parametrize("name", ["SLURM_JOB_ID", "SLURM_JOBID", "PBS_JOBID", "FLUX_ENCLOSING_ID"])
def test_a_variable_that_marks_an_allocation_is_one_that_is_looked_into(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    flux_answers(monkeypatch, getattr=None)
    assert in_allocation({name: "1"}) and not in_allocation({})
    with pytest.raises(CastoffError, match=f"{name.replace('BID', 'B_?ID')}=1 is set, but"):
        find({name: "1"})


def test_all_that_only_a_scheduler_is_told_is_left_out() -> None:
    names = submission_only(JobSpec())
    assert {"account", "qos", "memory", "mail", "directives", "inherit", "array"} <= {*names}
    assert not {"command", "nodes", "walltime", "env_from", "launcher"} & {*names}
