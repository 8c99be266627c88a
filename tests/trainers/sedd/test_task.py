from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
import torch
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from castoff.trainers.checkpointing.differences import compare
from castoff.trainers.configuration.config import Config
from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.data.loaders import EvaluationLoader
from castoff.trainers.distributed.process_group import RankContext
from castoff.trainers.evaluation.metrics import evaluate
from castoff.trainers.sedd import settings
from castoff.trainers.sedd.alphabet import MASK
from castoff.trainers.sedd.data import ProteinBatch
from castoff.trainers.sedd.graph import GRAPHS
from castoff.trainers.sedd.loss import diffusion_loss, times
from castoff.trainers.sedd.task import AT_ONCE, SeddTask
from castoff.trainers.task.training_state import TrainingState


class Summing(SeddTask):
    """Gives sums in place of means, which those of several ranks make together."""

    def finish(self, sums: Mapping[str, tuple[float, float]]) -> Mapping[str, float]:
        return {f"{name} {part}": pair[part] for name, pair in sums.items() for part in (0, 1)}


def task(kind: type[SeddTask] = SeddTask, **sections: Any) -> SeddTask:
    made = kind(**{"data": {"synthetic": 60, "split": [0.5, 0.3, 0.2]}, **sections})
    made.state = TrainingState(0, 0, torch.device("cpu"))
    made.setup(RankContext(0, 1, torch.device("cpu"), alone=True))
    return made


def measured(which: SeddTask, batch_size: int, *, world_size: int = 1) -> dict[str, float]:
    """Its validation, by each of some ranks one after the other."""
    torch.manual_seed(0)
    model = which.build_model()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    training = Config.of(
        {"training": {"path": "x", "num_steps": 1, "batch_size": batch_size, "optimizer_type": "y"}}
    )
    validation = which.build_data().validation
    total: dict[str, float] = {}
    for rank in range(world_size):
        share = EvaluationLoader(
            validation,
            training.validation,
            training.training,
            which.collate,
            rank=rank,
            world_size=world_size,
        )
        alone = RankContext(0, 1, torch.device("cpu"), alone=True)
        for name, value in evaluate(which, model, share, alone).items():
            total[name] = total.get(name, 0.0) + value
    return total


@pytest.mark.parametrize("kind", ["absorb", "uniform"])
def test_validation_is_the_same_in_any_batches_on_any_ranks(kind: str) -> None:
    """Each protein's noise is its own."""
    which = task(Summing, graph={"type": kind}, eval={"fixed_noise": [0.5]})
    alone = measured(which, 18)
    assert alone["loss 1"] > 18 * 40
    for batch_size, ranks in ((1, 1), (5, 1), (4, 3)):
        assert measured(which, batch_size, world_size=ranks) == pytest.approx(alone, rel=1e-5)


def test_measures() -> None:
    found = task().finish({"loss": (300.0, 100.0), "fixed_noise_0.5": (50.0, 100.0)})
    assert found == {"loss": 3.0, "fixed_noise_0.5": 0.5, "perplexity": pytest.approx(math.exp(3))}
    assert math.isfinite(task().finish({"loss": (1e9, 1.0)})["perplexity"])
    assert task().finish({}) == {}  # an empty test set


def test_perplexity_is_reported_where_it_is_asked_for() -> None:
    assert task(eval={"perplexity": False}).finish({"loss": (3.0, 1.0)}) == {"loss": 3.0}


def test_fixed_noise_is_that_of_its_level() -> None:
    """An untrained network gives the best score of uniform residues, of which the entropy is known."""
    which = task(eval={"fixed_noise": [0.5, 3.0]})
    batch = which.collate([which.build_data().train[index] for index in range(8)])
    found = which.evaluate(which.build_model().requires_grad_(False), batch)
    residues = batch.tokens < MASK
    for level in (0.5, 3.0):
        total, count = found[f"fixed_noise_{level:g}"]
        masked = int((residues & (batch.noise < 1 - math.exp(-level))).sum())
        assert float(total) == pytest.approx(masked * math.log(20) / math.expm1(level), rel=1e-4)
        assert count == residues.sum()


