"""Members of an array that are not numbered from 0 on: which one a script is, by its scheduler's index."""

from __future__ import annotations

import os

import pytest

from castoff import JobSpec, Plan, Site, plan, render
from castoff.launcher.runs.records import facts_of

from .conftest import Benches

ARRAY = {"array": {"indices": "1,3-5,10-20:5"}}
SAY = ["sh", "-c", "echo $CASTOFF_ARRAY_INDEX of $CASTOFF_ARRAY_COUNT"]


@pytest.mark.everyday("hydra-6-20")
@pytest.mark.parametrize(
    ("kind", "index", "member"),
    [("srun", 1, 1), ("srun", 15, 15), ("hydra", 0, 1), ("hydra", 3, 5), ("hydra", 6, 20)],
)
def test_which_member_a_script_is(kind: str, index: int, member: int, bench: Benches) -> None:
    here = bench(kind)
    here.array_index = index
    ended = here.run(
        command=SAY, ranks_per_node=1, setup=["IFS=:"], **ARRAY, queue="capacity" if kind == "pbs" else None
    )
    assert ended.code == 0, ended.output
    assert ended.record("ending", f"{member}.0")["ending"] == "done"
    assert (ended.run_dir / "logs" / f"{member}.0" / "rank-00000.log").read_text() == f"{member} of 7\n"


@pytest.mark.parametrize(
    ("kind", "index", "offset", "name"),
    [("srun", 2, {"CASTOFF_ARRAY_OFFSET": "18"}, "SLURM_ARRAY_TASK_ID"), ("hydra", 6, {}, "PBS_ARRAY_INDEX")],
)
def test_the_schedulers_own_variable_has_the_members_number(
    kind: str, index: int, offset: dict[str, str], name: str, bench: Benches
) -> None:
    """Also where the scheduler counts otherwise: a program that reads it does no other member's work."""
    here = bench(kind)
    here.array_index = index
    decided = here.plan_of(command=["sh", "-c", f"echo ${name}"], setup=[f"echo setup ${name}"], **ARRAY)
    run = here.folder / "castoff-12"
    (run / "logs").mkdir(parents=True)
    run.chmod(0o700)
    (run / "job.sh").write_text(render(decided))
    ended = here.start_plan(decided, env={"CASTOFF_RUN_DIR": str(run), **offset}).end()
    assert ended.code == 0, ended.output
    assert "setup 20\n" in (run / "logs" / "job-20.log").read_text()
    assert (run / "logs" / "20.0" / "rank-00000.log").read_text() == "20\n"


def test_pbs_names_its_logs_by_its_own_indices(bench: Benches) -> None:
    here = bench("hydra")
    here.array_index = 4
    ended = here.run(command=SAY, ranks_per_node=1, **ARRAY)
    assert "10 of 7" in (ended.run_dir / "logs" / "job-10.log").read_text() and "10 of 7" not in ended.output


@pytest.mark.parametrize(("words", "member"), [((), 1), (("15",), 15)])
def test_a_lone_local_script(words: tuple[str, ...], member: int, bench: Benches) -> None:
    ended = bench("local").run(*words, command=SAY, **ARRAY)
    assert ended.record("ending", f"{member}.0")["ending"] == "done", ended.output


def test_an_index_that_the_array_has_not(bench: Benches) -> None:
    here = bench("hydra")
    here.array_index = 7
    started = here.start(command=SAY, ranks_per_node=1, **ARRAY)
    output, _ = started.process.communicate()
    assert started.process.returncode and "this array has no job of that index" in output


@pytest.mark.everyday("hydra")
@pytest.mark.parametrize("kind", ["srun", "hydra"])
def test_its_secrets_go_with_the_last_member(kind: str, bench: Benches) -> None:
    """Neither before that nor never: each member looks for the others by their numbers."""
    here = bench(kind)
    fields = {
        "array": {"indices": "2,5,9"},
        "env_from": ["TOKEN"],
    }
    env = {"TOKEN": "t"}
    left = []
    for place, member in enumerate((5, 2, 9)):
        here.array_index = member if kind == "srun" else [1, 0, 2][place]
        ended = here.run(command=["true"], ranks_per_node=1, env=env, **fields)
        assert ended.code == 0, ended.output
        secrets = ended.run_dir / "secrets.sh"
        if place == 0:
            secrets.write_text("TOKEN=t\n")
            secrets.chmod(0o600)
            os.utime(secrets, (1, 1))  # as castoff submit has written it, before
        left.append(secrets.exists())
    assert left == [True, True, False]


@pytest.mark.parametrize("site", ["slurm", "pbs", "local"])
def test_a_script_that_stands_alone_says_its_members(site: str) -> None:
    decided: Plan = plan(JobSpec.of({"command": ["x"], **ARRAY}), Site.load(site))
    found = facts_of(render(decided))
    assert list(found.members) == list(decided.members) == [1, 3, 4, 5, 10, 15, 20]
