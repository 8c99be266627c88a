"""What is learned from pairs, kept in checkpoints and written for others."""

from __future__ import annotations

import copy
import json
import logging
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from torch import Tensor

from castoff.trainers.checkpointing.differences import compare
from castoff.trainers.configuration.config import Config
from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.data.epochs import teller
from castoff.trainers.data.loaders import EvaluationLoader
from castoff.trainers.distributed.process_group import RankContext
from castoff.trainers.dpo import reference, settings
from castoff.trainers.dpo.base_model import base_model as base_model_of
from castoff.trainers.dpo.export import BEST, LATEST
from castoff.trainers.dpo.network.weights import load
from castoff.trainers.dpo.samples.batch import Batch
from castoff.trainers.dpo.task import DpoTask
from castoff.trainers.evaluation.metrics import evaluate
from castoff.trainers.files import built_once
from castoff.trainers.task.training_state import TrainingState
from tests.trainers.dpo.small import base_model, dpo_sections, pairs_file

CPU = torch.device("cpu")


def task(folder: Path, precision: str = "fp32", **sections: Any) -> DpoTask:
    """One that is set up, on pairs of its own folder."""
    made = DpoTask(**dpo_sections(folder, **sections))
    made.state = TrainingState(0, 0, CPU, precision=precision)
    made.setup(RankContext(0, 1, CPU, alone=True))
    return made


def batch_of(which: DpoTask, number: int = 6) -> Batch:
    train = which.build_data().train
    return which.collate([train[index] for index in range(number)])


def shaken(model: torch.nn.Module, by: float = 0.02) -> torch.nn.Module:
    """Other weights, as after some steps."""
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(by * torch.randn_like(parameter))
    return model


@pytest.mark.parametrize(
    ("preference", "wanted"),
    [
        ({}, math.log(2)),
        ({"label_smoothing": 0.1}, math.log(2)),
        ({"loss": "robust", "label_smoothing": 0.1}, math.log(2)),
        ({"loss": "hinge"}, 1.0),
        ({"loss": "ipo", "beta": 0.5}, 1.0),
    ],
)
def test_the_first_step_is_exact_in_training_too(
    preference: dict[str, Any], wanted: float, tmp_path: Path
) -> None:
    """Without dropout; but for rounding, since other pairs lie beside a pair."""
    which = task(tmp_path, preference=preference)
    loss = which.loss(which.build_model().train(), batch_of(which))
    assert loss.total.item() / 6 == pytest.approx(wanted, rel=1e-4)
    assert loss.metrics["rewards/margins"] == pytest.approx(0, abs=1e-3)
    assert loss.count is None  # a mean over pairs


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_where_batches_are_the_same_it_is_exact_to_the_bit(precision: str, tmp_path: Path) -> None:
    """The reference computes in training's precision, whatever that is."""
    which = task(tmp_path, precision, data={"validation_share": 0.0})
    number = len(which.build_data().train)
    assert number <= 8  # one batch for the reference, too
    batch = which.collate(sorted(which.build_data().train, key=lambda each: -len(each.resolved)))
    for _ in range(2):
        with which.state.autocast():
            loss = which.loss(which.build_model().train(), batch)
        assert loss.metrics["rewards/accuracies"] == 0 and loss.metrics["rewards/margins"] == 0
        wanted = torch.full((number,), 2.0).log().sum()
        assert torch.equal(loss.total, wanted)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_orders_of_each_epoch_have_reference_values_of_their_own(precision: str, tmp_path: Path) -> None:
    which = task(tmp_path, precision, preference={"decoding_order": "epoch"})
    train, validation, _ = which.build_data()
    teller(train)(1)  # type: ignore[misc]
    batch = batch_of(which)
    with which.state.autocast():
        loss = which.loss(which.build_model().train(), batch)
        assert torch.equal(loss.total, torch.full((6,), 2.0).log().sum())
        shaken(which.build_model())
        first = which.loss(which.build_model(), batch)
        teller(train)(2)  # type: ignore[misc]
        second = which.loss(which.build_model(), batch_of(which))
    assert not torch.equal(first.total, second.total)
    assert which.collate([validation[0]]).reference.all()  # validation has orders, and values, for all epochs
    first.total.backward()
    assert which._frozen is not None and not any(each.requires_grad for each in which._frozen.parameters())


@pytest.mark.parametrize("loss", ["sigmoid", "robust", "hinge", "ipo"])
def test_every_weight_learns(loss: str, tmp_path: Path) -> None:
    which = task(tmp_path, preference={"loss": loss})
    model = which.build_model()
    which.loss(model, batch_of(which)).total.backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and bool(parameter.grad.any()), name


