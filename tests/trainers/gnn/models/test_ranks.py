"""The networks in DistributedDataParallel, which waits for a gradient of every weight that wants one."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from castoff.launcher.ranks import RankEnv
from castoff.trainers.distributed.process_group import cleanup_ddp, initialize_ddp
from castoff.trainers.gnn.models.section import applied, model_of
from tests.trainers.gnn.models.graphs import WIDTH, batch
from tests.trainers.toys import run

SECTION: dict[str, Any] = {
    "encoder_type": "Encoder",
    "encoder_args": [WIDTH, [8]],
    "pooling_layers": ["mean", "max"],
    "downstream_tasks": [["Linear", [16, 1]], ["LinearSequential", [[16, 4, 3]]]],
    "active_tasks": {"1": False},
}


def steps(section: dict[str, Any], freeze: bool) -> str | list[float]:
    """Two steps on this rank; the weights' sums after them, or what DDP says.

    Without `freeze` inactive heads want gradients as any others.
    """
    me = RankEnv.detect()
    initialize_ddp(me.rank, me.world_size, device="cpu")
    try:
        given: str | list[float] = _steps(section, freeze, me.rank)
    except RuntimeError as error:
        given = str(error)
    gc.collect()  # what is left of DDP would end the group under Python's lock, for which gloo may wait
    cleanup_ddp()
    return given


def _steps(section: dict[str, Any], freeze: bool, rank: int) -> list[float]:
    torch.manual_seed(0)
    model = model_of(section)
    if not freeze:
        model.requires_grad_(True)
    apply, wrapped = applied(model), DistributedDataParallel(model)
    for number in range(2):
        outputs = apply(wrapped, batch(4 + rank, 3 + number))
        nn.functional.mse_loss(outputs[0], torch.ones(2, 1)).backward()
    return [float(each.grad.sum()) for each in model.parameters() if each.grad is not None]


@pytest.mark.usefixtures("for_real")
def test_inactive_heads_hold_nobody_up(tmp_path: Path) -> None:
    one, other = run(steps, SECTION, True, folder=tmp_path / "frozen", world_size=2)
    assert one == other
    assert len(one) > 3
    for said in run(steps, SECTION, False, folder=tmp_path / "wanting", world_size=2):
        assert "Expected to have finished reduction" in said
