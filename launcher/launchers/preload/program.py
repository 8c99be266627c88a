"""Runs a program as Python itself would: `__main__`, sys.argv, sys.path, and what tracebacks show."""

import io
import os
import sys

from .takeover import Unfit
from .words import PythonCommand, python_command

TYPE_CHECKING = False  # `typing` would cost each start some time
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from types import TracebackType
    from typing import Any


class Program:
    """The Python program that a child runs."""

    def __init__(
        self, command: "Sequence[bytes]", template: "Mapping[str, Any]", at_start: "Collection[str]"
    ):
        """Make this process the Python that `command` would start.

        `template`: the names that a script's `__main__` has. `at_start`: the modules that Python loads before
        any program.

        Raises:
            Unfit: Python itself has to report what is wrong with the command, or would load other files.
        """
        words = [*map(os.fsdecode, command)]
        python = python_command(words)
        assert python is not None
        folder = _folder(python)
        if not getattr(sys.flags, "safe_path", False):
            _refuse_shadowing(
                folder or os.getcwd(), {name.partition(".")[0] for name in sys.modules} - {*at_start}
            )
            sys.path.insert(0, folder)
        sys.argv = [f"-{python.letter}" if python.letter else python.target, *python.arguments]
        sys.orig_argv = words
        before, main = sys.modules["__main__"], type(sys)("__main__")
        for name in [name for name, module in sys.modules.items() if module is before]:
            sys.modules[name] = main  # multiprocessing also registers it by another name
        main.__dict__.update(template, __doc__=None)
        if "__annotations__" in template:
            main.__annotations__ = {}
        for name in [name for name in sys.modules if name.partition(".")[0] == "castoff_preload"]:
            del sys.modules[name]
        self.run = {"m": _module, "c": _text, "": _script}[python.letter](python.target, main.__dict__)
        _show_command(command)

    def hide_frame(self) -> None:
        """Remove all frames but the program's own from the traceback of the exception being handled."""
        hook = sys.excepthook

        def shown(kind: "type[BaseException]", error: BaseException, trace: "TracebackType | None") -> None:
            sys.excepthook = hook
            program_trace = trace.tb_next if trace is not None else None
            if hasattr(sys, "last_traceback"):
                sys.last_traceback = program_trace
            hook(kind, error.with_traceback(program_trace), program_trace)

        if callable(hook):
            sys.excepthook = shown


def _folder(python: "PythonCommand") -> str:
    """Return the first entry of sys.path; empty: the process's current folder."""
    if python.letter:
        return os.getcwd() if python.letter == "m" else ""
    return os.path.dirname(os.path.realpath(python.target))


def _module(name: str, _: "dict[str, Any]") -> "Callable[[], object]":
    import runpy
    from functools import partial

    return partial(runpy._run_module_as_main, name)  # type: ignore[attr-defined] # what -m calls


def _text(text: str, namespace: "dict[str, Any]") -> "Callable[[], object]":
    from functools import partial
    from importlib.machinery import BuiltinImporter

    try:
        code = compile(text, "<string>", "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        raise Unfit("cannot run the text", aloud=False) from error
    del namespace["__file__"]
    namespace.pop("__cached__", None)
    namespace["__loader__"] = BuiltinImporter
    return partial(exec, code, namespace)


def _script(path: str, namespace: "dict[str, Any]") -> "Callable[[], object]":
    from functools import partial
    from importlib.machinery import SourceFileLoader

    file = path if os.path.isabs(path) else f"{os.getcwd()}/{path}"
    try:
        with io.open_code(file) as stream:
            source = stream.read()
        code = compile(source, file, "exec", dont_inherit=True)
    except (OSError, SyntaxError, ValueError) as error:
        raise Unfit(f"cannot run {path}", aloud=False) from error
    namespace.update(__file__=file, __loader__=SourceFileLoader("__main__", file))
    return partial(exec, code, namespace)


def _refuse_shadowing(folder: str, loaded: "Collection[str]") -> None:
    """Refuse a program whose own file would hide a module that the agent has already loaded."""
    try:
        entries = os.listdir(folder)
    except OSError:
        return
    for entry in entries:
        name, dot, kind = entry.partition(".")
        if name not in loaded or name in sys.builtin_module_names:
            continue
        path = os.path.join(folder, entry)
        package = not dot and any(file.startswith("__init__.") for file in _entries(path))
        if package or kind == "py" or kind == "pyc" or kind.endswith("so"):
            module = getattr(sys.modules[name], "__file__", None)
            if module is None or os.path.dirname(module) not in (folder, path):
                raise Unfit(f"{path} has the name of a module that is imported already")


def _entries(path: str) -> list[str]:
    try:
        return os.listdir(path)
    except OSError:
        return []


def _show_command(command: "Sequence[bytes]") -> None:
    """Make ps show the rank's command in place of the agent's, which is longer."""
    import ctypes

    with open("/proc/self/stat", "rb") as file:
        words = file.read().rpartition(b")")[2].split()
    begin, end = int(words[45]), int(words[46])  # arg_start and arg_end, proc(5)
    text = b"".join(word + b"\0" for word in command)
    if 0 < len(text) <= end - begin:
        ctypes.memmove(begin, text.ljust(end - begin, b"\0"), end - begin)
