"""castoff's marker: believed in its own ranks, not in what those start."""

from __future__ import annotations

import pytest

from castoff.launcher.ranks.decision import MARKERS

from .support import (
    PLACED,
    RECORDINGS,
    TRAP,
    detect,
    each_rank,
    expected_place,
    place,
    rank,
    refusal,
    shim,
    shim_of,
)

# castoff's marker


@each_rank([name for name in PLACED if RECORDINGS[name]["launcher"] in MARKERS])
def test_marker_is_believed_in_its_own_ranks(name: str, index: int) -> None:
    launcher = RECORDINGS[name]["launcher"]
    expected = RECORDINGS[name]["expected"]
    node = [e["host"] for e in expected].index(expected[index]["host"])
    where = (*expected_place(name, index)[:4], node)
    me = detect({**rank(name, index), **shim(launcher, *where)}, name)
    assert (me.launcher, *place(me)) == (launcher, *where)
    assert (me.master_addr, me.master_port, me.device) == ("outer", 20007, 5)
    assert me.sources["launcher"] == "CASTOFF_LAUNCHER"


def test_marker_pals_needs_no_world_size_of_the_family() -> None:
    environ = {**rank("documented-pals-pmix", 3), **shim("pals", 3, 4, 1, 2, 1)}
    assert place(detect(environ)) == (3, 4, 1, 2, 1)  # no nodefile to read


@pytest.mark.parametrize("around", [{}, rank("batch-body"), rank("batch-body-one-task")])
def test_marker_local_is_believed_where_no_launcher_is(around: dict[str, str]) -> None:
    me = detect({**around, **shim("local", 1, 2, 1, 2, 0)})
    assert (me.launcher, *place(me), me.device) == ("local", 1, 2, 1, 2, 0, 5)


def test_marker_is_believed_where_its_family_was_removed() -> None:
    assert detect(shim("hydra", 3, 4, 1, 2, 1)).launcher == "hydra"


@pytest.mark.parametrize("launcher", ["local", "srun", "pals", "hydra", "intelmpi", "openmpi", "flux"])
def test_marker_is_refused_where_an_unknown_launcher_contradicts(launcher: str) -> None:
    for size, name in ((1, "PMIX_RANK"), (1, "PMI_RANK"), (4, "PMIX_RANK")):
        said = refusal({**shim(launcher, 0, size, 0, size, 0), name: "3"})
        assert f"contradicts {name}=3" in said


def test_marker_without_a_node_rank_takes_the_familys() -> None:
    environ = {**rank("srun-two-nodes", 3), **shim("srun", 3, 4, 1, 2, None)}
    assert (detect(environ).node_rank, detect(environ).device) == (1, 5)


def test_marker_hydra_covers_intel_mpi() -> None:
    environ = {**rank("intelmpi-one-host", 1), **shim("hydra", 1, 2, 1, 2, 0)}
    assert (detect(environ).launcher, detect(environ).device) == ("hydra", 5)