def test_doubts_are_reported_of_once(caplog: pytest.LogCaptureFixture) -> None:
    which = task(data={"synthetic": 60})
    for rank in (0, 1):
        which.state.rank = rank
        which.build_data()
    assert [each.levelname for each in caplog.records] == ["WARNING", "WARNING"]


def test_unknown_residues_do_not_count() -> None:
    which = task()
    model = which.build_model()
    batch = which.collate([which.build_data().train[index] for index in range(4)])
    whole = which.loss(model, batch)
    batch.tokens[0] = 21
    some = which.loss(model, batch)
    assert isinstance(some.count, torch.Tensor) and isinstance(whole.count, torch.Tensor)
    assert 0 < int(some.count) < int(whole.count)


def test_a_curriculum_sees_less_noise_at_first_and_weighs_it_rightly() -> None:
    """It draws other times: the noise of a time and its weight stay what they are."""
    which = task(curriculum={"enabled": True, "preschool_time": 100, "difficulty_ramp": 2.0})
    batch = which.collate([which.build_data().train[index] for index in range(8)])
    model = which.build_model().requires_grad_(False)

    def total(of: SeddTask, batch: ProteinBatch) -> float:
        return float(of.loss(model, batch).total)

    def losses(step: int) -> tuple[float, float]:
        which.state.step = step
        model.train()
        return total(which, batch), float(which.evaluate(model, batch)["loss"][0])

    plain = SeddTask(data={"synthetic": 60})
    plain.state = which.state
    wanted = total(plain, batch)
    earlier = batch._replace(time=batch.time**3)
    assert losses(0)[0] == pytest.approx(total(plain, earlier))
    assert losses(50)[0] == pytest.approx(float(plain.loss(model, batch._replace(time=batch.time**2)).total))
    assert losses(100)[0] == losses(1000)[0] == pytest.approx(wanted)
    assert losses(0)[1] == pytest.approx(wanted)


@pytest.mark.parametrize(
    ("every", "judged", "step", "due"),
    [(None, 3, 4, True), (10, None, 9, False), (10, None, 10, True), (10, 10, 15, False), (10, 15, 20, True)],
)
def test_proteins_are_generated_so_often(every: int | None, judged: int | None, step: int, due: bool) -> None:
    which = task(monitoring={"sample_frequency": every}, sampling={"number": 2, "steps": 2})
    which.state.judged, which.state.step = judged, step
    assert bool(which.after_evaluation(which.build_model().eval())) is due


def test_many_proteins_are_generated_a_few_at_once() -> None:
    which = task(sampling={"number": 2 * AT_ONCE + 3, "steps": 1}, model={"n_blocks": 1})
    model, sizes = which.build_model().eval(), []
    model.register_forward_pre_hook(lambda _, given: sizes.append(len(given[0])))
    assert which.after_evaluation(model)["generation/avg_length"] > 40
    assert sorted(set(sizes)) == [3, AT_ONCE]


