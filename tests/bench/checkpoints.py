"""How long training halts for a checkpoint of 200 MB: castoff's, and `torch.save` in a loop by hand.

Both loops take turns in one process, and each saves in the middle of its lap. What a save takes is how
much longer it is from that step's pass to the next one's than it was in the two steps before.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import torch
from torch.nn.functional import mse_loss
from torch.utils.data import DataLoader

from tests import patience
from tests.bench.loops import Layers, Work, optimizer_of, train_with_castoff
from tests.bench.relay import Runner, Turn
from tests.bench.training import ROUNDS, tenths, verdict

BAR = 0.20
"""Of torch.save's time."""
EVERY = 6
"""Steps between two saves."""
WIDTH = 2872
"""With AdamW's two moments, 198 MB."""


def measure(rounds: int, width: int = WIDTH) -> dict[str, list[float]]:
    """Seconds of each save: castoff's, torch.save's, and of copying the same tensors, bare."""
    work = Work(width, EVERY * (rounds + 2), batch_size=1, ranks=1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ours, saving = _Timed(), _Timed()
        saved = folder / "saved.pt"
        castoff = Runner(partial(_castoff, work, folder, ours))
        by_hand = Runner(partial(_torch_save, work, saved, saving))
        for runner in (castoff, by_hand):
            runner.prepare()
            runner.run(EVERY // 2)
        for number in range(1, rounds + 2):
            castoff.run(EVERY)
            durable = f"step-{number * EVERY:010d}"
            patience.until(partial(_finds, folder, durable), f"{durable} never came")
            by_hand.run(EVERY)
            _flush(saved)  # or it would be written while castoff's lap is timed
        for runner in (castoff, by_hand):
            runner.finish()
    return {
        "castoff": ours.stalls(rounds),
        "torch.save": saving.stalls(rounds),
        "copying": _copies(work, rounds),
    }


class _Timed:
    """Tells how long it was from each pass to the next, without standing in between."""

    def __init__(self) -> None:
        self._gaps: list[float] = []
        self._last: float | None = None

    def __call__(self, turn: Turn) -> None:
        if self._last is not None:
            self._gaps.append(time.perf_counter() - self._last)
        turn()
        self._last = time.perf_counter()

    def stalls(self, rounds: int) -> list[float]:
        """What each save took; not the first, which makes buffers."""
        saves = [EVERY * number - 1 for number in range(2, rounds + 2)]
        return [self._gaps[at] - (self._gaps[at - 1] + self._gaps[at - 2]) / 2 for at in saves]


def _castoff(work: Work, folder: Path, timed: _Timed, turn: Turn) -> None:
    task = Layers(work, partial(timed, turn))
    train_with_castoff(task, folder, checkpoint_every_steps=EVERY)


def _torch_save(work: Work, file: Path, timed: _Timed, turn: Turn) -> None:
    model = work.model()
    optimizer = optimizer_of(model)
    for number, (given, wanted) in enumerate(DataLoader(work.data(), work.batch_size), 1):
        timed(turn)
        optimizer.zero_grad()
        mse_loss(model(given), wanted).backward()
        optimizer.step()
        if number % EVERY == 0:
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)


def _copies(work: Work, rounds: int) -> list[float]:
    held = [each.detach() for each in work.model().parameters()] * 3
    buffers = [each.clone() for each in held]
    taken = []
    for _ in range(rounds):
        began = time.perf_counter()
        for buffer, tensor in zip(buffers, held, strict=True):
            buffer.copy_(tensor)
        taken.append(time.perf_counter() - began)
    return taken


def _flush(file: Path) -> None:
    with file.open("rb") as held:
        os.fsync(held.fileno())


def _finds(folder: Path, name: str) -> Path | None:
    # Looks into no checkpoint: those that are written and removed meanwhile come and go.
    return next(folder.glob(f"*/checkpoints/{name}"), None)


def table(stalls: dict[str, list[float]]) -> list[str]:
    """The lines that tell what came out."""
    medians = {name: statistics.median(taken) for name, taken in stalls.items()}
    ratio = medians["castoff"] / medians["torch.save"]
    lines = [
        f"\nHow long training halts for a checkpoint of {WIDTH**2 * 2 * 3 * 4 / 1e6:.0f} MB, on one rank"
    ]
    for name, taken in stalls.items():
        low, high = tenths(taken)
        lines.append(f"{name:12} {medians[name] * 1e3:5.0f} ms ({low * 1e3:.0f} to {high * 1e3:.0f})")
    bare = medians["copying"] / medians["torch.save"]
    lines.append(
        f"castoff over torch.save {ratio:.3f}, bar {BAR:.2f}: {verdict(ratio, BAR, 0.0)}; copying {bare:.3f}"
    )
    return lines


if __name__ == "__main__":
    torch.set_num_threads(1)  # as a rank does
    print("\n".join(table(measure(int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS))))
