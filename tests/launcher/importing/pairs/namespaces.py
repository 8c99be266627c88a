"""Runs scripts where nothing of this machine can be reached: `python -SE namespaces.py` within `unshare`.

It stands in a root of its own, a tmpfs that holds nothing but read-only binds of the system's programs. The
machine's root is unmounted behind it. Each script gets new file systems to write to and processes of its
own; both end with it. Requests and results go through standard input and output, as JSON.
"""

from __future__ import annotations

import ctypes
import json
import os
import py_compile
import signal
import stat
import sys
import time
from typing import Any

RDONLY, NOSUID, NODEV, REMOUNT, BIND, REC, PRIVATE = 1, 2, 4, 32, 4096, 16384, 1 << 18
NEWNS, NEWPID = 0x20000, 0x20000000
DETACH = 2

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc/alternatives")

_C = ctypes.CDLL(None, use_errno=True)


def _checked(code: int, what: str) -> None:
    if code:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def mount(source: str, target: str, kind: str, flags: int = 0, data: str = "") -> None:
    """mount(2)."""
    words = [word.encode() for word in (source, target, kind)]
    _checked(_C.mount(*words, ctypes.c_ulong(flags), data.encode() or None), f"mount {target}")


def _bind(source: str, target: str, *, writable: bool = False) -> None:
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        open(target, "a").close()
    mount(source, target, "", BIND | REC)
    if writable:
        return
    with open("/proc/self/mountinfo") as listed:
        places = [(words[4], words[5]) for words in map(str.split, listed)]
    for place, options in places:
        if place == target or place.startswith(target + "/"):
            kept = {"nosuid": NOSUID, "nodev": NODEV, "noexec": 8, "noatime": 1024, "relatime": 1 << 21}
            flags = sum(flag for name, flag in kept.items() if name in options.split(","))
            mount("", place.replace("\\040", " "), "", BIND | REMOUNT | RDONLY | flags)


def build_root(root: str, binds: list[str], files: dict[str, str], places: list[str]) -> None:
    """A root in the folder `root`, and leave the machine's for it."""
    mount("", "/", "", REC | PRIVATE)
    mount("tmpfs", root, "tmpfs", 0, "mode=755")
    for place in _SYSTEM:
        if os.path.islink(place):
            os.symlink(os.readlink(place), root + place)
        elif os.path.exists(place):
            _bind(place, root + place)
    for place in binds:
        if not place.startswith("/usr/"):
            _bind(place, root + place)
    for name in ("null", "zero", "full", "random", "urandom", "tty"):
        _bind(f"/dev/{name}", f"{root}/dev/{name}", writable=True)
    for name, target in {"fd": "", "stdin": "/0", "stdout": "/1", "stderr": "/2"}.items():
        os.symlink(f"/proc/self/fd{target}", f"{root}/dev/{name}")
    for place in (*places, "/proc", "/log", "/machine", "/dev/shm"):
        os.makedirs(root + place, exist_ok=True)
    for name, text in files.items():
        write(root + name, text)
        if name.endswith(".py"):
            py_compile.compile(root + name, dfile=name, invalidation_mode=_UNCHECKED)
    _checked(_C.syscall(_PIVOT_ROOT, root.encode(), f"{root}/machine".encode()), "pivot_root")
    os.chdir("/")
    # A tree of processes of its own can be mounted only while the machine's is there.
    mount("proc", "/proc", "proc")
    _checked(_C.umount2(b"/machine", DETACH), "umount")
    mount("", "/", "", REMOUNT | RDONLY)


_UNCHECKED = py_compile.PycInvalidationMode.UNCHECKED_HASH
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41, "ppc64le": 203}[os.uname().machine]


