"""The same training by castoff and by others, as each one's guide writes it."""

from __future__ import annotations

import hashlib
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss
from torch.utils.data import DataLoader, Dataset

SAMPLES, BATCH, EPOCHS = 48, 4, 2
HELD_OUT = 5
"""Samples of the validation set, which two ranks cannot share evenly."""


class Case(NamedTuple):
    """How a training runs."""

    folder: Path
    """For its checkpoints."""
    stop_after: int = 0
    """Save a checkpoint after this optimizer step, and end; 0: train to the end."""
    save_at: int = 0
    """Save after this step, too."""
    resumes: bool = False
    """Begin with the newest checkpoint, as the guide finds it."""
    term_at: int = 0
    """Rank 1 gets a TERM in this step."""


class Result(NamedTuple):
    """What a rank did."""

    weights: str
    seen: list[list[int]]
    """The samples of each step."""


class Numbers(Dataset[Any]):
    """Samples that tell their index."""

    def __init__(self, length: int = SAMPLES):
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        numbers = torch.randn(4, generator=torch.Generator().manual_seed(index))
        return {"x": torch.cat([torch.tensor([index / SAMPLES]), numbers]), "labels": numbers.sum()[None]}


class Network(nn.Module):
    """Has dropout, and remembers which samples it was trained on."""

    latest: Network
    """The one made last."""

    def __init__(self, case: Case):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(5, 512), nn.ReLU(), nn.Dropout(0.3), nn.Linear(512, 1))
        self.case = case
        self.seen: list[list[int]] = []
        Network.latest = self

    def forward(self, x: Tensor) -> Tensor:
        if self.training and not torch.is_inference_mode_enabled():
            self.seen.append((x[:, 0] * SAMPLES).round().int().tolist())
            if len(self.seen) == self.case.term_at and os.environ["RANK"] == "1":
                os.kill(os.getpid(), signal.SIGTERM)
        predicted: Tensor = self.layers(x)
        return predicted

    def result(self) -> Result:
        data = b"".join(each.detach().numpy().tobytes() for each in self.layers.state_dict().values())
        return Result(hashlib.sha256(data).hexdigest(), self.seen)


class Validated(NamedTuple):
    """A validation's mean loss, and the network that it judged."""

    mean: float
    network: Network

    def error(self) -> float:
        """How far from the mean over all samples, relative to it."""
        samples = [Numbers()[index] for index in range(HELD_OUT)]
        self.network.eval()
        with torch.no_grad():
            predicted = self.network(torch.stack([each["x"] for each in samples]))
        exact = float(mse_loss(predicted, torch.stack([each["labels"] for each in samples])))
        return abs(self.mean - exact) / exact


Training: TypeAlias = Callable[[Case], Result]


