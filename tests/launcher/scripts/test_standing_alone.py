"""A script by itself: its run directory, its setup, its environment."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest

from castoff import JobSpec, plan, render
from tests import patience

from .conftest import Benches
from .harness import Bench, Ended


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.everyday("local")
@pytest.mark.parametrize("kind", ["local", "pals", "srun"])
def test_run_directory(kind: str, bench: Benches) -> None:
    here = bench(kind, folder="with 'quotes' and \"spaces\"")
    ended = here.run(ranks_per_node=2, env={"SLURM_CLUSTER_NAME": "one"})
    assert ended.code == 0, ended.output
    run_dir = ended.run_dir
    assert run_dir.parent == here.folder
    assert run_dir.name.startswith(
        {"local": "castoff-local-", "pals": "castoff-7.head", "srun": "castoff-12"}[kind]
    )
    assert mode(run_dir) == 0o700
    assert {mode(run_dir / name) & 0o077 for name in ("attempts/0.0", "logs/0.0", "job.sh")} == {0}
    assert (run_dir / "job.sh").read_bytes() == (here.folder / "job.sh").read_bytes()
    assert set(ended.record("start")) == {"job", "host", "time"} | ({"cluster"} if kind == "srun" else set())
    reported = here.ranks()[0]["environ"]
    assert reported["CASTOFF_RUN_DIR"] == str(run_dir)
    assert (
        reported["CASTOFF_ARRAY_INDEX"],
        reported["CASTOFF_ARRAY_COUNT"],
        reported["CASTOFF_ATTEMPT"],
    ) == (
        "0",
        "1",
        "0",
    )
    assert (run_dir / ".gitignore").read_text() == "*\n"
    assert sorted(path.name for path in (run_dir / "logs" / "0.0").iterdir()) == [
        "rank-00000.log",
        "rank-00001.log",
        "stacks",
    ]


def parent(here: Bench, name: str = "parent") -> Path:
    """The run directory of a parent job that is another script."""
    folder = here.seen.parent / name
    folder.mkdir()
    (folder / "job.sh").write_text("#!/bin/bash\n# another script\n")
    return folder


@pytest.mark.everyday("local")
@pytest.mark.parametrize("kind", ["local", "pals", "srun"])
def test_a_parents_run_directory_is_not_believed(kind: str, bench: Benches) -> None:
    here = bench(kind)
    leaked = parent(here)
    ended = here.run(
        ranks_per_node=1,
        env={
            **{"CASTOFF_RUN_DIR": str(leaked), "CASTOFF_ATTEMPT": "5", "CASTOFF_ARRAY_OFFSET": "100"},
            **{"CASTOFF_JOB_ID": "local-1", "CASTOFF_SUBMIT_DIR": "/", "CASTOFF_LOCAL_INDEX": "3"},
            **{"CASTOFF_STOP_FILE": "/x", "CASTOFF_OUTCOME_FILE": "/y", "CASTOFF_DEADLINE": "1"},
        },
    )
    assert ended.code == 0, ended.output
    assert ended.ending == ("done", 0)
    assert sorted(path.name for path in leaked.iterdir()) == ["job.sh"]
    reported = here.ranks()[0]["environ"]
    assert reported["CASTOFF_ATTEMPT"] == reported["CASTOFF_ARRAY_INDEX"] == "0"
    assert reported["CASTOFF_STOP_FILE"] == f"{ended.run_dir}/attempts/0.0/stop"
    assert reported.get("CASTOFF_DEADLINE") != "1"
    assert here.ranks()[0]["cwd"] == str(here.folder)


@pytest.mark.parametrize("kind", ["pals", "srun"])
def test_a_run_directory_that_this_node_does_not_see(kind: str, bench: Benches) -> None:
    here = bench(kind)
    here.stub("sleep", "#!/bin/sh\n")  # for a minute in all
    gone = here.seen.parent / "elsewhere"
    running = here.start(ranks_per_node=1, env={"CASTOFF_RUN_DIR": str(gone)})
    output, _ = running.process.communicate(timeout=patience.SECONDS)
    assert running.process.returncode == 1
    assert f" does not see {gone}: a run directory must lie where all nodes see it; " in output
    assert here.ranks() == [] and not list(here.folder.glob("castoff-*"))


def test_a_run_directory_that_this_node_sees_late(bench: Benches) -> None:
    """As on shared file systems, which show a new folder seconds after it was made elsewhere."""
    here = bench("srun")
    run, hidden = here.seen.parent / "run", here.seen.parent / "hidden"
    hidden.mkdir(mode=0o700)
    decided = here.plan_of(ranks_per_node=1)
    (hidden / "job.sh").write_text(render(decided))
    here.stub("sleep", f"#!/bin/sh\nmv '{hidden}' '{run}'\n")
    running = here.start_plan(decided, env={"CASTOFF_RUN_DIR": str(run)})
    output, _ = running.process.communicate(timeout=patience.SECONDS)
    assert running.process.returncode == 0, output
    assert (run / "attempts/0.0/ending.json").is_file() and not list(here.folder.glob("castoff-*"))


def test_a_lone_local_script_needs_no_run_directory_name(bench: Benches) -> None:
    """Two that start at once, or a process id that comes again, do not share a directory."""
    here = bench("local")
    first, second = here.start(), here.start()
    for running in (first, second):
        running.process.communicate(timeout=patience.SECONDS)
        assert running.process.returncode == 0
    assert len(list(here.folder.glob("castoff-local-*"))) == 2


def test_started_again_without_a_count(bench: Benches) -> None:
    """As PBS does with an array's member after a node failure: nothing of the first is overwritten."""
    here = bench("pals")
    first = here.run(ranks_per_node=1)
    second = here.run(ranks_per_node=1)
    assert first.run_dir == second.run_dir
    assert second.record("ending", "0.1")["ending"] == "done"


