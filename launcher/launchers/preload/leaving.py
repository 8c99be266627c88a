"""How a copy of the agent exits: like any Python, but without tearing down the modules that the agent
imported.
"""

import atexit
import sys

TYPE_CHECKING = False  # `typing` would cost each start some time
if TYPE_CHECKING:
    from types import ModuleType

_TAKEN_APART = ("torch.distributed",)
"""Modules whose objects must be released: connections to other ranks, and their threads."""


class Imported:
    """The agent's modules, which a copy does not tear down when it ends.

    Python tears modules down as it ends. For torch this takes a quarter of a second, since each memory page
    that is touched is copied. Meanwhile other ranks see this rank's connections close, and may fail and end
    first.
    """

    def __init__(self) -> None:
        self._before = {*sys.modules}
        self._kept: list[ModuleType] = []
        # registered before all imports, so that it runs after all functions that they register
        atexit.register(self._leave_whole)

    def noted(self) -> None:
        """Note the modules that have been imported by now."""
        for name, module in sys.modules.items():
            of_python = name in self._before or name.partition(".")[0] in sys.stdlib_module_names
            if not of_python and not name.startswith(_TAKEN_APART) and module is not None:
                self._kept.append(module)

    def _leave_whole(self) -> None:
        import ctypes

        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._kept))  # the list is never released
        for module in self._kept:
            if sys.modules.get(module.__name__) is module:
                # Python does the same a moment later.
                sys.modules[module.__name__] = None  # type: ignore[assignment]


def leave_libraries_whole() -> None:
    """Make this process end without running the destructors of the libraries that are loaded now.

    Exit functions that the program registers later run before, by the order of exit(3).
    """
    import ctypes
    import os

    if os.environ.get("LD_PRELOAD"):  # a profiler writes its results in a destructor
        return
    libc = ctypes.CDLL(None)
    # the function's first argument is the exit code, the only one that _exit takes
    libc.on_exit(libc._exit, None)
    libc.on_exit(libc.fcloseall, None)  # runs before `_exit`; writes C's buffers
