"""The base model that preferences tune: where it is looked up, and what to do if there is none."""

from __future__ import annotations

from pathlib import Path

from castoff.launcher.typed.suggestion import did_you_mean
from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.configuration.paths import expanded
from castoff.trainers.dpo.network.weights import Loaded, load
from castoff.trainers.dpo.settings import BaseModel

_SHOWN = 8
"""Number of models that an error lists."""

_MAKE_ONE = (
    "to make a base model from a folder of structures, run castoff train dpo --objective likelihood "
    "--structures FOLDER --output_dir base, and then use --base_model_dir base --base_model_name "
    "best_model"
)


def base_model(given: BaseModel) -> Loaded:
    """Load the base model, dir/name.pt.

    Raises:
        ConfigError: the file does not exist, or is not a model in ProteinMPNN's format.
    """
    path = _path(given)
    try:
        exists = path.is_file()
    except OSError as error:
        raise ConfigError([f"base_model.name: {path} cannot be read: {error.strerror}"]) from error
    if not exists:
        raise ConfigError([_absent(given, path)])
    try:
        return load(path)
    except ConfigError as error:
        problems = [f"base_model.name: {path} {problem}" for problem in error.problems]
        raise ConfigError(problems) from error


def _path(given: BaseModel) -> Path:
    return expanded(given.dir, "base_model.dir (--base_model_dir)") / (
        given.name if given.name.endswith(".pt") else f"{given.name}.pt"
    )


def _absent(given: BaseModel, path: Path) -> str:
    """The reason why there is no base model, and how to make one."""
    folder = path.parent
    if not folder.is_dir():
        state = "which is a file" if folder.exists() else "which does not exist"
        return f"base_model.dir (--base_model_dir): is {given.dir!r}, {state}; {_MAKE_ONE}"
    names = sorted(model.stem for model in folder.glob("*.pt"))
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    content = f"has the models {', '.join(names[:_SHOWN])}{more}" if names else "has no .pt file"
    near = did_you_mean(given.name, names)
    return (
        f"base_model.name (--base_model_name): is {given.name!r}, but there is no {path}; "
        f"the folder {content}{near}; {_MAKE_ONE}"
    )