@pytest.mark.parametrize("missing", ["RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "CASTOFF_RANK"])
def test_marker_without_its_companions(missing: str) -> None:
    environ = shim("local", 1, 2, 1, 2, 0)
    del environ[missing]
    assert missing in refusal(environ)
    assert detect({**rank("hydra-one-host", 1), **environ}).launcher == "hydra"


def test_marker_that_castoff_does_not_write() -> None:
    assert "unset CASTOFF_LAUNCHER" in refusal(shim("slurm", 0, 2, 0, 2, 0))


@pytest.mark.parametrize("device", ["-1", "gpu0", "1,2"])
def test_device_is_checked(device: str) -> None:
    environ = {**shim("local", 1, 2, 1, 2, 0), "CASTOFF_DEVICE": device}
    assert "CASTOFF_DEVICE" in refusal(environ)


# Launchers inside launchers: what is inherited from the outer task must not win

INNER = [
    (outer, inner)
    for outer, inner in [
        ("local", "torchrun-one-host"),
        ("srun-two-nodes", "torchrun-one-host"),
        ("srun-two-nodes", "torchrun-in-srun"),
        ("hydra-in-slurm", "torchrun-one-host"),
        ("local", "hydra-one-host"),
        ("local", "intelmpi-one-host"),
        ("local", "openmpi-one-host"),
        ("local", "srun-in-batch"),
        ("local", "srun-two-nodes"),
        ("srun-two-nodes", "hydra-one-host"),
        ("srun-two-nodes", "openmpi-one-host"),
        ("hydra-in-slurm", "openmpi-one-host"),
        ("srun-two-nodes", "srun-in-batch"),
        ("srun-uneven", "srun-in-batch"),
        ("srun-one-node", "srun-two-nodes"),
        ("documented-pals-cray-pmi", "torchrun-one-host"),
        ("local", "documented-pals-pmix"),
    ]
]


@pytest.mark.parametrize(("outer", "inner"), INNER)
def test_inner_launcher_wins_over_castoffs_task(outer: str, inner: str) -> None:
    for i in range(4):
        if outer == "local":
            around = shim("local", i, 4, i, 4, 0, CASTOFF_RANK=f"{i}/4")
        elif i < len(RECORDINGS[outer]["ranks"]):
            size = len(RECORDINGS[outer]["ranks"])
            reported = shim_of(outer, i, CASTOFF_RANK=f"{i}/{size}")
            around = {**rank(outer, i), **reported}
        else:
            continue
        for j in range(len(RECORDINGS[inner]["ranks"])):
            me = detect({**around, **rank(inner, j)}, inner)
            assert place(me) == expected_place(inner, j)
            if (outer, inner) != ("srun-one-node", "srun-two-nodes") or place(me)[:2] != (i, 2):
                assert me.launcher == RECORDINGS[inner]["launcher"]
            assert me.master_addr == detect(rank(inner, j), inner).master_addr
            assert me.master_port != 20007
            assert me.device is None


@pytest.mark.parametrize("outer", ["hydra-in-slurm", "intelmpi-in-slurm", "openmpi-in-slurm"])
def test_inner_srun_is_refused_where_it_keeps_the_variables_of_an_mpiexec(outer: str) -> None:
    for i in range(len(RECORDINGS[outer]["ranks"])):
        for j in range(2):
            environ = {**rank(outer, i), **shim_of(outer, i), **rank("srun-in-batch", j)}
            assert "before srun: unset" in refusal(environ)


@pytest.mark.parametrize("index", range(2))
def test_inner_srun_that_differs_in_the_local_rank_alone(index: int) -> None:
    """Outer: two tasks on two nodes. Inner: two on one node, with the same ranks."""
    around = shim("srun", index, 2, 0, 1, index)
    me = detect({**around, **rank("srun-in-batch", index)})
    assert place(me) == expected_place("srun-in-batch", index)
    assert me.device is None


def test_inner_srun_that_deals_ranks_out_another_way() -> None:
    """Outer: ranks 0 and 1 on the first node. Inner: rank 1 is the first on the second."""
    environ = {**shim("srun", 1, 4, 1, 2, 0), **rank("srun-cyclic", 1)}
    assert place(detect(environ)) == expected_place("srun-cyclic", 1)


def test_inner_pals_does_not_take_the_outer_world_size() -> None:
    around = shim("local", 1, 8, 1, 8, 0, CASTOFF_RANK="1/8")
    me = detect({**around, **rank("documented-pals-pmix", 1)}, "documented-pals-pmix")
    assert place(me) == expected_place("documented-pals-pmix", 1)


@pytest.mark.parametrize("body", ["batch-body", "batch-body-from-a-step"])
@pytest.mark.parametrize("index", range(4))
def test_job_submitted_from_inside_a_rank_of_castoff(body: str, index: int) -> None:
    environ = {**shim_of("srun-two-nodes", index), **rank(body)}
    assert "not in a step" in refusal(environ)


def test_single_task_job_submitted_from_inside_a_rank_of_castoff() -> None:
    me = detect({**shim_of("srun-two-nodes", 3), **rank("batch-body-one-task")})
    assert (me.launcher, *place(me), me.device) == ("single", 0, 1, 0, 1, 0, None)


@pytest.mark.parametrize("index", range(2))
def test_own_spawn_inside_castoffs_task(index: int) -> None:
    """A program started once a node spawns two ranks, tells them RANK …, and removes castoff's marks."""
    around = {**rank("torchrun-in-srun", 2 * index)}
    around = {name: text for name, text in around.items() if name.startswith("SLURM")}
    around |= shim("srun", index, 2, 0, 1, index)
    for child in range(2):
        spawned = {"RANK": str(2 * index + child), "WORLD_SIZE": "4", "LOCAL_RANK": str(child)}
        message = refusal({**around, **spawned})
        assert "spawns ranks of its own, in them: unset CASTOFF_LAUNCHER CASTOFF_RANK" in message
        reported = {**around, **spawned, "LOCAL_WORLD_SIZE": "2"}
        me = detect({name: text for name, text in reported.items() if not name.startswith("CASTOFF_")})
        assert (me.launcher, *place(me)) == ("environment", 2 * index + child, 4, child, 2, index)
        assert (me.master_addr, me.device) == ("outer", None)


@pytest.mark.parametrize("text", ["0/1", "1", "a/b", "1/0", "/"])
def test_rank_that_is_not_the_one_that_castoff_reported(text: str) -> None:
    """As where a wrapper around the program sets RANK again, alike in all of castoff's ranks."""
    environ = shim("local", 1, 4, 1, 4, 0, CASTOFF_RANK=text)
    assert "unset CASTOFF_LAUNCHER CASTOFF_RANK" in refusal(environ)
    assert "unset RANK" in refusal({**shim("local", 1, 4, 1, 4, 0), **TRAP})
