"""The process group: how ranks connect and agree."""

from __future__ import annotations

import os
import pickle
import socket
from collections.abc import Callable, MutableMapping
from datetime import timedelta
from functools import cache
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor

from castoff.launcher.ranks import RankEnv
from castoff.trainers.configuration.config import Config
from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.distributed.device_choice import available_backend, choose_device
from castoff.trainers.distributed.devices import limit_memory
from castoff.trainers.distributed.errors import DistributedError, RanksLost, lost_peers, of_a_collective
from castoff.trainers.distributed.explanations import brief
from castoff.trainers.distributed.health_check import RankHealthCheck
from castoff.trainers.distributed.one_host import meeting_store, on_one_host, stay_within
from castoff.trainers.distributed.private_torch import (
    Store,
    begun_collectives,
    default_store,
    import_compiler,
    set_group_timeout,
)
from castoff.trainers.distributed.stacks import write_stacks_on_request

_BACKSTOP = 60.0
"""Seconds by which NCCL waits longer than `Watchdog`, since NCCL's watchdog ends the process without a
message."""

Decided = TypeVar("Decided")

SIDE_GROUP_LIMIT = 256
"""The most ranks for which flags are sent through a gloo group in addition to the accelerators' group; gloo
connects every pair of ranks, which fails for thousands (pytorch/gloo issue 419)."""


class RankContext:
    """This process's rank and device, and its communication with other ranks."""

    def __init__(self, rank: int, world_size: int, device: torch.device, *, alone: bool = False):
        self.rank = rank
        self.world_size = world_size
        self.device = device
        self._alone = alone
        self._flags: dist.ProcessGroup | None = None
        self._timeout: float | None = None
        self.waits_for: str | None = None
        """The barrier that this rank waits at, in words; None: it waits at none."""

    @property
    def is_main(self) -> bool:
        """Whether this is rank 0, the one that writes."""
        return self.rank == 0

    @property
    def distributed(self) -> bool:
        """Whether this process is in a process group."""
        return not self._alone and dist.is_available() and dist.is_initialized()

    def sum(self, values: Tensor) -> Tensor:
        """The sum over all ranks, the same to the bit on each."""
        if not self.distributed:
            return values
        total = values.to(self.device, copy=True)
        dist.all_reduce(total)
        return total.to(values.device)

    def anywhere(self, mine: bool) -> bool:
        """Whether `mine` is true on any rank; all ranks must call it."""
        return bool(self.sum(torch.tensor(int(mine))))

    def everywhere(self, mine: bool) -> bool:
        """Whether `mine` is true on all ranks; all ranks must call it."""
        return not self.anywhere(not mine)

    def gather(self, values: Tensor) -> Tensor:
        """Gather a small tensor from every rank, stacked by rank."""
        if not self.distributed:
            return values[None]
        mine = values.to(self.device)
        every = [torch.empty_like(mine) for _ in range(self.world_size)]
        dist.all_gather(every, mine)
        return torch.stack(every).to(values.device)

    def alike(self, values: Tensor) -> bool:
        """Whether all ranks have the same whole numbers, with a single all_reduce."""
        if not self.distributed:
            return True
        both = torch.stack([values, ~values]).to(self.device)  # the maximum of ~x is ~ the minimum of x
        dist.all_reduce(both, dist.ReduceOp.MAX)
        return torch.equal(both[0], ~both[1])

    def gather_on_main(self, value: object) -> list[Any]:
        """On rank 0, every rank's value, by rank; on others an empty list. Values are pickled, so keep them
        small.
        """
        if not self.distributed:
            return [value]
        every: list[Any] | None = [None] * self.world_size if self.is_main else None
        dist.gather_object(value, every)
        return every or []

    def from_main(self, value: object) -> object:
        """Send rank 0's value to all ranks, and return it."""
        if not self.distributed:
            return value
        values = [value]
        dist.broadcast_object_list(values, src=0, device=self.device)
        return values[0]

    def on_main(self, decide: Callable[[], Decided]) -> Decided:
        """Call a function on rank 0, and return its result, or raise its error, on all ranks."""
        value: Decided | None = None
        error: Exception | None = None
        if self.is_main:
            try:
                value = decide()
            except Exception as met:  # noqa: BLE001  # any error: the other ranks must not wait for rank 0
                error = met
        result = self.from_main((value, None if error is None else portable(error)))
        if error is not None:
            raise error
        value, error = cast("tuple[Decided, Exception | None]", result)
        if error is not None:
            vars(error)["reporting_rank"] = 0  # its log has the traceback
            raise error
        return value

    def barrier(self, name: str) -> None:
        """Wait for all ranks; with gloo, an error names the ranks that did not come."""
        if not self.distributed or self.world_size == 1:
            return
        self.waits_for = f"for all ranks to reach {name!r}"
        try:
            dist.barrier(self.flag_group())
        except RuntimeError as error:
            call = self.health_check()
            if call is None or not of_a_collective(error):
                raise
            verdict = call.hold("waits", self.waits_for)
            raise RanksLost(verdict, self.rank, before=f"not all ranks reached {name!r}: ") from error
        finally:
            self.waits_for = None

    def collectives(self) -> int:
        """Number of collectives that this rank has begun in the default group; 0 if unknown."""
        return begun_collectives() if self.distributed else 0

    def health_check(self) -> RankHealthCheck | None:
        """The check that names missing ranks; None if there are no other ranks."""
        return None if self._alone else health_check()

    def set_timeout(self, seconds: float) -> None:
        """Set how long this rank waits for others, if the backend (gloo, NCCL) allows it."""
        self._timeout = seconds
        for group in (dist.group.WORLD, self._flags):
            if group is None:
                continue
            backend = dist.get_backend(group)
            if backend in ("gloo", "nccl"):
                longer = 0.0 if backend == "gloo" else _BACKSTOP
                set_group_timeout(seconds + longer, group)

    def flag_group(self) -> dist.ProcessGroup | None:
        """A group for tensors on the CPU; None above `SIDE_GROUP_LIMIT` ranks."""
        if dist.get_backend() == "gloo":
            return dist.group.WORLD
        if self.world_size > SIDE_GROUP_LIMIT:
            return None
        if self._flags is None:
            limit = None if self._timeout is None else timedelta(seconds=self._timeout)
            self._flags = dist.new_group(backend="gloo", timeout=limit)
        return self._flags


