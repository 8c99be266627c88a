"""What a tiny diffusion learns of real proteins that are related to none it has seen.

    python -m bench.proteins [--folder DIR] [--proteins FASTA] [--set FIELD=VALUE …]

It needs mmseqs2, and proteins: Debian's packages mmseqs2 and mmseqs2-examples. The split is made once in
DIR. It exits with 1 where the model is not surely below the unigram, or its samples are far from the data.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy
import torch

from bench.proteins.baselines import trigrams, unigram
from bench.proteins.comparison import Mean, compared, parts_of
from bench.proteins.homology import EXAMPLES, INSTALL, Split, read_fasta, split_of
from bench.proteins.training import RANKS, Trained, trained
from bench.training import machine, versions
from castoff.trainers.sedd.alphabet import Tokens, encode
from castoff.trainers.sedd.statistics import (
    expected_distance,
    pair_counts,
    residue_counts,
    total_variation,
)

MINUTES = 10
ERRORS = 4
"""So many standard errors must lie between the model and the unigram."""
RESIDUES_GENERATED = 20_000
DISTANCE = 0.05
"""Total variation of the generated residues' shares that is allowed."""


def main(proteins: Path, folder: Path, overrides: Sequence[str], draws: int) -> bool:
    """Split, train, compare, generate, and print what came out; whether the bars are met."""
    if not proteins.exists():
        raise SystemExit(f"there is no {proteins}; Debian has it: {INSTALL}")
    began = time.perf_counter()
    split = split_of(proteins, folder / "split")
    print(f"{time.strftime('%Y-%m-%d')}, {machine()}; {versions()}")
    print(f"Split in {time.perf_counter() - began:.0f} s: {_fields(split.sizes)}", flush=True)
    learned, held_out = _read(split.training), _read(split.held_out)
    result = trained(split, folder / "trained", overrides)
    print(lines_on_training(result), flush=True)
    bounds, lower = lines_on_bounds(result, learned, held_out, _clusters(split), draws)
    print("\n".join(bounds), flush=True)
    samples, near = lines_on_samples(result, learned)
    print("\n".join(samples))
    return lower and near


def lines_on_training(result: Trained) -> str:
    """How long it took, and for how much."""
    parameters = sum(each.numel() for each in result.model.parameters())
    size, length = result.settings.training.batch_size, result.task.settings.data.max_length
    in_time = result.cpu <= 60 * MINUTES * RANKS
    return (
        f"{parameters:,} parameters, {result.steps:,} steps of {RANKS} x {size} windows of at most {length} "
        f"residues: {result.seconds:.0f} s, and {result.cpu:.0f} s of CPU time; within {MINUTES} minutes of "
        f"{RANKS} cores: {_met(in_time)}"
    )


def lines_on_bounds(
    result: Trained, learned: list[Tokens], held_out: list[Tokens], clusters: list[int], draws: int
) -> tuple[list[str], bool]:
    """The model's bound on the held-out proteins beside what counting says, in nats per residue.

    And whether it is surely lower than the unigram's.
    """
    shares, counted = unigram(learned), trigrams(learned)
    parts = parts_of(held_out, clusters, shares, counted, result.task.settings.data.max_length)
    found = compared(result.model, shares, result.task.graph, result.task.noise, parts, draws=draws)
    eps = result.task.settings.noise.eps
    masked = 1 - eps
    paired, over_trigram = found.over_unigram(), found.over_trigram(masked)
    unigram_exact, trigram_exact = found.mean(found.exact_unigram), found.mean(found.exact_trigram)
    return [
        f"Held out, nats per residue ± standard error over clusters, {draws} times for each protein",
        f"  unigram, exact            {unigram_exact}, times {masked:g}: {masked * unigram_exact.value:.4f}",
        f"  unigram, under the noise  {found.mean(found.unigram)}",
        f"  trigram, exact            {trigram_exact}, times {masked:g}: {masked * trigram_exact.value:.4f}",
        f"  model's bound             {found.mean(found.model)}",
        f"  model - unigram, paired   {paired}: {in_words(paired)}",
        f"  model - trigram, paired   {over_trigram}: {in_words(over_trigram)}",
    ], surely_negative(paired)


