"""How a copy exits: as any Python does, but without tearing down what its agent imported."""

import atexit
import sys

TYPE_CHECKING = False  # `typing` would cost each start some time
if TYPE_CHECKING:
    from types import ModuleType

_TAKEN_APART = ("torch.distributed",)
"""Modules with objects that have to be released: connections to other ranks, and their threads."""


class Imported:
    """The modules that are left whole when a process of this kind ends.

    Python takes modules apart as it ends: a quarter of a second for torch, in which each page that is touched
    is copied. Meanwhile other ranks have seen this one's connections close, and may have failed for it and
    ended before it has.
    """

    def __init__(self) -> None:
        self._before = {*sys.modules}
        self._kept: list[ModuleType] = []
        atexit.register(self._leave_whole)  # before anything is imported, so after all that others register

    def noted(self) -> None:
        """Note the modules that have been imported by now."""
        for name, module in sys.modules.items():
            of_python = name in self._before or name.partition(".")[0] in sys.stdlib_module_names
            if not of_python and not name.startswith(_TAKEN_APART) and module is not None:
                self._kept.append(module)

    def _leave_whole(self) -> None:
        import ctypes

        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._kept))  # nobody will ever let go of it
        for module in self._kept:
            if sys.modules.get(module.__name__) is module:
                sys.modules[module.__name__] = None  # type: ignore[assignment] # as Python does a moment later


def leave_libraries_whole() -> None:
    """Make this process end without running the destructors of the libraries that are loaded by now.

    What a program registers from here on runs before these, in the order that exit(3) has.
    """
    import ctypes
    import os

    if os.environ.get("LD_PRELOAD"):  # a profiler writes what it has seen as it is destroyed
        return
    libc = ctypes.CDLL(None)
    libc.on_exit(libc._exit, None)  # is passed the exit code first, which is all that _exit takes
    libc.on_exit(libc.fcloseall, None)  # before that one; writes what C has buffered
