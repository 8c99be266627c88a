"""castoff's programs, which Ctrl-C ends without a traceback from their first moment on.

`python -m castoff.program MODULE …` runs a module of castoff's.
"""

from __future__ import annotations


def end_on_interrupt() -> None:
    """Let Ctrl-C end this process at once, without a traceback, until something else is said about it.

    By the signal itself: a shell then shows code 130, and ends a loop that runs castoff. Where it is ignored,
    as in a shell's background job, it stays so.
    """
    # What `signal` is made of, whose import would take a tenth of a start's time.
    import _signal  # type: ignore[import-not-found]

    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)


if __name__ == "__main__":
    end_on_interrupt()
    import runpy
    import sys

    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
