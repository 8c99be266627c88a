"""`python OPTIONS agent.py AGENT OWNER HOW MODULES -- COMMAND`: imports modules once, and runs each rank's
program.

Each node has one agent, which has a single thread and forks for each client. Each child returns from `served`
with the program to run, so that a traceback has only one frame of castoff's code below the program's frames.
"""

import sys

_at_start = {*sys.modules}
# The names that a script's `__main__` has.
_template = {name: value for name, value in globals().items() if name.startswith("__")}

if __name__ == "__main__":
    if not getattr(sys.flags, "safe_path", False):
        del sys.path[0]  # this folder; a program has its own folder in this place
    _package = sys.modules["castoff_preload"] = type(sys)("castoff_preload")  # see client.py
    _package.__path__ = [__file__.rpartition("/")[0]]
    _serving = __import__("castoff_preload.serving", fromlist=["served"])
    _program = _serving.served(sys.argv[1:], _template, _at_start)
    try:
        _program.run()
    except SystemExit:
        raise
    except BaseException:
        _program.hide_frame()
        raise
