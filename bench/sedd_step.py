"""A training step of castoff's diffusion of proteins beside one of the public code.

    python -m bench.sedd_step PUBLIC [--size mini] [--length 64] [--batch 8] [--rounds 15]

PUBLIC is a checkout of github.com/louaaron/Score-Entropy-Discrete-Diffusion, which needs the packages einops,
omegaconf and huggingface_hub. Its flash attention, which only GPUs have, is replaced by torch's. Both train
the same network on the same number of tokens, on one thread of the CPU, and take turns.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import tempfile
import time
import types
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bench.relay import Runner, Turn
from bench.training import Lap, Ratio, machine, versions
from castoff.trainers.configuration.config import Config
from castoff.trainers.ddp import TrainerDDP
from castoff.trainers.distributed.process_group import RankContext
from castoff.trainers.sedd.data import ProteinBatch
from castoff.trainers.sedd.model import SIZES
from castoff.trainers.sedd.task import SeddTask
from castoff.trainers.task import Loss, Splits

STEPS = 4
"""Steps of a round."""
ADAM = {"lr": 3e-4, "betas": (0.9, 0.999), "eps": 1e-8}
EMA, CLIP = 0.9999, 1.0


class Fixed(SeddTask):
    """The task on one batch of tokens again and again, as the public code's step gets it."""

    def __init__(self, size: str, tokens: Tensor, turn: Turn):
        super().__init__(model={"size": size}, data={"max_length": tokens.shape[1]})
        self._tokens = tokens
        self._turn = turn

    def setup(self, context: RankContext) -> None:
        """Open no data."""

    def build_data(self) -> Splits:
        return Splits(range(20_000))

    def state_dict(self) -> dict[str, Any]:
        return {}

    def collate(self, samples: list[Any]) -> ProteinBatch:
        noise = torch.rand(self._tokens.shape)
        return ProteinBatch(self._tokens, torch.rand(len(samples)), noise, padded=False)

    def loss(self, model: nn.Module, batch: ProteinBatch) -> Loss:
        self._turn()
        return super().loss(model, batch)


def ours(size: str, tokens: Tensor, turn: Turn) -> None:
    """castoff's trainer."""
    with tempfile.TemporaryDirectory() as folder:
        training = {
            "path": folder,
            "num_epochs": 1000,
            "device": "cpu",
            "batch_size": len(tokens),
            "optimizer_type": torch.optim.AdamW,
            "optimizer_kwargs": {**ADAM, "weight_decay": 0.0},
            "clip_grad_norm": CLIP,
            "ema_decay": EMA,
            "check_first_step": False,
        }
        trainer = TrainerDDP(0, Config.of({"training": training}), Fixed(size, tokens, turn))
        train, _, _ = trainer.prepare_dataloaders()
        trainer.run_training(train, None)


def public(size: str, tokens: Tensor, turn: Turn) -> None:
    """The public code's step function, as its run_train.py makes it."""
    shape, residues = SIZES[size], int(tokens.max()) + 1
    model = {
        "hidden_size": shape.hidden_size,
        "cond_dim": shape.cond_dim,
        "n_blocks": shape.n_blocks,
        "n_heads": shape.n_heads,
        "dropout": shape.dropout,
        "scale_by_sigma": True,
    }
    optim = {"optimizer": "AdamW", "lr": ADAM["lr"], "beta1": 0.9, "beta2": 0.999, "eps": 1e-8}
    optim |= {"weight_decay": 0.0, "warmup": 0, "grad_clip": CLIP}
    config = importlib.import_module("omegaconf").OmegaConf.create(
        {"graph": {"type": "absorb"}, "tokens": residues, "model": model, "optim": optim}
    )
    losses, graphs = importlib.import_module("losses"), importlib.import_module("graph_lib")
    network = importlib.import_module("model.transformer").SEDD(config)
    averages = importlib.import_module("model.ema").ExponentialMovingAverage
    noise = importlib.import_module("noise_lib").LogLinearNoise()
    state = {
        "model": network,
        "optimizer": losses.get_optimizer(config, network.parameters()),
        "scaler": torch.cuda.amp.GradScaler(),
        "ema": averages(network.parameters(), decay=EMA),
        "step": 0,
    }
    graph = graphs.get_graph(config, torch.device("cpu"))
    step = losses.get_step_fn(noise, graph, True, losses.optimization_manager(config), 1)
    while True:
        turn()
        step(state, tokens)


def import_from(checkout: Path) -> None:
    """Make the public code importable, with torch's attention in place of flash-attn's."""

    def attention(qkv: Tensor, ends: Tensor, longest: int, dropout: float, causal: bool) -> Tensor:
        q, k, v = qkv.unflatten(0, (-1, longest)).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v)
        return mixed.transpose(1, 2).flatten(0, 1)

    flash: Any = types.ModuleType("flash_attn")
    interface: Any = types.ModuleType("flash_attn.flash_attn_interface")
    interface.flash_attn_varlen_qkvpacked_func = attention
    sys.modules |= {"flash_attn": flash, "flash_attn.flash_attn_interface": interface}
    sys.path.insert(0, str(checkout))


def main(size: str, length: int, batch: int, rounds: int) -> None:
    """Let both take turns, and print the ratios of their times."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # the public code asks for CUDA, and continues without
    tokens = torch.randint(0, 21, (batch, length), generator=torch.Generator().manual_seed(0))
    tokens[0, 0] = 20
    runners = {each.__name__: Runner(partial(each, size, tokens)) for each in (ours, public)}
    for runner in runners.values():
        runner.prepare()
        runner.run(STEPS)
    laps: dict[str, list[Lap]] = {name: [] for name in runners}
    for number in range(rounds):
        for name in sorted(runners, reverse=bool(number % 2)):
            wall, cpu = time.perf_counter(), time.process_time()
            runners[name].run(STEPS)
            laps[name].append(Lap(time.perf_counter() - wall, time.process_time() - cpu))
    print(f"{time.strftime('%Y-%m-%d')}, {machine()}; {versions()}")
    for which, title in enumerate(("wall", "CPU")):
        ratio = Ratio.of(*([lap[which] for lap in laps[name]] for name in ("ours", "public")))
        print(f"{size}, {batch} x {length} tokens: castoff over the public code, {title}: {ratio}, aim 0.80")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("public", type=Path)
    parser.add_argument("--size", choices=list(SIZES), default="mini")
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=15)
    given = parser.parse_args()
    import_from(given.public.resolve())
    main(given.size, given.length, given.batch, given.rounds)
