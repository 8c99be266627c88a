"""A copy of an agent is what the same command is when Python starts it."""

from __future__ import annotations

import ctypes
import os
import resource
import select
import selectors
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import Mock

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from castoff.launcher.launchers.local.agent import modules_of
from castoff.launcher.launchers.preload import serving
from castoff.launcher.launchers.preload.leaving import leave_libraries_whole
from castoff.launcher.launchers.preload.rank import limits, memory_policy, usable_devices
from castoff.launcher.launchers.preload.safety import unlike
from castoff.launcher.launchers.preload.sessions import end_sessions
from castoff.launcher.launchers.preload.start import agent_command, client_command
from castoff.launcher.launchers.preload.takeover import Unfit, adapt
from castoff.launcher.launchers.preload.words import python_command
from tests.launcher.launchers.local.conftest import gone
from tests.patience import SECONDS, until

MODULE = "json"
"""What agents here import: something small."""


SHELL: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}


class Ended(NamedTuple):
    code: int
    output: str
    errors: str


class Node:
    """An agent, and clients of it."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.address = f"@castoff-test-{os.getpid()}-{os.urandom(4).hex()}"
        self.agent: subprocess.Popen[bytes] | None = None
        self.clients: list[subprocess.Popen[bytes]] = []

    def begin(self, command: Sequence[str], modules: Sequence[str] = (MODULE,), **options: Any) -> None:
        words = agent_command(self.address, None, modules, command, by_default=False)
        self.agent = subprocess.Popen(words, **{"cwd": self.folder, "stdin": subprocess.DEVNULL, **options})

    def client(self, command: Sequence[str]) -> list[str]:
        return client_command(self.address, command)

    def run(self, command: Sequence[str], **options: Any) -> Ended:
        return ended(self.client(command), self.folder, **options)

    def start(self, command: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
        self.clients.append(subprocess.Popen(self.client(command), cwd=self.folder, **options))
        return self.clients[-1]

    def end(self) -> None:
        while self.clients:
            client = self.clients.pop()
            client.kill()
            client.communicate()
        if self.agent is not None:
            self.agent.terminate()
            self.agent.wait(SECONDS)
            self.agent = None


def ended(command: Sequence[str], folder: Path, **options: Any) -> Ended:
    """How a command ended, and what it wrote."""
    done = subprocess.run(
        command,
        **{"cwd": folder, "stdin": subprocess.DEVNULL, "capture_output": True, "timeout": SECONDS, **options},
        check=False,
    )
    return Ended(done.returncode, done.stdout.decode(), done.stderr.decode())


def test_devices_are_those_that_a_process_may_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """With MIG, which part of a device a rank has is the only difference."""
    names = {"/dev": ["null", "nvidia0", "nvidia1"], "/dev/nvidia-caps": ["nvidia-cap1", "nvidia-cap2"]}
    monkeypatch.setattr(os, "listdir", lambda folder: names.get(folder, []))
    monkeypatch.setattr(os, "access", lambda path, mode: path[-1] != "1")
    assert usable_devices() == ["/dev/nvidia-caps/nvidia-cap2", "/dev/nvidia0"]


def test_cores_that_the_kernel_does_not_give() -> None:
    """It sets those of the control group, without an error as long as there are some."""
    cores = [*os.sched_getaffinity(0), 1023]
    with pytest.raises(Unfit, match="cores"):
        adapt({"folder": Path.cwd(), "limits": limits(), "cores": cores}, {})


def test_where_a_profiler_is_preloaded_libraries_end_as_usual(monkeypatch: pytest.MonkeyPatch) -> None:
    """It writes what it has seen as it is destroyed."""
    libc = Mock()
    monkeypatch.setattr(ctypes, "CDLL", lambda _: libc)
    monkeypatch.setenv("LD_PRELOAD", "libprofiler.so")
    leave_libraries_whole()
    assert libc.mock_calls == []
    monkeypatch.delenv("LD_PRELOAD")
    leave_libraries_whole()
    assert libc.on_exit.call_count == 2


@pytest.fixture
def node(for_real: None, tmp_path: Path) -> Iterator[Node]:
    made = Node(tmp_path)
    yield made
    made.end()


def both_ways(node: Node, command: Sequence[str], **options: Any) -> tuple[Ended, Ended]:
    """A command that Python starts, and a copy."""
    node.begin(command, env=options.get("env"))
    return ended(command, node.folder, **options), node.run(command, **options)


def script(folder: Path, text: str, name: str = "program.py") -> list[str]:
    """The command that runs a text as a script."""
    (folder / name).write_text(text)
    return [sys.executable, name]


ALL_OF_IT = """
import gc, os, resource, signal, sys, threading, json
main = vars(sys.modules["__main__"]).items()
streams = sys.stdin, sys.stdout, sys.stderr
found = {
    "main": {name: str(value).split(" at 0x")[0] for name, value in main if name.startswith("__")},
    "sys": [sys.argv, sys.orig_argv, sys.path, sys.executable, str(sys.flags), sys.warnoptions, sys.prefix],
    "streams": [[one.name, one.encoding, one.errors, one.line_buffering, one.write_through, one.isatty(),
        one.mode, type(one.buffer).__name__] for one in streams],
    "signals": [str(signal.getsignal(number)) for number in signal.valid_signals()],
    "mask": [*map(str, signal.pthread_sigmask(signal.SIG_BLOCK, []))],
    "process": [os.getcwd(), os.umask(0o22), sorted(os.sched_getaffinity(0)), dict(os.environ),
        [resource.getrlimit(number) for number in range(16)], sorted(os.listdir("/proc/self/fd"))],
    "threads": [threading.current_thread() is threading.main_thread(), threading.active_count()],
    "gc": [gc.isenabled(), gc.get_threshold()],
    "ours": [name for name in sys.modules if "castoff" in name],
    "shown": [word for word in open("/proc/self/cmdline").read().split("\\0") if word],
    "name": open("/proc/self/comm").read(),
}
print(json.dumps(found))
"""


class TestTheSame:
    @pytest.mark.parametrize(
        "options",
        [[], ["-u"], ["-O", "-Bs"], ["-W", "error", "-X", "dev"]],
        ids=lambda options: "".join(options),
    )
    def test_a_script(self, node: Node, options: list[str]) -> None:
        command = script(node.folder, ALL_OF_IT)
        plain, copy = both_ways(node, [command[0], *options, command[1], "an argument", "--flag"])
        assert plain == copy
        assert plain.code == 0

    @pytest.mark.parametrize("how", ["module", "package", "text"])
    def test_a_module_and_a_text(self, node: Node, how: str) -> None:
        (node.folder / "some").mkdir()
        (node.folder / "some" / "__main__.py").write_text(ALL_OF_IT)
        (node.folder / "one.py").write_text(ALL_OF_IT)
        what = {"module": ["-m", "one"], "package": ["-um", "some"], "text": ["-c", ALL_OF_IT]}[how]
        plain, copy = both_ways(node, [sys.executable, *what, "argument"])
        assert plain == copy
        assert plain.code == 0

    def test_what_the_client_has(self, node: Node) -> None:
        """Its folder, mask, limits, cores, variables, signals and files, which the agent has otherwise."""
        command = [sys.executable, str(node.folder / "program.py")]
        script(node.folder, ALL_OF_IT)
        other = node.folder / "other"
        other.mkdir()

        def prepare() -> None:
            os.umask(0o077)
            os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
            resource.setrlimit(resource.RLIMIT_NOFILE, (200, 300))
            signal.signal(signal.SIGUSR1, signal.SIG_IGN)
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
            os.dup2(1, 7)

        node.begin(command)
        environment = {**os.environ, "RANK": "3", "CASTOFF_TEST": "é\udcff"}
        del environment["HOME"]
        options: dict[str, Any] = {
            "cwd": other,
            "env": environment,
            "preexec_fn": prepare,
            "close_fds": False,
        }
        assert ended(command, node.folder, **options) == node.run(command, **options)

    def test_closed_streams(self, node: Node) -> None:
        text = "import os, sys\nos.write(2, repr([sys.stdin, sys.stdout]).encode())"
        plain, copy = both_ways(node, script(node.folder, text), preexec_fn=lambda: os.closerange(0, 2))
        assert plain == copy
        assert plain.errors == "[None, None]"

    @pytest.mark.long
    @settings(max_examples=8, deadline=None)
    @given(
        arguments=st.lists(st.binary(max_size=40).filter(lambda one: b"\0" not in one), max_size=5),
        value=st.binary(max_size=2000).filter(lambda one: b"\0" not in one),
    )
    def test_arguments_and_variables_byte_for_byte(self, arguments: list[bytes], value: bytes) -> None:
        text = "import os, sys; print([[*map(os.fsencode, sys.argv[1:])], os.environb[b'VALUE']])"
        node = Node(Path("/"))
        node.begin([sys.executable, "-c", text])
        try:
            command = [sys.executable, "-c", text, *map(os.fsdecode, arguments)]
            done = node.run(command, env={**os.environb, b"VALUE": value})
        finally:
            node.end()
        assert done == Ended(0, f"{[arguments, value]}\n", "")

    def test_what_an_import_prints_each_rank_prints(self, node: Node) -> None:
        (node.folder / "loud.py").write_text("import sys\nprint('out')\nprint('err', file=sys.stderr)\n")
        command = script(node.folder, "import loud\nprint('program')")
        environment = {**os.environ, "PYTHONPATH": str(node.folder)}
        node.begin(command, ["loud"], env=environment)
        done = Ended(0, "out\nprogram\n", "err\n")
        assert [node.run(command, env=environment) for _ in range(2)] == [done, done]
        assert ended(command, node.folder, env=environment) == done


POOLS = """
import multiprocessing, pickle

