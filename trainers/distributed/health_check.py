"""Finds out, after a failure, which ranks still respond and what each of them is doing.

It uses torch's store, and sends nothing while there is no failure. A rank that waits in vain opens the health
check; each rank that notices this appends its answer to a list; the rank that opened the check reads the list
when all have answered, or after `window` seconds, and writes the verdict for all. That takes a handful of
requests per rank, and one reader, for any number of ranks.
"""

from __future__ import annotations

import faulthandler
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec
import torch.distributed as dist

from castoff.trainers.distributed.termination import has_come, time_left

Given = TypeVar("Given")

WINDOW = 10.0
"""The most seconds that ranks have to answer; with many ranks it is more."""

_FAILED = "castoff/failed"
_OPEN = "castoff/open"
_ALL_ANSWERED = "castoff/all-answered"
_ALL_REPORTED = "castoff/all-reported"

_GIVEN = 2.0
"""Seconds that ranks have to answer once a rank has reported its own error, since other answers matter less
then."""

_NAMED = 8
"""The most ranks that are listed one by one."""

_TEXT = 300
"""The most characters of a rank's description of what it does."""


class Answer(msgspec.Struct, frozen=True):
    """A rank's answer: its state and what it is doing."""

    rank: int
    host: str
    step: int
    """Optimizer steps that it has completed."""
    state: Literal["waits", "busy", "ended"]
    """`waits`: in a collective or barrier; `busy`: in other code; `ended`: it has its own error."""
    doing: str
    collectives: int = 0
    """Number of collectives that it has begun."""


class Verdict(msgspec.Struct, frozen=True):
    """The result of all ranks' answers."""

    reporter: int
    """The rank that reports the failure in full; -1: every rank."""
    lines: list[str]
    is_explained: bool = False
    """Whether a rank has reported its own error, which is the cause of the others'."""


