import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EPOCHS, BATCH = 3, 16


def main() -> None:
    accelerator = Accelerator(cpu=True)
    set_seed(0)
    numbers = torch.randn(512, 8, generator=torch.Generator().manual_seed(0))
    data = TensorDataset(numbers, numbers.sum(1, keepdim=True))
    network = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-2)
    model, optimizer, loader = accelerator.prepare(network, optimizer, DataLoader(data, BATCH))
    for _ in range(EPOCHS):
        total = torch.zeros(())
        for given, wanted in loader:
            loss = nn.functional.mse_loss(model(given), wanted)
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
            total += loss.detach()
        mean = accelerator.reduce(total / len(loader), reduction="mean")
        accelerator.print(f"loss {float(mean):.5f}")


if __name__ == "__main__":
    main()
