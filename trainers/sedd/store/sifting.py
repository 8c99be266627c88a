"""Text to tokens: which proteins of a block of FASTA are taken, in this process or in several others."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from hashlib import blake2b
from itertools import cycle
from typing import Any, NamedTuple

import numpy

from trainers.core.fields import ConfigError
from trainers.sedd.alphabet import UNKNOWN, encode
from trainers.sedd.store.deduplication import HASH
from trainers.sedd.store.fasta import sequences
from trainers.sedd.store.token_store import OFFSET, Filters

MOST_PROCESSES = 8
"""More have nothing to do: one process unpacks and writes what they read."""


class Sifted(NamedTuple):
    """What is taken of a block, in its order."""

    tokens: bytes
    lengths: bytes
    """Each as `OFFSET`."""
    hashes: bytes
    """Each of `HASH` bytes; none where duplicates are kept."""
    too_short: int
    too_long: int
    unknown: int


def sift(block: bytes, filters: Filters) -> Sifted:
    """The proteins of a block of FASTA that the filters let through."""
    found = sequences(block)
    lengths = numpy.fromiter(map(len, found), numpy.int64, len(found))
    short = lengths < filters.min_length
    long = lengths > (filters.max_length or numpy.inf)
    fits = ~(short | long)
    tokens = encode(b"".join([letters for letters, fit in zip(found, fits.tolist(), strict=True) if fit]))
    lengths = lengths[fits]
    starts = lengths.cumsum() - lengths
    unknown = numpy.add.reduceat(tokens == UNKNOWN, starts, dtype=numpy.int64) if len(starts) else starts
    known = unknown <= filters.max_unknown * lengths
    if not known.all():
        tokens, lengths = tokens[numpy.repeat(known, lengths)], lengths[known]
    data = tokens.tobytes()
    return Sifted(
        data,
        lengths.astype(OFFSET).tobytes(),
        b"" if filters.keep_duplicates else _hashes(data, lengths.tolist()),
        int(short.sum()),
        int(long.sum()),
        int((~known).sum()),
    )


def _hashes(data: bytes, lengths: list[int]) -> bytes:
    """Of each protein."""
    hashes, first = [], 0
    for length in lengths:
        hashes.append(blake2b(data[first : first + length], digest_size=HASH).digest())
        first += length
    return b"".join(hashes)


def usual_processes() -> int:
    """As many as there are cores for this one."""
    return min(len(os.sched_getaffinity(0)), MOST_PROCESSES)


def sifted(blocks: Iterable[bytes], filters: Filters, processes: int) -> Iterator[Sifted]:
    """What is taken of each block, in order; with more than one process, by so many others.

    Raises:
        ConfigError: one of them is gone.
    """
    if processes == 1:
        yield from (sift(block, filters) for block in blocks)
        return
    with ExitStack() as stack:
        helpers = [stack.enter_context(_Helper(filters)) for _ in range(processes)]
        waiting: list[_Helper] = []
        for block, helper in zip(blocks, cycle(helpers)):
            answer = helper.answer() if len(waiting) == processes else None
            helper.ask(block)
            waiting = [*waiting[-processes + 1 :], helper]
            if answer is not None:
                yield answer
        for helper in waiting:
            yield helper.answer()


class _Helper:
    """A process that sifts one block at a time.

    Started anew, since a fork of a process that trains is none to rely on, and multiprocessing's others
    run its main module again. It ends when its input does, as when this process is killed.
    """

    def __init__(self, filters: Filters):
        self._filters = filters

    def __enter__(self) -> _Helper:
        code = (
            f"import sys; sys.path[:] = {sys.path!r}; from trainers.sedd.store.sifting import serve; serve()"
        )
        self._process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is this process's matter
        )
        self._tell(self._filters)
        return self

    def __exit__(self, *what: object) -> None:
        self._process.kill()
        self._process.communicate()

    def ask(self, block: bytes) -> None:
        """Have a block sifted; what came of the one before must have been taken."""
        self._tell(block)

    def answer(self) -> Sifted:
        """What came of it."""
        assert self._process.stdout is not None
        try:
            answer: Sifted = pickle.load(self._process.stdout)
        except EOFError as error:
            raise self._gone() from error
        return answer

    def _tell(self, what: Any) -> None:
        assert self._process.stdin is not None
        try:
            pickle.dump(what, self._process.stdin)
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise self._gone() from error

    def _gone(self) -> ConfigError:
        code = self._process.wait()
        how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
        return ConfigError(
            [
                f"a process that reads proteins {how}; the system does so where memory is short, and fewer "
                "of them take less: python -m trainers.sedd.prepare FILE --out FOLDER --processes 1"
            ],
            "proteins",
        )


def serve() -> None:
    """What a helper does: takes filters, then blocks, and gives what is taken of each."""
    source, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever is printed
    filters = pickle.load(source)
    while True:
        try:
            block = pickle.load(source)
        except EOFError:
            return
        pickle.dump(sift(block, filters), answers)
        answers.flush()
