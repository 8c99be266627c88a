"""`python -I -S begin.py AGENT OWNER HOW MODULES -- COMMAND`: becomes the agent, with COMMAND's Python
options.
"""

import os
import sys

if __name__ == "__main__":
    _folder = __file__.rpartition("/")[0]
    _package = sys.modules["castoff_preload"] = type(sys)("castoff_preload")  # see client.py
    _package.__path__ = [_folder]
    _command = sys.argv[sys.argv.index("--") + 1 :]
    _python = __import__("castoff_preload.words", fromlist=["python_command"]).python_command(_command)
    os.execvp(_command[0], [_command[0], *_python.options, f"{_folder}/agent.py", *sys.argv[1:]])
