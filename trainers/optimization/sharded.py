"""The strategy `fsdp`: each rank has a part of every parameter, of its gradient and of the optimizer's state.

This is torch's `fully_shard` (FSDP2). A module that is sharded on its own has whole parameters only during
its forward and its backward pass; the other parameters are whole throughout both.

An evaluation waits for no other rank, so each rank then has a whole copy of the model: see `gathered`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard

from castoff.launcher.ranks import RankEnv
from castoff.trainers.configuration.config import Config
from castoff.trainers.configuration.fields import ConfigError, few
from castoff.trainers.configuration.shared import Fsdp
from castoff.trainers.distributed.devices import computing
from castoff.trainers.distributed.private_torch import is_view, tree_map_only
from castoff.trainers.distributed.process_group import RankContext
from castoff.trainers.optimization.bits import bit_sums, digest
from castoff.trainers.optimization.gradients import ShardedNorm
from castoff.trainers.optimization.local import local_gradients
from castoff.trainers.optimization.module_names import Named
from castoff.trainers.optimization.mould import Mould
from castoff.trainers.optimization.wrapping import Reducer, Whole


class Sharded:
    """A model whose parameters are sharded over the ranks; see `Strategy`.

    `modules`: those that are sharded on their own, inner ones first.
    """

    needs_norm = True

    def __init__(self, model: nn.Module, modules: Named, config: Config, context: RankContext):
        self.sharded = True
        self.bare = model
        self._context = context
        self._fields = config.parallel.fsdp or Fsdp()
        self._mesh, self.parts = _mesh(self._fields.within, context)
        self.norm = ShardedNorm(context, self.parts)
        self._start_alike()
        self._mould = Mould(model)
        self._left = [each for each in model.parameters() if not each.dim()]
        """Parameters that are single numbers, which torch cannot shard."""
        self._root: nn.Module | None = self._shard(modules, compile_blocks=config.training.compile)

    def _start_alike(self) -> None:
        """Give all ranks the weights and buffers of rank 0, of which each keeps a part."""
        tensors = [*self.bare.parameters(), *self.bare.buffers()]
        if self._context.alike(digest(bit_sums(tensors))):
            return
        with torch.no_grad():
            for each in tensors:
                sent = each.detach().to(self._context.device).contiguous()
                dist.broadcast(sent, src=0)
                each.copy_(sent)

    def _shard(self, modules: Named, *, compile_blocks: bool) -> nn.Module:
        """Shard the model, a module after the other, so that no device ever holds all of it."""
        device = self._context.device
        for each in self._left:
            each.data = each.data.to(device)
        settings: dict[str, Any] = {"mesh": self._mesh, "ignored_params": set(self._left)}
        self._names = [name for name, _ in modules]
        for _, module in modules:
            if compile_blocks:
                module.compile(dynamic=True)
            module.register_forward_hook(_without_views)
            fully_shard(module, **settings, reshard_after_forward=self._fields.reshard_after_forward)
        whole = Whole(self.bare)
        whole.register_forward_hook(_without_views)
        fully_shard(whole, **settings)
        if device.type == "cpu":  # torch 2.8: gloo gives the sum for the mean
            for made in (*(module for _, module in modules), whole):
                assert isinstance(made, FSDPModule)
                made.set_force_sum_reduction_for_comms(True)
        # Else ranks whose losses depend on different parameters would add up gradients of different ones.
        with_unused = getattr(whole, "set_reduce_scatter_unused_params", None)  # since torch 2.13
        if with_unused is not None:
            with_unused(True)
        return whole

    # --- A step -----------------------------------------------------------------------------------

    @contextmanager
    def wrapped(self) -> Iterator[tuple[nn.Module, Reducer | None]]:
        """The sharded model."""
        if self._root is None:
            raise RuntimeError(
                "this trainer's model is no longer sharded; make another trainer to train again"
            )
        yield self.bare, self._compute

    def begin(self) -> None:
        """Send rank 0's buffers to all ranks, as DistributedDataParallel does."""
        _share_buffers(self.bare)

    def sync(self, *, last: bool) -> AbstractContextManager[Any]:
        """Gradients are reduced after each micro-batch, so that none is ever whole; only the copies of the
        model wait for the last one.
        """
        assert isinstance(self._root, FSDPModule)
        self._root.set_requires_all_reduce(last)
        return nullcontext()

    def computing(self, precision: str) -> AbstractContextManager[Any]:
        """Autocast, without its cache, which would keep all weights in half precision for the whole
        forward pass.
        """
        return computing(self._context.device, precision, cache=False)

    @torch.no_grad()
    def gradients(self, parameters: Sequence[Tensor]) -> list[Tensor]:
        """This rank's parts of the gradients."""
        for each in self._left:
            if each.grad is not None:
                dist.all_reduce(each.grad)
                each.grad /= self._context.world_size
        return local_gradients(parameters)

    def unused(self, parameters: Sequence[Tensor], *, accumulated: bool) -> list[int]:
        """Parameters without a gradient: ranks must agree which ones are reduced."""
        return [number for number, each in enumerate(parameters) if each.grad is None]

    def _compute(self, compute: Callable[[nn.Module], Tensor]) -> Tensor:
        """Compute a loss with the model's whole parameters.

        Raises:
            ConfigError: it uses parameters of a module that is sharded on its own, outside its forward pass.
        """
        assert self._root is not None
        try:
            total: Tensor = self._root(compute)
        except RuntimeError as error:
            if "DTensor" not in str(error):
                raise
            raise ConfigError([_outside(self._names)]) from error
        return total

    # --- Other modules ----------------------------------------------------------------------------

    def copied(self) -> nn.Module:
        """A module with copies of this rank's parts; it cannot compute."""
        return self._mould.filled(self.bare, Tensor.clone)

    @contextmanager
    def gathered(self, module: nn.Module) -> Iterator[nn.Module]:
        """A whole copy of a module, which lives as long as the context."""
        yield self._mould.filled(module, _full) if self.sharded else module

    def end(self, others: Sequence[nn.Module], *, gather: bool) -> list[nn.Module]:
        """Replace the modules by whole ones, and drop the sharded model."""
        if not self.sharded:
            return list(others)
        self.bare, *made = [
            self._mould.filled(each, _full) if gather else self._mould.unfilled(self._context.device)
            for each in (self.bare, *others)
        ]
        if gather:
            _share_buffers(self.bare, *made)
        self.sharded, self._root = False, None
        return made

    def alike(self, numbers: Tensor) -> bool:
        """Whether the ranks with the same parts have the same numbers."""
        if self.parts == self._context.world_size:
            return True
        every = self._context.gather(numbers)
        return torch.equal(every, every[torch.arange(len(every)) % self.parts])


