"""Programs, each with one mistake in it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

MARK = "# the mistake"
"""Ends the line of a program that is its mistake."""

_HEAD = f"""\
import ctypes, os, queue, signal, sys, threading, time
import torch
from torch import nn
from torch.utils.data import Dataset, TensorDataset
from castoff.trainers import Evaluated, Loss, Splits, Task, split, train

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


_SAMPLERS = "from torch.utils.data import DataLoader, DistributedSampler\n"
_OWN_LOADERS = f"""\
from castoff.trainers import TrainerDDP


class Own(TrainerDDP):
    def prepare_dataloaders(self):
        training, _, test = super().prepare_dataloaders()
        part = DistributedSampler(self.splits.validation, LAST + 1, RANK)
        return training, DataLoader(self.splits.validation, 4, sampler=part), test


CONFIG = {CONFIG!r}
CONFIG["training"] |= {_OPTIMIZER}
train(CONFIG, Mine(), trainer=Own)
"""


class Mistake(NamedTuple):
    """A program, and what is to be seen when it runs."""

    program: str
    shows: str
    """The cause, in words that are shown once."""
    code: int
    alone: bool = False
    """Whether the last rank alone makes it."""
    again: bool = False
    """Whether it is made by a program that resumes from where another was."""

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
    again: bool = False,
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
            "CONFIG['training']['num_epochs'] += os.path.exists('out')\n",
            "train(CONFIG, Wrong())\n",
        ),
    ]
    return Mistake("".join([*parts, after]), shows, code, alone, again)


def _lines(*lines: str) -> str:
    return "\n        ".join(lines)