def portable(error: Exception) -> Exception:
    """The error, or a RuntimeError with its text if the error cannot be pickled and unpickled."""
    try:
        again = pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001  a user's class may raise anything
        again = None
    return error if isinstance(again, type(error)) else RuntimeError(brief(error))


def initialize_ddp(
    rank: int,
    worldsize: int,
    master_addr: str = "localhost",
    master_port: str | int = "12345",
    backend: str | None = None,
    *,
    device: str = "auto",
    timeout: float = 1800.0,
) -> RankContext:
    """Join the process group as `rank` of `worldsize`, and take this rank's device.

    `master_addr` and `master_port` are used only if no launcher started the ranks, as with
    `multiprocessing.spawn`. `timeout`: seconds that ranks wait for each other, until `run_training` sets
    other limits.

    Raises:
        DistributedError: the launcher has set another rank or size, the device or backend does not exist, or
            other ranks do not connect.
    """
    if dist.is_initialized():
        raise DistributedError("this process has joined a group already; call cleanup_ddp() first")
    write_stacks_on_request(rank)  # also for programs with their own loop
    me = RankEnv.detect()
    chosen = choose_device(device, local_rank(me, rank, worldsize), me.device if _is(me, rank) else None)
    rendezvous(os.environ, me, rank, worldsize, master_addr, str(master_port))
    if chosen.type not in ("cpu", "mps"):
        torch.accelerator.set_device_index(chosen.index)  # before the group: the other order hangs
    used = available_backend(backend, chosen)
    if used == "nccl":
        record_flights(os.environ)
    # Before the group exists, since DDP imports the compiler: imported later, it would keep the group and
    # gloo's threads alive beyond the end of Python, where a thread that releases a tensor aborts the process
    # (torch 2.13).
    import_compiler()
    _join(used, me, rank, worldsize, timeout)
    if worldsize > 1:
        _health_check()  # so that every rank's host is in the store
    return RankContext(rank, worldsize, chosen)


def _join(backend: str, me: RankEnv, rank: int, worldsize: int, timeout: float) -> None:
    """Connect to the other ranks.

    Raises:
        DistributedError: other ranks do not connect.
    """
    try:
        dist.init_process_group(
            backend,
            store=_store(os.environ, me, rank, worldsize, timeout),
            rank=rank,
            world_size=worldsize,
            timeout=timedelta(seconds=timeout),
        )
    except Exception as error:
        if not lost_peers(error):
            raise
        where = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
        raise DistributedError(
            f"the ranks could not connect: rank {rank} of {worldsize}, on {socket.gethostname()}, tried "
            f"{where} ({' '.join(str(error).split())}). Check that all ranks are started within "
            f"parallel.start_timeout, {timeout:g} seconds, that {where} is rank 0's host and a free port "
            "there, and that other hosts can reach it"
        ) from error


