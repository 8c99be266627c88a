"""Design sequences: `python -m castoff.trainers.dpo.design 1abc.pdb --model trained/best_model.pt`."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import numpy
import numpy.typing
import torch
from torch import Tensor

from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.configuration.paths import check_writable
from castoff.trainers.configuration.section import DEVICES
from castoff.trainers.distributed.device_choice import choose_device
from castoff.trainers.distributed.errors import DistributedError
from castoff.trainers.dpo.alphabet import LETTERS, UNKNOWN
from castoff.trainers.dpo.network.model import InverseFolding
from castoff.trainers.dpo.network.sampling import sampled
from castoff.trainers.dpo.network.weights import load
from castoff.trainers.dpo.samples.batch import Backbones
from castoff.trainers.dpo.structures.reading import SUFFIXES, chosen, joined, read_chains
from castoff.trainers.dpo.structures.structure import Structure
from castoff.trainers.files.durable import replacing
from castoff.trainers.program.parser import Parser

_PROGRAM = "python -m castoff.trainers.dpo.design"

Mask = numpy.typing.NDArray[numpy.bool_]


class Target(NamedTuple):
    """A structure to design sequences for."""

    name: str
    """The file's name without its suffix."""
    structure: Structure
    """The designed chains, one after the other, then the fixed ones."""
    length: int
    """Number of residues in the designed chains."""
    fixed: tuple[str, ...]
    """Names of the fixed chains."""
    designed: Mask
    """(all residues,): which residues are designed."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Write designs as FASTA. If that fails, print the error and exit."""
    options = _parser().parse_args(arguments)
    try:
        if options.out is not None:
            check_writable(options.out, "--out")
        device = choose_device(options.device, 0)
        model = load(options.model).model.to(device).eval()
        targets = _targets(options)
        if options.out is None:
            _write(model, targets, options, sys.stdout)
        else:
            _write_file(model, targets, options)
    except (ConfigError, DistributedError, OSError) as error:
        lines = str(error).replace("training.device", "--device").splitlines()
        sys.exit("\n".join(f"{_PROGRAM}: {line}" for line in lines))
    except KeyboardInterrupt:
        sys.exit(130)


def target(
    path: Path,
    chains: Sequence[str] | None = None,
    fixed: Sequence[str] = (),
    positions: Sequence[int] = (),
    ranges: Sequence[tuple[int, int]] = (),
) -> Target:
    """Read a structure, and choose what is designed.

    Args:
        path: PDB or mmCIF, .gz too.
        chains: the designed chains; None: all protein chains but the fixed ones.
        fixed: chains that the network sees but that are not designed.
        positions: the designed positions, counted from 0 over the designed chains, one after the other.
        ranges: more positions, as ranges that include their last one. Without positions and ranges, all are
            designed.

    Raises:
        ConfigError: the chains or positions do not exist, or there is nothing to design.
    """
    problems: list[str] = []
    all_chains = read_chains(path)
    fixed_chains = chosen(all_chains, fixed, problems)
    if chains is None:
        designed_chains = [chain for chain in all_chains if not any(chain is other for other in fixed_chains)]
    else:
        designed_chains = chosen(all_chains, chains, problems)
    twice = {chain.name for chain in designed_chains for other in fixed_chains if chain is other}
    problems += [f"chain {name} is listed as designed and as fixed; list it once" for name in sorted(twice)]
    if not (designed_chains or problems):
        problems.append("has no protein chain to design" + (" besides the fixed ones" if fixed else ""))
    if problems:
        raise ConfigError(problems, str(path))
    parts = [chain.laid_out() for chain in (*designed_chains, *fixed_chains)]
    length = sum(len(part.native) for part in parts[: len(designed_chains)])
    structure = joined(parts)
    mutable = _mutable(length, positions, ranges, problems)
    designed = structure.resolved.copy()
    designed[:length] &= mutable
    designed[length:] = False
    if not (designed.any() or problems):
        problems.append("has nothing to design: no residue that may be designed has all of N, CA, C and O")
    if problems:
        raise ConfigError(problems, str(path))
    return Target(_name(path), structure, length, structure.names[len(designed_chains) :], designed)


def _mutable(
    length: int, positions: Sequence[int], ranges: Sequence[tuple[int, int]], problems: list[str]
) -> Mask:
    """Mask: which of the `length` residues in the designed chains may be designed."""
    spans = [(position, position) for position in positions] + list(ranges)
    mask = numpy.zeros(length, numpy.bool_) if spans else numpy.ones(length, numpy.bool_)
    for first, last in spans:
        if last >= length:
            problems.append(f"has positions from 0 to {length - 1} in the chains to design, but not {last}")
        mask[first : last + 1] = True
    return mask


