"""castoff's programs, which Ctrl-C ends without a traceback from the very start.

`python -m castoff.program MODULE …` runs a module of castoff's.
"""

from __future__ import annotations


def end_on_interrupt() -> None:
    """Let Ctrl-C end this process at once, without a traceback, until other code handles SIGINT.

    SIGINT itself ends the process: a shell then shows exit code 130, and ends a loop that runs castoff. If
    SIGINT is ignored, as in a shell's background job, it stays ignored.
    """
    # Importing `signal`, which is based on this module, would take a tenth of the start's time.
    import _signal  # type: ignore[import-not-found]

    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)


if __name__ == "__main__":
    end_on_interrupt()
    import runpy
    import sys

    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