def write(path: str, text: str) -> None:
    """A file with the folders above it; one that begins with #! is a program."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(text.encode(errors="surrogateescape"))
    os.chmod(path, 0o755 if text.startswith("#!") else 0o644)


def snapshot(place: str) -> dict[str, str]:
    """The files below a folder by their paths, with their contents or what else they are."""
    found: dict[str, str] = {}
    for folder, names, files in os.walk(place):
        found[f"{folder}/"] = "folder"
        for name in (*files, *(name for name in names if os.path.islink(os.path.join(folder, name)))):
            path = os.path.join(folder, name)
            kind = os.lstat(path).st_mode
            if stat.S_ISLNK(kind):
                found[path] = f"link to {os.readlink(path)}"
            elif stat.S_ISREG(kind):
                with open(path, "rb") as file:
                    found[path] = file.read(1 << 20).decode(errors="surrogateescape")
            else:
                found[path] = "something else"
    return found


def run(request: dict[str, Any]) -> dict[str, Any]:
    """Run a script in file systems and processes of its own."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        code = 1
        try:
            os.close(reader)
            _checked(_C.unshare(NEWNS | NEWPID), "unshare")
            inner = os.fork()
            if not inner:
                _run_as_first_process(request, writer)
                code = 0
            else:
                code = 0 if os.waitpid(inner, 0)[1] == 0 else 1
        except BaseException as error:  # noqa: BLE001 - a process of ours must not run on as another
            print(f"{request['argv']}: {error!r}", file=sys.stderr, flush=True)
        finally:
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader) as said:
        text = said.read()
    os.waitpid(child, 0)
    found: dict[str, Any] = (
        json.loads(text) if text else {"error": "the sandbox failed; see its standard error"}
    )
    return found


def _run_as_first_process(request: dict[str, Any], writer: int) -> None:
    for place in request["places"]:
        mount("tmpfs", place, "tmpfs", 0, "mode=755,size=64m")
    mount("tmpfs", "/log", "tmpfs", 0, "mode=755,size=64m")
    open("/log/starts", "w").close()
    mount("/log/starts", "/log/starts", "", BIND)
    mount("", "/log", "", BIND | REMOUNT | RDONLY)  # the file cannot be removed, nor its contents replaced
    mount("proc", "/proc", "proc")
    for name, text in request["files"].items():
        write(name, text)
    for name in request["programs"]:
        os.chmod(name, 0o755)
    script = os.fork()
    if not script:
        _begin(request, writer)
    code, why = None, ""
    signal.signal(signal.SIGALRM, _give_up)
    signal.setitimer(signal.ITIMER_REAL, request["limit"])
    try:
        while code is None:
            ended, status = os.waitpid(-1, 0)
            if ended == script:
                code = os.waitstatus_to_exitcode(status)
        while _busy():  # what it left running counts, too, but for services
            os.waitpid(-1, os.WNOHANG)
            time.sleep(0.002)
    except ChildProcessError:
        pass
    except TimeoutError:
        why = "it does not end: " + "; ".join(_commands())
    signal.setitimer(signal.ITIMER_REAL, 0)
    try:
        os.kill(-1, signal.SIGKILL)
    except ProcessLookupError:
        pass
    with open("/log/starts", encoding="utf-8", errors="surrogateescape") as file:
        starts = [json.loads(line) for line in file]
    tree: dict[str, str] = {}
    for place in request["compared"]:
        tree.update(snapshot(place))
    result = {"code": code, "starts": starts, "tree": tree, "error": why}
    with os.fdopen(writer, "w") as out:
        json.dump(result, out)


def _give_up(*_: object) -> None:
    raise TimeoutError


def _begin(request: dict[str, Any], writer: int) -> None:
    try:
        os.close(writer)
        os.setsid()
        os.chdir(request["cwd"])
        null = os.open("/dev/null", os.O_RDONLY)
        os.dup2(null, 0)
        for number in (1, 2):
            path = request["streams"][number - 1]
            os.makedirs(os.path.dirname(path), exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
            os.dup2(os.open(path, flags, 0o644), number)
        os.closerange(3, 256)
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        os.execve(request["argv"][0], request["argv"][1], request["env"])
    except BaseException as error:  # noqa: BLE001 - likewise
        os.write(2, f"the sandbox cannot begin: {error!r}\n".encode())
        os._exit(126)


def _commands() -> list[str]:
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != 1:
            try:
                with open(f"/proc/{name}/cmdline", "rb") as file, open(f"/proc/{name}/comm") as own:
                    words = file.read().replace(b"\0", b" ").decode(errors="replace")
                    title = own.read().strip()
            except OSError:
                continue
            if words:  # else it has ended
                found.append(title if title == "a-service" else words)
    return found


def _busy() -> bool:
    """Whether anything runs but services, and what castoff has on a node until its scheduler ends it."""
    return any(not words.startswith(("a-service", "bash -ps /runs/")) for words in _commands())


def main() -> None:
    """Read the sandbox and its requests, run them and write what came of each."""
    asked = json.load(sys.stdin)
    build_root(asked["root"], asked["binds"], asked["files"], asked["places"])
    for request in asked["requests"]:
        print(json.dumps(run({**request, "places": asked["places"]})), flush=True)


if __name__ == "__main__":
    main()
