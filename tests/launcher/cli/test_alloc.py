"""castoff alloc: what is asked of each scheduler, what begins in the allocation, and how it is given up.

The schedulers' commands here are small programs that behave as real ones were seen to; real clusters are in
tests/cluster and tests/pbs.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from castoff.launcher.schedulers.pbs.scheduler import SCHEDULER as PBS
from tests import patience
from tests.command_line import COMMAND, Castoff

from ..terminal import on_terminal

Programs = Callable[..., dict[str, str]]

JOB = """
name: train
nodes: 2
ranks_per_node: 2
walltime: 10m
command: [python, train.py]
setup: [export FROM_SETUP=yes]
env: {MINE: "it's mine"}
directives: {slurm: {comment: "a, b"}}
"""

SALLOC = """
printf '%s\\n' "$@" >>asked
if [ -n "$FULL" ]; then
  trap 'echo "salloc: Job allocation 7 has been revoked." >&2; exit 1' INT TERM HUP
  echo "salloc: Pending job allocation 7" >&2
  while :; do sleep 0.05; done
fi
while [ "$1" != srun ]; do shift; done
while [ "$1" != /bin/bash ]; do shift; done
"$@"
"""

QSUB = """
printf '%s\\n' "$@" >>asked
[ -t 0 ] && [ -t 1 ] || { echo "qsub: standard input and output must be a terminal" >&2; exit 1; }
ask() {
  printf 'Do you wish to terminate the job and exit (y|[n])? '
  read answer
  if [ "$answer" = y ]; then echo 'Job 7.head is being deleted'; exit 0; fi
}
trap ask INT
echo "qsub: waiting for job 7.head to start"
while [ -n "$FULL" ]; do sleep 0.05; done
echo "qsub: job 7.head ready"
trap - INT
while [ "$1" != -- ]; do shift; done
shift
"$@" # whose code qsub does not know
echo "qsub: job 7.head completed"
"""
"""As both builds of OpenPBS do it: it wants a terminal, asks before it gives up, and its own code is 0."""


@pytest.fixture
def programs(tmp_path: Path) -> Programs:
    """The environment with a scheduler's command before all others on PATH.

    And sbatch, which castoff looks for where it is to use Slurm, and never calls here.
    """

    def made(**texts: str) -> dict[str, str]:
        folder = tmp_path / "bin"
        folder.mkdir(exist_ok=True)
        for name, text in {"sbatch": "exit 1", **texts}.items():
            (folder / name).write_text(f"#!/bin/sh\n{text}")
            (folder / name).chmod(0o755)
        return {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}

    return made


@pytest.fixture
def job(tmp_path: Path) -> Path:
    path = tmp_path / "job.yaml"
    path.write_text(JOB)
    return path


@pytest.mark.parametrize(
    ("site", "line"),
    [
        (
            "slurm",
            "salloc --job-name=train --nodes=2 --ntasks-per-node=2 --time=00:10:00 '--comment=a, b' srun "
            '--interactive --preserve-env --pty /bin/bash "$CASTOFF_ALLOC_DIR/enter.sh"',
        ),
        (
            "pbs",
            "qsub -I -N train -l select=2:ncpus=2:mpiprocs=2 -l place=scatter -l walltime=00:10:00 -- "
            '/bin/bash -l "$CASTOFF_ALLOC_DIR/enter.sh"',
        ),
        (
            "flux",
            "flux alloc --job-name=train --nodes=2 --nslots=2 --cores-per-slot=2 --time-limit=600s "
            '/bin/bash "$CASTOFF_ALLOC_DIR/enter.sh"',
        ),
    ],
)
def test_what_is_asked_of_each_scheduler(
    site: str, line: str, castoff: Castoff, job: Path, tmp_path: Path
) -> None:
    """The job's directives but for a batch job's own; and nothing is left of showing it."""
    batch = ["--set", "requeue.max=2", "--set", "after.afterok=['3']"]
    answer = castoff("alloc", job, "--site", site, "--dry-run", *batch)
    assert answer.returncode == 0
    assert answer.stderr.splitlines() == [
        "castoff: alloc ignores after, requeue, which only castoff submit and ranks in the allocation use",
        "castoff: would make a folder, CASTOFF_ALLOC_DIR, with this script as its enter.sh, and run:",
        line,
    ]
    assert "\nexport FROM_SETUP=yes\n" in answer.stdout and "OMP_NUM_THREADS" not in answer.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["job.yaml"]
    assert subprocess.run(["bash", "-n"], input=answer.stdout, text=True, check=False).returncode == 0


def test_without_a_job_file(castoff: Castoff) -> None:
    answer = castoff("alloc", "--site", "slurm", "--nodes", "1", "--queue", "debug", "--dry-run")
    assert "\nsalloc --job-name=alloc --partition=debug --nodes=1 --ntasks-per-node=1 srun " in answer.stderr
    answer = castoff("alloc", "--site", "slurm", "-N", "2", "-n", "4", "--dry-run")
    assert "`castoff launch -n 4 -- python train.py` starts ranks on the allocation" in answer.stdout


@pytest.mark.parametrize("site", ["slurm", "pbs"])
def test_a_command_runs_in_it(
    site: str, castoff_command: Castoff, programs: Programs, job: Path, tmp_path: Path
) -> None:
    """In the folder, after setup and with env and env_from; its code is ours, also where qsub's is 0."""
    env = {**programs(salloc=SALLOC, qsub=QSUB), "TOKEN": "s3cret", "SLURM_CONF": "/etc/slurm.conf"}
    says = 'echo "$FROM_SETUP, $MINE, $TOKEN, $PWD, $1"; exit 9'
    words: list[str | Path] = ["alloc", job, "--site", site, "--set", "env_from=[TOKEN]"]
    answer = castoff_command(*words, "--", "sh", "-c", says, "sh", "it's $1\n*", env=env)
    assert answer.returncode == 9, answer.stderr
    assert f"yes, it's mine, s3cret, {tmp_path}, it's $1\n*\n" in answer.stdout
    assert "\r" not in answer.stdout
    assert "s3cret" not in (tmp_path / "asked").read_text()
    assert list((tmp_path / "castoff-runs").iterdir()) == []


