"""The process group: who meets whom, on which device, and how ranks agree."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping, MutableMapping
from datetime import timedelta
from typing import TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor

from launcher.ranks import RankEnv

Decided = TypeVar("Decided")

_ALIASES = {"ccl": "xccl", "xpu": "xccl", "cuda": "nccl", "cpu": "gloo"}

SIDE_GROUP_LIMIT = 256
"""Up to so many ranks a gloo group beside the accelerators' carries flags; gloo connects every rank
with every other, which fails for thousands (pytorch/gloo issue 419)."""


class DistributedError(Exception):
    """Ranks that cannot meet, or a device that is not there; the text says how to mend it."""


class Place:
    """This process among the ranks, and its device."""

    def __init__(self, rank: int, world_size: int, device: torch.device, *, alone: bool = False):
        self.rank = rank
        self.world_size = world_size
        self.device = device
        self._alone = alone
        self._flags: dist.ProcessGroup | None = None

    @property
    def is_main(self) -> bool:
        """Whether this is rank 0 of all: the one that writes."""
        return self.rank == 0

    @property
    def distributed(self) -> bool:
        """Whether there is a group to talk to."""
        return not self._alone and dist.is_available() and dist.is_initialized()

    def sum(self, values: Tensor) -> Tensor:
        """The sum over all ranks, the same bits on each of them."""
        if not self.distributed:
            return values
        total = values.to(self.device)
        dist.all_reduce(total)
        return total.to(values.device)

    def gather(self, values: Tensor) -> Tensor:
        """The same small tensor of every rank, stacked by rank."""
        if not self.distributed:
            return values[None]
        mine = values.to(self.device)
        every = [torch.empty_like(mine) for _ in range(self.world_size)]
        dist.all_gather(every, mine)
        return torch.stack(every).to(values.device)

    def from_main(self, value: object) -> object:
        """Rank 0's value, on all ranks."""
        if not self.distributed:
            return value
        held = [value]
        dist.broadcast_object_list(held, src=0, device=self.device)
        return held[0]

    def decided(self, decide: Callable[[], Decided]) -> Decided:
        """What rank 0 decides, on all ranks; an error of rank 0's is raised on each of them."""
        value: Decided | None = None
        error: Exception | None = None
        if self.is_main:
            try:
                value = decide()
            except Exception as met:  # noqa: BLE001  # whatever it is, nobody may wait for rank 0
                error = met
        value, error = cast("tuple[Decided, Exception | None]", self.from_main((value, error)))
        if error is not None:
            raise error
        return value

    def barrier(self, name: str) -> None:
        """Wait for all ranks; where gloo carries it, an error names those that did not come."""
        if not self.distributed or self.world_size == 1:
            return
        group = self.flag_group()
        if group is None:
            dist.barrier()
            return
        try:
            dist.monitored_barrier(group, wait_all_ranks=True)
        except RuntimeError as error:
            raise DistributedError(f"not all ranks came to {name!r}: {error}") from error

    def flag_group(self) -> dist.ProcessGroup | None:
        """A group whose tensors lie on the CPU; None above `SIDE_GROUP_LIMIT` ranks."""
        if dist.get_backend() == "gloo":
            return dist.group.WORLD
        if self.world_size > SIDE_GROUP_LIMIT:
            return None
        if self._flags is None:
            self._flags = dist.new_group(backend="gloo")
        return self._flags


def initialize_ddp(
    rank: int,
    worldsize: int,
    master_addr: str = "localhost",
    master_port: str | int = "12345",
    backend: str | None = None,
    *,
    device: str = "auto",
    timeout: float = 600.0,
) -> Place:
    """Join the process group as `rank` of `worldsize`, and take this rank's device.

    Where castoff, torchrun or another starter has told this process its rank and where to meet,
    that stands: `master_addr` and `master_port` count only without (multiprocessing.spawn, say).
    `timeout`: seconds.

    Raises:
        DistributedError: the starter says another rank or size, or the device is not there.
    """
    if dist.is_initialized():
        raise DistributedError("this process has joined a group already; call cleanup_ddp() first")
    me = RankEnv.detect()
    chosen = choose_device(device, local_rank(me, rank, worldsize), me.device if _is(me, rank) else None)
    meet(os.environ, me, rank, worldsize, master_addr, str(master_port))
    if chosen.type not in ("cpu", "mps"):
        torch.accelerator.set_device_index(chosen.index)  # before the group: the other order hangs
    # DDP imports it. Once there is a group, that would keep it, and gloo's threads, beyond the end of Python,
    # where one that still lets go of a tensor aborts the process (torch 2.13).
    importlib.import_module("torch._dynamo")
    dist.init_process_group(
        backend_for(backend, chosen),
        rank=rank,
        world_size=worldsize,
        timeout=timedelta(seconds=timeout),
    )
    return Place(rank, worldsize, chosen)


