"""The graph transformer, and its random projections."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor

from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.gnn.models import GPSModel
from tests.trainers.gnn.models.graphs import WIDTH, batch


def performer(interval: int | None = 2) -> GPSModel:
    torch.manual_seed(0)
    return GPSModel(WIDTH, 3, 16, 2, 2, "performer", redraw_interval=interval)


def projections(model: GPSModel) -> list[Tensor]:
    return [each.clone() for name, each in model.named_buffers() if name.endswith("projection_matrix")]


def step(model: GPSModel) -> list[Tensor]:
    some = batch(4, 6)
    model(some.x, some.edge_index, some.batch)
    return projections(model)


@pytest.mark.parametrize("norm", ["batch", "graph", "layer", None])
def test_a_batch_is_its_graphs_one_by_one(norm: str | None) -> None:
    torch.manual_seed(0)
    model = GPSModel(WIDTH, 3, 16, 2, 2, norm=norm).eval()
    some = batch(4, 6, 1)
    together = model(some.x, some.edge_index, some.batch, batch_size=4)
    alone = torch.cat([model(each.x, each.edge_index) for each in some.to_data_list()])
    torch.testing.assert_close(together[:3], alone, rtol=1e-4, atol=1e-5)
    assert together.shape == (4, 3)  # the last one is empty


def test_nodes_instead_of_graphs() -> None:
    some = batch(4, 6)
    model = GPSModel(WIDTH, 3, 16, 2, 1, with_pooling=False)
    assert model(some.x, some.edge_index, some.batch).shape == (10, 3)


def test_each_norm_is_one_of_its_own() -> None:
    model = GPSModel(WIDTH, 3, 16, 2, 2, norm=torch.nn.BatchNorm1d)
    norms = [each for each in model.modules() if isinstance(each, torch.nn.BatchNorm1d)]
    assert len({id(each) for each in norms}) == 6


def test_projections_are_drawn_every_so_many_batches_of_training() -> None:
    model = performer(2)
    seen = [step(model)[0] for _ in range(5)]
    assert [torch.equal(*pair) for pair in pairwise(seen)] == [True, False, True, False]
    model.eval()
    assert all(torch.equal(step(model)[0], seen[-1]) for _ in range(5))
    never = performer(None)
    assert all(torch.equal(step(never)[0], step(never)[0]) for _ in range(3))


def test_a_resumed_run_draws_what_it_would_have_drawn() -> None:
    whole = performer(2)
    for _ in range(3):
        step(whole)
    kept = whole.state_dict()
    begun = performer(2)
    begun.load_state_dict(kept)
    torch.manual_seed(17)  # the projections follow from no other numbers
    later = [step(begun) for _ in range(4)]
    for mine, theirs in zip([step(whole) for _ in range(4)], later, strict=True):
        assert all(map(torch.equal, mine, theirs))


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"channels": 15}, "channels: is 15, but takes a multiple of num_heads, 2"),
        ({"num_layers": 0}, "num_layers: is 0, but takes a whole number of at least 1"),
        (
            {"attn_type": "performers"},
            "attn_type: is 'performers', but takes multihead, performer; did you mean",
        ),
        ({"norm": "bach"}, "norm: is 'bach', but no norm is known by that name"),
        ({"act_kwargs": 3}, "act_kwargs: is 3, but takes arguments by name"),
        ({"redraw_interval": 0}, "redraw_interval: is 0, but takes a whole number"),
        ({"attn_kwargs": {"dropuot": 0.1}}, "attn_type: GPSConv("),
    ],
)
def test_transformers_that_make_no_sense(given: dict[str, Any], says: str) -> None:
    fields = {"in_features": 5, "out_features": 3, "channels": 16, "num_heads": 2, "num_layers": 1, **given}
    with pytest.raises(ConfigError) as error:
        GPSModel(**fields)
    assert error.value.problems[0].startswith(says)
