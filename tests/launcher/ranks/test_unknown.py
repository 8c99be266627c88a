"""Unknown or contradictory placement is an error with its fix, never rank 0 of 1."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from castoff.launcher.errors import PlacementError
from castoff.launcher.ranks import RankEnv

from .support import (
    EACH_RANK,
    PLACED,
    RECORDINGS,
    TRAP,
    detect,
    each_rank,
    expected_place,
    outcome,
    place,
    rank,
    refusal,
)

# RANK, WORLD_SIZE and LOCAL_RANK alone


# torchrun sets these itself; a single process is rank 0 of 1.
@each_rank([name for name in PLACED if RECORDINGS[name]["launcher"] not in ("torchrun", "single")])
def test_left_over_single_rank_never_makes_all_ranks_the_same(name: str, index: int) -> None:
    message = refusal({**rank(name, index), **TRAP}, name)
    assert "RANK=0, WORLD_SIZE=1, LOCAL_RANK=0" in message or "must not be larger" in message
    assert "unset RANK WORLD_SIZE LOCAL_RANK" in message


@each_rank()
def test_triple_that_agrees_with_the_launcher(name: str, index: int) -> None:
    where = expected_place(name, index)
    triple = {n: str(w) for n, w in zip(TRAP, where[:3], strict=True)}
    me = detect({**rank(name, index), **triple, "MASTER_ADDR": "mine"}, name)
    launcher = RECORDINGS[name]["launcher"]
    assert me.launcher == ("environment" if launcher == "single" else launcher)
    assert place(me) == where
    assert me.master_addr == "mine"


def test_of_a_triple_with_another_local_rank_the_launchers_counts() -> None:
    environ = {**rank("srun-two-nodes", 3), "RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "0"}
    assert detect(environ).local_rank == 1


@pytest.mark.parametrize(
    "triple",
    [
        ("5", "8", "0"),  # rank 5 belongs to task 2
        ("7", "8", "0"),  # its local rank would be 1
        ("3", "5", "1"),  # no multiple
        ("0", "4", "0"),  # another rank of the same size
        ("3", "2", "1"),  # no rank at all
    ],
)
def test_triple_that_contradicts_the_launcher(triple: tuple[str, str, str]) -> None:
    environ = {**rank("srun-two-nodes", 3), **dict(zip(TRAP, triple, strict=True))}
    assert "unset RANK" in refusal(environ)


def test_own_spawn_inside_tasks() -> None:
    environ = {**rank("srun-two-nodes", 3), "RANK": "7", "WORLD_SIZE": "8", "LOCAL_RANK": "1"}
    me = detect(environ)
    assert (me.launcher, *place(me)) == ("environment", 7, 8, 1, 2, None)
    assert me.master_addr == "n1"


@pytest.mark.parametrize(
    ("variables", "where"),
    [
        ({**TRAP}, (0, 1, 0, 1, 0)),
        ({"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1"}, (1, 2, 1, 2, 0)),
        (
            {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"},
            (5, 8, 1, 4, None),
        ),
        (
            {**rank("batch-body"), "RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1"},
            (3, 4, 1, 2, None),
        ),
        (
            {**TRAP, "RANK": "1", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "1", "NODE_RANK": "1"},
            (1, 2, 0, 1, 1),
        ),
        ({**rank("batch-body-one-task"), **TRAP}, (0, 1, 0, 1, 0)),
        ({**TRAP, "RANK": "1", "WORLD_SIZE": "3", "LOCAL_RANK": "1", "PMI_RANK": "1"}, (1, 3, 1, 3, 0)),
    ],
)
def test_triple_without_a_launcher(variables: dict[str, str], where: tuple[Any, ...]) -> None:
    me = detect(variables)
    assert (me.launcher, *place(me)) == ("environment", *where)


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"RANK": "0"}, "without WORLD_SIZE and LOCAL_RANK:"),
        ({"WORLD_SIZE": "4"}, "without RANK and LOCAL_RANK:"),
        ({"LOCAL_RANK": "0"}, "without RANK and WORLD_SIZE:"),
        ({"RANK": "0", "WORLD_SIZE": "1"}, "without LOCAL_RANK:"),
        ({"RANK": "", "WORLD_SIZE": "4", "LOCAL_RANK": "0"}, "without RANK:"),
        ({"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1"}, "Export LOCAL_WORLD_SIZE"),
        ({**TRAP, "RANK": "1"}, "rank 1 (from RANK) must be smaller than world size 1"),
        ({**TRAP, "LOCAL_RANK": "1"}, "local rank 1 (from LOCAL_RANK) must be smaller"),
        ({**TRAP, "LOCAL_WORLD_SIZE": "2"}, "must not be larger"),
        ({**TRAP, "NODE_RANK": "1"}, "node rank 1"),
        ({**TRAP, "PMIX_RANK": "3"}, "contradicts PMIX_RANK=3"),
        ({**TRAP, "PMI_SIZE": "4"}, "contradicts PMI_SIZE=4"),
        ({**TRAP, "MASTER_PORT": "0"}, "MASTER_PORT=0 is not a port"),
        ({**TRAP, "MASTER_PORT": "70000"}, "MASTER_PORT=70000 is not a port"),
    ],
)
def test_triple_that_places_nothing(variables: dict[str, str], words: str) -> None:
    assert words in refusal(variables)


# Unknown is an error, never rank 0 of 1


@pytest.mark.parametrize(
    "name",
    [
        *("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
        *("PMI_RANK", "PMI_SIZE", "PMIX_RANK", "MPI_LOCALRANKID"),
        *("PALS_RANKID", "PALS_LOCAL_RANKID", "FLUX_TASK_RANK", "JSM_NAMESPACE_RANK"),
        *("JSM_NAMESPACE_SIZE", "FLUX_JOB_SIZE", "TORCHELASTIC_RUN_ID"),
    ],
)
def test_launchers_variable_without_its_companions(name: str) -> None:
    message = refusal({name: "0"})
    assert name in message or "torchrun" in message
    assert "unset" in message


@each_rank()
def test_launcher_that_lost_a_variable(name: str, index: int) -> None:
    """Each of those from which a field of its place comes."""
    sources = detect(rank(name, index), name).sources
    fields = ("rank", "world_size", "local_rank", "local_world_size")
    for lost in {sources[field] for field in fields} & {*rank(name, index)}:
        environ = rank(name, index)
        del environ[lost]
        me, message = outcome(environ, name)
        if me is None:
            assert any(word in message for word in ("unset", "srun", "Export", "mpiexec --env")), lost
        else:
            assert place(me) == expected_place(name, index), lost


@given(st.data())
def test_whatever_is_lost_no_rank_becomes_another(data: st.DataObject) -> None:
    name, index = data.draw(st.sampled_from(EACH_RANK))
    if RECORDINGS[name]["launcher"] in ("single", "torchrun"):
        return  # torchrun's ranks have the place of the task around them when it is all lost
    environ = rank(name, index)
    for lost in data.draw(st.sets(st.sampled_from(sorted(environ)), max_size=6)):
        if not lost.endswith(("NTASKS", "NPROCS", "JOB_ID", "JOBID", "NUM_NODES", "NNODES")):
            del environ[lost]
    try:
        me = detect(environ, name)
    except PlacementError:
        return
    if me.launcher == RECORDINGS[name]["launcher"]:
        assert (me.rank, me.world_size, me.local_rank) == expected_place(name, index)[:3]


@pytest.mark.parametrize(
    ("name", "variable"),
    [
        ("srun-two-nodes", "SLURM_PROCID"),
        ("srun-two-nodes", "SLURM_STEP_NUM_TASKS"),
        ("srun-two-nodes", "SLURM_LOCALID"),
        ("srun-two-nodes", "SLURM_NODEID"),
        ("hydra-one-host", "PMI_RANK"),
        ("hydra-one-host", "PMI_SIZE"),
        ("hydra-one-host", "MPI_LOCALRANKID"),
        ("hydra-one-host", "MPI_LOCALNRANKS"),
        ("intelmpi-uneven", "HYDRA_BSTRAP_NODE_ID"),
        ("openmpi-one-host", "OMPI_COMM_WORLD_LOCAL_SIZE"),
        ("torchrun-one-host", "GROUP_RANK"),
        ("torchrun-one-host", "MASTER_PORT"),
        ("documented-pals-pmix", "PALS_NODEID"),
        ("flux-two-nodes", "FLUX_JOB_NNODES"),
    ],
)
def test_numbers_that_are_none(name: str, variable: str) -> None:
    for text in ("-1", "1.0", "one", "²", " 1", "+1", "9" * 30):
        message = refusal({**rank(name), variable: text}, name)
        assert f"{variable}={text!r}" in message
        assert f"unset {variable}" in message


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("hydra-one-host", {"PMI_RANK": "2"}, "rank 2 (from PMI_RANK) must be smaller"),
        ("hydra-one-host", {"MPI_LOCALRANKID": "2"}, "local rank 2"),
        ("hydra-one-host", {"MPI_LOCALNRANKS": "3"}, "must not be larger"),
        ("openmpi-one-host", {"OMPI_COMM_WORLD_SIZE": "0"}, "must be smaller than world size 0"),
        ("flux-two-nodes", {"FLUX_JOB_NNODES": "5"}, "the number of ranks on this node"),
        ("documented-pals-pmix", {"PALS_RANKID": "4", "PMIX_RANK": "4"}, "PBS_NODEFILE x PALS"),
        ("srun-two-nodes", {"SLURM_STEP_NODELIST": "n[1"}, "SLURM_STEP_NODELIST"),
    ],
)
def test_numbers_that_cannot_be(name: str, change: dict[str, str], words: str) -> None:
    assert words in refusal({**rank(name), **change}, name)


def pbs(text: str | None) -> tuple[dict[str, str], Any]:
    environ = {"PBS_JOBID": "7[0].head", "PBS_NODEFILE": "/var/spool/pbs/aux/7[0].head"}

    def read(path: str) -> str:
        assert path == environ["PBS_NODEFILE"]
        if text is None:
            raise PermissionError(13, "Permission denied", path)
        return text

    return environ, read


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("n1\nn2\n", "2 lines on 2 host(s)"),
        ("n1\n\nn1.cluster\n", "2 lines on 1 host(s)"),
        ("n1\nn1\nn1\n", "mpiexec -n 3"),
        (None, "Permission denied"),
    ],
)
def test_pbs_without_a_launcher(text: str | None, words: str) -> None:
    environ, read = pbs(text)
    with pytest.raises(PlacementError) as error:
        RankEnv.detect(environ, read_file=read)
    assert words in str(error.value)
    assert RankEnv.detect({**environ, **TRAP}, read_file=read).launcher == "environment"


def test_pbs_with_one_line_is_a_single_process() -> None:
    environ, read = pbs("n1\n")
    assert RankEnv.detect(environ, read_file=read).launcher == "single"


def test_pbs_without_a_nodefile() -> None:
    assert "PBS_NODEFILE" in refusal({"PBS_JOBID": "7.head"})


def test_task_of_slurm_whose_step_is_gone() -> None:
    assert "not in a step" in refusal({"SLURM_PROCID": "3"})


@pytest.mark.parametrize("name", ["srun-two-nodes", "srun-three-nodes", "torchrun-in-srun"])
@pytest.mark.parametrize("left", ["hydra-one-host", "intelmpi-one-host", "openmpi-one-host"])
def test_step_of_a_job_submitted_from_inside_a_rank_of_mpiexec(name: str, left: str) -> None:
    for environ in RECORDINGS[name]["ranks"]:
        step = {n: text for n, text in environ.items() if n.startswith("SLURM_")}
        single = {n: "1" for n in rank(left) if n.endswith(("_SIZE", "LOCALNRANKS"))}
        message = refusal({**rank(left), **single, **step})
        assert "unset" in message and "before srun" in message


def test_step_that_no_mpiexec_starts_its_ranks_by() -> None:
    # as many as the mpiexec of the left-over variables had, but two of them a node
    environ = {**rank("hydra-one-host"), "PMI_SIZE": "4", **rank("srun-two-nodes")}
    assert "before srun" in refusal(environ)


def test_shell_of_salloc_is_known_by_its_step_alone() -> None:
    environ = rank("salloc-shell")
    del environ["SLURM_GTIDS"]
    assert "not in a step" in refusal(environ)


def test_single_steps_that_are_reported_their_ranks() -> None:
    """One `srun -N1 -n1` a node, each exporting RANK and its companions."""
    step = {"SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0", "SLURM_LOCALID": "0"}
    step |= {"SLURM_NODEID": "0", "SLURM_STEP_TASKS_PER_NODE": "1", "SLURM_JOB_ID": "1"}
    reported = {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}
    assert place(detect({**step, **reported})) == (3, 4, 1, 2, None)


@pytest.mark.parametrize("stranger", ["MPI_LOCALRANKID", "OMPI_COMM_WORLD_SIZE"])
def test_half_of_an_mpiexec_inside_a_step(stranger: str) -> None:
    assert f"unset {stranger}" in refusal({**rank("srun-two-nodes"), stranger: "0"})


@pytest.mark.parametrize("change", [{"PMI_RANK": "1"}, {"PMIX_RANK": "3"}, {"PMI_SIZE": "8"}])
def test_pmi_that_contradicts_the_step(change: dict[str, str]) -> None:
    assert "contradicts" in refusal({**rank("srun-pmi2"), **change})
