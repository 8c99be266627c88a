"""Which ranks still respond, and where each of them is, after something went wrong.

It goes through the store, and nothing is sent while all goes well. A rank that waits in vain opens the roll
call; each that hears of it adds its answer to one list; whoever opened it reads the list when all have
answered, or after `window` seconds, and writes the verdict for all. That is a handful of requests a rank, and
one reader, for any number of ranks.
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
"""Seconds in which ranks answer, at most; where there are many, more."""

_FAILED = "castoff/failed"
_OPEN = "castoff/open"
_ALL_ANSWERED = "castoff/all-answered"
_ALL_REPORTED = "castoff/all-reported"

_GIVEN = 2.0
"""Seconds in which ranks answer once one has reported an error of its own: others matter less then."""

_NAMED = 8
"""Ranks of a kind that are named one by one."""

_TEXT = 300
"""Characters of what a rank says of itself."""


class Answer(msgspec.Struct, frozen=True):
    """Where a rank stands."""

    rank: int
    host: str
    step: int
    """Optimizer steps that it has done."""
    state: Literal["waits", "busy", "ended"]
    """It waits for other ranks, is in code of its own, or has an error of its own."""
    doing: str
    collectives: int = 0
    """How many it has begun."""


class Verdict(msgspec.Struct, frozen=True):
    """The common result of all ranks' reports."""

    reporter: int
    """The rank that says it in full; -1: whoever has this."""
    lines: list[str]
    is_explained: bool = False
    """Whether a rank has reported an error of its own, to which the others' come."""


