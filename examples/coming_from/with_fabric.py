import os

import torch
from lightning_fabric import Fabric
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EPOCHS, BATCH = 3, 16


def main() -> None:
    fabric = Fabric(accelerator="cpu", devices=int(os.environ["WORLD_SIZE"]), strategy="ddp")
    fabric.launch()
    fabric.seed_everything(0)
    numbers = torch.randn(512, 8, generator=torch.Generator().manual_seed(0))
    data = TensorDataset(numbers, numbers.sum(1, keepdim=True))
    network = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
    model, optimizer = fabric.setup(network, torch.optim.AdamW(network.parameters(), lr=1e-2))
    loader = fabric.setup_dataloaders(DataLoader(data, BATCH))
    for _ in range(EPOCHS):
        total = torch.zeros(())
        for given, wanted in loader:
            loss = nn.functional.mse_loss(model(given), wanted)
            optimizer.zero_grad()
            fabric.backward(loss)
            optimizer.step()
            total += loss.detach()
        mean = fabric.all_reduce(total / len(loader))
        fabric.print(f"loss {mean:.5f}")


if __name__ == "__main__":
    main()
