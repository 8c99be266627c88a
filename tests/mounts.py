"""Full and read-only file systems, for real: mounted where no other process sees them."""

from __future__ import annotations

import ctypes
import os
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

_NEW_MOUNTS = 0x00020000  # CLONE_NEWNS of <sched.h>
_PRIVATE = 0x00040000 | 0x00004000  # MS_PRIVATE | MS_REC of <sys/mount.h>
_READ_ONLY = 0x0001 | 0x0020 | 0x1000  # MS_RDONLY | MS_REMOUNT | MS_BIND
_BIND = 0x1000
_LAZILY = 2  # MNT_DETACH: what has it open may go on
_LIBC = ctypes.CDLL(None, use_errno=True)


def with_mounts(folder: Path, test: Callable[[], None]) -> None:
    """Run a test in a fork that may mount what it likes; what fails there fails here.

    Skips where mounting is not allowed.
    """
    report = folder / "report"
    report.touch()
    pid = os.fork()
    if pid == 0:
        try:
            if _LIBC.unshare(_NEW_MOUNTS) != 0:
                os._exit(77)
            _mount("none", Path("/"), "", _PRIVATE, "")
            test()
            os._exit(0)
        except BaseException:  # noqa: BLE001 - it is shown in the parent
            report.write_text(traceback.format_exc())
        finally:
            os._exit(1)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code == 77:
        pytest.skip("only root can mount, and not everywhere")
    assert code == 0, report.read_text()


def join_mounts(pid: int) -> None:
    """Have this process, which must have one thread, see what that one has mounted."""
    descriptor = os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY)
    try:
        _checked(_LIBC.setns(descriptor, _NEW_MOUNTS), f"see the mounts of {pid}")
    finally:
        os.close(descriptor)


def mount_small(folder: Path, options: str) -> None:
    """Put a file system of so many bytes or files there, as `size=64k` or `nr_inodes=12`."""
    folder.mkdir(exist_ok=True)
    _mount("none", folder, "tmpfs", 0, options)


def mount_read_only(folder: Path) -> None:
    """Let nobody write there, root included."""
    _mount(str(folder), folder, "", _BIND, "")
    _mount("none", folder, "", _READ_ONLY, "")


def mount_writable_again(folder: Path) -> None:
    """Undo `mount_read_only`."""
    _checked(_LIBC.umount2(str(folder).encode(), _LAZILY), f"unmount {folder}")


def _mount(source: str, target: Path, kind: str, flags: int, options: str) -> None:
    words = [text.encode() for text in (source, str(target), kind)]
    _checked(_LIBC.mount(*words, ctypes.c_ulong(flags), options.encode()), f"mount {target}")


def _checked(code: int, what: str) -> None:
    if code != 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")
