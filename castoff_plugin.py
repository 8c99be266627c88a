"""The name by which castoff is found where others have files called `launcher` or `trainers`.

Python looks beside a script, in the working directory and on PYTHONPATH before it looks where castoff is
installed. So what begins from outside begins here: the castoff command, submitit's plugins, castoff's own
processes. `python -m castoff_plugin MODULE …` runs a module of castoff's; what `launcher` offers, RankEnv for
one, can be imported from here in every folder.
"""

from __future__ import annotations

import os.path
import sys
from importlib import import_module

TYPE_CHECKING = False  # `typing` would cost each rank some time
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any, NoReturn

_HOME = os.path.dirname(os.path.abspath(__file__))

_PLUGINS = {
    "PbsExecutor": "launcher.executors.executor",
    "CastoffJobEnvironment": "launcher.executors.environment",
}
"""What submitit looks for here."""


def own(name: str) -> ModuleType:
    """castoff's package of that name, whatever comes before it on Python's path.

    Raises:
        ImportError: another module of that name is loaded already; the text says which file it is.
    """
    ours = os.path.join(_HOME, name, "__init__.py")
    loaded = sys.modules.get(name)
    if loaded is None:
        return _load(name, ours)
    theirs = getattr(loaded, "__file__", None) or next(iter(getattr(loaded, "__path__", [])), "something")
    if os.path.realpath(theirs) != os.path.realpath(ours):
        raise ImportError(f"{theirs} is loaded as {name}, the name of castoff's own package: rename it")
    return loaded


def _load(name: str, file: str) -> ModuleType:
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec, spec_from_file_location

    first = PathFinder.find_spec(name)
    spec = spec_from_file_location(name, file, submodule_search_locations=[os.path.dirname(file)])
    if spec is None or spec.loader is None:
        raise ImportError(f"castoff's installation is incomplete: {file} is missing")
    module = sys.modules[name] = module_from_spec(spec)
    if first is not None and first.origin and os.path.realpath(first.origin) != os.path.realpath(file):
        vars(module)["_in_place_of"] = first.origin
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def end_on_interrupt() -> None:
    """Let Ctrl-C end this process at once, without a traceback, until something else is said about it.

    By the signal itself: a shell then shows code 130, and ends a loop that runs castoff. Where it is ignored,
    as in a shell's background job, it stays so.
    """
    # What `signal` is made of, whose import would take a tenth of a start's time.
    import _signal  # type: ignore[import-not-found]

    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)


def console() -> NoReturn:
    """The castoff command."""
    end_on_interrupt()
    own("launcher")
    from launcher.cli.main import console

    console()


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    launcher = own("launcher")
    home = import_module(_PLUGINS[name]) if name in _PLUGINS else launcher
    return getattr(home, name)


if __name__ == "__main__":
    end_on_interrupt()
    import runpy

    own(sys.argv[1].partition(".")[0])
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