class Pair:
    def __init__(self, number):
        self.number = number

def twice(pair):
    return Pair(pair.number * 2), __name__

if __name__ == "__main__":
    print(type(pickle.loads(pickle.dumps(Pair(1)))))
    for how in ("fork", "spawn", "forkserver"):
        with multiprocessing.get_context(how).Pool(1) as pool:
            print([(pair.number, name) for pair, name in pool.map(twice, [Pair(1), Pair(2)])])
"""


def test_processes_of_its_own(node: Node) -> None:
    """Of each kind, which load `__main__` anew, from where the program began."""
    command = script(node.folder, f"{POOLS}    import os; os.chdir('/')\n")
    node.begin(command, ["multiprocessing.pool"])
    copy = node.run(command)
    assert copy == ended(command, node.folder)
    assert copy.code == 0


ENDS = {
    "well": "print('well')",
    "code": "import sys; sys.exit(3)",
    "words": "import sys; sys.exit('bye')",
    "none": "import sys; sys.exit(None)",
    "error": "def f():\n    1 / 0\nf()",
    "chained": "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    raise ValueError('x') from e",
    "hook": "import sys\nsys.excepthook = lambda kind, error, trace: print(kind, trace.tb_lineno)\n1 / 0",
    "interrupted": "import os; os.kill(os.getpid(), 2)",
    "at once": "import os; os._exit(7)",
    "SIGSEGV": "import os; os.kill(os.getpid(), 11)",
    "SIGKILL": "import os; os.kill(os.getpid(), 9)",
    "SIGTERM": "import os; os.kill(os.getpid(), 15)",
    "at exit": "import atexit\natexit.register(print, 'a')\natexit.register(print, 'b')\nraise SystemExit(4)",
    "thread": "import threading, time\nthreading.Timer(0.05, print, ['late']).start()",
    "destructor": "class A:\n    def __del__(self): print('gone')\na = A()",
    "syntax": "def f(:",
    "no module": "import no_such_module",
    "C's buffer": "import ctypes\nctypes.CDLL(None).printf(b'from C')",
}


class TestEnds:
    @pytest.mark.everyday("SIGTERM")
    @pytest.mark.parametrize("text", ENDS.values(), ids=ENDS)
    def test_as_python_does(self, node: Node, text: str) -> None:
        plain, copy = both_ways(node, script(node.folder, text))
        assert plain == copy

    @pytest.mark.parametrize("words", [["-m", "error"], ["-m", "no_such"], ["no/such.py"], ["."]])
    def test_of_what_is_no_script(self, node: Node, words: list[str]) -> None:
        script(node.folder, "raise ValueError('x')", "error.py")
        plain, copy = both_ways(node, [sys.executable, *words])
        assert plain == copy
        assert plain.code != 0

    def test_the_first_to_end_is_the_first_whose_client_ends(self, node: Node) -> None:
        """Whatever the order in which they began: a launcher sees who failed first."""
        command = script(node.folder, "import os, sys\nprint(flush=True)\nsys.stdin.read(1)\nos._exit(3)")
        node.begin(command)
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        clients = [node.start(command, **pipes) for _ in range(4)]
        for client in clients:
            assert client.stdout is not None
            client.stdout.read(1)
        assert node.agent is not None
        os.kill(node.agent.pid, signal.SIGSTOP)  # until all have ended
        for count, client in enumerate(reversed(clients), 1):
            assert client.stdin is not None
            client.stdin.close()
            client.stdin = None
            until(partial(has_ended, node, count))
        waiter = select.epoll()
        files = {os.pidfd_open(client.pid): number for number, client in enumerate(clients)}
        for file in files:
            waiter.register(file, select.EPOLLIN | select.EPOLLONESHOT)
        os.kill(node.agent.pid, signal.SIGCONT)
        order: list[int] = []
        while len(order) < 4:
            order += [files[file] for file, _ in waiter.poll(SECONDS)]
        assert order == [3, 2, 1, 0]
        waiter.close()
        for file, number in files.items():
            os.close(file)
            assert clients[number].wait(SECONDS) == 3


def test_a_client_hears_of_its_program_once_that_of_the_earlier_one_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else a launcher could see the second of two failures first."""
    agent = object.__new__(serving.Agent)
    agent._selector, agent._ranks, agent._ended = selectors.DefaultSelector(), {}, []
    told: list[object] = []
    monkeypatch.setattr(serving, "send", lambda connection, message: told.append(connection))
    monkeypatch.setattr(serving, "reap_orphans", lambda own: None)
    ranks = []
    for code in (3, 5):
        program = os.spawnlp(os.P_NOWAIT, "sh", "sh", "-c", f"exit {code}")
        os.waitid(os.P_PID, program, os.WEXITED | os.WNOWAIT)
        ranks.append(serving.Rank(socket.socket(socket.AF_UNIX), program))
        agent._selector.register(ranks[-1].connection, selectors.EVENT_READ)
        agent._ranks[program] = ranks[-1]
    monkeypatch.setattr(agent, "_await_client", lambda rank: None)
    first, second = ranks[1], ranks[0]
    connections = [rank.connection for rank in (first, second)]
    agent._reap(first)
    agent._reap(second)
    assert told == connections[:1]
    agent._client_gone(first)
    assert told == connections
    agent._client_gone(second)
    assert agent._ended == []
    agent._selector.close()


