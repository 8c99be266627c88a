"""launch through the real command: what a job file adds to the launcher, whose own tests are elsewhere."""

from __future__ import annotations

import json
import socket
import sys
from pathlib import Path
from socket import gethostname

import pytest

from castoff.launcher.cli.launch import command
from tests.ports import free_port

from ..conftest import Castoff
from ..terminal import on_terminal

pytestmark = pytest.mark.usefixtures("for_real")

WHO = 'echo "$RANK of $WORLD_SIZE"'


def test_a_program(castoff: Castoff) -> None:
    answer = castoff("launch", "-n", "2", "--", "sh", "-c", WHO)
    assert answer.returncode == 0
    assert sorted(answer.stdout.splitlines()) == ["[0] 0 of 2", "[1] 1 of 2"]
    assert answer.stderr.startswith("castoff: 2 ranks on ") and answer.stderr.count("\n") == 1


def test_a_terminal_shows_text_in_colours_and_nothing_else(castoff: Castoff, tmp_path: Path) -> None:
    """A pipe gets what was written."""
    words = ["launch", "--", "sh", "-c", r"printf '\033[2Ja\033[31mb\033]52;c;aGk=\007c\n'"]
    shown = on_terminal("castoff", *words, cwd=tmp_path).output
    assert "[0] a\x1b[31mbc\x1b[0m\n" in shown
    assert castoff(*words).stdout == "[0] \x1b[2Ja\x1b[31mb\x1b]52;c;aGk=\x07c\n"


def test_logs_and_failure(castoff: Castoff, tmp_path: Path) -> None:
    words = ["-n", "2", "--log-dir", "logs", "--failure-file", "failure.json"]
    answer = castoff("launch", *words, "--", "sh", "-c", f"{WHO}; [ $RANK = 1 ] && exit 7; sleep 60")
    assert answer.returncode == 7
    assert (tmp_path / "logs" / "rank-00001.log").read_text() == "1 of 2\n"
    assert json.loads((tmp_path / "failure.json").read_text())["rank"] == 1


@pytest.mark.parametrize(
    ("says", "ends", "code"), [("resume", 0, 75), ("done", 0, 0), ("resume", 7, 7), ("", 0, 0)]
)
def test_the_exit_code_distinguishes_resume_from_done(
    says: str, ends: int, code: int, castoff: Castoff
) -> None:
    program = f'[ $RANK = 1 ] || echo {says} >"$CASTOFF_OUTCOME_FILE"; exit {ends}'
    answer = castoff("launch", "-n", "2", "--", "sh", "-c", program)
    assert answer.returncode == code, answer.stderr
    assert ("run the same command again" in answer.stderr) == (code == 75)


