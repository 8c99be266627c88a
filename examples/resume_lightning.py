"""A Lightning training that stops before the walltime and resumes bit for bit, on any number of ranks."""

import os

import pytorch_lightning as lightning
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from castoff.trainers import resumable


class Regression(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.network = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 1))

    def on_train_epoch_start(self) -> None:
        if self.global_rank == 0:
            print(f"epoch {self.current_epoch + 1}", flush=True)

    def training_step(self, batch: list[Tensor], _: int) -> Tensor:
        given, wanted = batch
        return nn.functional.mse_loss(self.network(given), wanted)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def main() -> None:
    lightning.seed_everything(0)
    numbers = torch.randn(2000, 8)
    dataset = TensorDataset(numbers, numbers.sum(1, keepdim=True))
    callback = resumable.lightning_callback()
    local = int(os.environ["LOCAL_WORLD_SIZE"])
    trainer = lightning.Trainer(
        strategy="ddp",
        devices=local,
        num_nodes=int(os.environ["WORLD_SIZE"]) // local,
        max_epochs=int(os.environ.get("EPOCHS", "20")),
        enable_progress_bar=False,
        logger=False,
        callbacks=[callback],
    )
    loader = resumable.Loader(dataset, batch_size=32, shuffle=True)
    model = Regression()
    trainer.fit(model, loader, ckpt_path=callback.newest())
    if trainer.is_global_zero:
        print("weights sum to", sum(each.double().sum().item() for each in model.parameters()))


if __name__ == "__main__":
    main()