def _store(
    environ: MutableMapping[str, str], me: RankEnv, rank: int, world_size: int, timeout: float
) -> Store | None:
    """A store for ranks on a single host; None: torch makes the store, or torchrun has made it.

    Raises:
        DistributedError: another process listens on the port.
    """
    address, port = environ["MASTER_ADDR"], environ["MASTER_PORT"]
    agents = environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    if agents or not on_one_host(me, rank, world_size, address):
        return None
    stay_within(environ)
    try:
        return meeting_store(rank, world_size, int(port), timeout)
    except OSError as error:
        raise DistributedError(
            f"rank 0 cannot listen on port {port} of this host, through which the ranks are to connect: "
            f"{error.strerror}; `ss -ltnp` shows which process does. Set another MASTER_PORT, or use "
            "castoff launch, which chooses a free port"
        ) from error


def record_flights(environ: MutableMapping[str, str]) -> None:
    """Have NCCL dump its last collectives when one fails, unless the user has set these variables.

    It needs both variables (docs.pytorch.org, ProcessGroupNCCL Environment Variables). A failed collective
    ends the process (TORCH_NCCL_ASYNC_ERROR_HANDLING=3) by torch's default.
    """
    if "TORCH_NCCL_TRACE_BUFFER_SIZE" not in environ:  # its former name
        environ.setdefault("TORCH_FR_BUFFER_SIZE", "2000")
    environ.setdefault("TORCH_NCCL_DUMP_ON_TIMEOUT", "1")


def health_check() -> RankHealthCheck | None:
    """The check through which this process reports to other ranks; None if it is connected to none."""
    met = dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1
    return _health_check() if met else None


@cache
def _health_check() -> RankHealthCheck:
    """This process's health check, cached while it is in the group."""
    keeper = f"rank 0 ({os.environ.get('MASTER_ADDR', 'its host')})"
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        keeper = f"torchrun's agent on {os.environ.get('MASTER_ADDR', 'the first host')}"
    rank, size, host = dist.get_rank(), dist.get_world_size(), socket.gethostname()
    return RankHealthCheck(default_store(), rank, size, host, keeper, begun_collectives)


def cleanup_ddp() -> None:
    """Leave the process group, if there is one."""
    _health_check.cache_clear()  # it holds the group's store
    if dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()


def rendezvous(
    environ: MutableMapping[str, str],
    me: RankEnv,
    rank: int,
    world_size: int,
    master_addr: str,
    master_port: str,
) -> None:
    """Set MASTER_ADDR and MASTER_PORT, unless the launcher has.

    Raises:
        DistributedError: the launcher has set another rank or size.
    """
    if (me.rank, me.world_size) != (rank, world_size):
        # This program spawned the ranks, perhaps in a job of one rank: the parent's MASTER_ADDR and
        # MASTER_PORT are not meant for them, and torchrun's store does not listen at the new address.
        if me.launcher not in ("single", "environment") and me.world_size > 1:
            raise DistributedError(
                f"according to {me.launcher} this is rank {me.rank} of {me.world_size}, but the program "
                f"says rank {rank} of {world_size}; take both from castoff.RankEnv.detect(), and spawn "
                "no ranks inside a job"
            )
        environ["MASTER_ADDR"], environ["MASTER_PORT"] = master_addr, master_port
        environ.pop("TORCHELASTIC_USE_AGENT_STORE", None)
        return
    if me.launcher != "torchrun" and me.master_addr is not None and me.master_port is not None:
        me.export(environ)
    environ.setdefault("MASTER_ADDR", master_addr)
    environ.setdefault("MASTER_PORT", master_port)


def _is(me: RankEnv, rank: int) -> bool:
    return me.launcher != "single" and me.rank == rank


def local_rank(me: RankEnv, rank: int, world_size: int) -> int:
    """The local rank; ranks spawned by a program are all on one host, so theirs is `rank`."""
    return me.local_rank if (me.rank, me.world_size) == (rank, world_size) else rank


def context_of(rank: int, config: Config) -> RankContext:
    """The RankContext of `rank`, which must have joined the process group if there are several ranks.

    Raises:
        ConfigError: the configuration's world size or `rank` differs from the group's.
        DistributedError: the device does not exist.
    """
    joined = dist.is_available() and dist.is_initialized()
    size = dist.get_world_size() if joined else 1
    problems = []
    declared = config.parallel.world_size
    if declared not in (None, size):
        meant = f"{size} ranks have connected" if joined else "this process has not joined a group"
        problems.append(
            f"parallel.world_size: is {declared}, but {meant}; call initialize_ddp() on {declared} ranks, or "
            "leave it out: the launcher knows it"
        )
    if joined and rank != dist.get_rank():
        problems.append(f"rank: is {rank}, but this process is rank {dist.get_rank()} of its group")
    if problems:
        raise ConfigError(problems)
    me = RankEnv.detect()
    mine = (me.rank, me.world_size) == (rank, size)
    device = choose_device(config.training.device, local_rank(me, rank, size), me.device if mine else None)
    if config.training.max_memory_per_gpu is not None:
        limit_memory(device, config.training.max_memory_per_gpu)
    return RankContext(rank, size, device)
