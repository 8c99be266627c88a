"""`python as_on_a_mac.py WORDS…`: the castoff command in a Python that has no more than one on a Mac has.

It has no name of the standard library that only Linux has, no /proc and no /sys, and its platform is
darwin's. The file LOADED gets the names of castoff's modules that were loaded. What else differs on a Mac,
such as its file system, ssh and bash, is Linux's here.
"""

from __future__ import annotations

import _socket
import errno
import fcntl
import mmap
import os
import platform
import resource
import select
import selectors
import signal
import socket
import sys
import tempfile
import termios
import time
from types import ModuleType

ONLY_LINUX: dict[str, tuple[str, ...]] = {
    "os": (
        *("sched_", "memfd_create", "pidfd_open", "getxattr", "setxattr", "listxattr", "removexattr"),
        *("eventfd", "timerfd_", "copy_file_range", "splice", "setns", "unshare", "getrandom", "pipe2"),
        *(
            "posix_fadvise",
            "posix_fallocate",
            "fdatasync",
            "getresuid",
            "getresgid",
            "setresuid",
            "setresgid",
        ),
        *("O_TMPFILE", "O_PATH", "O_DIRECT", "O_NOATIME", "O_LARGEFILE", "O_RSYNC", "P_PIDFD", "MFD_"),
        *("XATTR_", "GRND_", "EFD_", "TFD_", "CLONE_", "SPLICE_", "SCHED_BATCH", "SCHED_IDLE", "RWF_"),
        *("POSIX_FADV_", "ST_APPEND", "ST_NOATIME", "ST_RELATIME"),
    ),
    "select": ("epoll", "EPOLL", "POLLRDHUP", "POLLMSG"),
    "signal": ("SIGRT", "SIGPWR", "SIGSTKFLT", "SIGPOLL", "SIGCLD", "sigtimedwait", "sigwaitinfo", "pidfd_"),
    "socket": (
        "SO_PEERCRED",
        "SO_PASS",
        "SO_DOMAIN",
        "SO_PROTOCOL",
        "SOCK_CLOEXEC",
        "SOCK_NONBLOCK",
        "AF_NETLINK",
        "AF_PACKET",
    ),
    "fcntl": (
        "F_SETPIPE",
        "F_GETPIPE",
        "F_OFD_",
        "F_SETSIG",
        "F_GETSIG",
        "F_ADD_SEALS",
        "F_GET_SEALS",
        "F_SEAL_",
        "F_NOTIFY",
        "DN_",
        "F_SETLEASE",
        "F_GETLEASE",
    ),
    "resource": (
        "prlimit",
        "RLIMIT_MSGQUEUE",
        "RLIMIT_NICE",
        "RLIMIT_RT",
        "RLIMIT_SIGPENDING",
        "RLIMIT_OFILE",
        "RUSAGE_THREAD",
    ),
    "mmap": (
        "MAP_POPULATE",
        "MAP_STACK",
        "MAP_DENYWRITE",
        "MAP_EXECUTABLE",
        "MADV_DO",
        "MADV_HUGE",
        "MADV_REMOVE",
        "MADV_MERGEABLE",
    ),
    "time": ("CLOCK_BOOTTIME", "CLOCK_TAI"),
    "errno": (
        "EREMOTEIO",
        "ENOMEDIUM",
        "EMEDIUMTYPE",
        "ENOTUNIQ",
        "EBADFD",
        "ELIBACC",
        "EUCLEAN",
        "ENOKEY",
        "ERESTART",
        "ECHRNG",
        "EBADE",
        "ECOMM",
        "EADV",
    ),
    "termios": ("TIOCGPTN", "TIOCSPTLCK"),
}
"""By module, the beginnings of names that Python on a Mac does not have (the modules' documentation,
`Availability: Linux`, and <sys/…> of macOS).
"""


def is_only_linux(module: str, name: str) -> bool:
    """Whether a name of a module of the standard library is missing on a Mac."""
    return name.startswith(ONLY_LINUX.get(module, ("\0",)))


def _hide_files(event: str, arguments: tuple[object, ...]) -> None:
    if event in ("open", "os.listdir", "os.scandir") and arguments:
        path = os.fsdecode(arguments[0]) if isinstance(arguments[0], str | bytes | os.PathLike) else ""
        if path.startswith(("/proc/", "/sys/")) or path in ("/proc", "/sys"):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)


def become_a_mac() -> None:
    """Remove what a Mac does not have."""
    # Loaded before the platform is darwin's, since they would load a Mac's libraries.
    import urllib.request  # noqa: F401

    import psutil  # noqa: F401

    modules: tuple[ModuleType, ...] = (
        *(os, select, signal, socket, _socket, fcntl, resource, mmap, time, errno, termios),
    )
    for module in modules:
        for name in [name for name in vars(module) if is_only_linux(module.__name__.lstrip("_"), name)]:
            delattr(module, name)
    selectors.DefaultSelector = selectors.PollSelector  # type: ignore[misc,assignment] # instead of kqueue's
    tempfile._O_TMPFILE_WORKS = False  # type: ignore[attr-defined]
    sys.platform = "darwin"
    platform.system = lambda: "Darwin"
    sys.addaudithook(_hide_files)


if __name__ == "__main__":
    become_a_mac()
    from castoff.launcher.cli.main import main

    try:
        main(sys.argv[1:])
    finally:
        if path := os.environ.get("LOADED"):
            names = (name for name in sys.modules if name.startswith("castoff."))
            with open(path, "a") as file:  # noqa: PTH123
                print(*names, file=file)
