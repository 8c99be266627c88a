"""Which ranks `castoff train sedd` starts if no launcher has started it.

This process replaces itself by `castoff launch`, which ends all of a host's ranks when one of them fails,
passes TERM and Ctrl-C on, and leaves no process behind when it is killed.
"""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence

from castoff.launcher.ranks import RankEnv
from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.configuration.section import NotNegative, Positive
from castoff.trainers.program.flags import spelled, typed

_FLAGS = {
    "nnodes": (Positive, "Hosts. Default: 1."),
    "node_rank": (NotNegative, "This host's number, from 0."),
    "nproc_per_node": (Positive, "Ranks on each host. Default: one for each device that torch sees, else 1."),
}


def add_flags(parser: ArgumentParser) -> None:
    """Add the flags that determine which ranks are started."""
    group = parser.add_argument_group(
        "ranks",
        "Only if no launcher has started this process as a rank; otherwise these must agree with the "
        "launcher. On several hosts, start the same command on each, with its own --node_rank, and host "
        "0 as --master_addr.",
    )
    for name, (kind, words) in _FLAGS.items():
        group.add_argument(*spelled(name), dest=name, metavar="N", type=typed(kind), help=words)


def launched(arguments: Namespace, devices: Callable[[], int]) -> list[str] | None:
    """The options of `castoff launch` that start this host's ranks; None: this process is the only rank.

    `devices` counts this host's devices; it is called only if no flag sets the number of ranks.

    Raises:
        ConfigError: the flags do not determine which host of how many this is, or where host 0 is.
    """
    nodes, number = arguments.nnodes or 1, arguments.node_rank
    problems = []
    if number is not None and arguments.nnodes is None:
        problems.append(
            f"is {number}, but --nnodes is missing; write the number of hosts, such as --nnodes 2"
        )
    elif nodes > 1 and number is None:
        problems.append(f"is missing; this is one of --nnodes {nodes} hosts: write 0 on the first, 1 …")
    elif number is not None and number >= nodes:
        problems.append(f"is {number}, but with --nnodes {nodes} the hosts are numbered 0 to {nodes - 1}")
    problems = [f"--node_rank: {problem}" for problem in problems]
    if nodes > 1 and not arguments.master_addr:
        problems.append(
            "--master_addr: is missing; write the address of the host with --node_rank 0 that the other "
            "hosts can reach"
        )
    if problems:
        raise ConfigError(problems, "command line")
    ranks = arguments.nproc_per_node or max(devices(), 1)
    if nodes * ranks == 1:
        return None
    port = arguments.master_port
    address = arguments.master_addr or (None if port is None else "127.0.0.1")
    hosts = {"--nodes": nodes, "--node-rank": number or 0, "--master-addr": address, "--master-port": port}
    options = {"--ranks-per-node": ranks} | ({} if address is None else hosts)
    return [word for name, value in options.items() if value is not None for word in (name, str(value))]


def check_layout(arguments: Namespace, me: RankEnv) -> None:
    """Check that the flags agree with the ranks that a launcher has started.

    Raises:
        ConfigError: they do not agree.
    """
    nodes, rest = divmod(me.world_size, me.local_world_size)
    there = {
        "nnodes": None if rest else nodes,
        "node_rank": me.node_rank,
        "nproc_per_node": me.local_world_size,
    }
    problems = [
        f"--{flag}: is {asked}, but {me.launcher} has started this rank, {me.rank} of {me.world_size}, "
        f"and set {there[flag]}; leave the flag out"
        for flag in there
        if (asked := getattr(arguments, flag)) is not None and there[flag] not in (None, asked)
    ]
    if problems:
        raise ConfigError(problems, "command line")


def command(options: Sequence[str], words: Sequence[str]) -> list[str]:
    """The command line that starts this host's ranks, each with the arguments `words`."""
    python = [sys.executable, *(["-P"] if getattr(sys.flags, "safe_path", False) else []), "-m"]
    launch = [*python, "castoff.launcher.cli.main", "launch", "--here", *options]
    return [*launch, "--", *python, "castoff.trainers.sedd", *words]


def become(options: Sequence[str], words: Sequence[str]) -> None:
    """Replace this process by `castoff launch`, which starts the ranks; does not return."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, command(options, words))


def devices_here(device: str) -> int:
    """The number of devices that torch sees for `training.device`; loads torch, which a rank needs anyway."""
    if device in ("cpu", "mps"):
        return 1
    import torch

    return torch.accelerator.device_count() if torch.accelerator.is_available() else 1
