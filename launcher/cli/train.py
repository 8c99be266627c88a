"""castoff train: train a network that comes with castoff."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

import click

from castoff.launcher.cli.help import examples
from castoff.launcher.process.own_program import own_program

TRAININGS = {
    "dpo": "Tune an inverse folding of proteins by preferences, or train one on structures.",
    "gnn": "Train a network on graphs: causal sets that are read or generated, or your own.",
    "sedd": "Train a diffusion model of proteins by score entropy, and generate proteins.",
}
"""The trainings and their summaries; each is a package `castoff.trainers.NAME` that runs as a program."""


_EXAMPLES = ("castoff train gnn causets.yaml --set training.num_epochs=3", "castoff train gnn --help")


def _listed() -> str:
    width = max(map(len, TRAININGS))
    return "\n".join(f"  {name:{width}}  {words}" for name, words in TRAININGS.items())


@click.command(
    "train",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    epilog=f"\b\nTrainings:\n{_listed()}\n\n{examples(*_EXAMPLES)}",
)
@click.argument("name", type=click.Choice(list(TRAININGS)), metavar="NAME")
@click.argument("arguments", nargs=-1, type=click.Path(readable=False))
def command(name: str, arguments: tuple[str, ...]) -> NoReturn:
    """Train one of the networks that come with castoff, as this rank of a job, or alone.

    castoff train gnn causets.yaml --set training.num_epochs=3. All words after NAME are the trainer's:
    castoff train gnn --help shows its options. castoff replaces itself by python -m castoff.trainers.NAME.
    """
    after = click.get_current_context().obj
    program = own_program(f"castoff.trainers.{name}", *arguments)
    os.execv(sys.executable, program if after is None else [*program, "--", *after])
