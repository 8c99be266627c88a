"""`python OPTIONS agent.py AGENT OWNER HOW MODULES -- COMMAND`: imports once, and runs each rank's program.

There is one on each node. It has one thread, forks for each client, and each child returns from `served` with
the program to run: below the program's own frames this file's last one remains alone.
"""

import sys

_at_start = {*sys.modules}
_template = {name: value for name, value in globals().items() if name.startswith("__")}  # what a script has

if __name__ == "__main__":
    if not getattr(sys.flags, "safe_path", False):
        del sys.path[0]  # this folder, where a program has its own
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