class RankHealthCheck:
    """This rank's part in it.

    `keeper`: who answers for the store, and on which host; `collectives`: how many this rank has begun.
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
        """Optimizer steps that this rank has done."""
        self.window = WINDOW
        """Seconds."""
        self._keeper = keeper
        self._collectives = collectives
        self._store = store
        self._lock = threading.Lock()
        self._verdict: Verdict | None = None
        self._asking: threading.Thread | None = None
        self._heard = False
        self._answered = False
        self._lost = False
        """Whether the connection to the store is: torch writes a page about each request after that."""
        store.set(f"castoff/host/{rank}", host)

    @property
    def patience(self) -> float:
        """Seconds in which ranks answer: requests of thousands take their time."""
        return self.window + self.world_size / 400

    def is_open(self) -> bool:
        """Whether another rank waits in vain, as far as is known; asks anew, and waits for no answer."""
        if self._asking is None or not self._asking.is_alive():
            self._asking = threading.Thread(target=self._ask, name="castoff-store", daemon=True)
            self._asking.start()
        return self._heard

    def _ask(self) -> None:
        try:
            self._heard = bool(self._store.check([_OPEN]))
        except RuntimeError:  # the collectives will tell
            pass

    def ended(self, what: str) -> None:
        """Leave word that this rank has an error of its own, for those that will wait for it."""
        with self._lock:
            if self._answered:
                return
            self._try(lambda: self._answer(self._mine("ended", what)), None)

    def first_to_report(self, what: str) -> int:
        """The rank that was the first to ask this about the same thing, as far as is known."""
        me = str(self.rank)
        return int(self._try(lambda: self._store.compare_set(f"castoff/first-to-ask/{what}", "", me), me))

    def has_reported(self) -> None:
        """This rank has said what is wrong, and needs the store no more."""
        self._try(self._count_report, None)

    def _count_report(self) -> None:
        if self._store.add("castoff/reported", 1) == self.world_size:
            self._store.set(_ALL_REPORTED, "")

    def linger(self) -> None:
        """Keep the store, which goes with rank 0, until all ranks have said what is wrong."""
        if self.rank == 0 and self._verdict is None:
            self._try(lambda: _wait(self._store, _ALL_REPORTED, self.window), False)

    def _try(self, ask: Callable[[], Given], otherwise: Given) -> Given:
        """The store's answer; None if it gives none."""
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
        """Report what this rank is doing, and learn what the other ranks are doing."""
        with self._lock:  # the watch may notice what the loop does
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
        """Where each of them is, on standard error: a rank's log."""
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
        opened_it = store.add(_FAILED, 1) == 1  # counts those that will read the verdict
        self._answer(mine)
        if opened_it:
            if not _wait(store, _ALL_ANSWERED, min(_GIVEN, self.patience)) and not _is_explained(store):
                _wait(store, _ALL_ANSWERED, self.patience)
            verdict = self._judge(store)
            store.set("castoff/verdict", msgspec.json.encode(verdict).decode())
        elif _wait(store, "castoff/verdict", 2 * self.patience):
            verdict = msgspec.json.decode(store.get("castoff/verdict"), type=Verdict)
        else:  # who opened it is gone, too
            verdict = self._judge(store)
        readers = store.add(_FAILED, 0)
        if store.add("castoff/read", 1) == readers:
            store.set("castoff/all-read", "")
        if self.rank == 0:  # with whom the store goes
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
    """Who keeps the others waiting, by what they say; `hosts` are those of ranks that say nothing."""
    by_rank = {answer.rank: answer for answer in answers}
    here = sorted((each for each in by_rank.values()), key=lambda each: each.rank)
    ended, busy, waiting = (
        [each for each in here if each.state == state] for state in ("ended", "busy", "waits")
    )
    gone = [rank for rank in range(world_size) if rank not in by_rank]
    # A step's sum needs all ranks: in the last one that anybody has done, the others took part.
    last = max((each.step for each in here), default=0)
    lines = _named([f"rank {each.rank} ({each.host}) {_stands(each)}" for each in ended], "such ranks")
    lines += _named([f"{_called(rank, hosts)} does not answer; {_part(last)}" for rank in gone], "such ranks")
    behind = [f"rank {each.rank} ({each.host}) {_stands(each)}" for each in busy]
    if waiting and busy:
        behind = [f"{line}; it has not come to where the others wait" for line in behind]
    lines += _named(behind, "such ranks")
    places: dict[tuple[int, str], list[int]] = {}
    for each in waiting:
        places.setdefault((each.step, each.doing), []).append(each.rank)
    if not lines:
        lines += _counted(waiting)
    if not lines:
        lines.append(
            "the ranks wait for different things, so none of them can continue"
            if len(places) > 1
            else "all ranks answer, and wait for the same: what lies between them does not carry it"
        )
    lines += _named(
        [f"{_ranks(ranks)} waited {_after(step)}: {doing}" for (step, doing), ranks in places.items()],
        "such places",
    )
    reporter = next((each.rank for each in here if each.state != "ended"), -1)
    return Verdict(reporter, lines, is_explained=bool(ended))


def _counted(waiting: list[Answer]) -> list[str]:
    """Who has begun more collectives than others: one that only some ranks call makes all of them wait."""
    counts: dict[int, list[int]] = {}
    for each in waiting:
        counts.setdefault(each.collectives, []).append(each.rank)
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
    """Whether a key came in time."""
    try:
        store.wait([key], timedelta(seconds=seconds))
    except dist.DistStoreError:
        return False
    return True


_LOOK_EVERY = 0.1
"""Seconds between two looks at whether TERM has come."""

_SOON = 0.02
"""Seconds in which a store that is there answers: also after TERM one may hear what it says."""


class _Outcome(NamedTuple):
    given: Any = None
    error: Exception | None = None


def _within(seconds: float, function: Callable[[], Given]) -> Given:
    """What a function gives, if it does in time: a request to a store that is stopped never ends.

    Raises:
        TimeoutError: it does not; a thread of its own keeps waiting.
    """
    outcomes: queue.SimpleQueue[_Outcome] = queue.SimpleQueue()

    def call() -> None:
        try:
            outcomes.put(_Outcome(function()))
        except Exception as error:  # noqa: BLE001  handed on to whoever asked
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