@pytest.mark.parametrize(
    ("sections", "says"),
    [
        ({"model": {"size": "large"}}, "model.size: is 'large', but takes one of tiny, mini, small"),
        ({"graph": {"type": "uniform"}, "model": {"scale_by_sigma": True}}, "model.scale_by_sigma: is true"),
        ({"noise": {"type": "cosine", "sigma_max": 1.0}}, "noise.sigma_max: is 1, "),
        ({"noise": {"sigma_max": float("inf")}}, "noise.sigma_max: is inf, "),
        ({"noise": {"sigma_min": 1e-9}}, "noise.sigma_min: is 1e-09, but .* 1e-06"),
        ({"eval": {"fixed_noise": [0.1, 1e-30]}}, r"fixed_noise\.1: .* a number from 1e-06 to 1000"),
        ({"data": {"split": [0.9, 0.1]}}, r"split: is \[0.9, 0.1\], .* a list of 3 numbers from 0 to 1"),
        ({"noise": {"epsilon": 0.1}}, "noise.epsilon: there is no such field"),
    ],
)
def test_mistakes(sections: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        task(**sections)


@pytest.mark.parametrize(("lengths", "padded"), [([5, 9], True), ([9, 9], False)])
def test_generated_proteins_do_not_see_what_lies_behind_shorter_ones(
    lengths: list[int], padded: bool
) -> None:
    which, stated = task(sampling={"steps": 2}), set()
    model = which.build_model().eval()
    model.register_forward_pre_hook(lambda _, given: stated.add(given[2]))
    assert [len(each) for each in which.generate(model, lengths)] == lengths
    assert stated == {padded}


def test_generated_proteins_are_no_longer_than_those_that_are_trained_on() -> None:
    which = task(data={"synthetic": 60, "max_length": 50})
    assert max(which.usual_lengths(100)) == 50


def test_what_saves_memory_reaches_the_network() -> None:
    assert [
        task(memory={"gradient_checkpointing": on}).build_model().checkpointing for on in (False, True)
    ] == [False, True]


def test_what_a_resumed_run_may_change() -> None:
    """What is measured and generated; not what is learned, and from what."""
    sections = [field.name for field in msgspec.structs.fields(settings.Task)]
    before, now = ({f"task_kwargs.{name}.x": value for name in sections} for value in (1, 2))
    found = compare(before, now, "step-3", 3, task())
    assert [line.split(".")[1] for line in found.reported] == ["memory", "sampling", "eval", "monitoring"]
    assert [line.split(".")[1] for line in found.refused] == ["data", "model", "graph", "noise", "curriculum"]


def test_graph_and_noise_are_those_that_are_asked_for() -> None:
    which = task(graph={"type": "uniform"}, noise={"type": "geometric", "sigma_min": 0.1, "sigma_max": 30})
    assert isinstance(which.graph, GRAPHS["uniform"])
    assert not which.build_model().scale_by_sigma and task().build_model().scale_by_sigma
    ends = which.noise.total(torch.tensor([0.0, 1.0]))
    torch.testing.assert_close(ends, torch.tensor([0.1, 30.0]))


def gradient(model: torch.nn.Module, loss: torch.Tensor) -> torch.Tensor:
    model.zero_grad()
    loss.backward()
    return torch.cat([each.grad.flatten() for each in model.parameters() if each.grad is not None])


def stepped(model: torch.nn.Module, loss: torch.Tensor, clip: float, eps: float) -> torch.Tensor:
    """By how much AdamW moves the weights in its first step, with a clipped gradient."""
    before = parameters_to_vector(model.parameters()).detach().clone()
    gradient(model, loss)
    torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
    torch.optim.AdamW(model.parameters(), lr=1e-3, eps=eps, weight_decay=0.0).step()
    moved = parameters_to_vector(model.parameters()).detach() - before
    vector_to_parameters(before, model.parameters())
    return moved


def test_the_references_grad_clip_is_ours_times_the_residues_of_a_protein() -> None:
    """It sums over positions and takes the mean over proteins, and we take the mean over residues."""
    which = task(data={"synthetic": 60, "split": [0.5, 0.3, 0.2]})
    torch.manual_seed(0)
    model = which.build_model().eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    train = which.build_data().train
    batch = which.collate([train[index] for index in range(8)])
    residues = float((batch.tokens < which.graph.residues).sum()) / 8

    def ours() -> torch.Tensor:
        loss = which.loss(model, batch)
        return loss.total / float(loss.count or 0)

    def theirs() -> torch.Tensor:
        time = times(batch.time, which._power())
        met = which._under_noise(model, batch, which.noise.total(time))
        return diffusion_loss(which.graph, which.noise, batch.tokens, time, met).sum(dim=1).mean()

    mine, reference = gradient(model, ours()), gradient(model, theirs())
    assert residues > 20
    torch.testing.assert_close(reference, residues * mine, rtol=1e-3, atol=1e-5 * float(reference.norm()))
    clip = float(reference.norm()) / 3
    eps = 1e-3 * clip  # so large that rounding in the smallest gradients moves no weight
    torch.testing.assert_close(
        stepped(model, ours(), clip / residues, eps / residues),
        stepped(model, theirs(), clip, eps),
        rtol=1e-3,
        atol=1e-6,
    )
    assert clip < reference.norm() and clip > mine.norm(), "the number as it is would clip nothing here"