def _without_views(_module: nn.Module, _inputs: Any, outputs: Any) -> Any:
    """The outputs of a forward pass, without views: an in-place change of a view would remove the hook by
    which the backward pass gathers the module's parameters.
    """
    return tree_map_only(Tensor, lambda each: each.clone() if is_view(each) else each, outputs)


def _share_buffers(*modules: nn.Module) -> None:
    """Send rank 0's buffers to all ranks."""
    for module in modules:
        for buffer in module.buffers():
            dist.broadcast(buffer, src=0)


def _full(parameter: Tensor) -> Tensor:
    full_tensor = getattr(parameter, "full_tensor", None)
    whole: Tensor = parameter.clone() if full_tensor is None else full_tensor()
    return whole


def _outside(names: Sequence[str]) -> str:
    return (
        f"parallel.fsdp.modules: {few(list(names))} are sharded on their own, and have whole parameters only "
        "while their forward pass runs, but the loss uses a parameter of theirs outside of it. Name modules "
        "whose parameters are used in their forward pass only, or write modules: [] to gather all of the "
        "model at once"
    )


def _mesh(within: str, context: RankContext) -> tuple[DeviceMesh, int]:
    """The ranks among which parameters are sharded, and how many they are; all ranks must call it.

    Raises:
        ConfigError: the ranks cannot be divided by nodes.
    """
    size, kind = context.world_size, context.device.type
    parts = size if within == "all" else _ranks_of_a_node(context)
    if parts == size:
        return init_device_mesh(kind, (size,), mesh_dim_names=("shard",)), parts
    return init_device_mesh(kind, (size // parts, parts), mesh_dim_names=("copy", "shard")), parts


def _ranks_of_a_node(context: RankContext) -> int:
    me = RankEnv.detect()
    spawned = (me.rank, me.world_size) != (context.rank, context.world_size)  # by a program, on one host
    local, on_node = (context.rank, context.world_size) if spawned else (me.local_rank, me.local_world_size)
    every = context.gather(torch.tensor([on_node, context.rank % on_node - local])).tolist()
    field = "parallel.fsdp.within: is node, but"
    if any(each != [every[0][0], 0] for each in every):
        raise ConfigError(
            [f"{field} nodes have unequal numbers of ranks, or ranks that are not consecutive; write all"]
        )
    if on_node == 1:
        raise ConfigError([f"{field} each node has one rank, so that nothing is sharded; write all"])
    return on_node
