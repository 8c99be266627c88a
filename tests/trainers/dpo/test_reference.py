"""The reference's log-probabilities: the same bits whoever computes them, and computed once."""

from __future__ import annotations

import gc
import json
import logging
import weakref
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from castoff.launcher.ranks import RankEnv
from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.distributed.process_group import RankContext, cleanup_ddp, initialize_ddp
from castoff.trainers.dpo.loss import log_probabilities
from castoff.trainers.dpo.reference import (
    Conditions,
    Referenced,
    batches_of,
    frozen,
    reference_of,
    weights_digest,
)
from castoff.trainers.dpo.samples.batch import Backbones
from castoff.trainers.dpo.samples.data import collated
from castoff.trainers.files import durable
from tests.trainers.dpo.small import MadePairs, network
from tests.trainers.toys import run

ALONE = RankContext(0, 1, torch.device("cpu"))
CONDITIONS = Conditions(weights_digest(network()), 0.1, "fp32", "cpu")


class Made:
    """Networks that were asked for."""

    make: Callable[[], nn.Module] = staticmethod(network)

    def __init__(self) -> None:
        self.networks: list[weakref.ref[nn.Module]] = []

    def __call__(self) -> nn.Module:
        made = self.make()
        self.networks.append(weakref.ref(made))
        return made


def computed(
    folder: Path,
    samples: MadePairs,
    conditions: Conditions = CONDITIONS,
    context: RankContext = ALONE,
    made: Any = None,
    cache: Path | None = None,
) -> Tensor:
    how: dict[str, Any] = {
        "beside": folder / "pairs.json",
        "cache": cache,
        "collate": collated,
        "autocast": nullcontext,
    }
    return reference_of(samples, made or network, conditions, context, **how)


def test_they_are_those_of_the_network(tmp_path: Path) -> None:
    samples, model = MadePairs(11), network().eval()
    found = computed(tmp_path, samples)
    for index in range(11):
        batch = collated([samples[index]])
        with torch.no_grad():
            logits = model(batch.backbones, batch.sequences, batch.order)
        wanted = log_probabilities(logits, batch.sequences, batch.designed, 0.1)[0]
        torch.testing.assert_close(found[index], wanted)
    whole = Referenced(samples, found)
    assert len(whole) == 11 and list(whole.lengths) == samples.lengths
    assert torch.equal(whole[4].reference, found[4]) and torch.equal(whole[4].atoms, samples[4].atoms)


def test_similar_lengths_lie_side_by_side() -> None:
    lengths = [3, 50, 4, 50, 3, 9, 9, 8, 7, 50, 1]
    batches = batches_of(lengths)
    assert [lengths[index] for batch in batches for index in batch] == sorted(lengths, reverse=True)
    assert [len(batch) for batch in batches] == [8, 3]


class Swayed(nn.Module):
    """By what lies beside a pair in its batch, as the rounding of large networks is."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = network()

    def forward(self, backbones: Backbones, sequences: Tensor, order: Tensor) -> Tensor:
        logits: Tensor = self.inner(backbones, sequences, order)
        return logits * (1 + 1e-3 * backbones.atoms.mean())


class MadeSwayed(Made):
    make = Swayed


def on_a_rank(folder: Path, number: int) -> tuple[bytes, int]:
    """The numbers' bytes, and how many networks that took."""
    me, made = RankEnv.detect(), MadeSwayed()
    initialize_ddp(me.rank, me.world_size, backend="gloo", device="cpu")
    context = RankContext(me.rank, me.world_size, torch.device("cpu"))
    found = computed(folder, MadePairs(number), context=context, made=made)
    cleanup_ddp()
    return found.numpy().tobytes(), len(made.networks)


@pytest.mark.usefixtures("for_real")
@pytest.mark.long
def test_any_number_of_ranks_makes_the_same_bits(tmp_path: Path) -> None:
    number = 19  # batches of 8, 8 and 3: of three ranks each has one, of two one has more
    alone = computed(tmp_path / "alone", MadePairs(number), made=Swayed).numpy().tobytes()
    for ranks in (2, 3):
        folder = tmp_path / f"kept{ranks}"
        answers = run(on_a_rank, folder, number, folder=tmp_path / str(ranks), world_size=ranks)
        assert answers == [(alone, 1)] * ranks
        again = run(on_a_rank, folder, number, folder=tmp_path / f"again{ranks}", world_size=ranks)
        assert again == [(alone, 0)] * ranks


def test_more_ranks_than_batches(tmp_path: Path, for_real: None) -> None:
    answers = run(on_a_rank, tmp_path / "kept", 2, folder=tmp_path / "ranks", world_size=3)
    assert len(set(answers)) == 1