class RankHealthCheck:
    """This rank's part in the health check.

    `keeper`: the process that serves the store, and its host, in words; `collectives` returns the number of
    collectives that this rank has begun.
    """

    def __init__(
        self,
        store: Any,
        rank: int,
        world_size: int,
        host: str,
        keeper: str,
        collectives: Callable[[], int] = lambda: 0,
    ):
        self.rank, self.world_size, self.host = rank, world_size, host
        self.step = 0
        """Optimizer steps that this rank has completed."""
        self.window = WINDOW
        """Seconds that ranks have to answer."""
        self._keeper = keeper
        self._collectives = collectives
        self._store = store
        self._lock = threading.Lock()
        self._verdict: Verdict | None = None
        self._asking: threading.Thread | None = None
        self._heard = False
        self._answered = False
        self._lost = False
        """Whether the connection to the store is lost; later requests would each log a long torch error."""
        store.set(f"castoff/host/{rank}", host)

    @property
    def patience(self) -> float:
        """Seconds that ranks have to answer, more with many ranks."""
        return self.window + self.world_size / 400

    def is_open(self) -> bool:
        """Whether another rank waits in vain, as last known; starts a new query, and does not wait for it."""
        if self._asking is None or not self._asking.is_alive():
            self._asking = threading.Thread(target=self._ask, name="castoff-store", daemon=True)
            self._asking.start()
        return self._heard

    def _ask(self) -> None:
        try:
            self._heard = bool(self._store.check([_OPEN]))
        except RuntimeError:  # a collective will fail, too
            pass

    def ended(self, what: str) -> None:
        """Record that this rank has its own error, for ranks that will wait for it."""
        with self._lock:
            if self._answered:
                return
            self._try(lambda: self._answer(self._mine("ended", what)), None)

    def first_to_report(self, what: str) -> int:
        """The rank that was the first to call this with the same `what`; this rank if the store is lost."""
        me = str(self.rank)
        return int(self._try(lambda: self._store.compare_set(f"castoff/first-to-ask/{what}", "", me), me))

    def has_reported(self) -> None:
        """Record that this rank has reported its error, and no longer needs the store."""
        self._try(self._count_report, None)

    def _count_report(self) -> None:
        if self._store.add("castoff/reported", 1) == self.world_size:
            self._store.set(_ALL_REPORTED, "")

    def linger(self) -> None:
        """Keep rank 0, and so the store, alive until all ranks have reported their errors."""
        if self.rank == 0 and self._verdict is None:
            self._try(lambda: _wait(self._store, _ALL_REPORTED, self.window), False)

    def _try(self, ask: Callable[[], Given], otherwise: Given) -> Given:
        """The store's answer; `otherwise` if it does not answer."""
        if self._lost:
            return otherwise
        try:
            return _within(self.window, ask)
        except TimeoutError:
            return otherwise
        except RuntimeError:
            self._lost = True
            return otherwise

    def hold(self, state: Literal["waits", "busy"], doing: str) -> Verdict:
        """Report what this rank is doing, and return the verdict on all ranks."""
        with self._lock:  # the watchdog's thread may call it at the same time
            if self._verdict is None:
                mine = self._mine(state, doing)
                try:
                    self._verdict = _within(3 * self.patience, lambda: self._hold(mine))
                except (TimeoutError, RuntimeError) as error:
                    self._lost = not isinstance(error, TimeoutError)
                    words = _ended(mine) if has_come() else _no_store(self._keeper, mine)
                    self._verdict = Verdict(-1, [words])
            return self._verdict

    def show_threads(self) -> None:
        """Write the stacks of all threads to standard error, the rank's log."""
        if sys.__stderr__ is not None:
            print(f"rank {self.rank} ({self.host}): its threads:", file=sys.__stderr__, flush=True)
            faulthandler.dump_traceback(sys.__stderr__, all_threads=True)

    def _mine(self, state: Literal["waits", "busy", "ended"], doing: str) -> Answer:
        text = " ".join(doing.split())[:_TEXT]
        return Answer(self.rank, self.host, self.step, state, text, self._collectives())

    def _answer(self, mine: Answer) -> None:
        store, self._answered = self._store, True
        store.set(_OPEN, "")
        store.append("castoff/answers", msgspec.json.encode(mine).decode() + "\n")
        if store.add("castoff/answered", 1) == self.world_size:
            store.set(_ALL_ANSWERED, "")

    def _hold(self, mine: Answer) -> Verdict:
        store = self._store
        opened_it = store.add(_FAILED, 1) == 1  # counts the ranks that will read the verdict
        self._answer(mine)
        if opened_it:
            if not _wait(store, _ALL_ANSWERED, min(_GIVEN, self.patience)) and not _is_explained(store):
                _wait(store, _ALL_ANSWERED, self.patience)
            verdict = self._judge(store)
            store.set("castoff/verdict", msgspec.json.encode(verdict).decode())
        elif _wait(store, "castoff/verdict", 2 * self.patience):
            verdict = msgspec.json.decode(store.get("castoff/verdict"), type=Verdict)
        else:  # the rank that opened it is gone, too
            verdict = self._judge(store)
        readers = store.add(_FAILED, 0)
        if store.add("castoff/read", 1) == readers:
            store.set("castoff/all-read", "")
        if self.rank == 0:  # the store ends with rank 0
            _wait(store, "castoff/all-read", self.patience)
        return verdict

    def _judge(self, store: Any) -> Verdict:
        lines = store.get("castoff/answers").splitlines()
        answers = {answer.rank: answer for answer in map(_decode, lines)}
        gone = [rank for rank in range(self.world_size) if rank not in answers]
        hosts = {}
        for rank in gone[:_NAMED]:
            if store.check([f"castoff/host/{rank}"]):
                hosts[rank] = store.get(f"castoff/host/{rank}").decode()
        return judge(answers.values(), self.world_size, hosts)


def judge(answers: Iterable[Answer], world_size: int, hosts: Mapping[int, str]) -> Verdict:
    """Conclude from the answers which ranks keep the others waiting; `hosts`: hosts of ranks that did not
    answer.
    """
    by_rank = {answer.rank: answer for answer in answers}
    present = sorted(by_rank.values(), key=lambda answer: answer.rank)
    ended, busy, waiting = (
        [answer for answer in present if answer.state == state] for state in ("ended", "busy", "waits")
    )
    gone = [rank for rank in range(world_size) if rank not in by_rank]
    # A step needs all ranks, so ranks that did not answer took part in the last step that any completed.
    last = max((answer.step for answer in present), default=0)
    lines = _named(
        [f"rank {answer.rank} ({answer.host}) {_stands(answer)}" for answer in ended], "such ranks"
    )
    lines += _named([f"{_called(rank, hosts)} does not answer; {_part(last)}" for rank in gone], "such ranks")
    behind = [f"rank {answer.rank} ({answer.host}) {_stands(answer)}" for answer in busy]
    if waiting and busy:
        behind = [f"{line}; it has not reached the point where the others wait" for line in behind]
    lines += _named(behind, "such ranks")
    places: dict[tuple[int, str], list[int]] = {}
    for answer in waiting:
        places.setdefault((answer.step, answer.doing), []).append(answer.rank)
    if not lines:
        lines += _counted(waiting)
    if not lines:
        lines.append(
            "the ranks wait for different things, so none of them can continue"
            if len(places) > 1
            else "all ranks answer, and wait at the same point: the network between them does not "
            "transfer the data"
        )
    lines += _named(
        [f"{_ranks(ranks)} waited {_after(step)}: {doing}" for (step, doing), ranks in places.items()],
        "such places",
    )
    reporter = next((answer.rank for answer in present if answer.state != "ended"), -1)
    return Verdict(reporter, lines, is_explained=bool(ended))


