"""Of what is computed for structures of many lengths, little is for none."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from castoff.trainers.configuration.config import Evaluation, Training
from castoff.trainers.data.loaders import evaluation_loader, training_loader
from castoff.trainers.distributed.process_group import RankContext
from castoff.trainers.dpo.samples.data import ChainSet, collated
from castoff.trainers.dpo.settings import Chains
from castoff.trainers.dpo.structures.synthetic import write_structures

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def chains(tmp_path_factory: pytest.TempPathFactory) -> ChainSet:
    """Of 24 to 192 residues, and as many short ones as long ones."""
    folder = tmp_path_factory.mktemp("structures")
    for shortest in (24, 48, 96):
        write_structures(folder / f"{shortest}", 8, seed=shortest, shortest=shortest)
        for path in (folder / f"{shortest}").iterdir():
            path.rename(folder / f"{shortest}-{path.name}")
    return ChainSet(folder, Chains(structures=str(folder)))


def padding(batches: list[Any]) -> float:
    """Its part of what is computed; all residues of these structures are resolved."""
    resolved = sum(int(batch.backbones.resolved.sum()) for batch in batches)
    return 1 - resolved / sum(int(batch.backbones.resolved.numel()) for batch in batches)


@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_on_any_rank_and_in_validation_it_is_less_than_a_fifth(world_size: int, chains: ChainSet) -> None:
    settings = Training(path="", num_epochs=1, batch_size=4, optimizer_type=None)
    for rank in range(world_size):
        context = RankContext(rank, world_size, CPU, alone=True)
        groups = training_loader(chains, settings, context, collated).groups(0, 0)
        assert padding([micro.data for group in groups for micro in group.micros]) < 0.2
        judged = evaluation_loader(chains, Evaluation(), settings, collated, rank=rank, world_size=world_size)
        assert padding([batch.data for batch in judged]) < 0.2
    assert padding([collated([chains[at] for at in range(first, 24, 6)]) for first in range(6)]) > 0.3
