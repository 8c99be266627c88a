from __future__ import annotations

import io
import os
import socket
import subprocess
from pathlib import Path
from typing import Any

import psutil
import pytest

from castoff.launcher.errors import CastoffError
from castoff.launcher.launchers.local import processes, start
from castoff.launcher.launchers.local.start import CannotStart, divide_cores, rank_environment
from tests import patience

from .conftest import Run, Spawn, finish, python, request


class TestEnvironment:
    def test_ranks_know_who_they_are(self, run: Run) -> None:
        stale = {"SLURM_PROCID": "5", "RANK": "9", "GROUP_RANK": "1", "MASTER_ADDR": "elsewhere"}
        outcome = run(["env"], 2, environment={**stale, "MINE": "a b"}, devices_per_rank=1)
        for rank in range(2):
            mine = {line[4:] for line in outcome.output.splitlines() if line[1] == str(rank)}
            assert {
                f"RANK={rank}",
                f"LOCAL_RANK={rank}",
                "WORLD_SIZE=2",
                "LOCAL_WORLD_SIZE=2",
                "NODE_RANK=0",
                "MASTER_ADDR=127.0.0.1",
                "CASTOFF_LAUNCHER=local",
                f"CASTOFF_RANK={rank}/2",
                f"CASTOFF_DEVICE={rank}",
                "PYTHONUNBUFFERED=1",
                "MINE=a b",
            } <= mine
            names = {line.partition("=")[0] for line in mine}
            assert not names & {"SLURM_PROCID", "GROUP_RANK"}
            assert 20000 <= int(next(line for line in mine if "MASTER_PORT" in line)[12:]) < 30000
        assert outcome.code == 0

    def test_what_the_user_set_stays(self) -> None:
        given = {"OMP_NUM_THREADS": "7", "PYTHONUNBUFFERED": "", "CUDA_VISIBLE_DEVICES": "3"}
        made = rank_environment(request(["true"], environment=given), 0, 20000, 4)
        assert given.items() <= made.items()

    @pytest.mark.parametrize("devices", [None, 0, 2])
    def test_no_device_unless_one_for_each(self, devices: int | None) -> None:
        ask = request(["true"], environment={"CASTOFF_DEVICE": "1"}, devices_per_rank=devices)
        assert "CASTOFF_DEVICE" not in rank_environment(ask, 0, 20000, 1)

    def test_devices_count_within_a_mask(self, run: Run) -> None:
        one = {"CUDA_VISIBLE_DEVICES": "3"}
        shown = run(["sh", "-c", "echo $CASTOFF_DEVICE"], 2, environment=one, devices_per_rank=1)
        assert sorted(shown.output.split()) == ["0", "0", "[0]", "[1]"]
        two = request(["true"], 3, environment={"CUDA_VISIBLE_DEVICES": "0,1"}, devices_per_rank=1)
        with pytest.raises(CastoffError, match=r"number 2 of those .* CUDA_VISIBLE_DEVICES=0,1 shows it 2"):
            start.start_ranks(two, output=io.BytesIO(), messages=io.StringIO())

    def test_the_decisions_are_reported_once(self, run: Run) -> None:
        said = run(["true"], 2, cores_per_rank=1).messages
        cores = processes.allowed_cores()
        port = said.rstrip().rpartition(" ")[2]
        assert said.startswith(f"castoff: 2 ranks on {socket.gethostname()}, 1 core each")
        assert said.endswith(f", OMP_NUM_THREADS=1, port {port}\n") and said.count("\n") == 1
        if len(cores) > 1:
            assert f"({cores[0]} | {cores[1]})" in said
        many = run(["true"], 40, environment={"OMP_NUM_THREADS": "3"}).messages
        assert "| … |" in many and "OMP_NUM_THREADS=3 (given)" in many

    def test_arguments_arrive_byte_for_byte(self, run: Run) -> None:
        odd = ["", "a b", "--", "-x", "$HOME", "'\"", "*", "ä", os.fsdecode(b"\xff\xfe"), "\n"]
        program = "import os, sys; print([os.fsencode(a) for a in sys.argv[1:]])"
        outcome = run(python(program, *odd), 1)
        assert outcome.output == f"[0] {[os.fsencode(word) for word in odd]}\n"

    def test_the_working_folder(self, run: Run, tmp_path: Path) -> None:
        assert run(["pwd", "-P"], 1, workdir=tmp_path).output == f"[0] {tmp_path.resolve()}\n"

    def test_ranks_read_nothing_but_a_single_one_asks(self, spawn: Spawn) -> None:
        both = spawn(["cat"], 2, stdin=subprocess.PIPE)
        assert both.wait(patience.SECONDS) == 0
        one = spawn(["cat"], 1, stdin=subprocess.PIPE)
        assert one.stdin is not None
        one.stdin.write(b"yes\n")
        one.stdin.close()
        one.stdin = None
        assert finish(one).output == "[0] yes\n"


