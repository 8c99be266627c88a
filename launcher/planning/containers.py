"""Turns a job's request for a container into the container runtime's command line. Pure.

How the runtimes behave is taken from their sources, as of 2026-11-20: apptainer 1.4 (create.go, bind.go),
shifter (shifter.c, VolumeMap.c, utility.c), podman-hpc 1.1.4 (podman_hpc.py), pyxis (args.c,
pyxis_slurmstepd.c).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import msgspec

from castoff.launcher.config.job import JobSpec
from castoff.launcher.config.job_fields import Container, Gpus, LauncherName, RuntimeName
from castoff.launcher.config.site import Site
from castoff.launcher.launchers.commands import LAUNCHERS
from castoff.launcher.runs.plan import ContainerPlan

STAGED = "stage/"
"""The prefix of an image in CASTOFF_STAGE_DIR."""


class Runtime(msgspec.Struct, frozen=True):
    """The command line of a container runtime."""

    command: list[str]
    """The words before the flags; empty for pyxis, which is a part of srun."""
    unbindable: str
    """Characters that a bound path may not contain, since the runtime has no way to escape them."""
    gpus: dict[Gpus, list[str]]
    """The flags that make GPUs and their libraries available in the container."""
    gpu_binds: Mapping[Gpus, list[str]] = {}
    """The binds that make GPUs available in the container."""
    image_is_file: bool = False
    """Whether an image given as an absolute path is a file."""
    binds_run: bool = True
    """Whether the run's folders must be bound explicitly."""
    of_launcher: bool = False
    """Whether the runtime belongs to the launcher, which then starts the ranks in the container."""
    hides_libraries: bool = False
    """Whether a job's own LD_LIBRARY_PATH would hide the GPUs' libraries."""


RUNTIMES: dict[RuntimeName, Runtime] = {
    # Intel's GPUs are in /dev, which is always bound.
    "apptainer": Runtime(
        ["apptainer", "exec"],
        ":,\\^",
        {"nvidia": ["--nv"], "amd": ["--rocm"]},
        image_is_file=True,
        hides_libraries=True,
    ),
    "shifter": Runtime(["shifter"], ":;", {"nvidia": ["--module=gpu"]}, binds_run=False),
    # NCCL needs the host's network and shared memory. The host's PID namespace is shared because the first
    # process of a new one ignores a TERM that it does not handle.
    "podman-hpc": Runtime(
        [
            *("podman-hpc", "run", "--rm", "--pull=never"),
            *("--network=host", "--ipc=host", "--pid=host", "--env-host"),
        ],
        ":",
        {
            "nvidia": ["--gpu"],
            "amd": ["--device=/dev/kfd", "--device=/dev/dri"],
            "intel": ["--device=/dev/dri"],
        },
    ),
    # enroot reads the mounts from lines of shell: echo "SOURCE TARGET FLAGS".
    "pyxis": Runtime(
        *([], ':,"\\$`', {}),
        {"amd": ["/dev/kfd:/dev/kfd", "/dev/dri:/dev/dri"], "intel": ["/dev/dri:/dev/dri"]},
        image_is_file=True,
        of_launcher=True,
    ),
}
"""The container runtimes by name."""

_OF_DEVICE_VARIABLE: dict[str | None, Gpus] = {
    "CUDA_VISIBLE_DEVICES": "nvidia",
    "ROCR_VISIBLE_DEVICES": "amd",
    "HIP_VISIBLE_DEVICES": "amd",
    "ZE_AFFINITY_MASK": "intel",
}

_REFUSED_ARGS: dict[RuntimeName, dict[str, str]] = {
    "podman-hpc": dict.fromkeys(
        ("--mpi", "--cuda-mpi", "--openmpi-pmi2"),
        "starts podman-hpc's shared-run, which looks for its container by the process that started it, "
        "and each rank has one of its own; leave it out, since torch needs no MPI",
    ),
    "pyxis": {
        "--container-image": "follows from container.image; set that",
        "--container-mounts": "would take the place of castoff's own mounts; use container.binds",
    },
}


def bind_of(text: str) -> tuple[str, str, bool] | None:
    """Return a bind's path on the host, its path in the container, and whether it is read-only; None: the
    text is not a bind.
    """
    found = re.fullmatch(r"(/[^:]*)(?::(/[^:]*)(?::(ro|rw))?)?", text)
    return (found[1], found[2] or found[1], found[3] == "ro") if found else None


