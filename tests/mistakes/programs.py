"""Programs, each with one mistake in it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

MARK = "# the mistake"
"""Ends the line of a program that is its mistake."""

_HEAD = f"""\
import ctypes, os, signal, sys, threading, time
import torch
from torch import nn
from torch.utils.data import Dataset, TensorDataset
from trainers import Loss, Splits, Task, split, train

RANK, LAST = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1)) - 1


def wrong():
    return absent  {MARK}


class Mine(Task):
    def build_model(self):
        return nn.Linear(4, 1)

    def build_data(self):
        numbers = torch.randn(96, 4, generator=torch.Generator().manual_seed(0))
        return Splits(*split(TensorDataset(numbers, numbers.sum(1, keepdim=True)), [0.8, 0.1, 0.1], 0))

    def loss(self, model, batch):
        numbers, wanted = batch
        return Loss(((model(numbers) - wanted) ** 2).sum())


"""

CONFIG: Mapping[str, Any] = {
    "name": "mine",
    "training": {"path": "out", "num_epochs": 2, "batch_size": 4, "device": "cpu"},
    "parallel": {},
}
_OPTIMIZER = '{"optimizer_type": torch.optim.SGD, "optimizer_kwargs": {"lr": 0.01}}'


class Mistake(NamedTuple):
    """A program, and what is to be seen when it runs."""

    program: str
    shows: str
    """The cause, in words that are shown once."""
    code: int
    alone: bool
    """Whether the last rank alone makes it."""

    def write(self, folder: Path) -> Path:
        """Its file."""
        path = folder / "wrong.py"
        path.write_text(self.program)
        return path


def task(
    *methods: str,
    shows: str = MARK,
    code: int = 1,
    alone: bool = False,
    training: Mapping[str, Any] = {},
    before: str = "",
    after: str = "",
    **sections: Any,
) -> Mistake:
    """A task with these methods, each `HEAD: BODY`, that is trained."""
    lines = [
        f"    def {head}:\n        {body}" for head, _, body in (each.partition(": ") for each in methods)
    ]
    config = {**CONFIG, **sections, "training": {**CONFIG["training"], **training}}
    parts = [
        *(before, _HEAD, "class Wrong(Mine):\n", "\n\n".join(lines) or "    pass"),
        *(
            f"\n\n\nCONFIG = {config!r}\n",
            f'CONFIG["training"] |= {_OPTIMIZER}\n',
            "train(CONFIG, Wrong())\n",
        ),
    ]
    return Mistake("".join([*parts, after]), shows, code, alone)


_AT_STEP_3 = "if self.state.step == 3 and RANK == LAST: "
_REST = "; return super().loss(model, batch)"


def at_step_3(statement: str, *, shows: str = MARK, code: int = 1, **more: Any) -> Mistake:
    """The last rank does this in its fourth step."""
    body = f"{_AT_STEP_3}{statement}\n        return super().loss(model, batch)"
    return task(f"loss(self, model, batch): {body}", shows=shows, code=code, alone=True, **more)


MISTAKES: dict[str, Mistake] = {
    # A typo in each method of a task
    "init": task("__init__(self): wrong()"),
    "setup": task("setup(self, place): wrong()"),
    "build_model": task("build_model(self): wrong()"),
    "parameters": task("parameters(self, model): wrong()"),
    "build_data": task("build_data(self): wrong()"),
    "collate": task("collate(self, samples): wrong()"),
    "loss": task("loss(self, model, batch): wrong()"),
    "evaluate": task("evaluate(self, model, batch): wrong()"),
    "finish": task("finish(self, sums): wrong()"),
    "tester": task("tester(self): wrong()"),
    "after_evaluation": task("after_evaluation(self, model): wrong()"),
    "export": task("export(self, model, folder, *, better): wrong()"),
    "state_dict": task("state_dict(self): wrong()"),
    # On one rank alone
    "loss on one rank": at_step_3("wrong()"),
}
