"""A training by Hugging Face's Trainer that stops before the walltime and resumes bit for bit."""

import os
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import Trainer, TrainingArguments

from castoff.trainers import resumable


class Regression(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.network = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 1))

    def forward(self, x: Tensor, labels: Tensor) -> dict[str, Tensor]:
        return {"loss": nn.functional.mse_loss(self.network(x), labels)}


def main() -> None:
    torch.manual_seed(0)
    dataset = [{"x": numbers, "labels": numbers.sum()[None]} for numbers in torch.randn(2000, 8)]
    settings = TrainingArguments(
        output_dir=str(Path(os.environ.get("CASTOFF_RUN_DIR", ""), "checkpoints")),
        num_train_epochs=float(os.environ.get("EPOCHS", "20")),
        per_device_train_batch_size=32,
        use_cpu=not torch.accelerator.is_available(),
        disable_tqdm=True,  # it prints a line at each log
        logging_strategy="epoch",
        report_to="none",
    )
    callback = resumable.trainer_callback()
    model = Regression()
    trainer = Trainer(model, settings, train_dataset=dataset, callbacks=[callback])
    trainer.train(resume_from_checkpoint=callback.newest())
    if trainer.is_world_process_zero():
        print("weights sum to", sum(each.double().sum().item() for each in model.parameters()))


if __name__ == "__main__":
    main()
