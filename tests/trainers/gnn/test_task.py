"""The two heads' losses and measures, on one rank and on several."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Batch

from launcher.ranks import RankEnv
from tests.trainers.toys import config, run
from trainers.core.config import Config, Evaluation, Training
from trainers.core.data import evaluation_loader
from trainers.core.distributed import Place, cleanup_ddp, initialize_ddp
from trainers.core.evaluation import evaluate
from trainers.core.fields import ConfigError
from trainers.ddp import TrainerDDP
from trainers.gnn.data import Causets
from trainers.gnn.task import CausetTask

SMALL: dict[str, Any] = {"sets": (30, 13, 10), "mean": 12.0}


class Says(nn.Module):
    """A network that gives the answers it was told, whatever it is shown."""

    def __init__(self, logits: list[float], offsets: list[float], heads: tuple[int, ...] = (0, 1)):
        super().__init__()
        self.answers = {0: torch.tensor(logits)[:, None], 1: torch.tensor(offsets)[:, None]}
        self.heads = heads

    def forward(self, x: Tensor, edges: Tensor, batch: Tensor, graphs: int) -> dict[int, Tensor]:
        return {number: self.answers[number][:graphs] for number in self.heads}


def batch_of(*kinds: int) -> Any:
    """A batch of sets: 0 and 1 are manifold-like, 2 layered, 3 random."""
    sets = Causets(40, mean=12.0)
    return Batch.from_data_list([sets[kind + 4 * number] for number, kind in enumerate(kinds)])


def test_the_loss_counts_sets_and_dimensions_where_there_are_some() -> None:
    batch = batch_of(0, 2, 1, 3)
    dimensions = batch.dimension.tolist()
    logits, offsets = [2.0, -1.0, 0.0, 3.0], [0.25, 77.0, 2.5, -88.0]
    loss = CausetTask().loss(Says(logits, offsets), batch)
    cross = sum(
        float(torch.log1p(torch.exp(torch.tensor(-logit if manifold else logit))))
        for logit, manifold in zip(logits, [True, False, True, False], strict=True)
    )
    errors = [abs(3 + offset - dimensions[at]) for at, offset in ((0, 0.25), (2, 2.5))]
    smooth = sum(error**2 / 2 if error < 1 else error - 0.5 for error in errors)
    assert loss.count is None, "the sets of the batch"
    assert float(loss.total) == pytest.approx(cross + smooth, rel=1e-5)


def test_without_a_manifold_there_is_no_dimension() -> None:
    batch = batch_of(2, 3, 2)
    task, far = CausetTask(), Says([0.0] * 3, [99.0] * 3)
    assert float(task.loss(far, batch).total) == pytest.approx(3 * 0.693147, rel=1e-5)
    assert set(task.evaluate(far, batch)) == {"loss", "accuracy"}


def test_measures_are_sums_and_counts() -> None:
    batch = batch_of(0, 2, 1, 3, 0)
    manifold = batch.manifold > 0
    sums = CausetTask().evaluate(Says([1.0, 1.0, -1.0, -1.0, 0.5], [0.0] * 5), batch)
    assert [float(part or 0) for part in sums["accuracy"]] == [3, 5]
    total, count = sums["dimension_error"]
    assert (float(total), count) == (float((3 - batch.dimension[manifold]).abs().sum()), 3)
    total, count = sums["estimator_error"]
    assert float(total) == pytest.approx(float((batch.estimate - batch.dimension)[manifold].abs().sum()))
    assert count == 3 and sums["loss"][1] is None


@pytest.mark.parametrize(
    ("heads", "measures"),
    [((0,), {"loss", "accuracy"}), ((1,), {"loss", "dimension_error", "estimator_error"})],
)
def test_a_head_that_is_off_is_not_judged(heads: tuple[int, ...], measures: set[str]) -> None:
    batch = batch_of(0, 2)
    task, model = CausetTask(), Says([0.0] * 2, [0.0] * 2, heads)
    assert set(task.evaluate(model, batch)) == measures
    both = task.loss(Says([0.0] * 2, [0.0] * 2), batch).total
    other = task.loss(Says([0.0] * 2, [0.0] * 2, (1 - heads[0],)), batch).total
    assert float(task.loss(model, batch).total + other) == pytest.approx(float(both))


def test_both_heads_learn() -> None:
    torch.manual_seed(0)
    task = CausetTask({"hidden": [4]}, **SMALL)
    model = task.build_model()
    task.loss(model, batch_of(0, 2, 1)).total.backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and bool(torch.isfinite(parameter.grad).all()), name
    last = [head[-1].weight.grad for head in model.heads]  # type: ignore[union-attr]
    assert all(bool(each.abs().sum() > 0) for each in last)


# --- On several ranks --------------------------------------------------------------------------------


def judged(place: Place, batch_size: int) -> list[dict[str, float]]:
    """Over all ranks: data sets of one set to thirteen, with a model that has a batch norm."""
    torch.manual_seed(0)
    task = CausetTask({"hidden": [8, 8]}, **SMALL)
    model = task.build_model()
    task.loss(model, batch_of(0, 1, 2, 3))
    settings = Training(path="", num_epochs=1, batch_size=batch_size, optimizer_type=None)
    found = []
    for length in range(1, 14):
        sets = Causets(length, mean=12.0, first=2)  # the first two come from no manifold
        loader = evaluation_loader(
            sets, Evaluation(), settings, task.collate, rank=place.rank, world_size=place.world_size
        )
        found.append(dict(evaluate(task, model, loader, place)))
    return found


def trained(rank: int, fields: dict[str, Any]) -> dict[str, Any]:
    """A whole training on this rank: digests of each part before and after, and what was measured."""
    trainer = TrainerDDP(rank, fields)
    before = {name: digest(part) for name, part in trainer.model.named_parameters()}
    train, validation, _ = trainer.prepare_dataloaders()
    _, measures = trainer.run_training(train, validation)
    after = {name: digest(part) for name, part in trainer.model.named_parameters()}
    return {"before": before, "after": after, "measures": measures}


def digest(tensor: Tensor) -> str:
    return hashlib.sha256(tensor.detach().numpy().tobytes()).hexdigest()


def with_inactive_head(off: int, path: Path) -> dict[str, Any]:
    fields = config(path, num_epochs=2, batch_size=4)
    model = {"hidden": [8], "active_tasks": {off: False}}
    return {**fields, "task": CausetTask, "task_kwargs": {"model": model, **SMALL}}


def both(folder: Path) -> dict[str, Any]:
    """All that two ranks are asked for here, because each takes seconds to begin."""
    me = RankEnv.detect()
    place = initialize_ddp(me.rank, me.world_size, device="cpu")
    answers = {
        "judged": judged(place, 3),
        "trained": [trained(me.rank, with_inactive_head(off, folder / str(off))) for off in (0, 1)],
    }
    cleanup_ddp()
    return answers


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory: pytest.TempPathFactory, for_real: None) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("two")
    return run(both, folder / "out", folder=folder / "ranks", world_size=2)


def test_evaluation_is_exact_on_several_ranks(two_ranks: list[dict[str, Any]]) -> None:
    """Also where a rank has no set, or none with a dimension."""
    alone = judged(Place(0, 1, torch.device("cpu")), 100)
    first, second = (answer["judged"] for answer in two_ranks)
    assert first == second
    assert set(alone[0]) == {"loss", "accuracy"}
    assert set(alone[2]) == {"loss", "accuracy", "dimension_error", "estimator_error"}
    for one, several in zip(alone, first, strict=True):
        assert several == pytest.approx(one, rel=1e-6)


@pytest.mark.parametrize("off", [0, 1])
def test_an_inactive_head_under_ddp(off: int, two_ranks: list[dict[str, Any]]) -> None:
    """Q16: DistributedDataParallel waits for nothing, and the head stays as it was made."""
    found, other = (answer["trained"][off] for answer in two_ranks)
    assert found == other
    for name, was in found["before"].items():
        assert (found["after"][name] == was) == name.startswith(f"heads.{off}."), name
    measured = ({"loss", "dimension_error", "estimator_error"}, {"loss", "accuracy"})[off]
    assert set(found["measures"][-1]) == measured


# --- What a configuration may ask for ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"sets": [10, 2]}, "task_kwargs.sets: is [10, 2], but takes three sizes"),
        ({"sets": [0, 1, 1]}, "task_kwargs.sets: is "),
        ({"sets": [9, -1, 1]}, "task_kwargs.sets: is "),
        ({"sets": "abc"}, "task_kwargs.sets: is "),
        ({"sets": [1.5, 1, 1]}, "task_kwargs.sets: is "),
        ({"mean": "many"}, "task_kwargs.mean: is 'many', but takes a number from 2 to "),
        ({"mean": 1}, "task_kwargs.mean: is 1"),
        ({"mean": float("nan")}, "task_kwargs.mean: is nan"),
        ({"mean": 1e9}, "task_kwargs.mean: is 1000000000.0"),
        ({"seed": -1}, "task_kwargs.seed: is -1"),
        ({"model": [1]}, "task_kwargs.model: is [1], but takes arguments of GNNModel"),
        ({"model": {"hiden": [8]}}, "task_kwargs.model.hiden: there is no such field; did you mean hidden?"),
        ({"model": {"heads": [1]}}, "task_kwargs.model.heads: there is no such field"),
        ({"model": {"x": 1}}, "there are hidden, conv, pooling, dropout, with_skip, active_tasks"),
    ],
)
def test_arguments_that_make_no_sense(given: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as error:
        CausetTask(**given)
    assert says in str(error.value)


def test_every_mistake_at_once() -> None:
    with pytest.raises(ConfigError) as error:
        CausetTask({"hiden": [8], "convs": "gcn"}, sets=(1, 2), mean=0, seed=-1)
    assert len(error.value.problems) == 5


def test_values_of_the_network_are_named_with_their_place(tmp_path: Path) -> None:
    fields = config(tmp_path)
    fields["task"] = CausetTask
    overrides = ["task_kwargs.model.active_tasks.0=false", "task_kwargs.model.active_tasks.1=false"]
    with pytest.raises(ConfigError, match=r"task_kwargs\.model\.active_tasks: switches every task off"):
        TrainerDDP(0, Config.of(fields, overrides))


def test_there_may_be_no_test_set() -> None:
    assert [len(part) for part in CausetTask(sets=(3, 0, 0)).build_data()] == [3, 0, 0]