def surely_negative(difference: Mean) -> bool:
    """Whether it is below zero by as many standard errors as are asked for."""
    return difference.value <= -ERRORS * difference.error


def in_words(difference: Mean) -> str:
    """The same."""
    errors = -difference.value / difference.error
    return f"{errors:.1f} standard errors below, bar {ERRORS}: {_met(surely_negative(difference))}"


def lines_on_samples(result: Trained, learned: list[Tokens]) -> tuple[list[str], bool]:
    """How far generated residues and pairs are from the training proteins', and how far chance alone is.

    And whether the residues are near enough.
    """
    residues, pairs = residue_counts(learned), pair_counts(learned)
    lengths = _lengths(learned, result.task.settings.data.max_length)
    began = time.perf_counter()
    made = generated(result, lengths)
    seconds = time.perf_counter() - began
    real = _as_many(learned, lengths)
    number, different = len(made), len({each.tobytes() for each in made})
    near = total_variation(residue_counts(made), residues) <= DISTANCE
    told = [
        f"{sum(map(len, made)):,} residues in {number} generated proteins, {different} different, in "
        f"{seconds:.0f} s; {DISTANCE} from the data's residues: {_met(near)}"
    ]
    for name, count, data in (("residues", residue_counts, residues), ("pairs", pair_counts, pairs)):
        ours = count(made)
        chance = expected_distance(data, int(ours.sum()))
        told.append(
            f"  total variation of {name:8} {total_variation(ours, data):.4f}; of as many of real proteins "
            f"{total_variation(count(real), data):.4f}, of independent draws {chance:.4f}"
        )
    return told, near


def generated(result: Trained, lengths: list[int], seed: int = 0) -> list[Tokens]:
    """Proteins of these lengths, as the configuration's sampling has them."""
    generator = torch.Generator().manual_seed(seed)
    made: list[Tokens] = []
    for first in range(0, len(lengths), 16):
        made += result.task.generate(result.model, lengths[first : first + 16], generator)
    return made


def _lengths(learned: list[Tokens], longest: int) -> list[int]:
    """Of random training proteins, until there are as many residues as are asked for."""
    order = numpy.random.default_rng(0).permutation(len(learned))
    lengths: list[int] = []
    while sum(lengths) < RESIDUES_GENERATED:
        lengths.append(min(len(learned[order[len(lengths)]]), longest))
    return sorted(lengths)


def _as_many(learned: list[Tokens], lengths: list[int]) -> list[Tokens]:
    """The beginnings of other real proteins that are at least as long."""
    order = iter(numpy.random.default_rng(1).permutation(len(learned)))
    return [
        next(learned[index] for index in order if len(learned[index]) >= length)[:length]
        for length in lengths
    ]


def _read(path: Path) -> list[Tokens]:
    return [encode(sequence.encode()) for _, sequence in read_fasta(path)]


def _clusters(split: Split) -> list[int]:
    return [int(header.split()[1]) for header, _ in read_fasta(split.held_out)]


def _fields(sizes: Any) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {getattr(sizes, name):,}" for name in sizes.__struct_fields__)


def _met(condition: bool) -> str:
    return "met" if condition else "NOT MET"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.proteins", description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("trained/proteins"))
    parser.add_argument("--proteins", type=Path, default=EXAMPLES)
    parser.add_argument("--draws", type=int, default=8, help="times and noises for each held-out protein")
    parser.add_argument("--set", action="append", default=[], dest="overrides", metavar="FIELD=VALUE")
    arguments = parser.parse_args()
    met = main(arguments.proteins, arguments.folder, arguments.overrides, arguments.draws)
    sys.exit(0 if met else 1)
