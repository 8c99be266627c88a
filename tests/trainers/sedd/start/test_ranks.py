"""Which ranks are started where no launcher has made this process one."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

import pytest
import torch

from castoff.launcher.ranks import RankEnv
from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.sedd import __main__ as program
from castoff.trainers.sedd.start import ranks
from castoff.trainers.sedd.start.flags import COMMAND_LINE
from castoff.trainers.sedd.start.ranks import check_layout, command, launched
from tests import patience
from tests.ports import free_port
from tests.trainers.logged import unwrapped

ROOT = Path(__file__).parents[4]
HOST = "--master_addr host-a"


def none_asked() -> NoReturn:
    raise AssertionError("the devices were counted")


@pytest.mark.parametrize(
    ("words", "devices", "options"),
    [
        ("", 0, None),
        ("", 1, None),
        ("", 4, "--ranks-per-node 4"),
        ("--nproc_per_node 1", None, None),
        ("--nproc_per_node 3", None, "--ranks-per-node 3"),
        (
            "--nproc_per_node 3 --master_port 4000",
            None,
            "--ranks-per-node 3 --nodes 1 --node-rank 0 --master-addr 127.0.0.1 --master-port 4000",
        ),
        (
            f"--nnodes 2 --node_rank 0 {HOST}",
            1,
            "--ranks-per-node 1 --nodes 2 --node-rank 0 --master-addr host-a",
        ),
        (
            f"--nnodes 2 --node_rank 1 {HOST} --master_port 4000",
            4,
            "--ranks-per-node 4 --nodes 2 --node-rank 1 --master-addr host-a --master-port 4000",
        ),
        (
            f"--nnodes 2 --node_rank 1 {HOST} --nproc_per_node 2",
            None,
            "--ranks-per-node 2 --nodes 2 --node-rank 1 --master-addr host-a",
        ),
        ("--nnodes 1 --node_rank 0", 1, None),
    ],
)
def test_what_is_started(words: str, devices: int | None, options: str | None) -> None:
    count = none_asked if devices is None else lambda: devices
    assert launched(COMMAND_LINE.parsed(words.split()), count) == (options and options.split())


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (f"--nnodes 2 {HOST}", ["--node_rank: is missing; this is one of --nnodes 2 hosts"]),
        (
            f"--nnodes 2 --node_rank 2 {HOST}",
            ["--node_rank: is 2, but with --nnodes 2 the hosts are numbered 0 to 1"],
        ),
        (f"--node_rank 1 {HOST}", ["--node_rank: is 1, but --nnodes is missing; write the number of hosts"]),
        (
            "--nnodes 2 --node_rank 1",
            ["--master_addr: is missing; write the address of the host with --node_rank 0"],
        ),
        ("--nnodes 2 --node_rank 1 --master_addr=", ["--master_addr: is missing"]),
        ("--nnodes 2", ["--node_rank: is missing", "--master_addr: is missing"]),
    ],
)
def test_half_of_it(words: str, says: list[str]) -> None:
    with pytest.raises(ConfigError) as error:
        launched(COMMAND_LINE.parsed(words.split()), none_asked)
    assert [problem[: len(said)] for problem, said in zip(error.value.problems, says, strict=True)] == says


def fits(words: list[str], me: RankEnv) -> bool:
    """Whether the flags mean the ranks that there are."""
    asked = dict(zip(words[::2], words[1::2], strict=True))
    nodes = str(me.world_size // me.local_world_size)
    there = {
        "--nproc_per_node": str(me.local_world_size),
        "--nnodes": nodes,
        "--node_rank": str(me.node_rank),
    }
    return asked.items() <= there.items()


def srun(rank: int = 5, tasks: str = "4(x2)") -> dict[str, str]:
    """What a task of srun finds; two nodes of four."""
    return {
        "SLURM_JOB_ID": "7",
        "SLURM_STEP_ID": "0",
        "SLURM_STEP_NUM_TASKS": "8",
        "SLURM_STEP_TASKS_PER_NODE": tasks,
        "SLURM_STEP_NODELIST": "n[1-2]",
        "SLURM_JOB_NODELIST": "n[1-2]",
        "SLURM_PROCID": str(rank),
        "SLURM_LOCALID": str(rank % 4),
        "SLURM_NODEID": str(rank // 4),
        "SLURM_GTIDS": "0,1,2,3" if rank < 4 else "4,5,6,7",
    }


TORCHRUN = {"TORCHELASTIC_RUN_ID": "x", "GROUP_RANK": "0", "MASTER_ADDR": "localhost", "MASTER_PORT": "4000"}
TRIPLE = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2"}


@pytest.mark.parametrize(
    "environ",
    [srun(), {**srun(), "RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1"}, {**TRIPLE, **TORCHRUN}, TRIPLE],
    ids=["srun", "srun and RANK", "torchrun", "RANK"],
)
@pytest.mark.parametrize("words", [[], ["--nproc_per_node", "4"], ["--nnodes", "2", "--node_rank", "1"]])
def test_a_rank_starts_no_others(
    environ: dict[str, str], words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a node of four tasks would have sixteen processes, each four of them the same ranks."""

    def started(*_: object) -> NoReturn:
        raise AssertionError("it started ranks")

    monkeypatch.setattr(ranks, "become", started)
    monkeypatch.setattr(ranks, "devices_here", started)
    me = RankEnv.detect(environ)
    monkeypatch.setattr(program, "setup_logging", lambda *_: None)
    refused = contextlib.nullcontext() if fits(words, me) else pytest.raises(ConfigError, match=me.launcher)
    with refused:
        program._config(COMMAND_LINE.parsed(words), me)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("", None),
        ("--nnodes 2 --node_rank 1 --nproc_per_node 4", None),
        (
            "--nnodes 3",
            "--nnodes: is 3, but srun has started this rank, 5 of 8, and set 2; leave the flag out",
        ),
        ("--node_rank 0", "--node_rank: is 0, but srun has started this rank, 5 of 8, and set 1;"),
        (
            "--nproc_per_node 2",
            "--nproc_per_node: is 2, but srun has started this rank, 5 of 8, and set 4",
        ),
    ],
)
def test_flags_agree_with_the_launcher(words: str, says: str | None) -> None:
    me = RankEnv.detect(srun())
    if says is None:
        check_layout(COMMAND_LINE.parsed(words.split()), me)
        return
    with pytest.raises(ConfigError) as error:
        check_layout(COMMAND_LINE.parsed(words.split()), me)
    assert error.value.problems[0].startswith(says)