def gradient(which: DpoTask) -> Tensor:
    model = copy.deepcopy(which.build_model())
    which.loss(model, batch_of(which)).total.backward()
    return torch.cat([each.grad.flatten() for each in model.parameters() if each.grad is not None])


def test_diversity_is_rewarded(tmp_path: Path) -> None:
    """By the entropy of the policy, which has a gradient: of the data nothing can be learned."""
    plain, diverse = task(tmp_path), task(tmp_path, preference={"diversity_lambda": 0.5})
    batch = batch_of(plain)
    model = plain.build_model()
    found = diverse.loss(model, batch)
    spread = found.metrics["entropy"]
    assert isinstance(spread, Tensor) and 0 < spread / 6 < math.log(21)
    torch.testing.assert_close(found.total, plain.loss(model, batch).total - 0.5 * spread)
    assert "entropy" not in plain.loss(model, batch).metrics
    assert "entropy" in plain.evaluate(model, batch)
    difference = gradient(diverse) - gradient(plain)
    assert difference.norm() > 1e-3
    # Along it, the entropy grows.
    at = 0
    with torch.no_grad():
        before = float(diverse.evaluate(model, batch)["entropy"][0])
        for parameter in model.parameters():
            change = difference[at : at + parameter.numel()].view_as(parameter)
            parameter.sub_(1e-3 * change / difference.norm())
            at += parameter.numel()
        assert float(diverse.evaluate(model, batch)["entropy"][0]) > before


def test_nothing_learns_but_the_policy(tmp_path: Path) -> None:
    """What it is compared with are numbers without a graph, and its weights are not others'."""
    which = task(tmp_path)
    batch = batch_of(which)
    assert not batch.reference.requires_grad
    shaken(which.build_model())
    assert torch.equal(batch_of(which).reference, batch.reference)
    assert torch.equal(batch_of(task(tmp_path)).reference, batch.reference)


def measured(which: DpoTask, model: Any, batch_size: int, world_size: int = 1) -> dict[str, float]:
    """Its validation, by each of some ranks one after the other."""
    training = Config.of(
        {"training": {"path": "x", "num_steps": 1, "batch_size": batch_size, "optimizer_type": "y"}}
    )
    sums: dict[str, list[float]] = {}

    class Summing(DpoTask):
        def finish(self, found: Any) -> dict[str, float]:
            for name, pair in found.items():
                held = sums.setdefault(name, [0.0, 0.0])
                held[0] += pair[0]
                held[1] += pair[1]
            return {}

    which.__class__ = Summing
    for rank in range(world_size):
        share = EvaluationLoader(
            *(which.build_data().validation, training.validation, training.training, which.collate),
            rank=rank,
            world_size=world_size,
        )
        evaluate(which, model, share, RankContext(0, 1, CPU, alone=True))
    which.__class__ = DpoTask
    return dict(which.finish({name: (pair[0], pair[1]) for name, pair in sums.items()}))


def test_validation_is_the_same_in_any_batches_on_any_ranks(tmp_path: Path) -> None:
    which = task(tmp_path, number=16, data={"validation_share": 0.7})
    model = shaken(which.build_model())
    alone = measured(which, model, 11)
    assert set(alone) == {
        *("loss", "entropy", "rewards/chosen", "rewards/rejected", "rewards/accuracies", "rewards/margins"),
        *("logps/chosen", "logps/rejected", "logps/chosen_to_reference"),
    }
    assert 0 < alone["rewards/accuracies"] < 1 and alone["logps/chosen_to_reference"] != 1
    for batch_size in (1, 2, 3):
        found = measured(which, model, batch_size)
        assert found == pytest.approx(alone, rel=1e-5, abs=1e-5)
        for ranks in (2, 3):
            assert measured(which, model, batch_size, ranks) == pytest.approx(found, rel=1e-9)


def test_how_likely_chosen_ones_still_are(tmp_path: Path) -> None:
    which = task(tmp_path)
    batch = batch_of(which)
    halved = batch._replace(reference=batch.reference / 2)
    with torch.no_grad():
        sums = which.evaluate(which.build_model(), halved)
    found = which.finish(
        {name: (float(total), float(6 if count is None else count)) for name, (total, count) in sums.items()}
    )
    assert found["logps/chosen_to_reference"] == pytest.approx(2, rel=1e-4)
    assert found["rewards/chosen"] == pytest.approx(0.1 * float(halved.reference[:, 0].mean()), rel=1e-4)


