"""Flags that stand for fields of a configuration: `--train_data FILE`, each with _ or - between its words."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, NamedTuple


class Field(NamedTuple):
    """A flag that sets a field of the configuration."""

    flag: str
    path: str
    metavar: str | None
    help: str
    type: Callable[[str], Any] = str
    choices: Sequence[str] | None = None
    nargs: Literal["+"] | None = None
    also: tuple[str, ...] = ()
    """Other names of it."""


def add_fields(parser: argparse.ArgumentParser, fields: Iterable[Field]) -> None:
    """Have a parser know these flags."""
    for field in fields:
        parser.add_argument(
            *(option for name in (field.flag, *field.also) for option in spelled(name)),
            dest=field.flag,
            metavar=field.metavar,
            help=field.help,
            type=field.type,
            choices=field.choices,
            nargs=field.nargs,
        )


def told_by(arguments: argparse.Namespace, fields: Iterable[Field]) -> dict[str, Any]:
    """What the flags on a command line say, by the fields' paths."""
    return {
        field.path: getattr(arguments, field.flag)
        for field in fields
        if getattr(arguments, field.flag) is not None
    }


def add_file(parser: argparse.ArgumentParser, without: str) -> None:
    """The YAML, which may be left out; `without`: what holds then."""
    parser.add_argument("file", nargs="?", metavar="CONFIG", help=f"YAML of the training; {without}")
    parser.add_argument("--config", metavar="CONFIG", help="the same")


def file_of(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> str | None:
    """The YAML that a command line names, with either of the two; the end of this process if with both."""
    if arguments.config is not None and arguments.file is not None:
        parser.error(f"--config {arguments.config} stands beside {arguments.file}; drop one of the two")
    named: str | None = arguments.config if arguments.config is not None else arguments.file
    return named


def add_wandb(parser: argparse.ArgumentParser) -> None:
    """What is told to Weights & Biases."""
    add_fields(parser, WANDB)
    parser.add_argument(*spelled("no_wandb"), dest="no_wandb", action="store_true", help="tell it nothing")


def wandb_of(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> dict[str, Any]:
    """That, by the fields' paths; the end of this process if it says both."""
    given = told_by(arguments, WANDB)
    if not arguments.no_wandb:
        return given
    if given:
        parser.error("--no_wandb stands beside --wandb_project or --wandb_name; drop one of the two")
    return {"logging.wandb": None}


WANDB = (
    Field(
        "wandb_project",
        "logging.wandb.project",
        "NAME",
        "tell Weights & Biases; offline unless CONFIG says otherwise",
    ),
    Field("wandb_name", "logging.wandb.name", "NAME", "the run's name there; default: that of CONFIG"),
)


def spelled(flag: str) -> list[str]:
    """Both of its spellings."""
    return list(dict.fromkeys([f"--{flag}", f"--{flag.replace('_', '-')}"]))
