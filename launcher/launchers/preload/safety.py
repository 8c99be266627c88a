"""Checks that an agent can be copied, and that a copy would behave like the Python that a client
would start.
"""

import os
import sys

from .rank import memory_policy, usable_devices
from .words import python_command

TYPE_CHECKING = False  # `typing` would cost each start some time
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from typing import Any

_DEVICES = ("/dev/nvidia", "/dev/dri", "/dev/kfd", "/dev/accel", "/dev/xpu")

_READ_AT_IMPORT = (
    *("PYTHON", "LD_", "LC_", "MALLOC_", "GLIBC_", "TORCH", "PYTORCH", "ATEN_", "C10_", "NPY_", "NUMEXPR_"),
    *("OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "GOTO_", "BLIS_", "TBB_"),
)
_READ_AT_START = ("LANG", "LANGUAGE", "TZ", "VIRTUAL_ENV", "CONDA_PREFIX")
_SET_LATER = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")
"""Variables for thread counts that a copy can still change after the agent's imports."""


def reason_not_to_fork(known: "Collection[int]") -> str | None:
    """Return why ranks cannot be copies of this process. `known`: the files that were open before the
    imports.
    """
    threads = [_read(f"/proc/self/task/{task}/comm") for task in os.listdir("/proc/self/task")]
    if len(threads) > 1:
        return f"the imports have started a thread ({threads[-1].strip()}), which ranks would lack"
    for file in sorted(open_files() - {*known}):
        target = os.readlink(f"/proc/self/fd/{file}")
        kind = "a device" if target.startswith(_DEVICES) else "a file"
        return f"the imports have opened {kind} ({target}), which ranks would share"
    torch = sys.modules.get("torch")
    for name in ("cuda", "xpu"):
        if torch is not None and getattr(torch, name).is_initialized():
            return f"the imports have initialized torch.{name}, which no copy can use"
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return "the imports have initialized a process group, which copies cannot share"
    return None


def open_files() -> set[int]:
    """Return the numbers of this process's open files, without the file that lists them."""
    numbers = {int(name) for name in os.listdir("/proc/self/fd")}
    return {number for number in numbers if os.path.lexists(f"/proc/self/fd/{number}")}


def unlike(
    state: "Mapping[str, Any]", environment: "Mapping[bytes, bytes]", command: "Sequence[str]"
) -> str | None:
    """Return why a rank that is forked from this process, which has imported modules, would differ from a
    Python started with the rank's command; None: it would not differ.
    """
    wanted, expected = python_command([*map(os.fsdecode, state["command"])]), python_command(command)
    if wanted is None or expected is None or wanted.options != expected.options:
        return "this rank's command has other options for Python"
    rank_environment = dict(state["environment"])
    names = {
        name
        for name in {*rank_environment, *environment}
        if rank_environment.get(name) != environment.get(name)
    }
    for name in sorted(map(os.fsdecode, names)):
        if name not in _SET_LATER and (name.startswith(_READ_AT_IMPORT) or name in _READ_AT_START):
            return f"this rank has another {name} than the imports had"
    if state["devices"] != usable_devices():
        return "this rank may use other devices than the process with the imports"
    if state["memory"] != memory_policy():
        return "this rank has another NUMA memory policy than the process with the imports"
    return None


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:  # a thread that has ended
        return ""
