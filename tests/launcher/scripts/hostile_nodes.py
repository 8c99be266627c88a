"""What a hostile job's container and copies came to on its nodes."""

from __future__ import annotations

import os

from castoff.launcher.runs.plan import ContainerPlan

from .hostile_runs import Trial
from .hostile_surroundings import copies


def check_container(trial: Trial, stage_dir: str) -> None:
    """The runtime got its own flags, the binds in pairs, the image, and then the program."""
    calls = _calls(trial, "container")
    container = trial.plan.container
    if container is None:
        assert not calls and "container" not in trial.fields
        return
    image = trial.fields["container"]["image"]
    if container.staged:
        image = stage_dir + image.removeprefix("stage")
    args = trial.fields["container"].get("args", [])
    assert container.argv[len(container.argv) - len(args) :] == args
    if container.runtime == "pyxis":
        _check_pyxis(trial, container, image)
        return
    assert len(calls) == len(trial.layout)
    for words in calls:
        _check_call(trial, container, image, words)


def _calls(trial: Trial, kind: str) -> list[list[str]]:
    return [[os.fsdecode(word) for word in call] for call in trial.seen(kind)]


def _check_pyxis(trial: Trial, container: ContainerPlan, image: str) -> None:
    """srun is the runtime."""
    (words,) = _calls(trial, "launcher")
    at = next(at for at, word in enumerate(words) if word.startswith("--container-image="))
    assert words[at] == f"--container-image={image}"
    end = at + 1 + len(container.argv)
    assert words[at + 1 : end] == container.argv
    binds = words[end].removeprefix("--container-mounts=").split(",")
    _check_binds(trial, [bind for bind in binds if not bind.startswith("/dev/")])


def _check_call(trial: Trial, container: ContainerPlan, image: str, words: list[str]) -> None:
    own = len(container.argv) - 1
    assert words[:own] == container.argv[1:]
    inside = next(at for at, word in enumerate(words) if word.endswith("/inside.sh"))
    before = {"shifter": [], "podman-hpc": ["--", image]}.get(container.runtime, [image])
    begin = inside - 1 - len(before)
    assert words[begin:inside] == [*before, "/bin/sh"]
    assert container.runtime != "shifter" or f"--image={image}" in words[:own]
    binds, flag = words[own:begin], "--bind" if container.runtime == "apptainer" else "--volume"
    assert binds[::2] == [flag] * (len(binds) // 2)
    _check_binds(trial, binds[1::2])


def _check_binds(trial: Trial, binds: list[str]) -> None:
    """Just what the job asks for, and at their own place the folders that it needs."""
    container = trial.fields["container"]
    needed = [str(trial.submit_folder), str(trial.run_directory), str(trial.rank_folder)]
    mounts = []
    for text in container.get("binds", []):
        source, *rest = text.split(":")
        target, read_only = (rest or [source])[0], rest[1:] == ["ro"]
        if container["runtime"] == "shifter" or source != target or read_only:
            mounts.append(f"{source}:{target}" + (":ro" if read_only else ""))
        else:
            needed.append(source)
    same = binds[: len(binds) - len(mounts)]
    assert binds[len(same) :] == mounts, (binds, mounts)
    if container["runtime"] == "shifter":  # it brings the shared file systems inside by itself
        assert not same
        return
    folders = [bind[: len(bind) // 2] for bind in same]
    assert same == [f"{folder}:{folder}" for folder in folders]
    for folder in needed:
        assert any(f"{folder}/".startswith(f"{around}/") for around in folders), (folder, folders)


def check_copies(trial: Trial) -> None:
    """Each rank found all that was to be copied; of it nothing is left."""
    calls = trial.seen("staging")
    if not trial.fields["stage"]:
        assert not calls
        return
    start = [word.encode() for word in trial.plan.stage_start[1:]]
    assert all(call[: len(start)] == start for call in calls)
    assert bool(calls) == (trial.case.kind != "local")
    found, expected = trial.seen("copies"), copies(trial.fields["stage"])
    assert len(found) == len(trial.layout)
    for words in found:
        sizes = dict(zip(words[::2], map(int, words[1::2]), strict=True))
        assert sizes == expected, (sizes, expected)
    assert not list(trial.disk.iterdir())
