"""`python -I -S client.py AGENT GONE COMMAND...`: the process that represents a rank to its launcher.

The node's agent runs the program in a copy of itself, with this process's files, environment and limits. The
launcher knows only this process, which passes signals on and ends as the program does. If there is no agent,
or the agent cannot run the program as Python itself would, this process executes the command instead.
"""

import os
import sys

if __name__ == "__main__":
    try:
        # Load this folder as its own package: nothing else of castoff is loaded, and it is compiled once.
        _package = sys.modules["castoff_preload"] = type(sys)("castoff_preload")
        _package.__path__ = [__file__.rpartition("/")[0]]
        _main = __import__("castoff_preload.rank", fromlist=["main"]).main
    except ImportError:  # this Python is too old, or incomplete
        os.execvp(sys.argv[3], sys.argv[3:])
    _main(sys.argv[1], sys.argv[2], sys.argv[3:])
