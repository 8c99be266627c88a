"""Stands in for a container runtime: a root of its own, and the environment by that runtime's rules.

Its name says which one it is: apptainer, shifter or podman-hpc; srun's stub calls it as pyxis. The
inside is made of this machine's system folders and this checkout, which stand for the image, and of
what was bound; nothing else of the host is there. An image is a folder with what it sets in env.json.

The rules of the environment, as read in the sources that launcher/containers.py names:
- apptainer hands over all but PATH, LD_LIBRARY_PATH and its own variables; the image's %environment wins.
- shifter hands over all but LD_* and TMPDIR, which a setuid program loses; the image's variables win.
- podman hands over nothing but what --env names; --env-host adds all, but the image's variables win.
- pyxis hands over all but the locale; the image's variables win.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from pathlib import Path

SOFTWARE = ["/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc", sys.base_prefix, sys.prefix]
CLONE_NEWNS, CLONE_NEWUSER = 0x20000, 0x10000000
MS_RDONLY, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1, 32, 4096, 16384, 1 << 18

VALUED = ("--bind", "--volume", "--env")
"""Flags whose value is the next word."""

libc = ctypes.CDLL(None, use_errno=True)


def checked(result: int, doing: str) -> None:
    if result != 0:
        sys.exit(f"stub: {doing}: {os.strerror(ctypes.get_errno())}")


def mount(source: str, target: str, kind: str | None, flags: int) -> None:
    words = [None if word is None else os.fsencode(word) for word in (source, target, kind)]
    checked(libc.mount(*words, ctypes.c_ulong(flags), None), f"mount {source} at {target}")


def bind(source: str, root: Path, target: str, *, read_only: bool) -> None:
    inside = root / target.lstrip("/")
    if not Path(source).exists():
        sys.exit(f"stub: there is no {source} to bind")
    if Path(source).is_dir():
        inside.mkdir(parents=True, exist_ok=True)
    else:
        inside.parent.mkdir(parents=True, exist_ok=True)
        inside.touch()
    mount(source, str(inside), None, MS_BIND | MS_REC)
    if read_only:
        mount(source, str(inside), None, MS_BIND | MS_REMOUNT | MS_RDONLY)


def enter(root: Path, binds: list[str], runtime: str) -> None:
    """Make the inside, go there, and to the same folder as before if it is there too."""
    flags = CLONE_NEWNS if os.geteuid() == 0 else CLONE_NEWNS | CLONE_NEWUSER
    user, group = os.getuid(), os.getgid()
    checked(libc.unshare(flags), "unshare")
    if flags & CLONE_NEWUSER:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    mount("none", "/", None, MS_REC | MS_PRIVATE)
    mount("tmpfs", str(root), "tmpfs", 0)
    for folder in dict.fromkeys([*SOFTWARE, os.environ["STUB_CHECKOUT"]]):
        if Path(folder).is_symlink():
            (root / folder.lstrip("/")).symlink_to(Path(folder).readlink())
        elif Path(folder).is_dir():
            bind(folder, root, folder, read_only=False)
    for folder in ("/proc", "/dev", "/sys"):
        bind(folder, root, folder, read_only=False)
    (root / "tmp").mkdir(exist_ok=True)
    (root / "in-the-container").write_text(runtime)
    for words in binds:
        source, _, rest = words.partition(":")
        target, _, mode = rest.partition(":")
        bind(source, root, target or source, read_only=mode == "ro")
    before = Path.cwd()
    os.chroot(root)
    os.chdir(before if before.is_dir() else "/")


def parse(words: list[str]) -> tuple[list[tuple[str, str]], list[str]]:
    """Flags with their values, and what follows them."""
    flags: list[tuple[str, str]] = []
    while words and words[0].startswith("-"):
        word = words.pop(0)
        if word == "--":
            break
        name, joined, value = word.partition("=")
        flags.append((name, value if joined else words.pop(0) if name in VALUED else ""))
    return flags, words


def environment(runtime: str, flags: list[tuple[str, str]], image: dict[str, str]) -> dict[str, str]:
    host = dict(os.environ)
    names = [name for name, _ in flags]
    if runtime == "apptainer":
        given = {key[13:]: value for key, value in host.items() if key.startswith("APPTAINERENV_")}
        dropped = ("APPTAINER", "SINGULARITY")
        host = {key: value for key, value in host.items() if not key.startswith(dropped)}
        if "--cleanenv" in names:
            host = {}
        path = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
        return {**host, **path, "LD_LIBRARY_PATH": "/.singularity.d/libs", **image, **given}
    if runtime == "shifter":
        kept = {key: value for key, value in host.items() if not key.startswith("LD_") and key != "TMPDIR"}
        return {**kept, **image}
    if runtime == "podman-hpc":
        named = [value for name, value in flags if name == "--env"]
        given = {name: host[name] for name in named if name in host}
        return {**(host if "--env-host" in names else {}), **image, **given}
    locale = ("LANG", "LANGUAGE", "LC_ALL")
    return {**{key: value for key, value in host.items() if key not in locale}, **image}


def main() -> None:
    runtime = Path(sys.argv[0]).name
    with Path(os.environ["STUB_CALLS"]).open("a") as calls:
        calls.write(json.dumps([runtime, *sys.argv[1:]]) + "\n")
    words = sys.argv[1:]
    if runtime == "podman-hpc":  # click takes its own flags from anywhere before the first --, and that
        end = words.index("--") if "--" in words else len(words)
        words = [word for word in words[:end] if word not in ("--gpu", "--help")] + words[end + 1 :]
    if runtime in ("apptainer", "podman-hpc"):
        assert words.pop(0) == {"apptainer": "exec", "podman-hpc": "run"}[runtime]
    flags, words = parse(words)
    values = dict(flags)
    if runtime == "shifter":
        image = values["--image"]
    elif runtime == "pyxis":
        image = values["--container-image"]
    else:
        image = words.pop(0)
    folder = Path(os.environ["STUB_IMAGES"], image)
    binds = [value for name, value in flags if name in ("--bind", "--volume")]
    if runtime == "shifter":  # siteFs: it is inside whatever the flags say
        binds.insert(0, os.environ["STUB_SITE_FS"])
    if runtime == "pyxis":
        binds = values["--container-mounts"].split(",")
    after = environment(runtime, flags, json.loads((folder / "env.json").read_text()))
    enter(folder / "rootfs", binds, runtime)
    try:
        os.execvpe(words[0], words, after)
    except FileNotFoundError:
        sys.exit(127)


if __name__ == "__main__":
    main()