def test_with_a_profile_that_a_probe_wrote(
    castoff_command: Castoff, programs: Programs, job: Path, tmp_path: Path
) -> None:
    """Its setup writes a program for mpiexec into the attempt's folder; `env` unsets what the site sets."""
    folder = tmp_path / ".castoff" / "sites"
    folder.mkdir(parents=True)
    setup = "\n".join(PBS.remote_setup).replace("REMOTE_SHELL", "echo")
    profile = {"extends": "pbs", "description": "d", "setup": [setup], "env": {"A": "site", "B": "site"}}
    (folder / "probed.yaml").write_text(json.dumps(profile))
    says = '"$HYDRA_LAUNCHER_EXEC" -x n2 echo hello; echo "<$A$B$CASTOFF_ATTEMPT_DIR>"'
    words: list[str | Path] = [
        "alloc",
        job,
        "--site",
        "probed",
        "--set",
        "env.A=null",
        "--",
        "sh",
        "-c",
        says,
    ]
    answer = castoff_command(*words, env=programs(qsub=QSUB))
    assert answer.returncode == 0, answer.stderr
    assert "n2 /bin/bash -c echo hello\n<site>\n" in answer.stdout


@pytest.mark.parametrize("site", ["slurm", "pbs"])
def test_a_shell_in_it(site: str, programs: Programs, job: Path, tmp_path: Path) -> None:
    env = {**programs(salloc=SALLOC, qsub=QSUB), "SHELL": "/bin/sh", "PS1": "> "}
    words: list[str | Path] = [COMMAND, "alloc", job.name, "--site", site]
    answer = on_terminal(*words, cwd=tmp_path, env=env, typed="echo $((40 + 2)) $MINE; exit 3\n", columns=300)
    assert answer.code == 3, answer.output
    assert "42 it's mine" in answer.output
    hint = "; `castoff launch job.yaml` starts ranks on the allocation's hosts, and exit gives them back\n"
    assert "castoff: this shell is on " in answer.output and hint in answer.output


@pytest.mark.everyday("*[2T]-slurm-Pending")  # SIGINT: its id is a number from Python 3.11 on
@pytest.mark.parametrize(("site", "waits"), [("slurm", "Pending"), ("pbs", "waiting")])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_while_it_waits_withdraws_it(
    site: str, waits: str, number: signal.Signals, programs: Programs, job: Path, tmp_path: Path
) -> None:
    """As a terminal's Ctrl-C does, and its end; qsub's question is answered."""
    env = {**os.environ, **programs(salloc=SALLOC, qsub=QSUB), "FULL": "1"}
    output = tmp_path / "output"
    with output.open("w") as file:
        process = subprocess.Popen(
            [COMMAND, "alloc", job, "--site", site, "--", "true"],
            cwd=tmp_path,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
        patience.until(lambda: waits in output.read_text() or process.poll() is not None)
        if number == signal.SIGINT:
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)
        assert process.wait(patience.SECONDS) == 130
    assert "castoff: the request was withdrawn: " in output.read_text()
    assert list((tmp_path / "castoff-runs").iterdir()) == []
    assert "deleted" in output.read_text() or "revoked" in output.read_text()


def test_ctrl_c_on_a_terminal_withdraws_qsubs(programs: Programs, job: Path, tmp_path: Path) -> None:
    env = {**programs(qsub=QSUB), "FULL": "1"}
    script = f"exec setsid --ctty --wait {COMMAND} alloc job.yaml --site pbs"
    answer = on_terminal("sh", "-c", script, cwd=tmp_path, env=env, then=[("waiting for job", "\x03")])
    assert answer.code == 130, answer.output
    assert "Job 7.head is being deleted" in answer.output
    assert "castoff: the request was withdrawn: PBS gave no hosts" in answer.output


