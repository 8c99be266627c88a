"""An agent: a process that imports modules once, checks whether it can be copied, and forks for each rank of
its node.
"""

import contextlib
import gc
import importlib
import os
import re
import selectors
import signal
import socket
import sys

from .leaving import Imported, leave_libraries_whole
from .messages import peer_process, peer_user, receive, send
from .program import Program
from .safety import open_files, reason_not_to_fork, unlike
from .sessions import adopt_orphans, end_sessions, reap_orphans
from .takeover import Unfit, adapt, take_over
from .words import python_command

TYPE_CHECKING = False  # `typing` would cost each start some time
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from typing import Any, NoReturn

_PATIENCE = 10.0
"""Seconds to wait for a client's message, or for the exit of a client that knows how its program ended."""

_ENDS = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP})

OF_TRAINING = ("torch._dynamo", "torch.profiler")
"""The modules that torch imports with the first optimizer or DistributedDataParallel; they take as long as
torch itself."""
_TRAINS = re.compile(rb"optim|DistributedDataParallel|FSDP|fully_shard|compile")


class Rank:
    """One program, and the client that represents it."""

    def __init__(self, connection: socket.socket, program: int):
        self.connection = connection
        self.program = program
        self.pidfd: int | None = None
        """The pidfd of the program; after the program has ended, of the client."""


def served(words: "Sequence[str]", template: "Mapping[str, Any]", at_start: "Collection[str]") -> Program:
    """Serve the clients of this node; return only in each child, with the program that the child is to run.

    `template` and `at_start`: see `Program`.
    """
    split = words.index("--")
    address, owner, how, modules = words[:split]
    owning = os.getppid() if owner == "parent" else int(owner)
    agent = Agent(address, owning, how == "default", words[split + 1 :])
    agent.load(modules.split(","))
    return agent.serve(lambda command: Program(command, template, at_start))