def test_where_a_job_asks_for_the_outcome_it_is_not_ours(
    castoff: Castoff, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its script reads it, and takes another code than 0 for a failure."""
    monkeypatch.setenv("CASTOFF_OUTCOME_FILE", str(tmp_path / "outcome"))
    assert castoff("launch", "--", "sh", "-c", 'echo resume >"$CASTOFF_OUTCOME_FILE"').returncode == 0
    assert (tmp_path / "outcome").read_text() == "resume\n"


def test_a_job_file_and_what_wins_over_it(castoff: Castoff, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").write_text('#!/bin/sh\necho "mine $A $B; $(pwd)"\n')
    (tmp_path / "bin" / "python").chmod(0o755)
    (tmp_path / "job.yaml").write_text(
        f"command: [python, train.py]\nranks_per_node: 3\nworkdir: {tmp_path}/work\n"
        f"python: {tmp_path}/bin/python\nenv: {{A: file, B: file}}\n"
    )
    answer = castoff("launch", "job.yaml", "-n", "1", "--set", "env.B=line")
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout == f"[0] mine file line; {tmp_path}/work\n"
    other = castoff("launch", "job.yaml", "--", "sh", "-c", WHO)
    assert sorted(other.stdout.splitlines()) == [f"[{rank}] {rank} of 3" for rank in range(3)]


def test_a_driver_is_no_rank(castoff: Castoff, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may count on that: Lightning takes a process with a LOCAL_RANK for one of several."""
    monkeypatch.setenv("LOCAL_RANK", "3")
    program = (
        'echo "${RANK-}${LOCAL_RANK-}${WORLD_SIZE-} $MASTER_ADDR $CASTOFF_NODES"; cat "$CASTOFF_HOST_FILE"'
    )
    answer = castoff("launch", "--set", "launcher.driver=true", "--", "sh", "-c", program)
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout == f" 127.0.0.1 1\n{socket.gethostname()}\n"
    assert "ignores" not in answer.stderr


def test_devices_that_one_rank_leaves_idle(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Said where nobody asked for one rank."""
    monkeypatch.setattr("castoff.launcher.cli.launch.run", lambda request: 0)
    monkeypatch.setattr("castoff.launcher.launchers.local.this_host._nvidia", lambda root: 4)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2")
    for words, said in ((["--", "true"], True), (["-n", "1", "--", "true"], False)):
        context = command.make_context("launch", words, help_option_names=["-h", "--help"])
        with context:
            command.invoke(context)
        assert ("this host shows 3 GPUs" in capsys.readouterr().err) == said


def test_ignored_fields_are_reported(castoff: Castoff, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("command: [true]\nsetup: [false]\narray: {count: 2}\n")
    answer = castoff("launch", "job.yaml")
    assert answer.returncode == 0
    first = "castoff: launch ignores setup, array, which only castoff submit uses"
    assert answer.stderr.splitlines()[0] == first


def test_it_does_not_run_a_job_outside_of_its_container(castoff: Castoff, tmp_path: Path) -> None:
    """Nor without the files that it would have copied."""
    (tmp_path / "job.yaml").write_text(
        "command: [touch, ran]\nstage: [{from: words}]\ncontainer: {runtime: apptainer, image: /torch.sif}\n"
    )
    answer = castoff("launch", "job.yaml")
    assert answer.returncode == 1
    assert answer.stderr.startswith(
        "castoff: job.yaml: launch starts the program as it is, without container and stage"
    )
    assert answer.stderr.endswith("add --set container=null --set stage=null\n")
    assert not (tmp_path / "ran").exists()
    alone = castoff("launch", "job.yaml", "--set", "stage=[]", "--", "touch", "ran")
    assert alone.returncode == 1 and "without container; use castoff submit --site local" in alone.stderr
    cleared = castoff("launch", "job.yaml", "--set", "stage=null", "--set", "container=null")
    assert cleared.returncode == 0 and (tmp_path / "ran").exists()


def test_problems_of_the_job(castoff: Castoff, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("comand: [true]\nnodes: 0\n")
    answer = castoff("launch", "job.yaml")
    assert (answer.returncode, answer.stdout) == (2, "")
    assert "job.yaml:1: comand: " in answer.stderr and "job.yaml:2: nodes: " in answer.stderr
    nowhere = castoff("launch", "--", "no-such-program")
    assert nowhere.returncode == 127 and "cannot find the program" in nowhere.stderr


def test_a_site_for_the_local_scheduler(castoff: Castoff, tmp_path: Path) -> None:
    profile = tmp_path / ".castoff" / "sites" / "laptop.yaml"
    profile.parent.mkdir(parents=True)
    profile.write_text("description: mine\nextends: local\nenv: {GREETING: hello}\n")
    answer = castoff("launch", "--site", "laptop", "--ranks", "2", "--", "sh", "-c", 'echo "$GREETING"')
    assert answer.returncode == 0, answer.stderr
    assert sorted(answer.stdout.splitlines()) == ["[0] hello", "[1] hello"]


# --- Hosts by hand -----------------------------------------------------------------------------------

WHERE = 'echo "$RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $NODE_RANK $MASTER_ADDR $MASTER_PORT"'


def by_hand(port: int, node_rank: int, *more: str) -> list[str]:
    words = ["launch", "-n", "4", "--nodes", "2", "--node-rank", str(node_rank), "--master-addr", "127.0.0.1"]
    return [*words, "--master-port", str(port), *more]


def test_the_share_of_one_host(castoff: Castoff, tmp_path: Path) -> None:
    """The same command on each host, with a number of its own, makes one job."""
    port = free_port()
    for node in (0, 1):
        answer = castoff(*by_hand(port, node), "--log-dir", f"logs{node}", "--", "sh", "-c", WHERE)
        assert answer.returncode == 0, answer.stderr
        ranks = [2 * node, 2 * node + 1]
        assert sorted(answer.stdout.splitlines()) == [
            f"[{rank}] {rank} {rank % 2} 4 2 {node} 127.0.0.1 {port}" for rank in ranks
        ]
        assert f"castoff: 2 ranks ({ranks[0]}-{ranks[1]} of 4: host {node} of 2) on " in answer.stderr
        assert f"meeting at 127.0.0.1:{port}" in answer.stderr
        logs = sorted(path.name for path in (tmp_path / f"logs{node}").iterdir())
        assert logs == [f"rank-{rank:05d}.log" for rank in ranks]


def test_each_finds_itself_to_be_who_it_was_reported(castoff: Castoff) -> None:
    program = (
        "from castoff.launcher.ranks import RankEnv; me = RankEnv.detect(); "
        "print(me.launcher, me.rank, me.world_size, me.node_rank, me.master_addr, me.master_port)"
    )
    port = free_port()
    answer = castoff(*by_hand(port, 1), "--", sys.executable, "-c", program)
    assert sorted(answer.stdout.splitlines()) == [
        f"[{rank}] local {rank} 4 1 127.0.0.1 {port}" for rank in (2, 3)
    ]


def test_the_first_failure_is_reported_by_its_rank_of_all(castoff: Castoff, tmp_path: Path) -> None:
    program = "[ $LOCAL_RANK = 1 ] && exit 7; sleep 600"
    answer = castoff(*by_hand(free_port(), 1, "--failure-file", "failure.json"), "--", "sh", "-c", program)
    assert answer.returncode == 7
    assert answer.stderr.splitlines()[-1] == f"castoff: rank 3 on {gethostname()} failed first: exit code 7"
    assert json.loads((tmp_path / "failure.json").read_text())["rank"] == 3


def test_the_port_must_be_free_where_ranks_meet(castoff: Castoff) -> None:
    """Host 0 alone can tell; others only use it."""
    with socket.create_server(("", 0)) as server:
        port = server.getsockname()[1]
        taken = castoff(*by_hand(port, 0), "--", "true")
        assert (taken.returncode, taken.stdout) == (1, "")
        assert f"port {port} is taken on this host" in taken.stderr
        assert castoff(*by_hand(port, 1), "--", "true").returncode == 0


@pytest.mark.long
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["--node-rank", "1"],
            "--node-rank 1 is this host's number; give the number of all hosts with --nodes",
        ),
        (
            ["--node-rank", "1", "--nodes", "2", "-n", "3"],
            "--ranks 3 cannot be divided equally among 2 hosts",
        ),
        (
            ["--node-rank", "2", "--nodes", "2", "--master-addr", "h"],
            "--node-rank is 2, but with --nodes 2 the hosts are numbered 0 to 1",
        ),
        (
            ["--node-rank", "0", "--nodes", "2"],
            "--master-addr is missing: name the host whose",
        ),
        (["--node-rank", "0", "--nodes", "2", "--master-addr", ""], "--master-addr is missing"),
        (["--master-addr", "h"], "--master-addr needs --node-rank and --nodes"),
        (["--master-port", "4000"], "--master-port needs --node-rank and --nodes"),
        (
            ["--node-rank", "0", "--nodes", "1", "--master-port", "80"],
            "takes a whole number from 1024 to 65535",
        ),
        (["--node-rank", "0", "--nodes", "1", "--set", "ranks=3"], "--node-rank is for a program after --"),
    ],
)
def test_half_of_what_hosts_by_hand_need(words: list[str], said: str, castoff: Castoff) -> None:
    answer = castoff("launch", *words, "--", "true")
    assert (answer.returncode, answer.stdout) == (2, "")
    assert said in answer.stderr


def test_the_walltime_ends_the_ranks(castoff: Castoff) -> None:
    """And what they have started, also where they would save and stop."""
    answer = castoff("launch", "--set", "walltime=1s", "--", "sh", "-c", "sleep 1000000; exit 3")
    assert answer.returncode == 143
    assert "castoff: the walltime is over: ending the ranks" in answer.stderr
