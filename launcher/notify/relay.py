"""Messages that one machine finds due and another sends: `castoff --on NAME watch`.

The machine with the runs makes a record of each due message, as if it sent it, and hands it over. The other
one, whose webhooks are used, says at its next call what became of it. If it never does, the message is handed
over again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from castoff.launcher import clock
from castoff.launcher.errors import CastoffError
from castoff.launcher.notify.delivery import deliver_values
from castoff.launcher.notify.message import Message
from castoff.launcher.notify.watching import FIRST_RETRY, GIVE_UP, LONGEST_RETRY
from castoff.launcher.runs.notices import settle
from castoff.launcher.runs.run import RunDirectory

Key = tuple[str, str, str]
"""A message: the run's directory, the event and the receiver."""


class Errand(msgspec.Struct, frozen=True):
    """A message to send, or the answer's last line."""

    run: str = ""
    event: str = ""
    receiver: str = ""
    number: int = 0
    """The number of the message's record."""
    title: str = ""
    values: dict[str, str] = {}
    left: bool | None = None
    """In the last line: whether a message may become due later."""

    @property
    def key(self) -> Key:
        """The message."""
        return (self.run, self.event, self.receiver)


class Done(msgspec.Struct, frozen=True):
    """What became of a message that was handed over."""

    run: str
    event: str
    receiver: str
    number: int
    error: str | None = None


class State(msgspec.Struct, frozen=True):
    """What the sender says with its next call."""

    done: list[Done] = []
    leave: list[Key] = []
    """Messages that it does not want now."""


def handed_over(message: Message, receiver: str, number: int) -> str:
    """The line about a message."""
    run = str(message.subject.run.path)
    errand = Errand(run, message.event, receiver, number, message.title, message.values)
    return msgspec.json.encode(errand).decode()


def record(state: State, host: str) -> None:
    """Record what became of the messages that were handed over.

    Raises:
        CastoffError: a run's directory may not be used.
        OSError: a record cannot be written.
    """
    for one in state.done:
        run = RunDirectory(Path(one.run))
        if (run.path / "notify").is_dir():  # otherwise it was removed meanwhile
            settle(run, one.event, one.receiver, one.number, host, one.error)


class Sender:
    """Sends what another machine hands over."""

    def __init__(self, environ: Mapping[str, str], say: Callable[[str], object]):
        self._environ = environ
        self._say = say
        self._done: list[Done] = []
        self._given_up: set[Key] = set()
        self._waits: dict[Key, tuple[float, float, float]] = {}
        """By message: when it was first tried, when it is tried again, and the pause until then."""

    @property
    def state(self) -> str:
        """What to say with the next call."""
        now = clock.now()
        waiting = {key for key, (_, again, _) in self._waits.items() if now < again}
        state = State(self._done, sorted(self._given_up | waiting))
        return msgspec.json.encode(state).decode()

    @property
    def has_news(self) -> bool:
        """Whether something is to be said at once."""
        return bool(self._done)

    @property
    def has_more(self) -> bool:
        """Whether something is to be said, or sent once more."""
        return bool(self._done or self._waits)

    def take(self, answer: bytes, machine: str) -> bool:
        """Send what an answer hands over; return whether a message may become due later.

        Raises:
            CastoffError: castoff there answers something else.
        """
        self._done, left = [], None
        for line in answer.splitlines():
            try:
                errand = msgspec.json.decode(line, type=Errand)
            except msgspec.MsgspecError:
                raise CastoffError(
                    f"{machine}: castoff there answers what this castoff does not know"
                ) from None
            if errand.left is not None:
                left = errand.left
            else:
                self._send(errand)
        if left is None:
            raise CastoffError(f"{machine}: castoff there did not end its answer")
        return left

    def _send(self, errand: Errand) -> None:
        key, now = errand.key, clock.now()
        outcome = deliver_values(errand.values, errand.receiver, self._environ)
        self._done.append(Done(*key, errand.number, outcome.error))
        since, _, pause = self._waits.pop(key, (now, now, FIRST_RETRY / 2))
        if outcome.error is None:
            self._say(f"{errand.receiver}: {errand.title}")
            return
        pause = max(min(2 * pause, LONGEST_RETRY), outcome.pause)
        if outcome.may_pass and now + pause - since <= GIVE_UP:
            self._waits[key] = (since, now + pause, pause)
            self._say(f"{errand.receiver}: {errand.title}: {outcome.error}; again in {pause:.0f} s")
        else:
            self._given_up.add(key)
            self._say(f"{errand.receiver}: {errand.title}: not sent: {outcome.error}")