def _name(path: Path) -> str:
    name = path.name.removesuffix(".gz")
    stem, dot, ending = name.rpartition(".")
    return "_".join((stem if f"{dot}{ending}".lower() in SUFFIXES else name).split())


def _targets(options: argparse.Namespace) -> list[Target]:
    """Read the targets of all files; their problems are reported before anything is designed."""
    targets, problems = [], []
    for path in options.structures:
        try:
            targets.append(
                target(
                    path,
                    options.chains,
                    options.fixed_chains,
                    options.mutable_positions,
                    options.mutable_ranges,
                )
            )
        except ConfigError as error:
            problems.append(error)
    if len(problems) == 1:
        raise problems[0]
    if problems:
        every = [line for error in problems for line in str(error).splitlines()]
        raise ConfigError(every, f"{len(problems)} of {len(options.structures)} structures")
    return targets


# --- Sequences ----------------------------------------------------------------------------------------


class Design(NamedTuple):
    """A sequence for a target."""

    letters: str
    """The sequence's letters, with / between chains."""
    score: float
    """The mean of -log p over the designed residues, in nats."""
    recovery: float
    """The share of designed residues that are the same as in the structure; nan if the structure has none
    there.
    """


@torch.no_grad()
def native_design(model: InverseFolding, target: Target, seed: int) -> Design:
    """The structure's own sequence as a design, scored in the decoding order of the first design."""
    backbones, native = _inputs(target, model)
    order, _ = _chances(target, seed, 0)
    known = torch.from_numpy(target.designed).to(native.device) & (native != UNKNOWN)
    logits = model(backbones, native[:, None], order[None].to(native.device))
    return _design(target, native[0], logits[0, 0], known[0])


def designs(
    model: InverseFolding, target: Target, number: int, temperature: float, seed: int, batch_size: int
) -> Iterator[Design]:
    """Yield sequences that a model in eval mode draws, `batch_size` at once, each in its own decoding order.

    A design depends on its number and the seed, but not on the other designs.
    """
    backbones, native = _inputs(target, model)
    designed = torch.from_numpy(target.designed).to(native.device)
    exact = torch.float32 if native.device.type == "mps" else torch.float64
    for first in range(0, number, batch_size):
        batch = range(first, min(first + batch_size, number))
        chances = [_chances(target, seed, index) for index in batch]
        order, numbers = (torch.stack(parts)[None] for parts in zip(*chances, strict=True))
        drawn = sampled(
            model,
            backbones,
            native,
            designed[None],
            order.to(native.device),
            numbers.to(native.device, exact),
            temperature,
        )
        for sequence, logits in zip(drawn.sequences[0], drawn.logits[0], strict=True):
            yield _design(target, sequence, logits, designed)


def _inputs(target: Target, model: InverseFolding) -> tuple[Backbones, Tensor]:
    """The structure and its residues as the network's input, a batch of one."""
    structure, device = target.structure, model.W_out.bias.device
    atoms, resolved, native, chains, positions = (
        torch.from_numpy(array)[None].to(device)
        for array in (
            structure.atoms,
            structure.resolved,
            structure.native,
            structure.chains,
            structure.positions,
        )
    )
    return Backbones(atoms, resolved, chains.long(), positions.long()), native.long()


def _chances(target: Target, seed: int, number: int) -> tuple[Tensor, Tensor]:
    """The decoding order, with designed residues last, and random numbers to draw residues by: both
    (length,).
    """
    state = numpy.random.SeedSequence((seed, number)).generate_state(1, numpy.uint64)
    dice = torch.Generator().manual_seed(int(state[0]))
    ranks, numbers = torch.rand(2, len(target.designed), generator=dice, dtype=torch.float64)
    order = (ranks + torch.from_numpy(target.designed)).argsort().argsort()
    return order, numbers


def _design(target: Target, sequence: Tensor, logits: Tensor, counted: Tensor) -> Design:
    """Score a sequence (length,) at the `counted` residues, by logits (length, residues)."""
    native = torch.from_numpy(target.structure.native).to(sequence.device)
    surprise = -logits.log_softmax(-1).gather(-1, sequence.unsqueeze(-1)).squeeze(-1)
    known = counted & (native != UNKNOWN)
    same = (sequence == native)[known].float().mean()
    tokens = sequence[: target.length].tolist()
    chains = target.structure.chains[: target.length].tolist()
    letters = "".join(
        ("/" if number and chains[number] != chains[number - 1] else "") + LETTERS[token]
        for number, token in enumerate(tokens)
    )
    return Design(letters, float(surprise[counted].mean()), float(same))