@pytest.mark.parametrize(
    ("asked", "there", "found"),
    [("auto", 4, 4), ("cuda", 4, 4), ("auto", 0, 1), ("cpu", 4, 1), ("mps", 1, 1)],
)
def test_a_rank_for_each_device(asked: str, there: int, found: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """That torch sees, and none but the asked ones."""
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: there > 0)
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: there)
    assert ranks.devices_here(asked) == found


def test_as_what_they_are_started() -> None:
    """Each word reaches the ranks as it was given."""
    words = ["c.yaml", "--set", "name=a b", "--", "$x"]
    made = command(["-n", "4"], words)
    begin = made.index("launch")
    assert made[begin:] == [
        *("launch", "--here", "-n", "4", "--", *made[: begin - 1], "castoff.trainers.sedd", *words),
    ]


def test_mistakes_are_reported_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Once, and not by each rank."""
    monkeypatch.setattr(ranks, "become", lambda *_: pytest.fail("it started ranks"))
    monkeypatch.setattr(sys, "argv", ["sedd", "--nproc_per_node", "2", "--set", "training.accum=0"])
    with pytest.raises(SystemExit) as ended:
        program.main()
    assert ended.value.code == 1
    (line,) = capfd.readouterr().err.splitlines()
    assert line == ("castoff train: --set training.accum=0: is 0, but takes a whole number of at least 1")


# --- For real ----------------------------------------------------------------------------------------

TINY = """
training: {work_dir: out, n_iters: 4, batch_size: 2, accum: 1, log_freq: 1, device: cpu}
optim: {warmup: 1}
data: {synthetic: 40, max_length: 32, split: [0.8, 0.1, 0.1]}
model: {hidden_size: 8, n_blocks: 1, n_heads: 1, cond_dim: 8}
sampling: {number: 0}
"""


def shell(folder: Path, *words: str) -> subprocess.Popen[str]:
    (folder / "tiny.yaml").write_text(TINY)
    return subprocess.Popen(
        [sys.executable, "-m", "castoff.trainers.sedd", "tiny.yaml", *words],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    said, _ = process.communicate(timeout=patience.SECONDS)
    return process.returncode, said


@pytest.mark.usefixtures("for_real")
@pytest.mark.long  # torch is imported four times
def test_two_shells_make_one_job(tmp_path: Path) -> None:
    there: list[Any] = ["--nnodes", "2", "--master_addr", "127.0.0.1", "--master_port", str(free_port())]
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first = shell(tmp_path / "a", *there, "--node_rank", "0")
    second = shell(tmp_path / "b", *there, "--node_rank", "1")
    (code, said), (other, more) = ended(first), ended(second)
    assert (code, other) == (0, 0), said + more
    assert "ddp/world_size 2, ddp/effective_batch_size 4, ddp/lr_factor 2" in unwrapped(said)
    assert "castoff: 1 rank (1 of 2: host 1 of 2)" in more
    assert (tmp_path / "a" / "out" / "sedd" / "metrics.jsonl").exists()
    assert not (tmp_path / "b" / "out").exists()  # rank 0 alone writes, of all hosts


@pytest.mark.long
@pytest.mark.usefixtures("for_real")
def test_ctrl_c_in_one_shell_saves_in_both(tmp_path: Path) -> None:
    """And both say that they can be resumed."""
    there: list[Any] = ["--nnodes", "2", "--master_addr", "127.0.0.1", "--master_port", str(free_port())]
    endless = ["--set", "training.n_iters=1000000"]
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first = shell(tmp_path / "a", *there, *endless, "--node_rank", "0")
    second = shell(tmp_path / "b", *there, *endless, "--node_rank", "1")
    metrics = tmp_path / "a" / "out" / "sedd" / "metrics.jsonl"
    patience.until(lambda: metrics.exists() and "train/loss" in metrics.read_text())
    second.send_signal(signal.SIGINT)
    (code, said), (other, more) = ended(first), ended(second)
    assert (code, other) == (75, 75), said + more
    assert "it can be resumed from there" in said and "run the same command again" in more


@pytest.mark.usefixtures("for_real")
def test_a_shell_that_nobody_joins(tmp_path: Path) -> None:
    there = ["--nnodes", "2", "--node_rank", "0", "--master_addr", "127.0.0.1", "--master_port"]
    code, said = ended(shell(tmp_path, *there, str(free_port()), "--set", "parallel.start_timeout=1"))
    assert code == 1
    assert "castoff train: the ranks could not connect: rank 0 of 2, on " in said
    assert "started within parallel.start_timeout, 1 seconds" in said


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("", 0)) as server:
        port = server.getsockname()[1]
        there = [
            "--nnodes",
            "2",
            "--node_rank",
            "0",
            "--master_addr",
            "127.0.0.1",
            "--master_port",
            str(port),
        ]
        code, said = ended(shell(tmp_path, *there))
    assert code == 1
    assert f"castoff: port {port} is taken on this host" in said
