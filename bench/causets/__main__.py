"""What the network learns of causal sets, with several seeds, beside what it has to beat.

    python -m bench.causets [--folder DIR] [--seeds 1 2 3] [--set FIELD=VALUE …]

Each seed has causal sets of its own, split anew, and weights of its own; examples/causets.yaml says the rest.
A forest that also gets the mean and the spread of every feature of the elements stands beside the report's
rivals here. It exits with 1 where the network is not better than each of them, on average over the seeds, in
both of what it is for.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy
import torch

from bench.training import machine, versions
from castoff.trainers.configuration.config import Config
from castoff.trainers.gnn import baselines
from castoff.trainers.gnn.baselines import Guess, Sets, accuracy, dimension_error, macro_f1, sets_of
from castoff.trainers.gnn.defaults import with_defaults
from castoff.trainers.gnn.graphs.dataset import Graphs
from castoff.trainers.gnn.graphs.settings import read
from castoff.trainers.gnn.graphs.splits import parts

CONFIG = Path(__file__).resolve().parents[2] / "examples" / "causets.yaml"
RANKS = 2
POOLED = "forest on scalars, means and spreads"
NETWORK = "the network"


class Worth(NamedTuple):
    """How good something was, with one seed; None: it says nothing of that."""

    accuracy: float | None
    macro_f1: float | None
    error: float | None


def main(folder: Path, seeds: Sequence[int], fields: Sequence[str]) -> bool:
    """Train with every seed, judge, and print what came out; whether the network is the best."""
    torch.set_num_threads(1)  # as each rank of the trainings has
    print(f"{time.strftime('%Y-%m-%d')}, {machine()}; {versions()}; {RANKS} ranks, gloo", flush=True)
    found: dict[str, list[Worth]] = {}
    for seed in seeds:
        seconds, worth = with_seed(folder / f"seed-{seed}", seed, fields)
        for name, each in worth.items():
            found.setdefault(name, []).append(each)
        print(f"seed {seed}: trained in {seconds:.0f} s; {told(worth[NETWORK])}", flush=True)
    print("\n".join(table(found)))
    return best(found)


def with_seed(folder: Path, seed: int, fields: Sequence[str]) -> tuple[float, dict[str, Worth]]:
    """Seconds that a training took with all before and after it, and what everything is worth.

    Raises:
        SystemExit: it failed.
    """
    castoff = str(Path(sys.executable).with_name("castoff"))
    own = [f"training.seed={seed}", f"training.path={folder}", "training.run=trained", *fields]
    sets = [word for field in own for word in ("--set", field)]
    command = [castoff, "launch", "-n", str(RANKS), "--", castoff, "train", "gnn", str(CONFIG), *sets]
    began = time.perf_counter()
    done = subprocess.run(
        [*command, "--set", "training.fresh=true", "--set", "training.device=cpu"],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise SystemExit(f"the training ended with {done.returncode}:\n{done.stdout}")
    seconds = time.perf_counter() - began
    (folder / "report.txt").write_text(done.stdout)
    train, test = both(folder, Config.load(CONFIG, own), seed)
    held_out = sets_of(test)
    worth = {each.name: worth_of(each, held_out) for each in rivals(train, test)}
    return seconds, {NETWORK: of_network(folder / "trained" / "metrics.jsonl"), **worth}


def both(folder: Path, config: Config, seed: int) -> tuple[list[Any], list[Any]]:
    """The graphs that were trained on, and those held out."""
    problems: list[str] = []
    settings = read(with_defaults(config).data, problems)
    assert settings is not None, problems
    (written,) = (path for path in (folder / "graphs").iterdir() if path.is_dir())
    splits = parts(Graphs(written, None), settings, seed)
    return [splits.train[at] for at in range(len(splits.train))], [
        splits.test[at] for at in range(len(splits.test))
    ]


def rivals(train: list[Any], test: list[Any]) -> Iterator[Guess]:
    """The report's, and a forest that has more to go by."""
    yield from baselines.guesses(sets_of(train), sets_of(test))
    pooled = baselines.forest(_pooled(train), _pooled(test))
    assert pooled is not None
    yield pooled._replace(name=POOLED)


def _pooled(graphs: list[Any]) -> Sets:
    known = sets_of(graphs)
    rows = [torch.cat([each.x.mean(0), each.x.std(0)]).double().numpy() for each in graphs]
    return known._replace(scalars=numpy.concatenate([known.scalars, numpy.stack(rows)], axis=1))


def worth_of(guess: Guess, test: Sets) -> Worth:
    """Of the held-out sets."""
    return Worth(accuracy(guess, test), macro_f1(guess, test), dimension_error(guess, test))


def of_network(metrics: Path) -> Worth:
    """What the training itself has measured on the test set, over all its sets."""
    records = [json.loads(line) for line in metrics.read_text().splitlines()]
    (tested,) = [each for each in records if "test/accuracy" in each]
    return Worth(tested["test/accuracy"], tested["test/f1"], tested["test/dimension_error"])


def table(found: dict[str, list[Worth]]) -> list[str]:
    """Mean and standard deviation over the seeds, one below the other."""
    width = max(map(len, found))
    lines = [f"{'':{width}}  {'accuracy':>16}  {'macro F1':>16}  {'dimension error':>16}"]
    for name, each in found.items():
        columns = [_mean_and_spread([getattr(one, field) for one in each]) for field in Worth._fields]
        lines.append(f"{name:{width}}  " + "  ".join(f"{column:>16}" for column in columns))
    return lines


def best(found: dict[str, list[Worth]]) -> bool:
    """Whether the network's means are better than everything else's."""
    own = {field: [getattr(one, field) for one in found[NETWORK]] for field in Worth._fields}
    good = True
    for name, each in found.items():
        if name == NETWORK:
            continue
        for field, values in own.items():
            others = [getattr(one, field) for one in each]
            if None in others:
                continue
            ahead = float(numpy.mean(values)) - float(numpy.mean(others))
            if (ahead if field != "error" else -ahead) <= 0:
                print(f"the network is not better than {name}: {field}")
                good = False
    return good


def told(worth: Worth) -> str:
    """In words."""
    return f"accuracy {worth.accuracy:.4f}, dimension error {worth.error:.4f}"


def _mean_and_spread(values: Sequence[float | None]) -> str:
    there = [each for each in values if each is not None]
    if not there:
        return ""
    spread = f" ± {numpy.std(there, ddof=1):.4f}" if len(there) > 1 else ""
    return f"{numpy.mean(there):.4f}{spread}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.causets", description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("trained/causets"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument("--set", action="append", default=[], dest="fields", metavar="FIELD=VALUE")
    arguments = parser.parse_args()
    sys.exit(0 if main(arguments.folder.absolute(), arguments.seeds, arguments.fields) else 1)