def cleanup_ddp() -> None:
    """Leave the process group; harmless where there is none."""
    if dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()


def meet(
    environ: MutableMapping[str, str],
    me: RankEnv,
    rank: int,
    world_size: int,
    master_addr: str,
    master_port: str,
) -> None:
    """Set where the ranks meet, unless their starter has.

    Raises:
        DistributedError: the starter says another rank or size.
    """
    if me.starter in ("single", "environment") and (me.rank, me.world_size) != (rank, world_size):
        # spawned by this program itself: what the parent was told is not for its children
        environ["MASTER_ADDR"], environ["MASTER_PORT"] = master_addr, master_port
        return
    if me.starter != "single" and (me.rank, me.world_size) != (rank, world_size):
        if me.world_size == 1:  # a job of one rank that spawns its own
            environ["MASTER_ADDR"], environ["MASTER_PORT"] = master_addr, master_port
            return
        raise DistributedError(
            f"this is rank {me.rank} of {me.world_size} by {me.starter}, but the program says rank {rank} of "
            f"{world_size}; take both from launcher.ranks.RankEnv.detect(), and spawn nothing inside a job"
        )
    if me.starter != "torchrun" and me.master_addr is not None and me.master_port is not None:
        me.export(environ)
    environ.setdefault("MASTER_ADDR", master_addr)
    environ.setdefault("MASTER_PORT", master_port)


def _is(me: RankEnv, rank: int) -> bool:
    return me.starter != "single" and me.rank == rank


def local_rank(me: RankEnv, rank: int, world_size: int) -> int:
    """The rank on this host; ranks that a program spawned itself are all on one."""
    return me.local_rank if (me.rank, me.world_size) == (rank, world_size) else rank


def choose_device(asked: str, local: int, index: int | None = None) -> torch.device:
    """The device of a local rank: `index` among the visible ones, else the local rank in turn.

    Raises:
        DistributedError: this host has no such device.
    """
    if asked == "cpu":
        return torch.device("cpu")
    found = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    if found is None:
        if asked == "auto":
            return torch.device("cpu")
        raise DistributedError(
            f"training.device is {asked}, but torch {torch.__version__} sees none here; "
            "write device: auto (or cpu), or load the module of a torch built for it"
        )
    if asked not in ("auto", found.type):
        raise DistributedError(f"training.device is {asked}, but this host has {found.type}; write auto")
    count = torch.accelerator.device_count()
    return torch.device(found.type, (local if index is None else index) % max(count, 1))


def backend_for(asked: str | None, device: torch.device) -> str:
    """The backend by its name or an alias (ccl, xpu: xccl); None: what torch has for the device."""
    if asked in (None, "auto"):
        return str(dist.get_default_backend_for_device(device))
    return _ALIASES.get(str(asked), str(asked))


def device_ids(device: torch.device) -> list[int] | None:
    """What DistributedDataParallel takes: None on a CPU, else the device's index."""
    return None if device.type in ("cpu", "mps") else [device.index]


def sums_over_ranks(
    place: Place, sums: Mapping[str, tuple[Tensor | float, Tensor | float]], names: list[str]
) -> dict[str, float]:
    """Exact means over all ranks: sums and counts in float64, whatever each rank had."""
    flat = [float(part) for name in names for part in sums.get(name, (0.0, 0.0))]
    total = place.sum(torch.tensor(flat, dtype=torch.float64)).tolist()
    return {
        name: total[2 * at] / total[2 * at + 1] if total[2 * at + 1] else float("nan")
        for at, name in enumerate(names)
    }