# --- FASTA --------------------------------------------------------------------------------------------


def _write_file(model: InverseFolding, targets: Sequence[Target], options: argparse.Namespace) -> None:
    """Write the file that `--out` names; it appears when it is complete."""
    with replacing(options.out) as draft, draft.open("w", encoding="utf-8") as file:
        _write(model, targets, options, file)


def _write(
    model: InverseFolding, targets: Sequence[Target], options: argparse.Namespace, file: TextIO
) -> None:
    for target in targets:
        native = native_design(model, target, options.seed)
        designed = ",".join(target.structure.names[: len(target.structure.names) - len(target.fixed)])
        fixed = f" fixed_chains={','.join(target.fixed)}" if target.fixed else ""
        details = f"designed={target.designed.sum()} chains={designed}{fixed} model={options.model.name}"
        print(f">{target.name} score={native.score:.4f} {details}\n{native.letters}", file=file, flush=True)
        sequences = designs(
            model, target, options.number, options.temperature, options.seed, options.batch_size
        )
        for number, design in enumerate(sequences, 1):
            metrics = f"score={design.score:.4f} recovery={design.recovery:.4f}"
            how = f"temperature={options.temperature:g} seed={options.seed}"
            print(f">{target.name}_{number} {metrics} {how}\n{design.letters}", file=file, flush=True)


# --- The command line ---------------------------------------------------------------------------------


def _whole(text: str, least: int = 0) -> int:
    if not (text.isdecimal() and least <= int(text) < 2**63):
        raise argparse.ArgumentTypeError(f"is {text!r}, but takes a whole number of at least {least}")
    return int(text)


def _count(text: str) -> int:
    return _whole(text, 1)


def _range(text: str) -> tuple[int, int]:
    first, dash, last = text.partition("-")
    if not (dash and first.isdecimal() and last.isdecimal() and int(first) <= int(last)):
        raise argparse.ArgumentTypeError(
            f"is {text!r}, but takes the first and the last position, such as 10-15"
        )
    return int(first), int(last)


def _temperature(text: str) -> float:
    try:
        temperature = float(text)
    except ValueError:
        temperature = math.nan
    if not (math.isfinite(temperature) and temperature >= 0):
        raise argparse.ArgumentTypeError(f"is {text!r}, but takes a number of at least 0")
    return temperature


def _names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    if not all(names) or len(set(names)) < len(names):
        raise argparse.ArgumentTypeError(f"is {text!r}, but takes different chains, such as A,B")
    return names


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog=_PROGRAM,
        description="Draw sequences for structures with a model of inverse folding, and write them as "
        "FASTA: first a structure's own sequence, then designs of it. score is the mean of "
        "-log p of the designed residues: the lower, the likelier; recovery is the share of "
        "them that are the same as in the structure. Residues without a whole backbone are "
        "not designed. The same arguments give the same sequences on the same kind of "
        "device, whatever other structures there are.",
        allow_abbrev=False,
    )

    def add(name: str, **how: Any) -> None:
        parser.add_argument(f"--{name}", **({"metavar": "N"} | how))

    parser.add_argument(
        "structures", metavar="STRUCTURE", type=Path, nargs="+", help="PDB or mmCIF files, .gz too"
    )
    add(
        "model",
        type=Path,
        metavar="FILE",
        required=True,
        help="in ProteinMPNN's format, such as best_model.pt",
    )
    add(
        "chains",
        type=_names,
        metavar="A,B",
        help="chains to design; default: all protein chains but the fixed ones",
    )
    add(
        "fixed_chains",
        type=_names,
        metavar="C,D",
        default=(),
        help="chains that the model sees but does not design",
    )
    add(
        "mutable_positions",
        type=_whole,
        nargs="+",
        default=(),
        help="positions to design, counted from 0 over the designed chains' sequences as they are written "
        "here, with unresolved residues and without /; default: all",
    )
    add("mutable_ranges", type=_range, nargs="+", default=(), metavar="A-B", help="the same, as ranges")
    add("number", type=_count, default=10, help="designs of each structure; default 10")
    add("temperature", type=_temperature, default=0.1, metavar="T", help="0: the likeliest; default 0.1")
    add("seed", type=_whole, default=0, help="default 0")
    add("batch_size", type=_count, default=16, help="designs computed at once; default 16")
    add("out", type=Path, metavar="FILE", help="default: standard output")
    add("device", choices=DEVICES, default="auto", metavar=None, help="default auto")
    return parser


if __name__ == "__main__":
    main()