# As it was before any test: one that does not put it back must not become the measure.
AFFINITY = os.sched_getaffinity(0)


class TestCores:
    def test_even_blocks(self) -> None:
        assert divide_cores([0, 1, 2, 3, 4], 2, None) == [[0, 1], [2, 3]]
        assert divide_cores([4, 5, 6, 7], 2, 1) == [[4], [5]]

    def test_too_few_are_shared_round_robin(self) -> None:
        assert divide_cores([3, 9], 5, None) == [[3], [9], [3], [9], [3]]
        assert divide_cores([0, 1, 2], 2, 2) == [[0, 1], [2, 0]]
        assert divide_cores([0, 1], 2, 8) == [[0, 1], [0, 1]]

    def test_each_rank_keeps_to_its_own(self, run: Run) -> None:
        cores = processes.allowed_cores()
        ranks = len(cores) + 1
        outcome = run(python("import os; print(os.getenv('RANK'), os.sched_getaffinity(0))"), ranks)
        seen = {line.partition(" ")[2] for line in outcome.output.splitlines()}
        assert seen == {f"{rank} {{{cores[rank % len(cores)]}}}" for rank in range(ranks)}
        assert f", shared: {len(cores)} in all" in outcome.messages
        assert os.sched_getaffinity(0) == AFFINITY

    def test_cores_that_are_refused_leave_the_rank_unbound(
        self, run: Run, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(start, "allowed_cores", lambda: [100_000])
        assert run(["true"], 1).code == 0


class TestCannotStart:
    @pytest.mark.parametrize(
        ("command", "code", "words"),
        [
            (
                ["no-such-program"],
                127,
                "cannot find the program 'no-such-program'; add its folder to PATH",
            ),
            (["./no/such"], 127, "cannot find the program './no/such' (looked at /"),
            (["/etc/hostname/x"], 127, "cannot find the program"),
            (["/etc"], 126, "is it a folder, or does it lack `chmod +x`?"),
            (["./plain"], 126, "chmod +x"),
            (["./orphan"], 127, "the interpreter its first line names does not exist"),
            (["./headless"], 126, "a first line such as `#!/bin/sh`"),
            (["headless"], 127, "write ./headless"),
            (["trian.py"], 127, "/trian.py, and on PATH); correct its path"),
            (["true", "a\0b"], 126, "embedded null byte"),
            (["true", "x" * 3_000_000], 126, "too long"),
        ],
    )
    def test_a_program_that_cannot_start_is_reported_as_a_shell_does(
        self, run: Run, tmp_path: Path, command: list[str], code: int, words: str
    ) -> None:
        (tmp_path / "plain").write_text("#!/bin/sh\n")
        (tmp_path / "orphan").write_text("#!/no/such/interpreter\n")
        (tmp_path / "headless").write_text("echo\n")
        for name in ("orphan", "headless"):
            (tmp_path / name).chmod(0o755)
        before = psutil.Process().num_fds()
        children = psutil.Process().children()
        with pytest.raises(CannotStart) as caught:
            run(command, 2, workdir=tmp_path)
        assert caught.value.exit_code == code
        assert words in str(caught.value)
        assert psutil.Process().num_fds() == before
        assert psutil.Process().children() == children

    @pytest.mark.parametrize(
        ("fields", "words"),
        [
            ({"workdir": Path("/no/such")}, "workdir=/no/such: it is not a folder on this host"),
            ({"ranks": 0}, "ranks=0: must be 1 or more"),
            ({"cores_per_rank": 0}, "cores_per_rank=0: must be 1 or more"),
            ({"command": []}, "the command is empty"),
            ({"log_dir": Path("/etc/hostname/logs")}, "choose another"),
        ],
    )
    def test_what_makes_no_sense(self, run: Run, fields: dict[str, Any], words: str) -> None:
        with pytest.raises(CastoffError, match=words):
            run(**({"command": ["true"]} | fields))

    @pytest.mark.parametrize("number", [11, 24])
    def test_no_half_of_the_ranks_is_left(
        self, run: Run, monkeypatch: pytest.MonkeyPatch, number: int
    ) -> None:
        real = subprocess.Popen
        started: list[subprocess.Popen[bytes]] = []

        def limited(command: list[str], **options: Any) -> subprocess.Popen[bytes]:
            if command[0] == "sleep" and len(started) == 2:
                raise OSError(number, os.strerror(number))
            process: subprocess.Popen[bytes] = real(command, **options)
            if command[0] == "sleep":
                started.append(process)
            return process

        monkeypatch.setattr(subprocess, "Popen", limited)
        before = psutil.Process().num_fds()
        with pytest.raises(CannotStart, match="cannot start rank 2 of 3: "):
            run(["sleep", "600"], 3)
        assert all(process.poll() is not None for process in started)
        assert psutil.Process().num_fds() == before