# --- What a checkpoint keeps ----------------------------------------------------------------------


def test_a_checkpoint_keeps_words_alone(tmp_path: Path) -> None:
    kept = task(tmp_path).state_dict()
    assert set(kept["digests"]) == {"train", "validation", "base_model"}
    assert len(json.dumps(kept)) < 500


def test_files_may_be_moved(tmp_path: Path) -> None:
    (tmp_path / "first").mkdir()
    before = task(tmp_path / "first")
    (tmp_path / "first").rename(tmp_path / "second")
    after = task(tmp_path / "second")
    after.load_state_dict(before.state_dict())
    assert torch.equal(batch_of(after).reference, batch_of(before).reference)


def test_what_a_resumed_run_may_change(tmp_path: Path) -> None:
    """Where files lie; not what is made of them."""
    fields = [
        f"{section.name}.{field.name}"
        for section in msgspec.structs.fields(settings.Dpo)
        for field in msgspec.structs.fields(section.type)
    ]
    before, now = ({f"task_kwargs.{name}": value for name in fields} for value in (1, 2))
    found = compare(before, now, "step-3", 3, task(tmp_path))
    refused = {line.split(":")[0].split(" ")[0] for line in found.refused}
    silent = {"train_data", "val_data", "test_data", "structures", "dir", "name"}
    assert not found.reported
    assert {name.rpartition(".")[2] for name in refused} == {
        name.rpartition(".")[2] for name in fields
    } - silent


@pytest.mark.parametrize("with_file", [False, True])
def test_other_pairs_or_weights_are_refused(with_file: bool, tmp_path: Path) -> None:
    data = {"val_data": str(pairs_file(tmp_path / "others.json", 3, seed=5))} if with_file else {}
    before = task(tmp_path, data=data)
    pairs_file(tmp_path / "pairs.json", 8, seed=1)
    base_model(tmp_path / "base.pt", seed=1)
    if with_file:
        pairs_file(tmp_path / "others.json", 3, seed=6)
    after = task(tmp_path, data=data, made=True)
    with pytest.raises(ConfigError) as refused:
        after.load_state_dict(before.state_dict())
    said = str(refused.value)
    name = "val_data" if with_file else "train_data"
    file = tmp_path / ("others.json" if with_file else "pairs.json")
    assert f"data.train_data: {tmp_path / 'pairs.json'} holds other pairs (digest " in said
    assert f"data.{name}: {file} holds other pairs to validate with (digest " in said
    assert f"base_model.name: base in {tmp_path} has other weights (digest " in said
    assert said.count("(--fresh)") == 3


# --- What is wrong --------------------------------------------------------------------------------


def test_a_base_model_that_is_not_there(tmp_path: Path) -> None:
    given = dpo_sections(tmp_path)
    for name in ("v_48_002", "v_48_030"):
        base_model(tmp_path / f"{name}.pt")

    def said(**base: str) -> str:
        made = DpoTask(**{**given, "base_model": base})
        made.state = TrainingState(0, 0, CPU)
        with pytest.raises(ConfigError) as refused:
            made.setup(RankContext(0, 1, CPU, alone=True))
        return str(refused.value)

    absent = said(dir=str(tmp_path), name="v_48_020")
    assert "base_model.name (--base_model_name): is 'v_48_020', but there is no" in absent
    assert "has the models base, v_48_002, v_48_030" in absent and "did you mean v_48_0" in absent
    assert "castoff train dpo --objective likelihood --structures FOLDER --output_dir base" in absent
    nowhere = said(dir=str(tmp_path / "nowhere"))
    assert f"base_model.dir (--base_model_dir): is '{tmp_path}/nowhere', which does not exist" in nowhere
    (tmp_path / "empty").mkdir()
    assert "has no .pt file" in said(dir=str(tmp_path / "empty"))
    assert "which is a file" in said(dir=str(tmp_path / "pairs.json"))
    (tmp_path / "torn.pt").write_bytes((tmp_path / "base.pt").read_bytes()[:500])
    torn = said(dir=str(tmp_path), name="torn")
    assert f"base_model.name: {tmp_path / 'torn.pt'} is damaged" in torn


