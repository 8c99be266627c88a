import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from castoff.trainers import Loss, Splits, Task, train


class Regression(Task):
    def build_model(self) -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))

    def build_data(self) -> Splits:
        numbers = torch.randn(512, 8, generator=torch.Generator().manual_seed(0))
        data = TensorDataset(numbers, numbers.sum(1, keepdim=True))
        return Splits(data, data, data)

    def loss(self, model: nn.Module, batch: list[Tensor]) -> Loss:
        given, wanted = batch
        return Loss(nn.functional.mse_loss(model(given), wanted, reduction="sum"))


def main() -> None:
    loop = {"path": "trained", "num_epochs": 3, "batch_size": 16, "shuffle": False, "device": "cpu"}
    optimizer = {"optimizer_type": torch.optim.AdamW, "optimizer_kwargs": {"lr": 1e-2}}
    trained = train({"name": "regression", "training": loop | optimizer}, Regression())
    if trained.trainer.context.is_main:
        for means in trained.trainer.train_data:
            print(f"loss {means['loss']:.5f}")


if __name__ == "__main__":
    main()
