"""`python -I -S client.py AGENT GONE COMMAND...`: what a rank's process is beside its program.

The node's agent runs the program as a copy of itself, with all that this process has been given. This one
stays what the launcher knows: it passes signals on, and ends as the program does. Where there is no agent, or
it cannot run the program as Python itself would, this process becomes the command.
"""

import os
import sys

if __name__ == "__main__":
    try:
        # This folder as a package of its own: nothing else of castoff is loaded, and it is compiled once.
        _package = sys.modules["castoff_preload"] = type(sys)("castoff_preload")
        _package.__path__ = [__file__.rpartition("/")[0]]
        _main = __import__("castoff_preload.rank", fromlist=["main"]).main
    except ImportError:  # this Python is older, or lacks a part
        os.execvp(sys.argv[3], sys.argv[3:])
    _main(sys.argv[1], sys.argv[2], sys.argv[3:])
