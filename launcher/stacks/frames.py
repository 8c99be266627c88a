"""Stacks of a process as data, read from what faulthandler and py-spy write. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec


class Frame(msgspec.Struct, frozen=True):
    """A call in a stack."""

    function: str
    """Its name; py-spy adds its class."""
    file: str
    line: int

    @property
    def key(self) -> tuple[str, str, int]:
        """What is the same in another process, whichever way its stack was read."""
        return self.function.rpartition(".")[2], self.file, self.line


class Thread(msgspec.Struct, frozen=True):
    """A thread of a process, and its stack."""

    name: str
    """Empty: not known."""
    main: bool
    frames: list[Frame]
    """The innermost call first."""


_HEADING = re.compile(
    r"^(Current thread|Thread) 0x[0-9a-f]+(?: \[(?P<name>[^\]]*)\])? \(most recent call first\):"
)
_CALL = re.compile(r'^ +File "(?P<file>.*)", line (?P<line>\d+|\?\?\?) in (?P<function>.*)$')


def of_faulthandler(lines: Sequence[str]) -> list[Thread]:
    """The threads that faulthandler wrote. The main thread, which handles signals, is the first."""
    threads: list[Thread] = []
    for line in lines:
        if heading := _HEADING.match(line):
            current = heading[1] == "Current thread"
            threads.append(Thread(heading["name"] or "", current, []))
        elif threads and (call := _CALL.match(line)):
            number = int(call["line"]) if call["line"].isdecimal() else 0
            threads[-1].frames.append(Frame(call["function"], call["file"], number))
    return sorted(threads, key=lambda thread: not thread.main)


def without_launcher(thread: Thread) -> Thread:
    """A thread without the outermost calls, by which castoff starts a program in a copy of a process."""
    frames = thread.frames
    while frames and "/launcher/launchers/preload/" in frames[-1].file:
        frames = frames[:-1]
    return msgspec.structs.replace(thread, frames=frames)


_SPY_HEADING = re.compile(r'^Thread (?P<id>\w+)(?: \([^()]*\))?(?:: "(?P<name>.*)")?$')
_SPY_CALL = re.compile(r"^ +(?P<function>.+) \((?P<file>.*):(?P<line>\d+)\)$")


def of_py_spy(lines: Sequence[str], pid: int) -> list[Thread]:
    """The threads in the text of `py-spy dump --full-filenames`, the main thread first."""
    found: list[tuple[str, str, list[Frame]]] = []
    for line in lines:
        if heading := _SPY_HEADING.match(line):
            found.append((heading["id"], heading["name"] or "", []))
        elif found and (call := _SPY_CALL.match(line)):
            found[-1][2].append(Frame(call["function"], call["file"], int(call["line"])))
    # In a container, the ids of threads are not those of this host, but the main thread has its name.
    by_id = any(thread == str(pid) for thread, _, _ in found)
    threads = [
        Thread(name, thread == str(pid) if by_id else name == "MainThread", frames)
        for thread, name, frames in found
    ]
    return sorted(threads, key=lambda thread: not thread.main)
