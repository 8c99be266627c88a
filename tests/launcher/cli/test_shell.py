"""castoff shell: a command or a shell beside a rank of a running job, with the rank's environment."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from castoff.launcher.runs.run import RunDirectory
from castoff.launcher.schedulers.flux.scheduler import SCHEDULER as FLUX
from castoff.launcher.schedulers.pbs.scheduler import SCHEDULER as PBS
from castoff.launcher.schedulers.slurm.scheduler import SCHEDULER as SLURM
from tests.command_line import COMMAND, Castoff

from ..conftest import LocalJobs
from ..terminal import on_terminal

Until = Callable[..., None]

WAITS = "touch here.$RANK; while [ ! -e go ]; do sleep 0.05; done"
SECRET = "it's $secret\nof 'two' lines"


@pytest.fixture
def running(jobs: LocalJobs, until: Until) -> Iterator[RunDirectory]:
    """Two ranks that wait for a file, with a secret, a function and a working directory."""
    (jobs.folder / "there").mkdir()
    words = ["--name", "waits", "--ranks-per-node", "2", "--workdir", "there", "--set", "env_from=[TOKEN]"]
    env = {"TOKEN": SECRET, "BASH_FUNC_greet%%": "() {  echo hello $1\n}"}
    run = jobs.submit(*words, env=env, sh=WAITS)
    until(lambda: len(list((jobs.folder / "there").glob("here.*"))) == 2)
    yield run
    (jobs.folder / "there" / "go").touch()
    jobs.wait(run)


def test_it_has_the_ranks_environment_and_folder(
    castoff_command: Castoff, jobs: LocalJobs, running: RunDirectory
) -> None:
    """Another rank's, the first one's by default; also what castoff itself was called with stays outside."""
    says = [
        "bash",
        "-c",
        'echo "$RANK $LOCAL_RANK of $WORLD_SIZE"; pwd; echo "$TOKEN"; echo "${MINE-none}"; greet me',
    ]
    for words, rank in ([], 0), (["--rank", "1"], 1), (["--member", "0"], 0):
        answer = castoff_command("shell", "waits", *words, "--", *says, env={"MINE": "x", "TOKEN": "other"})
        there = jobs.folder / "there"
        expected = f"{rank} {rank} of 2\n{there}\n{SECRET}\nnone\nhello me\n"
        assert (answer.returncode, answer.stdout, answer.stderr) == (0, expected, "")


@pytest.mark.long
def test_nothing_of_the_environment_is_written_or_shown(
    castoff_command: Castoff, jobs: LocalJobs, running: RunDirectory
) -> None:
    """Neither files nor a command line has it: what any user of the host could read."""
    lines = "tr '\\0' ' ' </proc/$PPID/cmdline; tr '\\0' ' ' </proc/$$/cmdline"
    answer = castoff_command("shell", "waits", "--", "sh", "-c", lines)
    assert "secret" not in answer.stdout
    assert [
        path.name for path in running.path.rglob("*") if path.is_file() and SECRET[:8] in path.read_text()
    ] == []


@pytest.mark.long
@pytest.mark.usefixtures("running")
def test_the_command_begins_without_children(castoff_command: Castoff) -> None:
    """One that ends would send it CHLD, of which ps dies."""
    slow = {"BASH_FUNC_compgen%%": '() {  builtin compgen "$@"; exec >&-; sleep 0.3\n}'}
    answer = castoff_command(
        "shell", "waits", "--", "sh", "-c", "exec cat /proc/$$/task/$$/children", env=slow
    )
    assert (answer.returncode, answer.stdout) == (0, "")


def test_code_and_standard_input_are_the_commands(castoff_command: Castoff, running: RunDirectory) -> None:
    answer = castoff_command("shell", running.path, "--", "sh", "-c", "cat; exit 7", input="given\n")
    assert (answer.returncode, answer.stdout) == (7, "given\n")


@pytest.mark.long
def test_a_command_that_is_not_there(castoff_command: Castoff, running: RunDirectory) -> None:
    answer = castoff_command("shell", "waits", "--rank", "1", "--", "no-such-program")
    assert answer.returncode == 127
    assert answer.stderr.startswith(f"castoff: no-such-program is not on PATH of {running.id} rank 1 on ")


@pytest.mark.long
def test_a_shell_on_a_terminal(jobs: LocalJobs, running: RunDirectory) -> None:
    """It says beside which rank it is, reads no start-up files, and its code is the command's."""
    (Path(os.environ["HOME"]) / ".bashrc").write_text("export RANK=bashrc\n")
    typed = "echo $((RANK + 40)) $TERM; exit 3\n"
    answer = on_terminal(COMMAND, "shell", "waits", "--rank", "1", cwd=jobs.folder, typed=typed)
    assert answer.code == 3, answer.output
    assert "41 xterm-256color" in answer.output and f"[{running.id} rank 1]" in answer.output


def test_a_shell_needs_a_terminal(castoff_command: Castoff, running: RunDirectory) -> None:
    answer = castoff_command("shell", "waits")
    assert answer.returncode == 2
    assert "a shell needs a terminal" in answer.stderr and "castoff shell waits -- COMMAND" in answer.stderr


@pytest.mark.long
def test_what_is_not_of_the_job(castoff_command: Castoff, running: RunDirectory) -> None:
    for words, says in (
        (["--rank", "2"], f"{running.id}: no rank 2; ranks are 0 to 1"),
        (["--host", "n9"], f"{running.id}: n9 is not one of its hosts: "),
        (["--member", "1"], f"{running.id}: no member 1; members are 0 to 0"),
    ):
        answer = castoff_command("shell", "waits", *words, "--", "true")
        assert answer.returncode == 1 and answer.stderr.startswith(f"castoff: {says}"), answer.stderr


