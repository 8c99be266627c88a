"""Models in the format of ProteinMPNN's public weights, which other programs read, too.

A file is what torch.save makes of a dict of `num_edges`, `noise_level` and `model_state_dict`.
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Iterable, Mapping
from itertools import count
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

import torch
from torch import Tensor

from castoff.launcher.typed.suggestion import did_you_mean
from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.dpo.alphabet import KINDS, LETTERS
from castoff.trainers.dpo.network.model import InverseFolding
from castoff.trainers.files.durable import SummedFile, replacing

_SHOWN = 3
"""Number of faulty weights that an error names; the others are counted."""

_WRAPPERS = ("module.", "_orig_mod.")
"""Prefixes that DistributedDataParallel and torch.compile give to the names of weights."""

_NEEDED = (
    "it takes a file with num_edges, noise_level and model_state_dict, such as v_48_020.pt of ProteinMPNN"
)


class Loaded(NamedTuple):
    """A model that was read from a file."""

    model: InverseFolding
    """On the CPU, in float32; without dropout, which the format does not record."""
    noise_level: float
    """The noise that it was trained with, in Å."""


def save(path: Path, model: InverseFolding, noise_level: float) -> None:
    """Write a model. When this returns, it is on the disk, and an older file was replaced as a whole.

    Raises:
        OSError: the file cannot be written.
    """
    weights = {
        name: value.detach().to("cpu", torch.float32).contiguous()
        for name, value in model.state_dict().items()
    }
    content = {
        "num_edges": model.neighbours,
        "noise_level": float(noise_level),
        "model_state_dict": weights,
    }
    with replacing(path) as draft, SummedFile(draft) as file:
        torch.save(content, cast("IO[bytes]", file))


def load(path: Path) -> Loaded:
    """Read a model; no code in the file is run. The weights determine the network's sizes.

    Raises:
        ConfigError: the file does not exist, is damaged, or holds something else.
    """
    content = _read(path)
    if not isinstance(content, Mapping):
        raise ConfigError([f"holds a {type(content).__name__}; {_NEEDED}"], str(path))
    problems: list[str] = []
    neighbours, noise_level = _numbers(content, problems)
    weights = content.get("model_state_dict")
    if not isinstance(weights, Mapping):
        raise ConfigError([_no_weights(content)], str(path))
    weights = _unwrapped(weights)
    model = None if (mismatch := _other_kind(weights)) else _model(weights, neighbours, problems)
    problems += [mismatch] if mismatch else []
    if problems or model is None:
        raise ConfigError(problems, str(path))
    return Loaded(model, noise_level)


def _read(path: Path) -> Any:
    """Load the object that torch.save wrote."""
    try:
        exists = path.is_file()
    except OSError as error:
        raise ConfigError([f"cannot be read: {error.strerror}"], str(path)) from error
    if not exists:
        raise ConfigError([_absent(path)], str(path))
    damaged = "is damaged, incomplete, or not written by torch.save: get it or save it again"
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                broken = archive.testzip()  # torch.load does not look at the checksums
            if broken is not None:
                raise ConfigError([f"{damaged} ({broken} does not match its checksum)"], str(path))
        return torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise ConfigError([f"cannot be read: {error.strerror or error}"], str(path)) from error
    except ConfigError:
        raise
    except Exception as error:  # a file that is not a pickle can raise anything
        reason = str(error).partition("\n")[0] or type(error).__name__
        if "Unsupported global" in str(error):
            reason = (
                "it holds objects other than tensors, numbers, texts, lists and dicts, and those are not read"
            )
        raise ConfigError([f"{damaged} ({reason})"], str(path)) from error


def _absent(path: Path) -> str:
    """Why there is no file to read, and which files are there instead."""
    if path.is_dir():
        within = _few(sorted(each.name for each in path.glob("*.pt")))
        return f"is a folder, but takes the file of a model{within and f'; in it is {within}'}"
    if not path.parent.is_dir():
        return f"does not exist, nor does its folder {path.parent}"
    others = sorted(each.name for each in path.parent.glob("*.pt"))
    if not others:
        return f"does not exist; {path.parent} has no .pt file"
    return f"does not exist{did_you_mean(path.name, others) or f'; there are {_few(others)}'}"


def _numbers(content: Mapping[str, Any], problems: list[str]) -> tuple[int, float]:
    """The number of a residue's neighbours, and the noise in Å."""
    neighbours, noise = content.get("num_edges"), content.get("noise_level")
    if isinstance(neighbours, bool) or not isinstance(neighbours, int) or neighbours < 1:
        problems.append(f"num_edges: {_is(content, 'num_edges')}, but takes a whole number of at least 1")
        neighbours = 1
    if (
        isinstance(noise, bool)
        or not isinstance(noise, int | float)
        or not (math.isfinite(noise) and noise >= 0)
    ):
        problems.append(f"noise_level: {_is(content, 'noise_level')}, but takes a number of at least 0")
        noise = 0.0
    return neighbours, float(noise)


