"""Containers that scripts start, as fields of a job file. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from launcher.importing.programs import Inside, Reader, name_of
from launcher.launchers.foreign.asked import Asked
from launcher.launchers.foreign.options import Table


def container(words: list[str], reader: Reader) -> Inside | None:
    """The program inside a container, whose settings are in `asked.fields`; None: castoff knows no such."""
    name = name_of(words[0]) if words else ""
    read = _CONTAINERS.get(name)
    return read(words, reader) if read else None


def _apptainer(words: list[str], reader: Reader) -> Inside | None:
    if words[1:2] != ["exec"]:
        return None
    return _contained(
        words[2:],
        reader,
        "apptainer",
        {"nv": "nvidia", "rocm": "amd"},
        Table(
            values="""
                bind,B env env-file pwd,cwd home,H overlay,o scratch,S workdir,W
                security add-caps fusemount network hostname dns mount app pem-path
            """,
            flags="""
                nv rocm contain,c containall,C cleanenv,e writable,w writable-tmpfs
                no-home nvccl fakeroot,f no-init userns,u net,n ipc,i pid,p unsquash
                no-umask disable-cache compat nvccli sharens no-eval
            """,
        ),
    )


def _shifter(words: list[str], reader: Reader) -> Inside | None:
    table = Table(values="image,i volume,V module,m workdir,w env,e entrypoint", flags="clearenv verbose,v")
    return _contained(words[1:], reader, "shifter", {}, table)


def _podman(words: list[str], reader: Reader) -> Inside | None:
    if words[1:2] != ["run"]:
        return None
    table = Table(
        values="""
            volume,v env,e workdir,w network,net ipc pid device shm-size user,u name
            entrypoint ulimit mount
        """,
        flags="""
            gpu rm nccl cuda-mpi mpi openmpi-pmi2 cvmfs privileged tty,t interactive,i
            env-host openmpi-pmix openmpi-pmi cuda-compat
        """,
    )
    return _contained(words[2:], reader, "podman-hpc", {"gpu": "nvidia"}, table)


_CONTAINERS: dict[str, Callable[[list[str], Reader], Inside | None]] = {
    "apptainer": _apptainer,
    "singularity": _apptainer,
    "shifter": _shifter,
    "podman-hpc": _podman,
}


def _contained(
    words: list[str], reader: Reader, runtime: str, gpus: dict[str, str], table: Table
) -> Inside | None:
    plain = [word if (found := reader.constant(word)) is None else found for word in words]
    options, left = table.read(plain)
    program = words[len(words) - len(left) :]
    asked = Asked()
    fields: dict[str, Any] = {"container.runtime": runtime}
    args: list[str] = []
    binds: list[str] = []
    inside: dict[str, str] = {}
    for option in options:
        text = option.value or ""
        if option.name in gpus:
            fields["container.gpus"] = gpus[option.name]
        elif option.name in ("bind", "volume") and _bindable(text):
            binds += [_bind(one) for one in re.split("[,;]", text)]
        elif option.name == "env" and "=" in text and "$" not in text:
            inside |= dict([text.split("=", 1)])
        elif option.name == "image":
            fields["container.image"] = text
        elif option.name in ("rm", "tty", "interactive", "env-host", "mpi", "cuda-mpi", "verbose", "env"):
            asked.drop(f"{runtime}'s --{option.name}: castoff's own flags for {runtime} see to it")
        elif not option.known or "$" in text or text.startswith("~"):
            return None
        else:
            dashes = "-" if len(option.name) == 1 else "--"
            args.append(f"{dashes}{option.name}" + ("" if option.value is None else f"={text}"))
    if runtime != "shifter":
        if not left or "$" in left[0] or (runtime == "apptainer" and not left[0].startswith("/")):
            return None
        fields["container.image"] = left[0]
        program = program[1:]
    if not program:
        return None
    fields |= {
        f"container.{name}": held
        for name, held in (("binds", binds), ("args", args), ("env", inside))
        if held
    }
    asked.fields |= fields
    return Inside(program, asked)


def _bindable(text: str) -> bool:
    return all(re.fullmatch(r"/[^:$~`]*(?::/[^:$~`]*(?::r[ow])?)?", one) for one in re.split("[,;]", text))


def _bind(text: str) -> str:
    source, _, target = text.removesuffix(":rw").partition(":")
    return source if source == target or not target else text.removesuffix(":rw")