@pytest.mark.everyday("hydra")
@pytest.mark.parametrize("kind", ["hydra", "srun"])
def test_members_of_an_array_share_a_directory(kind: str, bench: Benches) -> None:
    here = bench(kind)
    for index in (2, 0):
        here.array_index = index
        assert here.run(array={"count": 4}).code == 0
        reported = here.ranks()[0]["environ"]
        assert (reported["CASTOFF_ARRAY_INDEX"], reported["CASTOFF_ARRAY_COUNT"]) == (str(index), "4")
    assert here.run_dir().name == {"hydra": "castoff-7[].head", "srun": "castoff-12"}[kind]
    assert sorted(path.name for path in (here.run_dir() / "attempts").iterdir()) == ["0.0", "2.0"]


def test_a_member_of_a_lone_local_array(bench: Benches) -> None:
    here = bench("local")
    assert here.run("3", array={"count": 4}).code == 0
    assert here.ranks()[0]["environ"]["CASTOFF_ARRAY_INDEX"] == "3"


def test_setup_lines(bench: Benches) -> None:
    here = bench("pals")
    ended = here.run(
        ranks_per_node=1,
        setup=['export FROM_SETUP="$NOT_SET_ANYWHERE and on"', "cd /", "RANK=9; export RANK"],
        workdir=str(here.seen),
        env={"CCL_ATL_TRANSPORT": "other"},
    )
    assert ended.code == 0, ended.output
    (seen,) = here.ranks()
    assert seen["environ"]["FROM_SETUP"] == " and on"
    assert seen["environ"]["CCL_ATL_TRANSPORT"] == "mpi"  # env comes after setup
    assert (seen["environ"]["RANK"], seen["cwd"]) == ("0", str(here.seen))


@pytest.mark.everyday("-P")
@pytest.mark.parametrize("folder", ["-", "-P", "a b", "~x"])
def test_a_workdir_is_the_folder_of_that_name(folder: str, bench: Benches) -> None:
    here = bench("srun")
    (here.folder / folder).mkdir()
    (here.seen / "a b").mkdir()
    ended = here.run(workdir=folder, env={"CDPATH": str(here.seen), "OLDPWD": "/"})
    assert ended.code == 0, ended.output
    assert here.ranks()[0]["cwd"] == str(here.folder / folder)