def optimizer_of(network: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(network.parameters(), lr=0.01)


def _fabric() -> Any:
    from lightning_fabric import Fabric

    fabric = Fabric(accelerator="cpu", devices=2, strategy="ddp")
    fabric.launch()
    fabric.seed_everything(0, verbose=False)
    return fabric


def fabric(case: Case) -> Result:
    fabric = _fabric()
    network = Network(case)
    model, optimizer = fabric.setup(network, optimizer_of(network))
    loader = fabric.setup_dataloaders(DataLoader(Numbers(), BATCH, shuffle=True))
    state = {"model": model, "optimizer": optimizer, "epoch": 0, "step": 0}
    if case.resumes:
        fabric.load(case.folder / "checkpoint.ckpt", state)
    for epoch in range(state["epoch"], EPOCHS):
        state["epoch"] = epoch
        for batch in loader:
            optimizer.zero_grad()
            fabric.backward(mse_loss(model(batch["x"]), batch["labels"]))
            optimizer.step()
            state["step"] += 1
            if state["step"] == case.stop_after:
                fabric.save(case.folder / "checkpoint.ckpt", state)
                return network.result()
    return network.result()


def fabric_validates(case: Case) -> Validated:
    fabric = _fabric()
    network = Network(case)
    model = fabric.setup_module(network)
    loader = fabric.setup_dataloaders(DataLoader(Numbers(HELD_OUT), 2))
    model.eval()
    with torch.no_grad():
        losses = [mse_loss(model(batch["x"]), batch["labels"]) for batch in loader]
    return Validated(float(fabric.all_reduce(torch.stack(losses).mean())), network)


class Progress:
    """Steps, for accelerate's checkpoints."""

    step = 0

    def state_dict(self) -> dict[str, int]:
        return {"step": self.step}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.step = state["step"]


def accelerate(case: Case) -> Result:
    from accelerate import Accelerator
    from accelerate.utils import ProjectConfiguration, set_seed

    kept = ProjectConfiguration(project_dir=str(case.folder), automatic_checkpoint_naming=True)
    accelerator = Accelerator(cpu=True, project_config=kept)
    set_seed(0)
    network, progress = Network(case), Progress()
    model, optimizer, loader = accelerator.prepare(
        network, optimizer_of(network), DataLoader(Numbers(), BATCH, shuffle=True)
    )
    accelerator.register_for_checkpointing(progress)
    if case.resumes:
        accelerator.load_state()
        kept.iteration = 1 + max(
            int(each.name.split("_")[1]) for each in (case.folder / "checkpoints").iterdir()
        )
    first, skipped = divmod(progress.step, len(loader))
    for epoch in range(first, EPOCHS):
        loader.set_epoch(epoch)
        left = accelerator.skip_first_batches(loader, skipped) if epoch == first and skipped else loader
        for batch in left:
            optimizer.zero_grad()
            accelerator.backward(mse_loss(model(batch["x"]), batch["labels"]))
            optimizer.step()
            progress.step += 1
            if progress.step in (case.save_at, case.stop_after):
                accelerator.save_state()
            if progress.step == case.stop_after:
                return network.result()
    return network.result()


def accelerate_validates(case: Case) -> Validated:
    from accelerate import Accelerator
    from accelerate.utils import set_seed

    accelerator = Accelerator(cpu=True)
    set_seed(0)
    network = Network(case)
    model, loader = accelerator.prepare(network, DataLoader(Numbers(HELD_OUT), 2))
    model.eval()
    losses = []
    with torch.no_grad():
        for batch in loader:
            each = mse_loss(model(batch["x"]), batch["labels"], reduction="none").mean(1)
            losses.append(accelerator.gather_for_metrics(each))
    return Validated(float(torch.cat(losses).mean()), network)


def _lightning(case: Case) -> tuple[Any, Any]:
    import pytorch_lightning
    from pytorch_lightning.callbacks import Callback, ModelCheckpoint

    class Module(pytorch_lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.network = Network(case)

        def training_step(self, batch: dict[str, Tensor], _: int) -> Tensor:
            return mse_loss(self.network(batch["x"]), batch["labels"])

        def validation_step(self, batch: dict[str, Tensor], _: int) -> None:
            loss = mse_loss(self.network(batch["x"]), batch["labels"])
            self.log("loss", loss, sync_dist=True)

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return optimizer_of(self)

    class Stop(Callback):
        def on_train_batch_start(self, trainer: Any, *_: Any) -> None:
            if trainer.global_step == case.stop_after > 0:
                raise SystemExit  # as if killed after the checkpoint

    every = case.stop_after // 2 or 10**6
    kept = ModelCheckpoint(dirpath=case.folder, every_n_train_steps=every, save_top_k=-1, save_last=True)
    pytorch_lightning.seed_everything(0, verbose=False)
    trainer = pytorch_lightning.Trainer(
        accelerator="cpu",
        devices=2,
        strategy="ddp",
        max_epochs=EPOCHS,
        min_epochs=0,
        callbacks=[kept, Stop()],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    return trainer, Module()


def lightning(case: Case) -> Result:
    trainer, module = _lightning(case)
    loader = DataLoader(Numbers(), BATCH, shuffle=True)
    trainer.fit(module, loader, ckpt_path="last" if case.resumes else None)
    found: Result = module.network.result()
    return found


def lightning_validates(case: Case) -> Validated:
    trainer, module = _lightning(case)
    (found,) = trainer.validate(module, DataLoader(Numbers(HELD_OUT), 2), verbose=False)
    return Validated(float(found["loss"]), module.network)


def _hugging_face(case: Case) -> tuple[Any, Network]:
    from transformers import Trainer, TrainerCallback, TrainingArguments, set_seed

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = Network(case)

        def forward(self, x: Tensor, labels: Tensor) -> dict[str, Tensor]:
            return {"loss": mse_loss(self.network(x), labels)}

    class Stop(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            control.should_save |= state.global_step in (case.save_at, case.stop_after)
            control.should_training_stop |= state.global_step == case.stop_after

    set_seed(0)
    model = Model()
    settings = TrainingArguments(
        str(case.folder),
        per_device_train_batch_size=BATCH,
        per_device_eval_batch_size=2,
        num_train_epochs=EPOCHS,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        ddp_backend="gloo",
        disable_tqdm=True,
        seed=0,
    )
    made = Trainer(
        model, settings, train_dataset=Numbers(), eval_dataset=Numbers(HELD_OUT), callbacks=[Stop()]
    )
    return made, model.network


def hugging_face(case: Case) -> Result:
    trainer, network = _hugging_face(case)
    trainer.train(resume_from_checkpoint=case.resumes or None)
    return network.result()


def hugging_face_validates(case: Case) -> Validated:
    trainer, network = _hugging_face(case)
    return Validated(float(trainer.evaluate()["eval_loss"]), network)


def _castoff(case: Case, epochs: int) -> Any:
    from castoff.trainers import Loss, Splits, Task, train

    class Work(Task):
        def build_model(self) -> nn.Module:
            return Network(case)

        def build_data(self) -> Splits:
            return Splits(Numbers(), Numbers(HELD_OUT), Numbers(HELD_OUT))

        def loss(self, model: nn.Module, batch: dict[str, Tensor]) -> Loss:
            if model.training and self.state.step == case.stop_after - 1 >= 0:
                os.kill(os.getpid(), signal.SIGUSR2)  # as when castoff asks for a stop
            return Loss(mse_loss(model(batch["x"]), batch["labels"], reduction="sum"))

    training = {
        "path": str(case.folder),
        "num_epochs": epochs,
        "batch_size": BATCH,
        "device": "cpu",
        "optimizer_type": torch.optim.AdamW,
        "optimizer_kwargs": {"lr": 0.01},
        "checkpoint_every_steps": case.save_at or None,
        "check_first_step": False,
    }
    return train({"name": "peer", "training": training, "validation": {"batch_size": 2}}, Work()).trainer


def castoff(case: Case) -> Result:
    found: Result = _castoff(case, EPOCHS).model.result()
    return found


def castoff_validates(case: Case) -> Validated:
    trainer = _castoff(case, 1)
    return Validated(float(trainer.val_data[-1]["loss"]), trainer.model)


class Peer(NamedTuple):
    """A library, and its programs."""

    package: str
    train: Training
    validate: Callable[[Case], Validated]


PEERS = {
    "castoff": Peer("castoff", castoff, castoff_validates),
    "Fabric": Peer("pytorch-lightning", fabric, fabric_validates),
    "accelerate": Peer("accelerate", accelerate, accelerate_validates),
    "Lightning": Peer("pytorch-lightning", lightning, lightning_validates),
    "HF Trainer": Peer("transformers", hugging_face, hugging_face_validates),
}
