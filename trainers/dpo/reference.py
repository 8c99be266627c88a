"""The reference model's log-probabilities: computed once, by all ranks together, and kept in a file.

The reference never changes, so its log-probabilities are constants, stored with each sample. The network is
released once they are computed, and no checkpoint holds it.

Batches depend on the pairs, not on the ranks: numbers are the same, bit for bit, on any number of ranks, and
a resumed run gets the numbers that it began with, even if the file is lost.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.distributed.process_group import RankContext
from castoff.trainers.dpo.loss import log_probabilities
from castoff.trainers.dpo.samples.batch import Batch, Sample
from castoff.trainers.files.durable import checksummed, read_checksummed, replace_file
from castoff.trainers.task import move

logger = logging.getLogger(__name__)

AT_ONCE = 8
"""Number of pairs in a batch of the reference: few enough for the memory that training needs."""

_FORMAT = 1
"""Version of the file's format, and of all code that determines its numbers but is not in the fingerprint."""


class Samples(Protocol):
    """A data set that knows the lengths of its samples."""

    @property
    def lengths(self) -> Sequence[int]:
        """Number of residues in each sample."""

    def __len__(self) -> int:
        """The number of samples."""

    def __getitem__(self, index: int) -> Sample:
        """A sample, which is the same each time."""


class Referenced(Dataset[Sample]):
    """Samples that contain the reference's log-probabilities."""

    rng_sources = ()

    def __init__(self, samples: Samples, log_probabilities: Tensor):
        self.samples = samples
        self.log_probabilities = log_probabilities
        """(samples, 2)."""

    @property
    def lengths(self) -> Sequence[int]:
        """Number of residues in each sample."""
        return self.samples.lengths

    def __len__(self) -> int:
        """The number of samples."""
        return len(self.samples)

    def __getitem__(self, index: int) -> Sample:
        """A sample, with the reference's log-probabilities."""
        return self.samples[index]._replace(reference=self.log_probabilities[index])


class Conditions(NamedTuple):
    """Everything besides the samples that the log-probabilities depend on."""

    weights: str
    """The weights' digest."""
    temperature: float
    precision: str
    device: str
    """The type of the device."""

    def fingerprint(self, samples: str) -> str:
        """A digest of the conditions and the samples' digest."""
        parts = {**self._asdict(), "samples": samples, "at_once": AT_ONCE, "format": _FORMAT}
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


# --- Digests ------------------------------------------------------------------------------------


def weights_digest(model: nn.Module) -> str:
    """A digest of a model's weights."""
    return _digest(model.state_dict())


def digest_of(samples: Samples, context: RankContext) -> str:
    """A digest of the samples: their structures, sequences, designed residues and decoding orders.

    The ranks share the work; all of them must call this.
    """
    mine = [
        _digest({name: part for name, part in samples[index]._asdict().items() if name != "reference"})
        for index in range(context.rank, len(samples), context.world_size)
    ]
    every = _dealt_back(context.gather_on_main(mine), len(samples))
    return str(context.from_main(hashlib.sha256("".join(every).encode()).hexdigest()))


def _digest(tensors: dict[str, Tensor]) -> str:
    total = hashlib.sha256()
    for name, tensor in tensors.items():
        total.update(f"{name} {tensor.dtype} {tuple(tensor.shape)} ".encode())
        total.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return total.hexdigest()


