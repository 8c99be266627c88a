"""The base model of a training by preferences: where it is looked for, and what to do where there is none."""

from __future__ import annotations

from pathlib import Path

from launcher.typed.suggestion import did_you_mean
from trainers.configuration.fields import ConfigError
from trainers.configuration.paths import expanded
from trainers.dpo.network.weights import Loaded, load
from trainers.dpo.settings import BaseModel

_SHOWN = 8
"""Files that are named, of those that are there."""

_MAKE_ONE = (
    "a base model is made of a folder of structures with "
    "castoff train dpo --objective likelihood --structures FOLDER --output_dir base, and is then "
    "--base_model_dir base --base_model_name best_model"
)


def base_model(told: BaseModel) -> Loaded:
    """The model dir/name.pt.

    Raises:
        ConfigError: it is not there, or is no model in ProteinMPNN's format.
    """
    path = _path(told)
    try:
        there = path.is_file()
    except OSError as error:
        raise ConfigError([f"base_model.name: {path} cannot be read: {error.strerror}"]) from error
    if not there:
        raise ConfigError([_absent(told, path)])
    try:
        return load(path)
    except ConfigError as error:
        problems = [f"base_model.name: {path} {problem}" for problem in error.problems]
        raise ConfigError(problems) from error


def _path(told: BaseModel) -> Path:
    return expanded(told.dir, "base_model.dir (--base_model_dir)") / (
        told.name if told.name.endswith(".pt") else f"{told.name}.pt"
    )


def _absent(told: BaseModel, path: Path) -> str:
    """What is there instead, and how to make one."""
    folder = path.parent
    if not folder.is_dir():
        what = "which is a file" if folder.exists() else "which is not there"
        return f"base_model.dir (--base_model_dir): is {told.dir!r}, {what}; {_MAKE_ONE}"
    names = sorted(each.stem for each in folder.glob("*.pt"))
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    there = f"has the models {', '.join(names[:_SHOWN])}{more}" if names else "has no file .pt"
    near = did_you_mean(told.name, names)
    return (
        f"base_model.name (--base_model_name): is {told.name!r}, but there is no {path}; "
        f"the folder {there}{near}; {_MAKE_ONE}"
    )
