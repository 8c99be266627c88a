"""Stacks as faulthandler and py-spy write them."""

from __future__ import annotations

import subprocess
import sys

from castoff.launcher.stacks.frames import Frame, Thread, of_faulthandler, of_py_spy, without_launcher
from tests import patience

TWO_THREADS = """
import faulthandler, threading
over = threading.Event()
def helper():
    over.wait()
def outer():
    faulthandler.dump_traceback(all_threads=True)
thread = threading.Thread(target=helper)
thread.start()
outer()
over.set()
"""


def test_what_this_python_writes() -> None:
    done = subprocess.run(
        [sys.executable, "-c", TWO_THREADS],
        capture_output=True,
        text=True,
        timeout=patience.SECONDS,
        check=True,
    )
    main, other = of_faulthandler(done.stderr.splitlines())
    assert main.main and main.frames == [Frame("outer", "<string>", 7), Frame("<module>", "<string>", 10)]
    assert not other.main and Frame("helper", "<string>", 5) in other.frames


def test_names_of_threads_and_what_is_no_call() -> None:
    """Python 3.14 names threads; some lines of each version are no call."""
    text = """\
Thread 0x00007f2a4bfff6c0 [loader] (most recent call first):
  File "/a/threading.py", line 359 in wait
  ...

Current thread 0x00007f2a5d5c0740 [python] (most recent call first):
  Garbage-collecting
  File "/a/with "quotes", line 1 in.py", line ??? in run
  <invalid frame>
"""
    assert of_faulthandler(text.splitlines()) == [
        Thread("python", True, [Frame("run", '/a/with "quotes", line 1 in.py', 0)]),
        Thread("loader", False, [Frame("wait", "/a/threading.py", 359)]),
    ]
    assert of_faulthandler(["  File", "Thread of another kind"]) == []


def test_py_spy() -> None:
    """The main thread is the first, by its id or, in another namespace, by its name."""
    for own in (7, 1):
        text = f"""\
Process 7: python train.py
Python v3.11.7 (/usr/bin/python3.11)

Thread 9 (active+gil): "loader (a)"
Thread {own} (idle): "MainThread"
    Loader.read (/a b/(1).py:3)
    <module> (/a.py:4)
"""
        main, other = of_py_spy(text.splitlines(), 7)
        frames = [Frame("Loader.read", "/a b/(1).py", 3), Frame("<module>", "/a.py", 4)]
        assert main == Thread("MainThread", True, frames)
        assert other == Thread("loader (a)", False, [])
    assert of_py_spy(["Thread 0x7F2A5D5C0740"], 7) == [Thread("", False, [])]
    assert of_py_spy(["", "Error: no such process", "    f (/a.py:3)"], 7) == []


def test_castoffs_own_calls_are_left_out() -> None:
    own = Frame("<module>", "/x/castoff/launcher/launchers/preload/agent.py", 22)
    thread = Thread("", True, [Frame("inner", "/a.py", 3), own])
    assert without_launcher(thread).frames == [Frame("inner", "/a.py", 3)]