def _dealt_back(shares: Sequence[Sequence[Any]], number: int) -> list[Any]:
    """Restore the original order of values that were distributed to the ranks in turn."""
    if not shares:
        return []
    return [shares[index % len(shares)][index // len(shares)] for index in range(number)]


# --- Log-probabilities --------------------------------------------------------------------------


def reference_of(
    samples: Samples,
    network: Callable[[], nn.Module],
    conditions: Conditions,
    context: RankContext,
    *,
    beside: Path,
    cache: Path | None = None,
    collate: Callable[[list[Sample]], Batch],
    autocast: Callable[[], AbstractContextManager[Any]],
) -> Tensor:
    """The reference's log-probabilities (samples, 2), on the CPU; the same bits on all ranks.

    All ranks must call this. The values are read from a file, if it has them under exactly the same
    conditions; else all ranks compute them, and rank 0 writes them, if it can.

    Args:
        beside: the file of the pairs; the values are in NAME.….reference in its folder.
        cache: a folder for the values, if the pairs' folder is not writable.
        network: makes the reference; called only if it is needed.
        autocast: the precision in which training computes.

    Raises:
        ConfigError: some values are not finite numbers. All ranks raise it, and nothing is kept.
    """
    fingerprint = conditions.fingerprint(digest_of(samples, context))
    name = f"{beside.name}.{fingerprint[:16]}.reference"
    paths = [folder / name for folder in (beside.absolute().parent, cache) if folder is not None]
    values = context.on_main(lambda: _read(paths, fingerprint, len(samples)))
    if values is None:
        values = _computed(network(), samples, conditions.temperature, context, collate, autocast)
        _check_finite(values, conditions)
        if context.is_main:
            _write(paths, fingerprint, values)
    return values


def frozen(model: nn.Module, device: torch.device) -> nn.Module:
    """Prepare a network that is never trained: on the device, in eval mode, without gradients."""
    return model.requires_grad_(False).eval().to(device)


def batches_of(lengths: Sequence[int]) -> list[list[int]]:
    """Indices of samples, in batches of similar lengths, longest first: if memory does not suffice, the first
    batch fails.
    """
    order = sorted(range(len(lengths)), key=lambda index: (-lengths[index], index))
    return [order[first : first + AT_ONCE] for first in range(0, len(order), AT_ONCE)]


@torch.no_grad()
def _computed(
    model: nn.Module,
    samples: Samples,
    temperature: float,
    context: RankContext,
    collate: Callable[[list[Sample]], Batch],
    autocast: Callable[[], AbstractContextManager[Any]],
) -> Tensor:
    model = frozen(model, context.device)
    batches = batches_of(samples.lengths)
    mine = []
    for indices in batches[context.rank :: context.world_size]:
        batch: Batch = move(collate([samples[index] for index in indices]), context.device)
        with autocast():
            logits = model(batch.backbones, batch.sequences, batch.order)
            mine.append(log_probabilities(logits, batch.sequences, batch.designed, temperature).cpu())
    every = _dealt_back(context.gather_on_main(mine), len(batches))
    result = torch.empty(len(samples), 2)
    for indices, values in zip(batches, every, strict=bool(every)):
        result[indices] = values
    shared: Tensor = context.from_main(result)  # type: ignore[assignment]
    return shared


def _check_finite(values: Tensor, conditions: Conditions) -> None:
    wrong = int((~values.isfinite().all(1)).sum())
    if wrong:
        problem = f"preference.temperature: is {conditions.temperature:g}, and training.precision "
        problem += f"{conditions.precision}, in which the reference's log-probabilities of {wrong:,} of "
        problem += (
            f"{len(values):,} pairs are not finite numbers; use a higher temperature, such as 0.1, or fp32"
        )
        raise ConfigError([problem])


# --- The file -----------------------------------------------------------------------------------


def _read(paths: Sequence[Path], fingerprint: str, number: int) -> Tensor | None:
    """The values in the first file that is intact and has this fingerprint."""
    for path in paths:
        try:
            content = read_checksummed(path)
            values = torch.tensor(content["log_probabilities"], dtype=torch.float32).reshape(-1, 2)
        except FileNotFoundError:
            continue
        except (OSError, ValueError, KeyError, TypeError, RuntimeError) as error:
            logger.warning("The reference's log-probabilities in %s are computed again: %s", path, error)
            continue
        if content.get("fingerprint") == fingerprint and len(values) == number:
            message = "The reference's log-probabilities of %d pairs were computed before: %s"
            logger.info(message, number, path)
            return values
    return None


def _write(paths: Sequence[Path], fingerprint: str, values: Tensor) -> None:
    """Write the values for later runs to the first file that is writable; if none is, each run computes them.

    Several runs that begin together may all write the same numbers.
    """
    content = checksummed({"fingerprint": fingerprint, "log_probabilities": values.tolist()})
    refusals = []
    for path in paths:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(path, content)
        except OSError as error:
            refusals.append(str(error))
            continue
        logger.info("The reference's log-probabilities of %d pairs are kept in %s", len(values), path)
        return
    message = "The reference's log-probabilities cannot be kept, and each run computes them: %s"
    logger.warning(message, "; ".join(refusals))