def at_step_3(statement: str, *, shows: str = MARK, code: int = 1, **more: Any) -> Mistake:
    """The last rank does this in its fourth step."""
    body = _lines(
        *("if self.state.step == 3 and RANK == LAST:", f"    {statement}  {MARK}"),
        "return super().loss(model, batch)",
    )
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
    "evaluate of the last epoch": task(
        "evaluate(self, model, batch): "
        + _lines("if self.state.epoch > 1: wrong()", "return super().evaluate(model, batch)")
    ),
    "finish": task("finish(self, sums): wrong()"),
    "tester": task("test_task(self): wrong()"),
    "after_evaluation": task("after_evaluation(self, model): wrong()"),
    "export": task("export(self, model, folder, *, better): wrong()"),
    "state_dict": task("state_dict(self): wrong()"),
    "load_state_dict": task(
        *("load_state_dict(self, state): wrong()", "state_dict(self): return {'seen': 1}"),
        again=True,
    ),
    "measure": task(
        "evaluate(self, model, batch): return Evaluated({'loss': (torch.ones(()), 1)}, [1])",
        "measure(self, kept): wrong()",
    ),
    # Of one rank alone
    "loss of one rank": at_step_3("raise ValueError('a sample is bad')"),
    "setup of one rank": task(f"setup(self, place): assert RANK < LAST  {MARK}", alone=True),
    "data of one rank": task(
        "build_data(self): "
        + _lines(f"if RANK == LAST: open('/nowhere/data.pt')  {MARK}", "return super().build_data()"),
        alone=True,
    ),
    "assertion on rank 0": task(
        "loss(self, model, batch): "
        + _lines(f"if RANK == 0: assert self.state.step < 3  {MARK}", "return super().loss(model, batch)")
    ),
    # What ends a rank without an error
    "sys.exit": at_step_3("sys.exit(3)", shows="sys.exit(3) in loss (wrong.py:", code=3),
    "os._exit": at_step_3("os._exit(3)", shows="does not answer", code=3),
    "segfault": at_step_3("ctypes.string_at(0)", shows="Segmentation fault", code=139),
    "abort": at_step_3("os.abort()", shows="Aborted", code=134),
    "out of memory": at_step_3("os.kill(os.getpid(), signal.SIGKILL)", shows="does not answer", code=137),
    "MemoryError": at_step_3("bytearray(1 << 60)"),
    # Elsewhere than in the loop's own thread
    "worker": task(
        "collate(self, samples): wrong()", training={"num_workers": 1, "persistent_workers": False}
    ),
    "killed worker": task(
        "collate(self, samples): os.kill(os.getpid(), signal.SIGKILL)",
        shows="is killed by signal: Killed",
        training={"num_workers": 1},
    ),
    "thread": task(
        "loss(self, model, batch): "
        + _lines(
            "self.queue = queue.Queue()",
            "threading.Thread(target=self.fetch, daemon=True).start()",
            "self.queue.get()",
        ),
        "fetch(self): wrong()",
        parallel={"start_timeout": 4, "timeout": 4},
    ),
    # Shapes, devices, parameters
    "shape": task(f"loss(self, model, batch): return Loss(model(batch[0].T).sum())  {MARK}"),
    "device": task(f"loss(self, model, batch): return Loss(model(batch[0].to('cuda')).sum())  {MARK}"),
    "other device": task(shows="training.device is xpu", training={"device": "xpu"}),
    "meta device": task(f"loss(self, model, batch): return Loss(model(batch[0].to('meta')).sum())  {MARK}"),
    "nothing returned": task("loss(self, model, batch): pass", shows="Wrong.loss returned None"),
    "unused parameter": task(
        "build_model(self): "
        + _lines("model = super().build_model()", "model.more = nn.Linear(2, 2)", "return model"),
        shows="more.weight",
    ),
    # A sampler: the trainer decides which samples come when
    "sampler": task(
        "build_data(self): "
        + _lines(
            "data = super().build_data()",
            "mine = DataLoader(data.train, 4, sampler=DistributedSampler(data.train, LAST + 1, RANK))",
            "return data._replace(train=mine)",
        ),
        shows="Wrong.build_data returned a DataLoader for train; return the data set",
        before=_SAMPLERS,
    ),
    "sampler of validation": Mistake(
        _SAMPLERS + _HEAD + _OWN_LOADERS, "val is a DataLoader; pass what prepare_dataloaders() returns", 1
    ),
    # Ranks that do not do the same
    "collective of one rank": at_step_3(
        "torch.distributed.all_reduce(torch.ones(3))",
        shows="the ranks have begun different numbers of collectives (rank",
        parallel={"start_timeout": 4, "timeout": 4},
    ),
    "stuck rank": at_step_3(
        "time.sleep(10000)",
        shows="is busy after step 3: in loss",
        parallel={"start_timeout": 4, "timeout": 4},
    ),
    "sizes": task(
        "build_data(self): "
        + _lines("data = super().build_data()", "return data._replace(train=torch.ones(40 + RANK, 4))"),
        shows="samples of build_data's train",
    ),
    # The configuration
    "typo in the configuration": task(
        shows="training.num_epoch: there is no such field", training={"num_epoch": 2}
    ),
    "two missing fields": Mistake(
        _HEAD + "train({'name': 'mine', 'training': {'path': 'out'}}, Mine())\n",
        "training.num_epochs: is missing",
        1,
    ),
    # Around the training
    "module": task(before=f"import not_there  {MARK}\n"),
    "before": task(before=f"1 / 0  {MARK}\n"),
    "after": task(after=f"1 / 0  {MARK}\n"),
}

SPAWNED = (
    _HEAD
    + f"""\
from torch.multiprocessing.spawn import spawn
from castoff.trainers import TrainerDDP, cleanup_ddp, initialize_ddp


class Wrong(Mine):
    def loss(self, model, batch):
        assert self.state.step < 3 or self.state.rank < 2  {MARK}
        return super().loss(model, batch)


CONFIG = {CONFIG!r}
CONFIG["training"] |= {_OPTIMIZER}


def rank(number, port):
    initialize_ddp(number, 3, "127.0.0.1", port, device="cpu")
    trainer = TrainerDDP(number, CONFIG, Wrong())
    training, validation, _ = trainer.prepare_dataloaders()
    trainer.run_training(training, validation)
    cleanup_ddp()


if __name__ == "__main__":
    spawn(rank, args=(sys.argv[1],), nprocs=3)
"""
)
"""A program that spawns three ranks by itself, of which the last one makes a mistake."""