def test_they_are_computed_once(tmp_path: Path) -> None:
    made = Made()
    first = computed(tmp_path, MadePairs(3), made=made)
    assert torch.equal(computed(tmp_path, MadePairs(3), made=made), first)
    assert len(made.networks) == 1
    gc.collect()
    assert made.networks[0]() is None  # nothing keeps it


@pytest.mark.parametrize(
    ("samples", "conditions"),
    [
        (MadePairs(3, orders=1), CONDITIONS),
        (MadePairs(3, shift=0.1), CONDITIONS),
        (MadePairs(4), CONDITIONS),
        (MadePairs(3), CONDITIONS._replace(temperature=0.2)),
        (MadePairs(3), CONDITIONS._replace(precision="bf16")),
        (MadePairs(3), CONDITIONS._replace(device="cuda")),
        (MadePairs(3), CONDITIONS._replace(weights=weights_digest(network(1)))),
    ],
)
def test_and_anew_under_other_conditions(samples: MadePairs, conditions: Conditions, tmp_path: Path) -> None:
    made = Made()
    computed(tmp_path, MadePairs(3), made=made)
    computed(tmp_path, samples, conditions, made=made)
    assert len(made.networks) == 2 and len(list(tmp_path.iterdir())) == 2


def halved(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def changed(path: Path) -> None:
    path.write_text(path.read_text().replace("-1", "-2", 1))


def of_another(path: Path) -> None:
    next(path.parent.parent.glob("other/*")).rename(path)


@pytest.mark.parametrize(
    ("damage", "given"), [(halved, "are computed again"), (changed, "are computed again"), (of_another, "")]
)
def test_a_file_that_is_not_what_was_kept(
    damage: Any, given: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = Made()
    computed(tmp_path / "other", MadePairs(3, orders=1))
    wanted = computed(tmp_path / "kept", MadePairs(3), made=made)
    (kept,) = (tmp_path / "kept").iterdir()
    before = kept.read_bytes()
    damage(kept)
    with caplog.at_level(logging.WARNING):
        assert torch.equal(computed(tmp_path / "kept", MadePairs(3), made=made), wanted)
    assert len(made.networks) == 2 and kept.read_bytes() == before
    assert given in caplog.text


def test_a_folder_that_cannot_be_written(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "kept").write_text("a file")
    with caplog.at_level(logging.WARNING):
        found = computed(tmp_path / "kept", MadePairs(3))
    cache, made = tmp_path / "cache", Made()
    for _ in range(2):
        kept = computed(tmp_path / "kept", MadePairs(3), made=made, cache=cache)
        assert torch.equal(found, kept)
    assert len(made.networks) == 1 and len(list(cache.iterdir())) == 1
    assert "cannot be kept" in caplog.text and str(tmp_path / "kept") in caplog.text


def test_what_cannot_be_written_whole_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed = []

    def full(path: Path) -> None:
        flushed.append(path)
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(durable, "flush", full)
    computed(tmp_path, MadePairs(3))
    assert flushed
    assert list(tmp_path.iterdir()) == []


def test_nan_in_a_reference_is_reported_and_not_kept(tmp_path: Path) -> None:
    """As where all that is divided by a temperature overflows; each step would be lost to NaN."""
    with pytest.raises(ConfigError, match=r"temperature: is 1e-40.* of 3 of 3 pairs are not finite numbers"):
        computed(tmp_path, MadePairs(3), CONDITIONS._replace(temperature=1e-40))
    assert list(tmp_path.iterdir()) == []


class Watched(nn.Module):
    """Notes what is asked of it."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = network().train()
        self.devices: list[torch.device] = []

    def to(self, device: torch.device) -> Watched:  # type: ignore[override]
        self.devices.append(device)
        return super().to(device)

    def forward(self, *inputs: Any) -> Tensor:
        assert not self.training and not self.inner.training and not torch.is_grad_enabled()
        logits: Tensor = self.inner(*inputs)
        return logits


def test_it_is_frozen_and_on_the_device(tmp_path: Path) -> None:
    watched = Watched()
    computed(tmp_path, MadePairs(3), made=lambda: watched)
    assert watched.devices == [torch.device("cpu")]
    assert not any(each.requires_grad or each.grad is not None for each in watched.parameters())
    moved = frozen(network(), torch.device("meta"))
    assert {each.device.type for each in [*moved.parameters(), *moved.buffers()]} == {"meta"}


def test_the_file_is_for_people_too(tmp_path: Path) -> None:
    found = computed(tmp_path, MadePairs(3))
    (kept,) = tmp_path.iterdir()
    assert json.loads(kept.read_text())["log_probabilities"] == found.tolist()
