"""What TrainerDDP costs: its loop beside one written by hand, in the same two processes.

Each round runs a chunk of steps of the trainer, of the hand-written loop and of a second copy of
that, in turn, so that a machine that is busy slows all of them. The two copies show how far such
ratios spread by themselves.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

CHECKOUT = Path(__file__).resolve().parents[2]
RANKS = 2
BATCH = 32


class Size(NamedTuple):
    """A model of three layers, and how much of a hand-written loop's time the trainer's may be."""

    width: int
    steps: int
    """In a chunk."""
    bar: float


SIZES = [Size(64, 200, 1.15), Size(1024, 50, 1.05)]


def main(rounds: int) -> None:
    """Start the ranks, and print what they measured."""
    castoff = str(Path(sys.executable).with_name("castoff"))
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "times.json"
        argv = [castoff, "launch", "-n", str(RANKS), "--", sys.executable, "-m", "tests.bench.training"]
        done = subprocess.run(
            [*argv, folder, str(answer), str(rounds)],
            cwd=CHECKOUT,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise SystemExit(f"the ranks ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        measured: list[dict[str, list[float]]] = json.loads(answer.read_text())
    print(
        f"\nA training step on {RANKS} gloo ranks, medians of {rounds} rounds; ref.: a loop written by hand"
    )
    print(f"{'':28} {'ours':>7} {'ref.':>7} {'ratio':>6} {'bar':>5} {'':>7}  ref. over a copy of itself")
    for size, times in zip(SIZES, measured, strict=True):
        ours, byhand, copy = (
            [second / size.steps * 1e3 for second in times[name]] for name in ("ours", "by hand", "copy")
        )
        ratio = statistics.median(a / b for a, b in zip(ours, byhand, strict=True))
        spread = sorted(a / b for a, b in zip(copy, byhand, strict=True))
        low, high = spread[len(spread) // 10], spread[-1 - len(spread) // 10]
        print(
            f"{f'three layers of {size.width}':28} {statistics.median(ours):7.2f}"
            f" {statistics.median(byhand):7.2f} {ratio:6.3f} {size.bar:5.2f}"
            f" {'met' if ratio <= size.bar else 'NOT MET':>7}"
            f"  {statistics.median(spread):.3f} ({low:.3f} to {high:.3f})"
        )


def measure(folder: Path, answer: Path, rounds: int) -> None:
    """On one rank: the time that every chunk took."""
    import torch
    import torch.distributed as dist

    from launcher.ranks import RankEnv
    from trainers.ddp import cleanup_ddp, initialize_ddp

    me = RankEnv.detect()
    torch.set_num_threads(1)
    initialize_ddp(me.rank, me.world_size, device="cpu")
    measured = []
    for size in SIZES:
        loops = {
            "ours": trainer_loop(size, folder),
            "by hand": loop_by_hand(size),
            "copy": loop_by_hand(size),
        }
        times: dict[str, list[float]] = {name: [] for name in loops}
        for number in range(rounds + 1):
            names = list(loops)
            for name in names[number % 3 :] + names[: number % 3]:
                dist.barrier()
                began = time.perf_counter()
                loops[name](number)
                dist.barrier()
                if number:  # the first round fills caches
                    times[name].append(time.perf_counter() - began)
        measured.append(times)
    if me.rank == 0:
        answer.write_text(json.dumps(measured))
    cleanup_ddp()


def layers(width: int) -> Any:
    """The model that both loops train."""
    from torch import nn

    inner = (nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
    return nn.Sequential(*inner, nn.Linear(width, 1))


def numbers(size: Size) -> Any:
    """The data set that both loops train on: as long as a chunk."""
    import torch
    from torch.utils.data import TensorDataset

    held = torch.randn(size.steps * BATCH * RANKS, size.width, generator=torch.Generator().manual_seed(0))
    return TensorDataset(held, held.mean(1, keepdim=True))


def loop_by_hand(size: Size) -> Callable[[int], None]:
    """What one writes without a trainer: no log, no checkpoint, no seeds, and nothing can stop it."""
    import torch
    from torch.nn.functional import mse_loss
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.data import DataLoader, DistributedSampler

    torch.manual_seed(0)
    model = DistributedDataParallel(layers(size.width), gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    data = numbers(size)
    sampler: DistributedSampler[Any] = DistributedSampler(data)
    loader = DataLoader(data, batch_size=BATCH, sampler=sampler)

    def chunk(number: int) -> None:
        sampler.set_epoch(number)
        model.train()
        for given, wanted in loader:
            optimizer.zero_grad()
            loss = mse_loss(model(given), wanted)
            loss.backward()
            optimizer.step()

    return chunk


def trainer_loop(size: Size, folder: Path) -> Callable[[int], None]:
    """TrainerDDP's own loop over an epoch, as `run_training` calls it."""
    import torch
    from torch import nn
    from torch.nn.functional import mse_loss

    from launcher.ranks import RankEnv
    from trainers.ddp import TrainerDDP
    from trainers.task import Loss, Splits, Task

    class Layers(Task):
        def build_model(self) -> nn.Module:
            return layers(size.width)  # type: ignore[no-any-return]

        def build_data(self) -> Splits:
            return Splits(*[numbers(size)] * 3)

        def loss(self, model: nn.Module, batch: Any) -> Loss:
            given, wanted = batch
            return Loss(mse_loss(model(given), wanted) * len(given), len(given))

    training = {
        "path": str(folder),
        "num_epochs": 1,
        "batch_size": BATCH,
        "optimizer_type": torch.optim.AdamW,
        "optimizer_kwargs": {"lr": 1e-3},
        "log_every": 50,
    }
    me = RankEnv.detect()
    trainer = TrainerDDP(me.rank, {"name": f"width{size.width}", "training": training}, Layers())
    train, _, _ = trainer.prepare_dataloaders()
    trainer._prepare(train, ExitStack())

    def chunk(number: int) -> None:
        for group in trainer.reports.waits(train.groups(number, 0)):
            trainer.stopping.agreed()
            trainer._step(group)
            trainer._after_step(None)

    return chunk


if __name__ == "__main__":
    measure(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