def test_files_that_are_not_there_are_reported_before_anything_is_computed(tmp_path: Path) -> None:
    nowhere = {"val_data": str(tmp_path / "nowhere.json"), "test_data": str(tmp_path)}
    made = DpoTask(**dpo_sections(tmp_path, data=nowhere))
    made.state = TrainingState(0, 0, CPU)
    with pytest.raises(ConfigError) as refused:
        made.setup(RankContext(0, 1, CPU, alone=True))
    assert refused.value.problems == [
        f"data.val_data: '{tmp_path}/nowhere.json' cannot be read: No such file or directory",
        f"data.test_data: '{tmp_path}' cannot be read: Is a directory",
    ]
    pairs_file(tmp_path / "nowhere.json", 3)
    (tmp_path / "wrong.json").write_text("[{}]")
    made = DpoTask(**dpo_sections(tmp_path, data={"val_data": str(tmp_path / "wrong.json")}))
    made.state = TrainingState(0, 0, CPU)
    with pytest.raises(ConfigError, match=r"wrong\.json: pair 1: pdb_file: is missing"):
        made.setup(RankContext(0, 1, CPU, alone=True))
    assert not list(tmp_path.glob("*.reference"))


def test_a_base_model_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = dpo_sections(tmp_path)

    def refuse(path: Path) -> bool:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "is_file", refuse)
    with pytest.raises(ConfigError, match=r"base_model\.name: .*base\.pt cannot be read: Permission denied"):
        base_model_of(settings.BaseModel(**given["base_model"]))
    with pytest.raises(ConfigError, match=r"base\.pt: cannot be read: Permission denied"):
        load(tmp_path / "base.pt")


def test_names_may_have_their_ending(tmp_path: Path) -> None:
    given = dpo_sections(tmp_path)
    made = DpoTask(**{**given, "base_model": {"dir": str(tmp_path), "name": "base.pt"}})
    made.state = TrainingState(0, 0, CPU)
    made.setup(RankContext(0, 1, CPU, alone=True))


@pytest.mark.parametrize("loss", ["ipo", "hinge"])
def test_smoothing_that_would_do_nothing(loss: str, tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=rf"label_smoothing: is 0.1, but preference.loss: {loss} does not use it"
    ):
        DpoTask(**dpo_sections(tmp_path, preference={"loss": loss, "label_smoothing": 0.1}))


def test_nothing_is_validated_where_nobody_wants_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    which = task(tmp_path, data={"validation_share": 0.0})
    with caplog.at_level(logging.WARNING):
        assert not len(which.build_data().validation)
    assert "validation_share" not in caplog.text


# --- For others -----------------------------------------------------------------------------------


def test_export(tmp_path: Path) -> None:
    which = task(tmp_path)
    model = shaken(which.build_model())
    out = tmp_path / "out"
    out.mkdir()

    def written(epoch: int, consumed: int, *, better: bool) -> set[str]:
        for path in out.iterdir():
            path.unlink()
        which.state.epoch, which.state.consumed = epoch, consumed
        which.export(model, out, better=better)
        which.export(model, out, better=better)  # as a resumed run does
        return {path.name for path in out.iterdir()}

    assert written(0, 3, better=True) == {LATEST, BEST}
    assert written(2, 3, better=False) == {LATEST}
    assert written(2, 0, better=False) == {LATEST, "checkpoint_epoch_2.pt"}
    assert written(3, 0, better=True) == {LATEST, BEST, "checkpoint_epoch_3.pt"}
    again = load(out / BEST)
    assert again.noise_level == 0.02  # the base model's
    for name, value in model.state_dict().items():
        assert torch.equal(again.model.state_dict()[name], value)


def test_where_nothing_can_be_written_beside_the_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What is read and computed once is kept where the runs are."""
    data, runs = tmp_path / "data", tmp_path / "runs"
    data.mkdir()
    sections = dpo_sections(data)
    before = sorted(data.iterdir())

    def refusing(function: Callable[..., Any]) -> Callable[..., Any]:
        def refuse(path: Path, *arguments: Any) -> Any:
            if path.parent == data:
                raise PermissionError(13, "Permission denied", str(path))
            return function(path, *arguments)

        return refuse

    monkeypatch.setattr(built_once, "locked", refusing(vars(built_once)["locked"]))
    monkeypatch.setattr(reference, "replace_file", refusing(vars(reference)["replace_file"]))
    caplog.set_level(logging.INFO)
    for _ in range(2):
        made = DpoTask(**sections)
        made.state = TrainingState(0, 0, CPU, folder=runs)
        made.setup(RankContext(0, 1, CPU, alone=True))
    assert sorted(data.iterdir()) == before
    assert len(list(runs.glob("pairs.json.*.reference"))) == 1
    assert "8 pairs were computed before" in caplog.text