def _is(content: Mapping[str, Any], name: str) -> str:
    return f"is {content[name]!r:.60}" if name in content else "is missing"


def _no_weights(content: Mapping[str, Any]) -> str:
    """What is wrong with a dict without `model_state_dict`."""
    if any(str(name).endswith("W_out.weight") for name in content):
        return (
            "holds only weights, not how many neighbours a residue has: save it again with "
            'torch.save({"num_edges": 48, "noise_level": 0.2, "model_state_dict": weights}, path)'
        )
    return f"holds {_few(list(map(repr, content))) or 'nothing'}; {_NEEDED}"


def _unwrapped(weights: Mapping[str, Any]) -> dict[str, Any]:
    """Rename weights that were saved from a wrapped model to the names in the model itself."""
    named = {str(name): value for name, value in weights.items()}
    while named and (
        wrapper := next((each for each in _WRAPPERS if all(name.startswith(each) for name in named)), None)
    ):
        named = {name.removeprefix(wrapper): value for name, value in named.items()}
    return named


def _other_kind(weights: Mapping[str, Any]) -> str | None:
    """Why the weights are of another network of ProteinMPNN's family; None: they are not."""
    if "W_v.weight" in weights and "features.node_embedding.weight" in weights:
        return (
            "is a CA-only model, which sees no other atoms; use one that sees whole backbones, such as "
            "those in ProteinMPNN's vanilla_model_weights or soluble_model_weights"
        )
    for name in ("W_s.weight", "W_out.weight"):
        table = weights.get(name)
        kinds = len(table) if isinstance(table, Tensor) and table.dim() == 2 else KINDS
        if kinds != KINDS:
            return f"{name} is for {kinds} kinds of residues, but there are {KINDS}: {LETTERS}"
    return None


def _model(weights: Mapping[str, Any], neighbours: int, problems: list[str]) -> InverseFolding | None:
    """Make a network of the weights' sizes, and load them; None if there are problems, which are added to
    `problems`.
    """
    encoder, decoder = (_layers(weights, f"{each}_layers") for each in ("encoder", "decoder"))
    out = weights.get("W_out.weight")
    width = out.shape[1] if isinstance(out, Tensor) and out.dim() == 2 else 0
    if not (width and encoder and decoder):
        problems.append(
            f"has no weights of a network like ProteinMPNN's, but {_few(list(weights)) or 'no weights'}"
        )
        return None
    with torch.device("meta"):  # without memory or random numbers for initial weights
        model = InverseFolding(width, encoder, decoder, neighbours, dropout=0.0)
    problems += _differences(weights, model.state_dict())
    if problems:
        return None
    model.load_state_dict({name: value.float() for name, value in weights.items()}, assign=True)
    return model


def _layers(weights: Mapping[str, Any], name: str) -> int:
    """The number of layers under a name, which are numbered from 0 without a gap."""
    numbers = {weight.split(".")[1] for weight in weights if weight.startswith(f"{name}.")}
    return next(number for number in count() if str(number) not in numbers)


def _differences(weights: Mapping[str, Any], expected: Mapping[str, Tensor]) -> list[str]:
    """The reasons why weights do not fit, one for each kind of problem."""
    missing = [name for name in expected if name not in weights]
    unknown = [name for name in weights if name not in expected]
    both = [(name, weights[name]) for name in expected if name in weights]
    no_tensors = [name for name, value in both if not _is_tensor(value)]
    fitting = [(name, value, expected[name].shape) for name, value in both if _is_tensor(value)]
    sizes = [
        f"{name} of {tuple(value.shape)}, not {tuple(shape)}"
        for name, value, shape in fitting
        if value.shape != shape
    ]
    infinite = [name for name, value, _ in fitting if not value.isfinite().all()]
    kinds = {
        "lacks weights": missing,
        "has weights that the network does not have": unknown,
        "has values that are not tensors of numbers": no_tensors,
        "has weights of other sizes": sizes,
        "has weights that are not finite numbers": infinite,
    }
    return [f"{what}: {_few(names)}" for what, names in kinds.items() if names]


def _is_tensor(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()


def _few(names: Iterable[str]) -> str:
    """The first few names, and how many more there are."""
    every = list(names)
    more = f" and {len(every) - _SHOWN} more" if len(every) > _SHOWN else ""
    return ", ".join(every[:_SHOWN]) + more
