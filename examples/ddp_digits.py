"""Train a small network to read a pocket calculator's digits through noise, on any number of ranks.

Plain PyTorch: it reads RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT, and nothing else.
"""

import os

import torch
import torch._dynamo  # DDP needs it; imported after the group is made, it would keep the group alive
from torch import distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

EPOCHS = 10

DIGITS = """
### .#. ### ### #.# ### ### ### ### ###
#.# .#. ..# ..# #.# #.. #.. ..# #.# #.#
#.# .#. ### ### ### ### ### ..# ### ###
#.# .#. #.. ..# ..# ..# #.# ..# #.# ..#
### .#. ### ### ..# ### ### ..# ### ###
"""


def draw(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Images of 5 x 3 pixels, shape (count, 15), and their digits, shape (count,)."""
    lines = [line.split() for line in DIGITS.split("\n") if line]
    clean = torch.tensor([[mark == "#" for line in lines for mark in line[digit]] for digit in range(10)])
    labels = torch.randint(10, (count,))
    return clean[labels] + 0.25 * torch.randn(count, 15), labels


def main() -> None:
    device = torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")
    if device.type != "cpu":
        # A rank sees all devices of its node, or only its own.
        torch.accelerator.set_device_index(int(os.environ["LOCAL_RANK"]) % torch.accelerator.device_count())
    # gloo on a CPU, nccl on NVIDIA and AMD devices, xccl on Intel's.
    dist.init_process_group(dist.get_default_backend_for_device(device), init_method="env://")
    rank, ranks = dist.get_rank(), dist.get_world_size()

    torch.manual_seed(0)  # the same images on every rank
    images, labels = draw(1800)
    test = torch.arange(360)

    dataset = TensorDataset(images[360:], labels[360:])
    sampler: DistributedSampler[tuple[torch.Tensor, ...]] = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=max(64 // ranks, 1), sampler=sampler)
    network = nn.Sequential(nn.Linear(15, 128), nn.ReLU(), nn.Linear(128, 10)).to(device)
    model = DistributedDataParallel(network)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)  # a new order in each epoch, the same on every rank
        total = torch.zeros(2, device=device)  # sum of losses, number of images
        for batch, wanted in loader:
            loss = nn.functional.cross_entropy(model(batch.to(device)), wanted.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += torch.tensor([loss.item() * len(wanted), len(wanted)], device=device)
        dist.all_reduce(total)
        if rank == 0:
            print(f"epoch {epoch + 1:2d} of {EPOCHS}: training loss {total[0] / total[1]:.3f}", flush=True)

    # Each rank evaluates different images, so the sums over ranks are exact.
    mine = test[rank::ranks]
    with torch.no_grad():
        right = (network(images[mine].to(device)).argmax(1) == labels[mine].to(device)).sum()
    score = torch.tensor([int(right), len(mine)], device=device)
    dist.all_reduce(score)
    if rank == 0:
        correct, seen = score.tolist()
        print(f"test accuracy {correct / seen:.4f} ({correct} of {seen} images, {ranks} ranks)", flush=True)
    del model  # it keeps the group alive, whose threads could abort the program as it ends
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
