"""`python -I -S client.py AGENT GONE COMMAND...`: the process that represents a rank to its launcher.

The node's agent runs the program as a copy of itself, with all that this process has. The launcher knows only
this process: it passes signals on, and ends as the program does. If there is no agent, or it cannot run the
program as Python itself would, this process executes the command instead.
"""

import os
import sys

if __name__ == "__main__":
    try:
        # Load this folder as its own package: nothing else of castoff is loaded, and it is compiled once.
        _package = sys.modules["castoff_preload"] = type(sys)("castoff_preload")
        _package.__path__ = [__file__.rpartition("/")[0]]
        _main = __import__("castoff_preload.rank", fromlist=["main"]).main
    except ImportError:  # this Python is older, or lacks a part
        os.execvp(sys.argv[3], sys.argv[3:])
    _main(sys.argv[1], sys.argv[2], sys.argv[3:])
