"""Applies a function to many inputs, in order, in several processes.

The processes are started anew, since forking a process that trains is not reliable. Python's
ProcessPoolExecutor would import the main module in each, which fails if that has no `if __name__ ==
"__main__"`, and its workers outlive a killed parent.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from itertools import cycle
from typing import Any, Generic, TypeVar

from castoff.trainers.configuration.fields import ConfigError

Asked = TypeVar("Asked")
Answer = TypeVar("Answer")


def usual_processes(most: int) -> int:
    """The number of cores that this process may use, up to `most`."""
    return min(len(os.sched_getaffinity(0)), most)


def mapped(
    function: Callable[[Asked], Answer], things: Iterable[Asked], processes: int, advice: str
) -> Iterator[Answer]:
    """Results of a function for each input, in order; if `processes` > 1, computed in that many processes.

    `function` and its inputs must be picklable; `advice`: the remedy if memory is too small for so many
    processes.

    Raises:
        ConfigError: a process has died.
    """
    if processes == 1:
        yield from map(function, things)
        return
    with ExitStack() as stack:
        helpers = [stack.enter_context(_Helper(function, advice)) for _ in range(processes)]
        waiting: list[_Helper[Asked, Answer]] = []
        for thing, helper in zip(things, cycle(helpers)):
            answer = [helper.answer()] if len(waiting) == processes else []
            helper.ask(thing)
            waiting = [*waiting[-processes + 1 :], helper]
            yield from answer
        for helper in waiting:
            yield helper.answer()


class _Helper(Generic[Asked, Answer]):
    """A process that handles one input at a time; it ends at the end of its input, also if this process is
    killed.
    """

    def __init__(self, function: Callable[[Asked], Answer], advice: str):
        self._function = function
        self._advice = advice

    def __enter__(self) -> _Helper[Asked, Answer]:
        code = f"import sys; sys.path[:] = {sys.path!r}; from {__name__} import serve; serve()"
        self._process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # only this process handles Ctrl-C
        )
        self._report(self._function)
        return self

    def __exit__(self, *what: object) -> None:
        self._process.kill()
        self._process.communicate()

    def ask(self, thing: Asked) -> None:
        """Send an input to the process; the previous result must have been read."""
        self._report(thing)

    def answer(self) -> Answer:
        """Wait for the process's result."""
        assert self._process.stdout is not None
        try:
            answer: Answer = pickle.load(self._process.stdout)
        except EOFError as error:
            raise self._gone() from error
        return answer

    def _report(self, value: Any) -> None:
        assert self._process.stdin is not None
        try:
            pickle.dump(value, self._process.stdin)
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise self._gone() from error

    def _gone(self) -> ConfigError:
        code = self._process.wait()
        how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
        return ConfigError([f"a process that reads {how}; {self._advice}"], "data")


def serve() -> None:
    """Run a helper: read a function and then inputs from standard input, and write each result."""
    source, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # printed text goes to standard error
    function = pickle.load(source)
    while True:
        try:
            thing = pickle.load(source)
        except EOFError:
            return
        pickle.dump(function(thing), answers)
        answers.flush()
