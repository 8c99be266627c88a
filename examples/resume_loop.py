"""A training loop that stops before the walltime and resumes bit for bit, on any number of ranks."""

import os

import torch
import torch._dynamo  # DDP needs it; imported after the group is made, it would keep the group alive
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import TensorDataset

from castoff.trainers import resumable

EPOCHS = int(os.environ.get("EPOCHS", "20"))


def main() -> None:
    distributed.init_process_group("gloo")
    torch.manual_seed(0)
    numbers = torch.randn(2000, 8)
    dataset = TensorDataset(numbers, numbers.sum(1, keepdim=True))
    network = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 1))
    model = DistributedDataParallel(network)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS)
    loader = resumable.Loader(dataset, batch_size=32 // distributed.get_world_size(), shuffle=True)
    run = resumable.Run(model=model, optimizer=optimizer, scheduler=scheduler)
    for epoch in run.epochs(EPOCHS):
        for given, wanted in run.batches(loader):
            loss = nn.functional.mse_loss(model(given), wanted)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        scheduler.step()
        if distributed.get_rank() == 0:
            print(f"epoch {epoch + 1} of {EPOCHS} is done", flush=True)
    if distributed.get_rank() == 0:
        print("weights sum to", sum(each.double().sum().item() for each in network.parameters()))
    del model  # it keeps the group alive, whose threads could abort the program as it ends
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