def has_ended(node: Node, count: int) -> bool:
    """Whether so many programs have ended, and wait for their agent."""
    assert node.agent is not None
    return (
        sum(one.status() == psutil.STATUS_ZOMBIE for one in psutil.Process(node.agent.pid).children())
        == count
    )


class TestSignals:
    @pytest.mark.parametrize(
        "name", ["SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGQUIT", "SIGCONT"]
    )
    def test_what_the_client_gets_the_program_gets(self, node: Node, name: str) -> None:
        text = (
            "import os, signal, sys\n"
            f"signal.signal(signal.{name}, lambda *_: (os.write(1, b'caught'), os._exit(5)))\n"
            "os.write(1, b'ready')\nimport time\nwhile True: time.sleep(0.01)"
        )
        command = script(node.folder, text)
        node.begin(command)
        client = node.start(command, stdout=subprocess.PIPE)
        assert client.stdout is not None
        assert client.stdout.read(5) == b"ready"
        client.send_signal(getattr(signal, name))
        assert client.stdout.read() == b"caught"
        assert client.wait(SECONDS) == 5

    @pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
    def test_while_the_agent_still_imports(self, node: Node, name: str) -> None:
        (node.folder / "slow.py").write_text("import time\ntime.sleep(600)")
        command = script(node.folder, "print('never')")
        node.begin(command, ["slow"], env={**os.environ, "PYTHONPATH": str(node.folder)})
        client = node.start(command)
        until(lambda: len(psutil.Process(client.pid).net_connections("unix")) == 1)
        client.send_signal(getattr(signal, name))
        assert client.wait(SECONDS) in (-getattr(signal, name), 1)

    def test_a_killed_client_takes_all_of_its_rank_along(self, node: Node) -> None:
        """Others of the node live on."""
        client, others = two_ranks(node)
        client.kill()
        client.wait()
        for pid in others[:2]:
            until(partial(gone, pid))
        assert not any(map(gone, others[2:]))

    def test_a_killed_agent_takes_all_ranks_along(self, node: Node) -> None:
        client, others = two_ranks(node)
        assert node.agent is not None
        node.agent.kill()
        assert client.wait(SECONDS) == -signal.SIGKILL
        for rank, child in (others[:2], others[2:]):
            until(partial(gone, rank))
            os.kill(child, signal.SIGKILL)  # the scheduler's affair, as if Python itself had started the rank

    def test_an_agent_that_is_to_end_waits_for_its_ranks(self, node: Node) -> None:
        """A scheduler sends TERM to all that a job has; ranks save what they have then."""
        text = (
            "import os, signal, time\nasked = []\nsignal.signal(signal.SIGTERM, lambda *_: asked.append(1))\n"
            "os.write(1, b'ready')\nwhile not asked: time.sleep(0.01)\n"
            "os.write(1, b'asked')\nos.read(0, 1)\nprint('saved')"
        )
        command = script(node.folder, text)
        node.begin(command)
        client = node.start(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert client.stdout is not None
        assert client.stdout.read(5) == b"ready"
        assert node.agent is not None
        node.agent.terminate()
        client.terminate()
        assert client.stdout.read(5) == b"asked"
        assert client.communicate(b"x")[0] == b"saved\n"
        assert client.returncode == 0
        assert node.agent.wait(SECONDS) == 0

    def test_it_ends_with_what_has_started_it(self, node: Node) -> None:
        command = script(node.folder, "print('well')")
        words = agent_command(node.address, None, [MODULE], command, by_default=False)
        shell = subprocess.Popen(["/bin/sh", "-c", '"$@" & echo $!; read wait', "sh", *words], **SHELL)
        assert shell.stdout is not None
        agent = int(shell.stdout.readline())
        assert node.run(command).code == 0
        shell.kill()
        shell.communicate()
        until(partial(gone, agent))


def test_the_orphans_of_a_session_end_with_it() -> None:
    words = ["sh", "-c", "(sleep 600 & echo $!); read -r _"]
    leader = subprocess.Popen(words, start_new_session=True, **SHELL)
    assert leader.stdout is not None
    orphan = int(leader.stdout.readline())
    until(lambda: psutil.Process(orphan).ppid() != leader.pid)
    end_sessions([leader.pid])
    assert leader.wait(SECONDS) == -signal.SIGKILL
    leader.communicate()
    until(partial(gone, orphan))


def two_ranks(node: Node) -> tuple[subprocess.Popen[bytes], list[int]]:
    """The client of the first, and the processes: that rank, a child of its, the other rank, its child."""
    text = (
        "import os, subprocess, sys\nhelper = subprocess.Popen(['sleep', '600'], stdout=-3, stderr=-3)\n"
        "print(os.getpid(), helper.pid, flush=True)\nhelper.wait()"
    )
    command = script(node.folder, text)
    node.begin(command)
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    clients = [node.start(command, **pipes) for _ in range(2)]
    pids: list[int] = []
    for client in clients:
        assert client.stdout is not None
        pids += map(int, client.stdout.readline().split())
    return clients[0], pids


class TestWhoIsCopied:
    @pytest.mark.parametrize(
        ("text", "ranks", "modules"),
        [
            ("import os\nimport torch\n", 2, ["torch"]),
            ("def main():\n    from torch.nn import Linear\n", 2, ["torch"]),
            ("import torch\n", 1, []),
            ("import torchvision\n", 2, []),
            ("'import torch'\n", 2, []),
            (None, 2, []),
        ],
    )
    def test_scripts_that_import_torch(
        self, tmp_path: Path, text: str | None, ranks: int, modules: list[str]
    ) -> None:
        if text is not None:
            script(tmp_path, text)
        for command in (["python", "program.py"], ["/a/python3.11", "-u", "program.py", "--flag"]):
            assert modules_of(command, ranks, tmp_path, None) == modules
        for other in (["sh", "program.py"], ["python", "-m", "program"], ["pythonic", "program.py"]):
            assert modules_of(other, ranks, tmp_path, None) == []

    def test_those_that_ask_for_it(self, tmp_path: Path) -> None:
        assert modules_of(["python", "-m", "program"], 1, tmp_path, ["json"]) == ["json"]
        assert modules_of(["python", "program.py"], 8, tmp_path, []) == []
        assert modules_of(["sh", "program.sh"], 8, tmp_path, ["json"]) == []

    @pytest.mark.parametrize(
        ("words", "found"),
        [
            ("python a.py -m b", ([], "", "a.py", ["-m", "b"])),
            ("python3 -uB -W error -Xdev a.py", (["-uB", "-W", "error", "-Xdev"], "", "a.py", [])),
            ("python -um a.b c", (["-u"], "m", "a.b", ["c"])),
            ("python -ma.b", ([], "m", "a.b", [])),
            ("python -c 1", ([], "c", "1", [])),
            ("python", None),
            ("python -", None),
            ("python -i a.py", None),
            ("python -V", None),
            ("python -m", None),
            ("python --help", None),
            ("python -X importtime a.py", None),
            ("python -Ximporttime=2 a.py", None),
            ("ipython a.py", None),
        ],
    )
    def test_the_words_of_a_command(self, words: str, found: object) -> None:
        python = python_command(words.split())
        assert (python and (python.options, python.letter, python.target, python.arguments)) == found


class TestPlainStart:
    """What an agent cannot do as Python would, Python itself does, and one client of the node says why."""

    def test_no_agent(self, node: Node) -> None:
        command = script(node.folder, "print('well')")
        gone_file = node.folder / "gone"
        gone_file.touch()
        client = node.client(command)
        at = client.index(node.address) + 1
        none = "no process imports modules"
        done = ended([*client[:at], str(gone_file), *client[at + 1 :]], node.folder)
        assert done == Ended(
            0,
            "well\n",
            note(f"{none} for this node's ranks (see {node.folder}/preload.log)"),
        )
        done = ended(
            [*client[:at], str(gone_file), *client[at + 1 :]],
            node.folder,
            env={**os.environ, "LOCAL_RANK": "1"},
        )
        assert done == Ended(0, "well\n", "")

    @pytest.mark.parametrize(
        ("text", "why"),
        [
            (
                "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()",
                "a thread",
            ),
            ("file = open(__file__)", "have opened a file"),
            (
                "import os\nfile = os.open('/dev/fuse', os.O_RDONLY)"
                if Path("/dev/fuse").exists()
                else "1 / 0",
                "",
            ),
            (
                "import no_such_module",
                "cannot import bad: ModuleNotFoundError: No module named 'no_such_module'",
            ),
            ("raise SystemExit(3)", "cannot import bad: SystemExit: 3"),
            (
                "import sys, types\nmade = sys.modules['torch'] = types.SimpleNamespace()\n"
                "made.cuda = types.SimpleNamespace(is_initialized=lambda: True)",
                "initialized torch.cuda",
            ),
            (
                "import sys, types\nmade = types.SimpleNamespace()\nsys.modules['torch.distributed'] = made\n"
                "made.is_available = made.is_initialized = lambda: True",
                "initialized a process group",
            ),
        ],
    )
    def test_imports_that_no_copy_can_have(self, node: Node, text: str, why: str) -> None:
        (node.folder / "modules").mkdir()
        (node.folder / "modules" / "bad.py").write_text(text)
        command = script(node.folder, "import sys; print('bad' in sys.modules)")
        node.begin(command, ["bad"], env={**os.environ, "PYTHONPATH": str(node.folder / "modules")})
        environment = {**os.environ, "PYTHONPATH": str(node.folder / "modules")}
        first, second = (node.run(command, env=environment) for _ in range(2))
        assert (first.code, first.output) == (0, "False\n")
        assert first.errors.startswith("castoff: preload: ")
        assert why in first.errors
        assert second == Ended(0, "False\n", "")

    @pytest.mark.parametrize(
        "name", ["PYTHONHASHSEED", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "OMP_PROC_BIND", "TORCH_LOGS"]
    )
    def test_a_variable_that_the_imports_have_read(self, node: Node, name: str) -> None:
        command = script(node.folder, f"import os; print(os.environ['{name}'])")
        node.begin(command)
        done = node.run(command, env={**os.environ, name: "1"})
        assert done == Ended(0, "1\n", note(f"this rank has another {name} than the imports had"))

    def test_memory_of_other_nodes(self) -> None:
        """As where numactl has set another policy for a rank than for the process that has imported."""
        command = [sys.executable, "-c", "pass"]
        request = {
            "command": [*map(os.fsencode, command)],
            "environment": dict(os.environb),
            "devices": usable_devices(),
            "memory": memory_policy(),
        }
        assert unlike(request, os.environb, command) is None
        why = "this rank has another NUMA memory policy than the process with the imports"
        assert unlike({**request, "memory": b"bind:1"}, os.environb, command) == why

    def test_other_options(self, node: Node) -> None:
        blocked = "signal.pthread_sigmask(signal.SIG_BLOCK, [])"  # as the client's are for a moment
        command = script(node.folder, f"import signal, sys; print(sys.flags.optimize, {blocked})")
        node.begin(command)
        done = node.run([command[0], "-O", *command[1:]])
        assert done == Ended(0, "1 set()\n", note("this rank's command has other options for Python"))

    @pytest.mark.parametrize("kind", ["file", "package", "folder"])
    def test_a_file_of_the_program_with_the_name_of_what_is_imported(self, node: Node, kind: str) -> None:
        """Python would load that; but a folder that is no package is not loaded in the place of one."""
        own = node.folder / "json"
        if kind != "file":
            own.mkdir()
        if kind == "package":
            (own / "__init__.py").touch()
        if kind == "file":
            own = node.folder / "json.py"
            own.touch()
        command = script(node.folder, "import json; print(hasattr(json, 'dumps'))")
        node.begin(command)
        done = node.run(command)
        if kind == "folder":
            assert done == Ended(0, "True\n", "")
        else:
            assert done == Ended(
                0, "False\n", note(f"{own} has the name of a module that is imported already")
            )


def note(reason: str) -> str:
    return f"castoff: preload: {reason}; this rank starts without preload\n"