def decide(container: Container, site: Site, devices: int) -> ContainerPlan | None:
    """Decide on the container of a job that has passed `container_problems`. `devices`: the number of each
    rank's devices.
    """
    if container.image is None or container.runtime is None:
        return None
    runtime = RUNTIMES[container.runtime]
    variable = site.node.device_variable if site.node and devices else None
    gpus = container.gpus or _OF_DEVICE_VARIABLE.get(variable, "none")
    binds = [bind for text in container.binds if (bind := bind_of(text))]
    shared = [(source, target, only) for source, target, only in binds if source == target and not only]
    if not runtime.binds_run:  # shifter mounts the host's shared folders by itself
        shared = []
    mounts = [f"{bind[0]}:{bind[1]}{':ro' if bind[2] else ''}" for bind in binds if bind not in shared]
    image = [f"--image={container.image}"] if container.runtime == "shifter" else []
    return ContainerPlan(
        runtime=container.runtime,
        image=container.image.removeprefix(STAGED),
        staged=container.image.startswith(STAGED),
        argv=[*runtime.command, *runtime.gpus.get(gpus, []), *image, *container.args],
        shared=[source for source, _, _ in shared],
        mounts=[*mounts, *runtime.gpu_binds.get(gpus, [])],
        gpus=gpus,
        env=container.env,
    )


def container_problems(spec: JobSpec, launcher: LauncherName, staged: list[str]) -> Iterator[tuple[str, str]]:
    """Yield why a job's container is impossible. `staged`: the places to which `stage` copies."""
    container = spec.container
    if container == Container():
        return
    if container.image is None:
        yield "container.image", "is missing: name the image, or drop container"
        return
    if container.runtime is None:
        known = ", ".join(RUNTIMES)
        yield "container.runtime", f"is missing, and the site names none: use one of {known}"
        return
    if RUNTIMES[container.runtime].of_launcher and not LAUNCHERS[launcher].runs_containers:
        runtime = f"is {container.runtime}, a part of srun"
        yield "container.runtime", f"{runtime}, but {launcher} starts this job's ranks"
    if message := _image_problem(container.runtime, container.image, staged):
        yield "container.image", message
    for number, text in enumerate(container.binds):
        if message := _bind_problem(container.runtime, text):
            yield f"container.binds.{number}", message
    for number, word in enumerate(container.args):
        if because := _REFUSED_ARGS.get(container.runtime, {}).get(word.partition("=")[0]):
            yield f"container.args.{number}", f"is {word!r}, which {because}"
    for name in container.env:
        if name in spec.env_from:
            yield f"container.env.{name}", "is in env_from too; keep one of the two"


def _image_problem(runtime: RuntimeName, image: str, staged: list[str]) -> str | None:
    if runtime in ("apptainer", "pyxis") and image.startswith(STAGED):
        place = image.removeprefix(STAGED)
        if any(place == known or place.startswith(f"{known}/") for known in staged):
            return None
        there = ", ".join(staged) or "nothing, since stage is empty"
        return f"is {image!r}, but what stage copies is {there}"
    if runtime == "apptainer" and "://" in image:
        build = f"`apptainer build image.sif {image}`"
        return f"is {image!r}, which every rank would download; {build} once makes a file to name here"
    if runtime == "apptainer" and not image.startswith("/"):
        return f"is {image!r}, but takes an absolute path, or {STAGED}… for an image that is staged"
    # imageDesc_filterString() silently drops all other characters, so another image would run.
    if runtime == "shifter" and not re.fullmatch(r"[A-Za-z0-9_:.+/-]+", image):
        return f"is {image!r}, but shifter takes letters, digits and _:.+/- there, as in docker:me/torch:2.5"
    return None


def _bind_problem(runtime: RuntimeName, text: str) -> str | None:
    if (bind := bind_of(text)) is None:
        return (
            f"is {text!r}, but takes absolute paths: PATH, PATH:INSIDE or PATH:INSIDE:ro"
            " (a path with : cannot be bound)"
        )
    paths = bind[0] + bind[1]
    if forbidden := [character for character in RUNTIMES[runtime].unbindable if character in paths]:
        return f"is {text!r}, but {runtime} cannot bind a path that holds {' '.join(forbidden)}"
    # userInputPathFilter() silently drops all other characters, so another folder would be bound.
    if runtime == "shifter" and re.search(r"[^A-Za-z0-9_.+/-]|\.\.", paths):
        return f"is {text!r}, but shifter takes letters, digits and _ . + / - in a path, and no .."
    return None