class Agent:
    """The agent's state: the listening socket, the ranks, and what all ranks share."""

    def __init__(self, address: str, owner: int, by_default: bool, command: "Sequence[str]"):
        """`owner`: the id of the process with which the agent ends. `by_default`: nobody asked for the
        imports, so their failure is not reported.
        """
        self._pid = os.getpid()
        self._owner = owner
        self._by_default = by_default
        self._command = command
        self._environment = dict(os.environb)
        adopt_orphans()  # so that processes that ranks leave behind become children of the agent
        self._reason: str | None = None
        self._said: set[str] = set()
        self._ranks: dict[int, Rank] = {}
        self._ended: list[tuple[Rank, int]] = []
        self._listener = _listening(address)
        self._output = [os.memfd_create(f"castoff-{name}") for name in ("stdout", "stderr")]
        self._leaving = False
        self._wakeup = os.pipe()
        self._selector = selectors.DefaultSelector()
        self._files = open_files()
        for file in self._wakeup:
            os.set_blocking(file, False)

    def load(self, modules: "Sequence[str]") -> None:
        """Import the modules; each rank prints the output of these imports when it starts."""
        for number, file in enumerate(self._output, 1):
            os.dup2(file, number)
        # OpenBLAS starts its threads as it is loaded. Each rank gets as many as it would have had.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        imported = Imported()
        collects = gc.isenabled()
        gc.disable()  # there is little to collect, and looking for it would take a tenth of the time
        name = ""
        try:
            for name in modules:
                importlib.import_module(name)
            for more in OF_TRAINING if "torch" in modules and _may_train(self._command) else ():
                with contextlib.suppress(ImportError):  # this torch has no such module
                    importlib.import_module(more)
        except BaseException as error:  # noqa: BLE001 - whatever it is, the ranks start without
            self._reason = f"cannot import {name}: {type(error).__name__}: {error}"
            if self._by_default:
                self._said.add(self._reason)
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
        self._reason = self._reason or reason_not_to_fork(self._files)
        imported.noted()
        gc.freeze()  # otherwise a rank's first collection would copy all of it
        if collects:
            gc.enable()

    def serve(self, begin: "Callable[[Sequence[bytes]], Program]") -> Program:
        """Fork for each client as long as the agent's owner lives; return only in the children."""
        signals = (signal.SIGCHLD, *_ENDS)
        self._handlers = {number: signal.signal(number, lambda *_: None) for number in signals}
        signal.set_wakeup_fd(self._wakeup[1])
        self._selector.register(self._wakeup[0], selectors.EVENT_READ, self._take_signals)
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        try:
            # Not PR_SET_PDEATHSIG: it acts at the end of the thread that started this process, not at the
            # end of its process, and launchers have many threads.
            self._selector.register(os.pidfd_open(self._owner), selectors.EVENT_READ, self._leave)
        except ProcessLookupError:
            self._leave()
        except OSError:  # a kernel before 5.3
            pass
        while True:
            ready = self._selector.select(_PATIENCE if self._ended else None)
            for key, _ in ready:
                if self._selector.get_map().get(key.fd) is not key:  # an earlier event has closed this file
                    continue
                if (accepted := key.data()) is not None:
                    connection, request, files = accepted
                    return self._become(connection, request, files, begin)
            if not ready and self._ended:  # somebody has stopped that client
                self._client_ended(self._ended[0][0])
                self._report_end()
            if self._leaving:
                self._leave()

    # Ranks that begin

    def _accept(self) -> "tuple[Any, ...] | None":
        connection, _ = self._listener.accept()
        connection.settimeout(_PATIENCE)
        try:
            if peer_user(connection) == os.geteuid():
                return self._answer(connection)
        except (OSError, EOFError, ValueError):  # the client was killed, or is something else
            pass
        connection.close()
        return None

    def _answer(self, connection: socket.socket) -> "tuple[Any, ...] | None":
        """Fork for a client; return, in the child, what the client has sent."""
        send(connection, ([sys.version, sys.executable], self._reason, self._aloud(self._reason)))
        if self._reason is not None:
            connection.close()
            return None
        state, files = receive(connection)
        reason = unlike(state, self._environment, self._command)
        if reason is not None:
            send(connection, (None, reason, self._aloud(reason)))
            connection.close()
        elif not (child := os.fork()):
            return connection, state, files
        else:
            self._watch(Rank(connection, child))
        for file in files:
            os.close(file)
        return None

    def _aloud(self, reason: str | None) -> bool:
        """Whether a client should print this reason: only the first client on the node does."""
        first = reason is not None and reason not in self._said
        self._said.add(reason or "")
        return first

    def _watch(self, rank: Rank) -> None:
        self._ranks[rank.program] = rank
        self._selector.register(rank.connection, selectors.EVENT_READ, lambda: self._client_gone(rank))
        with contextlib.suppress(OSError):  # a kernel before 5.3: SIGCHLD has to do
            # The kernel queues pidfds in the order of deaths, which shows which rank failed first.
            rank.pidfd = os.pidfd_open(rank.program)
            self._selector.register(rank.pidfd, selectors.EVENT_READ, lambda: self._reap(rank))

    def _become(
        self,
        connection: socket.socket,
        state: "dict[str, Any]",
        files: "Sequence[int]",
        begin: "Callable[[Sequence[bytes]], Program]",
    ) -> Program:
        """In a child: take over the client's state, and return the program to run."""
        signal.set_wakeup_fd(-1)
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        printed = [os.pread(file, os.fstat(file).st_size, 0) for file in self._output]
        self._selector.close()
        for open_socket in (self._listener, *(rank.connection for rank in self._ranks.values())):
            open_socket.close()
        self._ranks.clear()
        client = take_over(state, files, connection, self._pid)
        try:
            adapt(state, self._environment)
            program = begin(state["command"])
            leave_libraries_whole()
            for stream, text in enumerate(printed, 1):
                _write(stream, text)
            send(client, (os.getpid(), None, False))
        except Unfit as unfit:
            aloud = unfit.aloud and os.environ.get("LOCAL_RANK", "0") == "0"
            _refuse(client, str(unfit), aloud)
        except BaseException as error:  # noqa: BLE001 - the client starts the program itself
            _refuse(client, f"{type(error).__name__}: {error}", True)
        client.close()
        return program

    # Ranks that end

    def _take_signals(self) -> None:
        numbers = os.read(self._wakeup[0], 4096)
        if {*numbers} & _ENDS:
            self._leave()
        for rank in [*self._ranks.values()]:
            if rank.pidfd is None:
                self._reap(rank)
        reap_orphans(self._ranks.keys())

    def _leave(self) -> None:
        """End the agent once no rank is left: the ranks may have been asked to save their state."""
        self._leaving = True
        if not self._ranks and not self._ended:
            os._exit(0)

    def _reap(self, rank: Rank) -> None:
        program, status = os.waitpid(rank.program, os.WNOHANG)
        if not program:
            return
        del self._ranks[program]
        reap_orphans(self._ranks.keys())
        self._forget(rank)
        if rank.connection.fileno() < 0:  # the program's client was gone before
            return
        self._ended.append((rank, status))
        if len(self._ended) == 1:
            self._report_end()

    def _report_end(self) -> None:
        """Report to the client whose program ended first how the program ended; the next client follows when
        this client has exited.

        So the clients end in the order of their programs, and the launcher sees which rank failed first.
        """
        while self._ended:
            rank, status = self._ended[0]
            with contextlib.suppress(OSError):
                send(rank.connection, (status, None, False))
                self._await_client(rank)
                return
            self._client_ended(rank)

    def _await_client(self, rank: Rank) -> None:
        """Wait until the launcher can see that a client has ended: the client's socket closes a moment
        earlier.

        Raises:
            OSError: the client is gone already.
        """
        try:
            rank.pidfd = os.pidfd_open(peer_process(rank.connection))
        except ProcessLookupError:
            raise
        except OSError:  # a kernel before 5.3
            return
        self._selector.register(rank.pidfd, selectors.EVENT_READ, lambda: self._client_gone(rank))
        self._selector.unregister(rank.connection)

    def _client_gone(self, rank: Rank) -> None:
        """Handle the end of a client: the program has ended, or the launcher has killed the client and so the
        whole rank.
        """
        if rank.program in self._ranks:
            self._selector.unregister(rank.connection)
            rank.connection.close()
            end_sessions([rank.program])  # the program is then reaped like any other
            return
        was_first = self._ended[0][0] is rank
        self._client_ended(rank)
        if was_first:
            self._report_end()

    def _client_ended(self, rank: Rank) -> None:
        self._ended = [(other, status) for other, status in self._ended if other is not rank]
        self._forget(rank)
        with contextlib.suppress(KeyError):
            self._selector.unregister(rank.connection)
        rank.connection.close()

    def _forget(self, rank: Rank) -> None:
        if rank.pidfd is not None:
            self._selector.unregister(rank.pidfd)
            os.close(rank.pidfd)
            rank.pidfd = None


def _listening(address: str) -> socket.socket:
    """Listen at `address`: an abstract one with @, or the number of a file that listens already."""
    if address[0] != "@":
        listener = socket.socket(fileno=int(address))
    else:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(f"\0{address[1:]}")
    listener.listen(4096)  # even if it listens already: clients ask the kernel which process did this last
    return listener


def _may_train(command: "Sequence[str]") -> bool:
    """Whether a program may need the modules in `OF_TRAINING`: a script that never names torch does not."""
    python = python_command(command)
    if python is None or python.letter == "m":
        return True
    if python.letter:
        return _TRAINS.search(os.fsencode(python.target)) is not None
    try:
        with open(python.target, "rb") as script:
            return _TRAINS.search(script.read()) is not None
    except OSError:
        return True


def _refuse(connection: socket.socket, reason: str, aloud: bool) -> "NoReturn":
    """End this copy; its client will start the program itself."""
    with contextlib.suppress(OSError):
        send(connection, (None, reason, aloud))
    os._exit(0)


def _write(file: int, text: bytes) -> None:
    with contextlib.suppress(OSError):  # the connection is closed, or nobody reads from it
        while text:
            text = text[os.write(file, text) :]
