"""The training systems, tiny: what each trains on two ranks in a second or two.

A new system is one more entry.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import gemmi
import torch

from castoff.trainers.configuration.config import Config
from castoff.trainers.configuration.yaml_text import read_yaml_file
from castoff.trainers.ddp import TrainerDDP
from castoff.trainers.dpo.alphabet import RESIDUES
from castoff.trainers.dpo.network.model import InverseFolding
from castoff.trainers.dpo.network.weights import save
from castoff.trainers.dpo.start.configuration import read as read_preferences
from castoff.trainers.dpo.structures.synthetic import write_structures
from castoff.trainers.gnn.causets.features import NODE
from castoff.trainers.sedd.alphabet import decode
from castoff.trainers.sedd.start.configuration import read
from castoff.trainers.sedd.start.translation import core_config
from castoff.trainers.sedd.synthetic import SyntheticProteins


class System(NamedTuple):
    """A training system, and a training that is small enough for a test."""

    name: str
    """As `castoff train` has it; `trainers.NAME` is its package."""
    config: str
    """The YAML of its configuration; FOLDER is where it trains."""
    load: Callable[[Path], Config]
    """What a file with that becomes."""
    train: Callable[[Config], None]
    """Trains that on this rank."""
    write_data: Callable[[Path], None] = lambda folder: None
    """Leaves what it trains on in a folder."""
    trainer: Callable[[], type[TrainerDDP]] = lambda: TrainerDDP
    """What a program that makes its own ranks trains with."""

    @property
    def module(self) -> str:
        """The program."""
        return f"castoff.trainers.{self.name}"


def _train_causets(config: Config) -> None:
    from castoff.trainers.gnn.training import train

    train(config)


def _graph_trainer() -> type[TrainerDDP]:
    from castoff.trainers.gnn.train_ddp import TrainerDDP

    return TrainerDDP


GNN = System(
    name="gnn",
    config="""\
name: causets
training:
  path: FOLDER
  run: trained
  seed: 5
  num_epochs: 3
  batch_size: 8
  device: cpu
  optimizer_type: !pyobject torch.optim.AdamW
  optimizer_kwargs: {lr: 0.01}
  ema_decay: 0.9
  log_every: 1
data: {causets: {number: 160, size: [12, 16]}, output: FOLDER/graphs}
model:
  encoder_type: Encoder
  encoder_args: [FEATURES, [8, 8]]
  pooling_layers: [mean]
  downstream_tasks: [[LinearSequential, [[8, 1]]], [LinearSequential, [[8, 1]]]]
validation: {validator: {evaluator_tasks: [{name: f1, monitor: F1}]}}
""".replace("FEATURES", str(len(NODE))),
    load=Config.load,
    train=_train_causets,
    trainer=_graph_trainer,
)


def _write_proteins(folder: Path) -> None:
    made = SyntheticProteins(96)
    lines = [f">{index}\n{decode(made[index])}\n" for index in range(len(made))]
    (folder / "proteins.fasta").write_text("".join(lines))


def _load_proteins(path: Path) -> Config:
    return core_config(read(read_yaml_file(path)))


def _train_proteins(config: Config) -> None:
    from castoff.trainers.sedd.training import train

    train(config)


SEDD = System(
    name="sedd",
    config="""\
name: proteins
training:
  work_dir: FOLDER
  run: trained
  seed: 5
  n_iters: 24
  batch_size: 4
  accum: 1
  ema: 0.9
  device: cpu
  log_freq: 1
  eval_freq: 4
optim: {lr: 0.003, warmup: 0}
scaling: {learning_rate: none, warmup: none}
model: {size: tiny, hidden_size: 32, n_blocks: 1, n_heads: 2, cond_dim: 16}
data: {datafile: FOLDER/proteins.fasta, max_length: 48, split: [0.8, 0.18, 0.02]}
sampling: {number: 0}
""",
    load=_load_proteins,
    train=_train_proteins,
    write_data=_write_proteins,
)


def _write_pairs(folder: Path) -> None:
    """Structures whose residues follow from their backbones, which are the better ones; and a base model."""
    pairs, drawn = [], random.Random(5)
    for path in write_structures(folder, 48):
        chain = gemmi.read_pdb(str(path))[0][0]
        better = gemmi.one_letter_code([residue.name for residue in chain])
        worse = "".join(drawn.choices(RESIDUES, k=len(better)))
        pairs.append({"pdb_file": path.name, "preferred_seq": better, "unpreferred_seq": worse})
    (folder / "pairs.json").write_text(json.dumps(pairs))
    with torch.random.fork_rng():
        torch.manual_seed(5)
        base = InverseFolding(hidden_size=16, encoder_layers=1, decoder_layers=1, neighbours=8)
    save(folder / "base.pt", base, noise_level=0.0)


def _load_pairs(path: Path) -> Config:
    return read_preferences(read_yaml_file(path))


def _train_pairs(config: Config) -> None:
    from castoff.trainers.dpo.training import train

    train(config)


DPO = System(
    name="dpo",
    config="""\
name: pairs
training:
  path: FOLDER
  run: trained
  seed: 5
  num_epochs: 3
  batch_size: 4
  device: cpu
  optimizer_kwargs: {lr: 0.001}
  ema_decay: 0.9
  log_every: 1
validation: {every_steps: 4}
data: {train_data: FOLDER/pairs.json, validation_share: 0.2}
base_model: {dir: FOLDER, name: base}
""",
    load=_load_pairs,
    train=_train_pairs,
    write_data=_write_pairs,
)

SYSTEMS = {system.name: system for system in (SEDD, GNN, DPO)}