@pytest.mark.long
def test_a_rank_that_has_ended(castoff_command: Castoff, jobs: LocalJobs, until: Until) -> None:
    jobs.submit(
        "--name",
        "one",
        "--ranks-per-node",
        "2",
        sh='[ "$RANK" = 1 ] || { touch here; until [ -e go ]; do sleep 0.05; done; }',
    )
    until((jobs.folder / "here").exists)

    def gone() -> bool:
        answer = castoff_command("shell", "one", "--rank", "1", "--", "true")
        return answer.returncode == 1 and "rank 1 does not run on " in answer.stderr

    until(gone)
    assert castoff_command("shell", "one", "--", "true").returncode == 0
    (jobs.folder / "go").touch()


@pytest.mark.long
def test_before_the_ranks_the_jobs_environment(
    castoff_command: Castoff, jobs: LocalJobs, until: Until
) -> None:
    """While setup runs, say; it says so."""
    waits = "touch here; until [ -e go ]; do sleep 0.05; done"
    run = jobs.submit("--name", "early", "--set", f"setup=[{waits!r}]", sh="true")
    until((jobs.folder / "here").exists)
    answer = castoff_command("shell", "early", "--", "sh", "-c", 'echo "$CASTOFF_ATTEMPT_DIR"')
    assert answer.returncode == 0
    assert f"{run.id}: no rank runs on " in answer.stderr
    (jobs.folder / "go").touch()
    jobs.wait(run)


@pytest.mark.long
def test_a_run_that_is_over_or_waits(castoff: Castoff, jobs: LocalJobs, until: Until) -> None:
    over = jobs.submit("--name", "over", sh="true")
    jobs.wait(over)
    answer = castoff("shell", "over", "--", "true")
    assert (answer.returncode, answer.stderr) == (
        1,
        f"castoff: {over.id}: it is over (done), so no rank is left; "
        f"`castoff logs {over.id}` shows what it wrote\n",
    )
    first = jobs.submit("--name", "first", sh="touch here; until [ -e go ]; do sleep 0.05; done")
    until((jobs.folder / "here").exists)
    waits = jobs.submit("--name", "later", "--set", "after.afterok=[first]", sh="true")
    answer = castoff("shell", "later", "--", "true")
    assert answer.returncode == 1
    assert (
        answer.stderr.startswith(f"castoff: {waits.id}: it is waiting") and "`castoff status" in answer.stderr
    )
    (jobs.folder / "go").touch()
    jobs.wait(first)


@pytest.mark.long
def test_several_members_that_run(castoff_command: Castoff, jobs: LocalJobs, until: Until) -> None:
    sh = "touch here.$CASTOFF_ARRAY_INDEX; until [ -e go ]; do sleep 0.05; done"
    run = jobs.submit("--name", "array", "--set", "array.count=2", sh=sh)
    until(lambda: len(list(jobs.folder.glob("here.*"))) == 2)
    answer = castoff_command("shell", "array", "--", "true")
    assert answer.stderr == f"castoff: {run.id}: several members run (0, 1): choose one with --member\n"
    says = ["sh", "-c", "echo $CASTOFF_ARRAY_INDEX"]
    assert castoff_command("shell", "array", "--member", "1", "--", *says).stdout == "1\n"
    (jobs.folder / "go").touch()
    jobs.wait(run)


class TestOnOtherHosts:
    """The command lines; real clusters are in tests/cluster and tests/pbs."""

    def test_slurm(self, answering: Callable[..., dict[str, str]]) -> None:
        environ = answering("slurm", sbatch="echo slurm 23.02.6")
        words = SLURM.beside_command("7", ["n1", "n2"], 1, ["prog", "a b"], True, environ)
        assert words == [
            *("srun", "--nodes=1", "--ntasks=1", "--cpu-bind=none", "--mpi=none", "--chdir=/"),
            *("--jobid=7", "--nodelist=n2", "--overlap", "--pty", "prog", "a b"),
        ]
        old = answering("slurm", sbatch="echo slurm 20.02.7")
        words = SLURM.beside_command("7", ["n1"], 0, ["prog"], False, old)
        assert "--overlap" not in words and "--pty" not in words

    def test_a_member_of_slurms(self, answering: Callable[..., dict[str, str]]) -> None:
        """Each has an id of its own, and srun takes no other."""
        environ = answering("slurm", sbatch="echo slurm 23.02.6", squeue='[ "$3" = 7_2 ] && echo 9')
        assert "--jobid=9" in SLURM.beside_command("7_2", ["n1"], 0, ["prog"], False, environ)

    def test_flux(self) -> None:
        exec_ = ["flux", "proxy", "123", "flux", "exec", "--rank=1", "--dir=/", "prog"]
        assert FLUX.beside_command("123", ["n1", "n2"], 1, ["prog"], False, {}) == exec_
        assert FLUX.beside_command("123", ["n1", "n2"], 1, ["prog"], True, {})[:4] == [
            "ssh",
            "-t",
            "--",
            "n2",
        ]

    def test_pbs_inside_the_job(self) -> None:
        inside = {"PBS_JOBID": "3.head"}
        assert PBS.beside_command("3.head", ["n1", "n2"], 1, ["prog"], False, inside) == [
            "pbs_tmrsh",
            "n2",
            "prog",
        ]
        assert PBS.beside_command("4.head", ["n1"], 0, ["prog"], False, inside)[0] == "ssh"

    @given(
        st.lists(
            st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1), min_size=1
        )
    )
    def test_words_survive_ssh(self, words: list[str]) -> None:
        """It hands one line to a shell there."""
        line = PBS.beside_command("3.head", ["n1"], 0, words, False, {})[-1]
        assert shlex.split(line)[-len(words) :] == words