def _counted(waiting: list[Answer]) -> list[str]:
    """Lines with the ranks' numbers of collectives, if these differ: a collective that only some call
    blocks all.
    """
    counts: dict[int, list[int]] = {}
    for answer in waiting:
        counts.setdefault(answer.collectives, []).append(answer.rank)
    if len(counts) < 2:
        return []
    counted = [f"{_ranks(ranks)}: {count}" for count, ranks in sorted(counts.items(), reverse=True)]
    return [
        f"the ranks have begun different numbers of collectives ({'; '.join(counted[:_NAMED])}): "
        "some call one that others do not, perhaps under `if rank == ...`"
    ]


def _stands(answer: Answer) -> str:
    after = _after(answer.step)
    if answer.state == "ended":
        return f"ended {after}: {answer.doing}"
    return f"{'waits for others' if answer.state == 'waits' else 'is busy'} {after}: {answer.doing}"


def _after(step: int) -> str:
    return f"after step {step}" if step else "before the end of the first step"


def _part(last: int) -> str:
    return f"the last step that it took part in is {last}" if last else "no step has been done yet"


def _no_store(keeper: str, mine: Answer) -> str:
    return (
        f"{keeper}, which keeps the ranks' store, is gone or does not answer; "
        f"rank {mine.rank} ({mine.host}) {_stands(mine)}"
    )


def _ended(mine: Answer) -> str:
    return (
        f"the launcher ended this rank (TERM) before all ranks had answered; rank {mine.rank} ({mine.host}) "
        f"{_stands(mine)}"
    )


def _called(rank: int, hosts: Mapping[int, str]) -> str:
    return f"rank {rank} ({hosts[rank]})" if rank in hosts else f"rank {rank}"


def _ranks(ranks: list[int]) -> str:
    named = ", ".join(map(str, ranks[:_NAMED]))
    more = f" and {len(ranks) - _NAMED} more" if len(ranks) > _NAMED else ""
    return f"rank{'s' if len(ranks) > 1 else ''} {named}{more}"


def _named(lines: list[str], kind: str) -> list[str]:
    more = len(lines) - _NAMED
    return [*lines[:_NAMED], f"and {more} more {kind}"] if more > 0 else lines


def _is_explained(store: Any) -> bool:
    return any(_decode(line).state == "ended" for line in store.get("castoff/answers").splitlines())


def _decode(line: bytes) -> Answer:
    return msgspec.json.decode(line, type=Answer)


def _wait(store: Any, key: str, seconds: float) -> bool:
    """Whether a key is set in the store within `seconds`."""
    try:
        store.wait([key], timedelta(seconds=seconds))
    except dist.DistStoreError:
        return False
    return True


_LOOK_EVERY = 0.1
"""Seconds between two checks whether TERM was received."""

_SOON = 0.02
"""Seconds in which a working store answers; a request gets as much time even after TERM."""


class _Outcome(NamedTuple):
    given: Any = None
    error: Exception | None = None


def _within(seconds: float, function: Callable[[], Given]) -> Given:
    """Call a function with a time limit, since a request to a stopped store never returns.

    Raises:
        TimeoutError: it did not return in time; its thread keeps waiting.
    """
    outcomes: queue.SimpleQueue[_Outcome] = queue.SimpleQueue()

    def call() -> None:
        try:
            outcomes.put(_Outcome(function()))
        except Exception as error:  # noqa: BLE001  raised in the calling thread
            outcomes.put(_Outcome(error=error))

    threading.Thread(target=call, name="castoff-store", daemon=True).start()
    until = time.monotonic() + seconds
    while True:
        left = time_left(until - time.monotonic())
        try:
            outcome = outcomes.get(timeout=max(_SOON, min(left, _LOOK_EVERY)))
            break
        except queue.Empty:
            if left <= _LOOK_EVERY:
                raise TimeoutError(f"no answer in {seconds:.0f} s") from None
    if outcome.error is not None:
        raise outcome.error
    given: Given = outcome.given
    return given
