import os

import pytorch_lightning as lightning
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Regression(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.network = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))

    def training_step(self, batch: list[Tensor], _: int) -> Tensor:
        given, wanted = batch
        loss = nn.functional.mse_loss(self.network(given), wanted)
        self.log("loss", loss, on_step=False, on_epoch=True, sync_dist=True)
        return loss

    def on_train_epoch_end(self) -> None:
        self.print(f"loss {float(self.trainer.callback_metrics['loss']):.5f}")

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


def main() -> None:
    lightning.seed_everything(0)
    numbers = torch.randn(512, 8, generator=torch.Generator().manual_seed(0))
    data = TensorDataset(numbers, numbers.sum(1, keepdim=True))
    ranks, rank = int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"])
    sampler: DistributedSampler[tuple[Tensor, ...]] = DistributedSampler(data, ranks, rank, shuffle=False)
    trainer = lightning.Trainer(accelerator="cpu", devices=ranks, strategy="ddp", max_epochs=3, logger=False)
    trainer.fit(Regression(), DataLoader(data, 16, sampler=sampler))


if __name__ == "__main__":
    main()