def test_what_a_scheduler_refuses(castoff_command: Castoff, programs: Programs, job: Path) -> None:
    env = programs(salloc="echo 'salloc: error: invalid partition' >&2; exit 1")
    answer = castoff_command("alloc", job, "--site", "slurm", "--", "true", env=env)
    assert answer.returncode == 1
    assert answer.stderr.splitlines() == [
        "salloc: error: invalid partition",
        "castoff: Slurm gave no hosts; its message is above",
    ]


def test_a_setup_line_that_fails(castoff_command: Castoff, programs: Programs, job: Path) -> None:
    """A command does not run after it; a shell does, after the message."""
    env = programs(salloc=SALLOC)
    words: list[str | Path] = ["alloc", job, "--site", "slurm", "--set", "setup=['false || (exit 4)']"]
    answer = castoff_command(*words, "--", "echo", "ran", env=env)
    assert (answer.returncode, answer.stdout) == (4, "")
    assert "castoff: setup: this line failed with code 4: ( exit 4 )" in answer.stderr


def test_where_it_cannot_be(castoff: Castoff, job: Path) -> None:
    for words, env, says in (
        (
            ["--site", "local"],
            {},
            "site local is this machine alone, which gives no allocations: start ranks here",
        ),
        (
            ["--site", "slurm"],
            {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[1-2]"},
            "this shell is in Slurm job 7 (2 hosts: n1, n2) already: castoff launch",
        ),
    ):
        answer = castoff("alloc", job, *words, "--", "true", env=env)
        assert answer.returncode == 1 and answer.stderr.startswith(f"castoff: {says}"), answer.stderr


def test_a_shell_needs_a_terminal(castoff_command: Castoff, programs: Programs, job: Path) -> None:
    answer = castoff_command("alloc", job, "--site", "slurm", env=programs(salloc=SALLOC))
    assert answer.returncode == 1 and "a shell needs a terminal" in answer.stderr


class TestJupyter:
    LAB = f"""
case $2 in --version) echo 4; exit ;; esac
exec {sys.executable} - "$@" <<'PYTHON'
import http.server, os, sys
flags = dict(word.partition("=")[::2] for word in sys.argv[3:])
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        good = self.path == "/lab?token=" + os.environ["JUPYTER_TOKEN"]
        self.send_response(200 if good else 403)
        self.end_headers()
        if good:
            os._exit(0)
    def log_message(self, *words): pass
assert os.environ["JUPYTER_TOKEN"] not in " ".join(sys.argv)
http.server.HTTPServer((flags["--ip"], int(flags["--port"])), Answer).serve_forever()
PYTHON
"""

    @pytest.mark.everyday("slurm")
    @pytest.mark.parametrize("site", ["slurm", "pbs"])
    def test_it_says_how_to_reach_it(self, site: str, programs: Programs, job: Path, tmp_path: Path) -> None:
        """The tunnel leads to it, and the address has the token, which no command line has."""
        env = {**os.environ, **programs(salloc=SALLOC, qsub=QSUB, jupyter=self.LAB)}
        output = tmp_path / "output"
        with output.open("w") as file:
            process = subprocess.Popen(
                [
                    COMMAND,
                    "alloc",
                    job,
                    "--site",
                    site,
                    "--jupyter",
                    "--set",
                    f"setup=['PATH={tmp_path}/bin:$PATH']",
                ],
                cwd=tmp_path,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
            )
            patience.until(lambda: "Ctrl-C here" in output.read_text() or process.poll() is not None)
        text = output.read_text()
        tunnel = re.search(r"ssh -N -L (\d+):([0-9.]+):(\d+) \S+@\S+\n", text)
        address = re.search(r"http://localhost:(\d+)/lab\?token=([0-9a-f]{48})\n", text)
        assert tunnel and address and tunnel[1] == tunnel[3] == address[1], text
        assert not tunnel[2].startswith("127.")
        assert address[2] not in (tmp_path / "asked").read_text()
        get = [sys.executable, "-c", "import sys, urllib.request as u; u.urlopen(sys.argv[1])"]
        place = f"http://{tunnel[2]}:{tunnel[1]}/lab?token="
        assert subprocess.run([*get, f"{place}no"], capture_output=True, check=False).returncode == 1
        subprocess.run([*get, f"{place}{address[2]}"], capture_output=True, check=False)
        assert process.wait(patience.SECONDS) == 0

    def test_without_one(self, castoff: Castoff, programs: Programs, job: Path, tmp_path: Path) -> None:
        """Said before the allocation where that can be known, else in it."""
        env = programs(salloc=SALLOC)
        for words, says in (
            (["--set", "setup=[]"], "--jupyter: no jupyter lab is on PATH, and the job has no setup"),
            (["--python", sys.executable], f"--jupyter: {sys.executable} has no jupyterlab: install"),
        ):
            answer = castoff("alloc", job, "--site", "slurm", "--jupyter", *words, env=env)
            assert answer.returncode == 1 and answer.stderr.startswith(f"castoff: {says}"), answer.stderr
        assert not (tmp_path / "asked").exists()
        answer = castoff("alloc", job, "--site", "slurm", "--jupyter", env=env)
        assert answer.returncode == 127
        assert "castoff: there is no jupyter lab on PATH of " in answer.stderr
