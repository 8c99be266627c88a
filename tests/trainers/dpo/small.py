"""Made-up samples: pairs of sequences for backbones of a few residues."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import gemmi
import torch
from torch.utils.data import Dataset

from castoff.trainers.dpo.alphabet import KINDS, RESIDUES
from castoff.trainers.dpo.network.model import InverseFolding
from castoff.trainers.dpo.network.weights import save
from castoff.trainers.dpo.samples.batch import Sample
from castoff.trainers.dpo.structures.synthetic import write_structures

SIZES = {"hidden_size": 8, "encoder_layers": 1, "decoder_layers": 1, "neighbours": 6}


class MadePairs(Dataset[Sample]):
    """Of so many structures; the seed of the orders of decoding is one of its own."""

    rng_sources = ()

    def __init__(self, number: int, *, shift: float = 0.0, orders: int = 0):
        self.shift = shift
        self.orders = orders
        self.lengths = [7 + 3 * index % 8 for index in range(number)]

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: int) -> Sample:
        generator = torch.Generator().manual_seed(index)
        length = self.lengths[index]
        steps = torch.randn(length, 1, 3, generator=generator)
        atoms = 2 * steps.cumsum(0) + torch.randn(length, 4, 3, generator=generator)
        atoms[0, 0, 0] += self.shift
        resolved = torch.ones(length, dtype=torch.bool)
        resolved[2] = False
        designed = resolved & (torch.arange(length) % 5 != 4)
        order = torch.randperm(length, generator=torch.Generator().manual_seed(self.orders * 1000 + index))
        return Sample(
            *(atoms * resolved[:, None, None], resolved, torch.zeros(length).long(), torch.arange(length)),
            *(torch.randint(KINDS - 1, (2, length), generator=generator), designed, order, torch.zeros(2)),
        )


def network(seed: int = 0) -> InverseFolding:
    torch.manual_seed(seed)
    return InverseFolding(**SIZES, dropout=0.0)


def base_model(path: Path, seed: int = 0) -> Path:
    """A file of a small network."""
    save(path, network(seed), 0.02)
    return path


def structures(folder: Path, number: int, seed: int = 0) -> list[Path]:
    """Files of chains of 8 to 16 residues, of which the third has no CA."""
    paths = write_structures(folder, number, seed=seed, shortest=8)
    for path in paths:
        lines = path.read_text().splitlines(keepends=True)
        path.write_text("".join(line for line in lines if not line.startswith(f"ATOM  {10:5}")))
    return paths


def pairs_file(path: Path, number: int, seed: int = 0) -> Path:
    """Pairs for structures in a folder beside it, whose own sequences are the better ones."""
    generator = random.Random(seed)
    pairs: list[dict[str, Any]] = []
    for index, file in enumerate(structures(path.with_suffix(""), number, seed)):
        own = gemmi.read_structure(str(file))[0]["A"]
        letters = [gemmi.find_tabulated_residue(residue.name).one_letter_code for residue in own]
        other = "".join(generator.choice(RESIDUES) for _ in letters)
        pair = {"pdb_file": f"{path.stem}/{file.name}", "preferred_seq": "".join(letters), "chain_id": "A"}
        some = {"mutable_ranges": [[1, 5]]} if index % 3 == 0 else {}
        pairs.append({**pair, "unpreferred_seq": other, **some})
    path.write_text(json.dumps(pairs))
    return path


def dpo_sections(folder: Path, number: int = 8, *, made: bool = False, **sections: Any) -> dict[str, Any]:
    """The arguments of a DpoTask, whose files are made in a folder unless they are there."""
    if not made:
        pairs_file(folder / "pairs.json", number)
        base_model(folder / "base.pt")
    given: dict[str, Any] = {
        "data": {"train_data": str(folder / "pairs.json"), "validation_share": 0.25},
        "base_model": {"dir": str(folder), "name": "base"},
    }
    return {**given, **sections, "data": {**given["data"], **sections.get("data", {})}}


def likelihood_sections(folder: Path, number: int = 12, **sections: Any) -> dict[str, Any]:
    """The arguments of a LikelihoodTask, whose structures are made in a folder."""
    structures(folder / "structures", number)
    data = {"structures": str(folder / "structures"), "validation_share": 0.25, "min_length": 5}
    return {
        "data": {**data, **sections.get("data", {})},
        "model": {**SIZES, **sections.get("model", {})},
    }