def refused(ended: Ended, text: str) -> None:
    assert ended.code == 1
    assert ended.ending == ("failed", 1)
    assert text in ended.output


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "fix"),
    [("local", "export it first"), ("pals", "qsub -v A_SECRET"), ("srun", "sbatch --export=A_SECRET")],
)
def test_env_from(kind: str, fix: str, bench: Benches) -> None:
    here = bench(kind)
    asked: dict[str, Any] = {
        "ranks_per_node": 1,
        "env_from": ["A_SECRET", "EMPTY"],
        "inherit": ["PROBE_FOLDER"],
    }
    refused(here.run(**asked), "env_from names A_SECRET, but it is not set; ")
    assert here.ranks() == []
    given = bench(kind, folder="given")
    assert given.run(env={"A_SECRET": "it's $secret\nof two lines", "EMPTY": ""}, **asked).code == 0
    assert given.ranks()[0]["environ"]["A_SECRET"] == "it's $secret\nof two lines"
    script = (given.folder / "job.sh").read_text()
    assert fix.replace("A_SECRET", "NAME") in script and "it's" not in script


@pytest.mark.long
def test_secrets_file(bench: Benches) -> None:
    here = bench("srun")
    first = here.run()
    (first.run_dir / "secrets.sh").write_text("export A_SECRET='from the file'\n")
    ended = here.run(env_from=["A_SECRET"])
    assert ended.code == 0, ended.output
    assert here.ranks()[0]["environ"]["A_SECRET"] == "from the file"


@pytest.mark.long
def test_the_wrong_number_of_hosts(bench: Benches) -> None:
    here = bench("srun")
    refused(
        here.run(nodes=2, env={"STUB_HOSTS": "a\nb\nc"}), "this script is for 2 hosts, but the job has 3:"
    )
    assert here.calls("srun") == []
    pbs = bench("pals", folder="pbs")
    assert pbs.run(nodes=2, ranks_per_node=1).code == 0  # each host stands twice in the node file
    assert (pbs.run_dir() / "attempts/0.0/hosts").read_text().split() == pbs.hosts


@pytest.mark.parametrize(("kind", "command"), [("pals", "qsub"), ("srun", "sbatch")])
def test_outside_of_its_scheduler(kind: str, command: str, bench: Benches) -> None:
    here = bench(kind)
    name = {"pals": "PBS_JOBID", "srun": "SLURM_JOB_ID"}[kind]
    running = here.start(ranks_per_node=1, env={name: ""})
    output, _ = running.process.communicate(timeout=patience.SECONDS)
    assert running.process.returncode != 0
    assert f"castoff: submit this script with {command}" in output
    assert list(here.folder.iterdir()) == [here.folder / "job.sh"]


def test_nothing_is_inherited_on_request(bench: Benches) -> None:
    here = bench("local")
    odd = {"ODD": "1", "KEPT": "a b", "LD_PRELOAD_NOT": "x", "SHELLOPTS": "braceexpand:hashall"}
    assert here.run(inherit=["KEPT", "PROBE_FOLDER", "HARNESS_MARK", "STUB_CALLS"], env=odd).code == 0
    environ = here.ranks()[0]["environ"]
    assert environ["KEPT"] == "a b" and "ODD" not in environ and environ["HOME"]


def test_local_inherits_all_by_default(bench: Benches) -> None:
    here = bench("local")
    assert here.run(env={"ODD": "a\nb"}).code == 0
    assert here.ranks()[0]["environ"]["ODD"] == "a\nb"
    assert here.ranks()[0]["environ"]["PYTHONUNBUFFERED"] == "1"


@pytest.mark.parametrize("kind", ["hydra", "openmpi"])
def test_variables_reach_the_ranks_of_an_mpiexec(kind: str, bench: Benches) -> None:
    here = bench(kind)
    value = "a b\n$c 'd' \"e\" \\ ,;="
    assert here.run(env={"ODD": value}, requeue={"max": 1}).code == 0
    assert here.ranks()[0]["environ"]["ODD"] == value


def test_python_comes_first_on_path(bench: Benches) -> None:
    here = bench("srun")
    ended = here.run(python="/opt/some where/bin/python3")
    assert ended.code == 0, ended.output
    assert here.ranks()[0]["environ"]["PATH"].startswith("/opt/some where/bin:")


def test_a_function_runs_submitits_program(bench: Benches) -> None:
    here = bench("srun")
    here.stub("python", '#!/bin/sh\nprintf "%s\\n" "$@"\n')
    ended = here.start_plan(plan(JobSpec(), here.site, function=True)).end()
    assert ended.code == 0
    assert ended.output.split() == ["-u", "-m", "submitit.core._submit", str(ended.run_dir)]
