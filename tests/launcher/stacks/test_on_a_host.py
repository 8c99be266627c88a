"""The script that a host runs: it finds the ranks' programs, and disturbs none of them."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from castoff.launcher.planning.render import template_folder
from castoff.launcher.stacks.answers import Answer, RankStack, read_answer
from tests import patience
from tests.patience import until

pytestmark = pytest.mark.usefixtures("for_real")

WAITS = """
import os
def stuck():
    os.read(os.open('pipe.' + os.environ['ME'], os.O_RDONLY), 1)
stuck()
"""
"""A program that waits in a function; that it opens its pipe tells that it is there."""
HANDLES = """
import faulthandler, os, signal
file = open(os.environ['STACKS'] + '/rank-00000.txt', 'w')
faulthandler.register(signal.SIGQUIT, file=file, all_threads=True)
"""
NO_SPY = {"PATH": "/usr/bin:/bin"}


class Host:
    """Processes of an attempt, and what the script prints about them."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.attempt = folder / "attempts" / "0.0"
        self.processes: list[subprocess.Popen[bytes]] = []
        self.pipes: list[int] = []
        (folder / "stacks").mkdir()
        for name in "012":
            os.mkfifo(folder / f"pipe.{name}")

    def start(self, argv: Sequence[str | Path], name: str, **environ: str) -> subprocess.Popen[bytes]:
        """Start a process, and wait until it reads pipe.NAME."""
        always = {**NO_SPY, "CASTOFF_ATTEMPT_DIR": str(self.attempt), "STACKS": str(self.folder / "stacks")}
        env = {**always, "ME": name, **environ}
        process = subprocess.Popen(argv, env=env, cwd=self.folder, start_new_session=True)
        self.processes.append(process)
        self.until_read(name)
        return process

    def until_read(self, name: str) -> None:
        def is_read() -> bool:
            with contextlib.suppress(OSError):  # ENXIO: nobody reads it yet
                self.pipes.append(os.open(self.folder / f"pipe.{name}", os.O_WRONLY | os.O_NONBLOCK))
                return True
            return False

        until(is_read)

    def rank(self, number: int, code: str = WAITS, **environ: str) -> subprocess.Popen[bytes]:
        python = [sys.executable, "-S", "-c", code]
        return self.start(python, str(number), RANK=str(number), WORLD_SIZE="3", **environ)

    def answer(
        self, *ranks: int, spy: Path | str = "", threads: str = "main", path: str = NO_SPY["PATH"]
    ) -> Answer:
        program = (template_folder() / "interactive" / "stacks.sh").read_text()
        words = [str(self.attempt), "0", "mark", threads, str(spy), *map(str, ranks)]
        done = subprocess.run(
            ["bash", "-c", program, "castoff", *words],
            env={"PATH": path},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=patience.SECONDS,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        answer = read_answer("here", "mark", done.stdout.splitlines())
        assert answer.complete
        return answer

    def program(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return path

    def end(self) -> None:
        for process in self.processes:
            for child in (
                psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
            ):
                child.kill()
            process.kill()
            process.wait()
        for pipe in self.pipes:
            os.close(pipe)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    made = Host(tmp_path)
    yield made
    made.end()


def functions(rank: RankStack) -> list[str]:
    return [frame.function for frame in rank.threads[0].frames]


def by_rank(answer: Answer) -> dict[int | None, RankStack]:
    return {rank.rank: rank for rank in answer.ranks}


def test_by_the_programs_handler(host: Host) -> None:
    """Twice, as each call appends to the file; others get no signal."""
    host.rank(0, HANDLES + WAITS)
    other = host.rank(1)
    obeys = host.rank(2, f"import signal\nsignal.signal(3, lambda *_: open('quit', 'w'))\n{WAITS}")
    for _ in range(2):
        answer = host.answer()
        assert answer.world_size == 3
        ranks = by_rank(answer)
        assert (ranks[0].source, functions(ranks[0])) == ("handler", ["stuck", "<module>"])
        for rank in (1, 2):
            assert ranks[rank].threads == [] and ranks[rank].lacks == "py-spy"
    assert other.poll() is None and obeys.poll() is None and not (host.folder / "quit").exists()


def test_by_py_spy_which_is_asked_first(host: Host) -> None:
    """Of the rank's PATH, or castoff's own; the program with a handler gets no signal."""
    found = Path(sys.executable).with_name("py-spy")
    program = (
        "import signal\nopen('stacks/rank-00000.txt', 'w')\nsignal.signal(3, lambda *_: open('quit', 'w'))\n"
    )
    keeps = program.replace("open('stacks", "file = open('stacks") + WAITS
    host.rank(0, keeps, PATH=f"{found.parent}:/usr/bin:/bin")
    host.rank(1)
    ranks = by_rank(host.answer())
    assert (ranks[0].source, functions(ranks[0])[0], ranks[1].source) == ("py-spy", "stuck", None)
    ranks = by_rank(host.answer(1, spy=found))
    assert [*ranks] == [1] and functions(ranks[1])[0] == "stuck"
    assert not (host.folder / "quit").exists()


def test_a_program_that_begins_in_the_meantime_gets_no_signal(host: Host) -> None:
    """Some of its facts are read, and some are not."""
    host.program(
        "cat",
        '/bin/cat "$@"; case $* in */stat*) touch "$0".read; until [ -e "$0".go ]; do sleep 0.01; done; esac',
    )
    with ThreadPoolExecutor() as pool:
        asked = pool.submit(host.answer, path=f"{host.folder}:{NO_SPY['PATH']}")
        until((host.folder / "cat.read").exists)
        late = host.start([sys.executable, "-S", "-c", WAITS], "0")
        (host.folder / "cat.go").touch()
        assert asked.result().ranks == []
    assert late.poll() is None


def test_only_the_main_thread_unless_all_are_wanted(host: Host) -> None:
    beside = "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    host.rank(0, HANDLES + beside + WAITS)
    host.rank(1, beside + WAITS)
    for spy in ("", Path(sys.executable).with_name("py-spy")):
        for threads, number in (("main", 1), ("all", 2)):
            rank = host.answer(1 if spy else 0, spy=spy, threads=threads).ranks[0]
            assert (len(rank.threads), functions(rank)[0]) == (number, "stuck")


def test_a_py_spy_that_may_not(host: Host) -> None:
    """Then the handler is asked; without one, the reason is shown."""
    spy = host.program(
        "spy", "echo 'Permission Denied: Try running again with elevated permissions' >&2; exit 1"
    )
    host.rank(0, HANDLES + WAITS)
    host.rank(1)
    ranks = by_rank(host.answer(spy=spy))
    assert ranks[0].source == "handler"
    assert ranks[1].lacks == "permission" and "py-spy may not read its memory" in (ranks[1].reason or "")


def test_the_program_below_its_wrappers(host: Host) -> None:
    """A shell, and a Python that waits for its child, as conda run does; a worker of the program is none."""
    starts = "import subprocess, sys\nsubprocess.{how}([sys.executable, '-S', '-c', {what!r}]{more})\n"
    worker = starts.format(how="Popen", what="input()", more=", stdin=subprocess.PIPE")
    wrapper = starts.format(how="call", what=worker + WAITS, more="")
    command = ["sh", "-c", '"$@"; true', "sh", sys.executable, "-S", "-c", wrapper]
    host.start(command, "0", RANK="0", WORLD_SIZE="1")
    (rank,) = host.answer(spy=Path(sys.executable).with_name("py-spy")).ranks
    assert functions(rank) == ["stuck", "<module>"]


def test_the_workers_for_which_a_rank_waits(host: Host) -> None:
    """As with torch's spawn: where they are matters, but not the process that cleans up after them."""
    words = "[sys.executable, '-S', '-c', {what!r}, *{more}]"
    start = f"subprocess.Popen({words}, env={{{{**os.environ, 'ME': '{{name}}'}}}})\n"
    helper = "['multiprocessing' + '.resource_tracker']"
    code = "import os, subprocess, sys\n" + start.format(what=WAITS, name=0, more=helper)
    code += "".join(f"p = {start.format(what=WAITS, name=name, more=[])}" for name in (1, 2)) + "p.wait()"
    parent = host.start([sys.executable, "-S", "-c", code], "2", RANK="0", WORLD_SIZE="1")
    host.until_read("1")
    until(lambda: by_rank(host.answer())[0].waits_in == "do_wait")
    ranks = host.answer().ranks
    assert sorted(rank.rank is None for rank in ranks) == [False, True, True]
    assert by_rank(host.answer())[0].pid == parent.pid


def test_the_workers_of_a_program_that_starts_ranks(host: Host) -> None:
    """As torchrun in a rank does: they are the ranks; and those that have no number."""
    starts = "import os, subprocess, sys\n" + "".join(
        f"subprocess.Popen([sys.executable, '-S', '-c', {WAITS!r}], env={{**os.environ, 'RANK': '{rank}', "
        f"'WORLD_SIZE': '2', 'TORCHELASTIC_RUN_ID': 'x', 'ME': '{rank}'}})\n"
        for rank in (0, 1)
    )
    host.start([sys.executable, "-S", "-c", starts + WAITS], "2", RANK="0", WORLD_SIZE="1")
    for name in "01":
        host.until_read(name)
    answer = host.answer()
    assert sorted((rank.rank or 0) for rank in answer.ranks) == [0, 1] and answer.world_size == 2
    assert host.processes[0].pid not in {rank.pid for rank in answer.ranks}


def test_a_driver_without_numbers(host: Host) -> None:
    driver = host.start([sys.executable, "-S", "-c", WAITS], "0")
    (rank,) = host.answer().ranks
    assert (rank.rank, rank.pid) == (None, driver.pid)


def test_what_is_stopped_or_no_python_or_of_another_attempt_or_host(host: Host) -> None:
    host.start(["cat", "pipe.0"], "0", RANK="0")
    stopped = host.rank(1, HANDLES + WAITS)
    host.rank(2, CASTOFF_ATTEMPT_DIR="/of/another")
    host.rank(2, NODE_RANK="1")
    psutil.Process(stopped.pid).suspend()
    until(lambda: psutil.Process(stopped.pid).status() == psutil.STATUS_STOPPED)
    ranks = by_rank(host.answer())
    assert sorted(ranks) == [0, 1]  # type: ignore[type-var]
    assert ranks[0].reason == "it is not a Python process, but cat"
    assert "stopped (state T)" in ranks[1].condition and ranks[1].threads == []
