"""submit on the local scheduler: what it makes, what it prints, what it refuses, and what it leaves."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from castoff.launcher.planning.render import template_folder
from castoff.launcher.runs.run import RunDirectory
from tests.cases import others_long
from tests.command_line import NO_BYTECODE

from ..conftest import Castoff, LocalJobs, objects

SECRET = "s3cr3t 'quoted' $HOME\n\"second line\""


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def everything(folder: Path) -> set[str]:
    """What is in a folder, but for the templates that Jinja compiled, which are not part of a run."""
    found = {str(path.relative_to(folder)) for path in folder.rglob("*")}
    return {name for name in found if name != ".cache" and not name.startswith(".cache/castoff")}


class TestRunDirectory:
    def test_what_is_printed(self, castoff: Castoff, jobs: LocalJobs, tmp_path: Path) -> None:
        path = jobs.job("name: mine\nwalltime: 30m\narray: {count: 2}\ncommand: [true]\n")
        answer = castoff("submit", path, "--site", "local")
        assert (answer.returncode, answer.stderr) == (0, "")
        reported = dict(line.split(maxsplit=1) for line in answer.stdout.splitlines())
        run = RunDirectory(Path(reported["directory"]))
        assert reported["run"] == run.id and re.fullmatch(r"mine-\d{8}-\d{6}-[0-9a-f]{4}", run.id)
        assert reported["job"] == f"{run.job} (local)" and reported["node-hours"] == "at most 1.00"
        assert run.path.parent == tmp_path / "castoff-runs"
        assert jobs.wait(run)["ending"] == "done"

    def test_what_is_in_it(self, jobs: LocalJobs, umask: None) -> None:
        run = jobs.submit(jobs.job("name: mine\ncommand: [echo, hello]\n"))
        assert jobs.wait(run)["ending"] == "done"
        assert jobs.log(run) == "[0] hello"
        assert mode(run.path) == mode(run.path / "attempts") == mode(run.log_folder) == 0o700
        assert mode(run.script) == 0o700
        assert json.loads((run.path / "plan.json").read_text())["command"] == ["echo", "hello"]
        assert {path.name for path in run.path.iterdir()} == {
            *("job.yaml", "plan.json", "job.sh", "code.json", "submission.json", "local.json", "use.py"),
            *("attempts", "logs", "local.lock", ".gitignore"),
        }
        assert {path.name for path in (run.path / "attempts" / "0.0").iterdir()} - {
            "use"
        } == {  # it may be too quick
            *("start.json", "launched", "ended", "ending.json", "usage.json", "settled"),
        }

    def test_its_job_file_renders_to_its_script(
        self, castoff: Castoff, jobs: LocalJobs, tmp_path: Path
    ) -> None:
        odd = ["", "a b", "'\"", "$HOME", "1e3", "007", "yes", "null", "ä\u2028\x85", "a\n\nb\n", "- x", "#"]
        job = jobs.job("env: {A: 1e3, B: 010, C: on}\nsetup: ['true  # x', '']\nname: x\ncommand: [x]\n")
        flags = [
            "--site",
            "local",
            "--walltime",
            "90s",
            "--set",
            "grace=5s",
            "--set",
            "after.afternotok=[nobody]",
        ]
        dry = castoff("submit", job, *flags, "--dry-run", "--", "true", *odd)
        assert dry.returncode == 0, dry.stderr
        run = jobs.submit(job, *flags[2:-2], "--", "true", *odd)
        again = castoff("render", run.path / "job.yaml", "--site", "local", cwd="/")
        assert again.stdout == run.script.read_text()
        assert again.stdout.partition("true ''")[2] == dry.stdout.partition("true ''")[2]
        assert jobs.wait(run)["ending"] == "done"

    def test_templates_stay_found(self, castoff: Castoff, jobs: LocalJobs, tmp_path: Path) -> None:
        (tmp_path / "mine" / "blocks").mkdir(parents=True)
        (tmp_path / "mine" / "blocks" / "rendezvous.sh").write_text("# no use\n")
        stopping = (template_folder() / "machinery" / "stopping.sh").read_text()
        (tmp_path / "mine" / "blocks" / "stopping.sh").write_text(f"{stopping}# mine\n")
        jobs.job("templates: mine\ncommand: [true]\n")
        run = jobs.submit("job.yaml")
        again = castoff("render", run.path / "job.yaml", "--site", "local", cwd="/")
        assert again.stdout == run.script.read_text() and "# mine\n" in again.stdout
        jobs.wait(run)

    @pytest.mark.parametrize(
        "name",
        others_long(
            ["with space", "a,b", "100%", 'it\'s "q"', "$HOME`x`", "ünï", "a\\b"], ["100%", 'it\'s "q"']
        ),
    )
    def test_odd_folders(self, castoff: Castoff, jobs: LocalJobs, tmp_path: Path, name: str) -> None:
        run = jobs.submit("--runs-dir", name, "--ranks-per-node", "1", sh='printf "%s\\n" "$CASTOFF_RUN_DIR"')
        assert jobs.wait(run)["ending"] == "done"
        assert run.path.parent == tmp_path / name
        assert jobs.log(run) == f"[0] {run.path}"

    def test_odd_names(self, jobs: LocalJobs) -> None:
        run = jobs.submit("--name", "..$(x) ä;rm -rf *", sh="true")
        assert re.match(r"_", run.id) or run.id[0].isalnum()
        assert re.fullmatch(r"[A-Za-zä0-9._+-]+", run.id)
        assert jobs.wait(run)["name"] == "..$(x) ä;rm -rf *"

    def test_what_a_script_lacks_here_is_reported(self, castoff: Castoff, jobs: LocalJobs) -> None:
        """As every member would run the same."""
        script = "# $SLURM_JOB_ID\n: ${VALUES[$SLURM_ARRAY_TASK_ID]} ${PBS_JOBID:-none} $MY_SLURM_NAME"
        done = castoff("submit", "--site", "local", jobs.job(json.dumps({"name": "old", "script": script})))
        assert done.stderr.splitlines() == [
            "castoff: the script uses SLURM_ARRAY_TASK_ID, which castoff's own scheduler does not set"
        ]
        jobs.wait(RunDirectory(Path(done.stdout.splitlines()[2].split()[1])))

    def test_what_the_run_does_not_take_is_reported(self, castoff: Castoff, jobs: LocalJobs) -> None:
        words = [
            "submit",
            "--site",
            "local",
            "--name",
            "日本 語",
            "--set",
            "mail.to=me@here",
            "--set",
            "qos=high",
        ]
        done = castoff(*words, "--set", "directives.slurm.comment=x", "--", "true")
        assert done.stderr.splitlines() == [
            "castoff: no effect on site local: qos, mail",
            "castoff: the run's id spells the name 日本 語 as 日本_語",
        ]
        jobs.wait(RunDirectory(Path(done.stdout.splitlines()[2].split()[1])))

    def test_the_run_directory_is_made_in_runs_dir(
        self, castoff: Castoff, jobs: LocalJobs, tmp_path: Path
    ) -> None:
        run = jobs.submit(env={"CASTOFF_RUNS_DIR": str(tmp_path / "elsewhere")}, sh="true")
        assert run.path.parent == tmp_path / "elsewhere"
        jobs.wait(run)

    @pytest.mark.long
    def test_ten_at_once(self, castoff: Castoff, castoff_command: Castoff, jobs: LocalJobs) -> None:
        """They only wait for another: ten programs would take their time."""
        first = jobs.submit("--name", "first", sh="sleep 600")
        words = ["submit", "--site", "local", "--json", "--name", "many", "--set", "after.afterok=[first]"]
        with ThreadPoolExecutor(10) as pool:
            answers = list(pool.map(lambda _: castoff_command(*words, "--", "true"), range(10)))
        runs = [RunDirectory(Path(json.loads(answer.stdout)["directory"])) for answer in answers]
        assert len({run.id for run in runs}) == len({run.job for run in runs}) == 10
        reported = objects(castoff("list", "--json").stdout)
        assert reported[0]["id"] == first.id
        assert {one["id"] for one in reported} == {first.id, *(run.id for run in runs)}
        assert {one["state"] for one in reported[1:]} == {"pending"}


class TestDryRun:
    def test_it_shows_all_and_touches_nothing(
        self, castoff: Castoff, jobs: LocalJobs, tmp_path: Path, fresh_home: Path
    ) -> None:
        words = ["--site", "local", "--set", "env_from=[NOT_SET]", "--", "sh", "-c", "touch here"]
        answer = castoff("submit", "--dry-run", *words)
        assert answer.returncode == 0
        assert answer.stdout == castoff("render", *words).stdout
        note, line = answer.stderr.splitlines()
        assert note.endswith("CASTOFF_RUN_DIR, with this script as its job.sh, and run:")
        assert line.endswith(' "$CASTOFF_RUN_DIR"')
        assert everything(tmp_path) == everything(fresh_home) == set()

    @pytest.mark.parametrize(
        ("words", "program", "waits"),
        [
            (
                ["slurm", "--set", "array={count: 2500, max_concurrent: 3}"],
                "sbatch",
                "--dependency=afterany:",
            ),
            (
                ["pbs", "--walltime", "1h", "--set", "requeue={max: 2, how: chain}"],
                "qsub",
                "depend=afternotok:",
            ),
        ],
    )
    def test_several_jobs_wait_for_each_other(
        self, castoff: Castoff, words: list[str], program: str, waits: str
    ) -> None:
        _, *lines = castoff("submit", "--dry-run", "--site", *words, "--", "true").stderr.splitlines()
        first, second, third = lines
        assert f" {program} " in first and waits not in first
        assert f"{waits}JOB " in second and f"{waits}JOB " in third

    def test_json(self, castoff: Castoff) -> None:
        answer = castoff("submit", "--dry-run", "--json", "--site", "aurora", "--", "true")
        assert answer.returncode == 2  # and says all that Aurora needs
        answer = castoff("submit", "--dry-run", "--json", "--site", "pbs", "--", "true")
        reported = json.loads(answer.stdout)
        assert reported["command"].startswith('CASTOFF_RUN_DIR="$CASTOFF_RUN_DIR" qsub ') and reported[
            "command"
        ].endswith(' "$CASTOFF_RUN_DIR/job.sh"')
        assert reported["plan"]["scheduler"] == "pbs" and reported["script"].startswith("#!")


class TestSecrets:
    def test_they_are_in_one_private_file_only(self, jobs: LocalJobs) -> None:
        job = jobs.job(
            "name: secretive\nenv_from: [TOKEN]\ninherit: none\nranks_per_node: 1\ncommand:\n"
            '  - sh\n  - -c\n  - grep -rl s3cr3[t] "$CASTOFF_RUN_DIR" >held; '
            'stat -c %a "$CASTOFF_RUN_DIR/secrets.sh" >>held; '
            'test "$TOKEN" = "$(cat expected)" && ps -ww -o args= -e | grep -c s3cr3[t]\n'
        )
        (jobs.folder / "expected").write_text(SECRET)
        run = jobs.submit(job, env={"TOKEN": SECRET})
        reported = jobs.wait(run)
        # The program got it, and no process shows it: grep counts nothing and so exits with 1.
        assert jobs.log(run).splitlines()[0] == "[0] 0"
        assert reported["code"] == 1
        assert (jobs.folder / "held").read_text().split() == [f"{run.path}/secrets.sh", "600"]
        assert jobs.holders(run, "s3cr3t") == []

    def test_a_missing_secret_is_reported_before_anything_is_made(
        self, castoff: Castoff, jobs: LocalJobs, tmp_path: Path, fresh_home: Path
    ) -> None:
        words = ["--site", "local", "--set", "env_from=[TOKEN, OTHER]", "--", "true"]
        answer = castoff("submit", *words, env={"OTHER": "x"})
        assert answer.returncode == 1
        assert (
            answer.stderr
            == "castoff: env_from: TOKEN not set in this environment; export it before submitting\n"
        )
        assert everything(tmp_path) == everything(fresh_home) == set()


class TestRefusals:
    @pytest.mark.parametrize("setup", ["if true", "echo 'open", "fi", "echo $(true"])
    def test_a_script_that_bash_cannot_read(
        self, castoff: Castoff, tmp_path: Path, fresh_home: Path, setup: str
    ) -> None:
        overrides = ["--set", f"setup={json.dumps([setup])}"]
        answer = castoff("submit", "--site", "local", *overrides, "--", "true")
        assert (answer.returncode, answer.stdout) == (2, "")
        assert "bash does not parse this as intended: " in answer.stderr and setup in answer.stderr
        assert everything(tmp_path) == everything(fresh_home) == set()

    def test_patterns_that_setup_turns_on(self, jobs: LocalJobs) -> None:
        setup = ["shopt -s extglob", "for each in !(*.yaml); do :; done"]
        run = jobs.submit("--set", f"setup={json.dumps(setup)}", sh="true")
        assert jobs.wait(run)["ending"] == "done"

    def test_where_there_is_no_pbs(self, castoff: Castoff, tmp_path: Path, fresh_home: Path) -> None:
        words = [*("--account", "me", "--walltime", "30m"), *("--set", "directives.filesystems=home")]
        answer = castoff("submit", "--site", "aurora", *words, "--", "true", env={"PATH": "/bin"})
        assert (answer.returncode, answer.stdout) == (1, "")
        assert "qsub is not on PATH here" in answer.stderr
        assert "`castoff render JOB.yaml | ssh LOGIN_NODE qsub` sends it there" in answer.stderr
        assert everything(tmp_path) == everything(fresh_home) == set()

    def test_a_qsub_that_is_slurms(self, castoff: Castoff, tmp_path: Path, fresh_home: Path) -> None:
        (tmp_path / "qsub").write_text("#!/usr/bin/perl -w\nuse strict;\nuse Slurm ':all';\n")
        (tmp_path / "qsub").chmod(0o755)
        answer = castoff("submit", "--site", "pbs", "--", "true", env={"PATH": f"{tmp_path}:/bin"})
        assert answer.returncode == 1 and "is not PBS's, but Slurm's substitute" in answer.stderr
        assert everything(tmp_path) == {"qsub"} and everything(fresh_home) == set()

    def test_where_there_is_no_slurm(self, castoff: Castoff, tmp_path: Path, fresh_home: Path) -> None:
        (tmp_path / "bin").mkdir()
        for program in ("bash", "sh", "env"):
            (tmp_path / "bin" / program).symlink_to(f"/bin/{program}")
        before = everything(tmp_path)
        answer = castoff("submit", "--site", "slurm", "--", "true", env={"PATH": str(tmp_path / "bin")})
        assert (answer.returncode, answer.stdout) == (1, "")
        assert answer.stderr == (
            "castoff: sbatch is not on PATH here: submit where the scheduler's commands are, as on a login "
            "node; `castoff render` needs none; `castoff render JOB.yaml | ssh LOGIN_NODE sbatch` sends it "
            "there\n"
        )
        assert everything(tmp_path) == before and everything(fresh_home) == set()

    @pytest.mark.parametrize("folder", ["a\\b", "a\nb"])
    def test_a_folder_that_slurm_cannot_be_reported(
        self, castoff: Castoff, tmp_path: Path, fresh_home: Path, folder: str
    ) -> None:
        """Before anything is made."""
        (tmp_path / "sbatch").write_text("#!/bin/sh\nexit 1\n")
        (tmp_path / "sbatch").chmod(0o755)
        path = f"{tmp_path}:{os.environ['PATH']}"
        answer = castoff("submit", "--site", "slurm", "--runs-dir", folder, "--", "true", env={"PATH": path})
        assert answer.returncode == 1 and "choose another folder with --runs-dir" in answer.stderr
        assert everything(tmp_path) == {"sbatch"} and everything(fresh_home) == set()

    def test_problems_of_the_job(self, castoff: Castoff, tmp_path: Path, fresh_home: Path) -> None:
        answer = castoff("submit", "--site", "local", "--nodes", "2", "--walltime", "0s", "--", "true")
        assert answer.returncode == 2
        assert len(answer.stderr.splitlines()) == 2
        assert everything(tmp_path) == everything(fresh_home) == set()

    def test_a_folder_that_cannot_be(self, castoff: Castoff, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        for name in ("file", "file/inside", "/proc/nowhere", "x" * 300):
            answer = castoff("submit", "--site", "local", "--runs-dir", name, "--", "true")
            assert (answer.returncode, answer.stdout) == (1, "")
            assert answer.stderr.count("\n") == 1
            assert answer.stderr.startswith(f"castoff: {name}: the run directory cannot be made there: ")
            assert "--runs-dir" in answer.stderr
        assert everything(tmp_path) == {"file"}

    def test_without_an_index(self, castoff: Castoff, jobs: LocalJobs, tmp_path: Path) -> None:
        """It is only an index: the run goes on, is named by its path, and can be begun again."""
        (tmp_path / "file").touch()
        environment = {"XDG_STATE_HOME": str(tmp_path / "file")}
        answer = castoff("submit", "--json", "--site", "local", "--", "true", env=environment)
        assert answer.returncode == 0
        run = RunDirectory(Path(json.loads(answer.stdout)["directory"]))
        (note,) = answer.stderr.splitlines()
        assert "the index of runs cannot be written" in note and "XDG_STATE_HOME" in note
        assert note.endswith(f"castoff status {run.path}")
        assert castoff("wait", run.path, env=environment).stdout == f"{run.id}: done\n"
        answer = castoff("resubmit", "--include-done", run.path, env=environment)
        assert answer.returncode == 0 and "the index of runs cannot be written" in answer.stderr
        assert [one["ending"] for one in jobs.wait(run)["members"][0]["attempts"]] == ["done", "done"]

    def test_a_full_disk_leaves_nothing(self, castoff: Castoff, tmp_path: Path) -> None:
        limited = f"{NO_BYTECODE}; ulimit -f 1; exec castoff submit --site local --name x -- true"
        answer = subprocess.run(["bash", "-c", limited], cwd=tmp_path, capture_output=True, text=True)
        assert (answer.returncode, answer.stdout) == (1, "")
        assert answer.stderr.startswith("castoff: ") and answer.stderr.endswith("File too large\n")
        assert answer.stderr.count("\n") == 1
        assert everything(tmp_path) == {"castoff-runs"}
        assert objects(castoff("list", "--json").stdout) == []

    def test_nobody_to_wait_for(self, castoff: Castoff, tmp_path: Path) -> None:
        words = ["--set", "after.afterok=[preprocess]", "--", "true"]
        answer = castoff("submit", "--site", "local", *words)
        assert answer.returncode == 1
        assert answer.stderr.startswith("castoff: after.afterok: preprocess: no such run")
        assert everything(tmp_path) == set()

    def test_a_scheduler_that_does_not_start(self, castoff: Castoff, jobs: LocalJobs, tmp_path: Path) -> None:
        # Something of the user's that breaks every new Python, but not castoff, which runs already.
        (tmp_path / "broken" / "psutil").mkdir(parents=True)
        (tmp_path / "broken" / "psutil" / "__init__.py").write_text("raise ImportError('broken here')\n")
        environment = {"PYTHONPATH": str(tmp_path / "broken")}
        answer = castoff("submit", "--site", "local", "--name", "x", "--", "true", env=environment)
        assert (answer.returncode, answer.stdout) == (1, "")
        assert "failed with exit code 1: " in answer.stderr and "broken here" in answer.stderr
        (run,) = [RunDirectory(path) for path in (tmp_path / "castoff-runs").iterdir()]
        assert answer.stderr.endswith(f"castoff: nothing was started; the script is {run.script}\n")
        reported = jobs.status(run)
        assert (reported["state"], reported["ending"], reported["code"]) == ("ended", "failed", 1)
        assert "broken here" in reported["reason"]
        assert "broken here" in castoff("status", "x").stdout
        assert "broken here" in castoff("logs", "x").stderr

    def test_a_second_scheduler_for_a_run(self, jobs: LocalJobs) -> None:
        run = jobs.submit(sh="true")
        jobs.wait(run)
        words = [sys.executable, "-m", "castoff.launcher.cli.local_scheduler", str(run.path)]
        answer = subprocess.run(words, cwd="/", capture_output=True, text=True, check=False)
        assert answer.returncode == 1 and "its submission was taken already" in answer.stderr
        assert jobs.status(run)["ending"] == "done"


@pytest.mark.long
def test_two_runs_do_not_share_a_port(jobs: LocalJobs) -> None:
    program = 'echo "port $MASTER_PORT"; touch "$0.$CASTOFF_JOB_ID"; while [ ! -e go ]; do sleep 0.05; done'
    runs = [jobs.submit("--ranks-per-node", "2", sh=program) for _ in range(2)]
    while len([line for run in runs for line in jobs.log(run).splitlines()]) < 4:
        assert all(jobs.processes(run) for run in runs)
    (jobs.folder / "go").touch()
    ports = [set(re.findall(r"port (\d+)", jobs.log(run))) for run in runs]
    assert len(ports[0]) == len(ports[1]) == 1 and ports[0] != ports[1]
    for run in runs:
        assert jobs.wait(run)["ending"] == "done"


ALL_REDUCE = """
import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
numbers = torch.full((3,), float(dist.get_rank() + 1))
dist.all_reduce(numbers)
print("sum", numbers.tolist(), "of", dist.get_world_size(), flush=True)
dist.destroy_process_group()
"""


@pytest.mark.costly
def test_ddp_from_end_to_end(jobs: LocalJobs) -> None:
    pytest.importorskip("torch")
    (jobs.folder / "reduce.py").write_text(ALL_REDUCE)
    run = jobs.submit("--ranks-per-node", "2", "--", sys.executable, "reduce.py")
    assert jobs.wait(run)["ending"] == "done"
    assert sorted(line for line in jobs.log(run).splitlines() if "sum" in line) == [
        "[0] sum [3.0, 3.0, 3.0] of 2",
        "[1] sum [3.0, 3.0, 3.0] of 2",
    ]
