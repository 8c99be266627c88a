"""The program of the scripts that the tests run: writes down what a rank sees, then does as told.

PROBE (in the environment) is what it does: nothing, `fail R CODE`, `segv R`, `outcome WORD`,
`wait` (ready → stop file → TERM → outcome done), `stop` (until the stop file, then outcome resume).
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

from castoff.launcher.ranks import FIELDS, RankEnv

SEEN = Path(os.environ["PROBE_FOLDER"])
TERMINATED = False


def on_term(*_: object) -> None:
    global TERMINATED
    TERMINATED = True


def until(what: str) -> None:
    """Wait for the stop file or for TERM, for ever: a test that this keeps waiting fails."""
    stop = Path(os.environ["CASTOFF_STOP_FILE"])
    while not ((what == "stop" and stop.exists()) or (what == "term" and TERMINATED)):
        time.sleep(0.05)


def say(name: str, me: RankEnv) -> None:
    (SEEN / f"{name}-{me.rank}").touch()


def together(me: RankEnv) -> None:
    """Wait until all ranks are here."""
    while len(list(SEEN.glob("here-*"))) < me.world_size:
        time.sleep(0.05)


def outcome(word: str, me: RankEnv) -> None:
    if me.rank == 0:
        Path(os.environ["CASTOFF_OUTCOME_FILE"]).write_text(word + "\n")


def main() -> None:
    signal.signal(signal.SIGTERM, on_term)
    me = RankEnv.detect()
    fields = {name: getattr(me, name) for name in (*FIELDS, "device", "launcher")}
    record = {
        "argv": sys.argv[1:],
        "environ": dict(os.environ),
        "detected": fields,
        "cwd": str(Path.cwd()),
        "cpus": sorted(os.sched_getaffinity(0)),
    }
    temporary = SEEN / f".rank-{me.rank}-{os.getpid()}.json"  # two jobs may run at once
    temporary.write_text(json.dumps(record))
    temporary.rename(SEEN / f"rank-{me.rank}.json")
    verb, *words = os.environ.get("PROBE", "nothing").split()
    if verb == "fail":
        print(f"rank {me.rank} was here", flush=True)
        say("here", me)
        if me.rank == int(words[0]):
            together(me)
            sys.exit(int(words[1]))
        until("term")
        time.sleep(86400)
    elif verb == "segv":
        if me.rank == int(words[0]):
            signal.signal(signal.SIGSEGV, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGSEGV)
        time.sleep(86400)
    elif verb == "outcome":
        outcome(words[0], me)
    elif verb == "wait":
        say("ready", me)
        until("stop")
        say("stopping", me)
        until("term")
        time.sleep(0.7)  # it saves what it has: nobody may be gone before
        outcome(words[0], me)
    elif verb == "stop":
        say("ready", me)
        until("stop")
        outcome("resume", me)


if __name__ == "__main__":
    main()
