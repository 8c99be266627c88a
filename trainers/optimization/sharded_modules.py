"""Which modules of a model are sharded on their own."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from torch import Tensor, nn

from castoff.trainers.configuration.fields import ConfigError, few
from castoff.trainers.optimization.module_names import WITHOUT_FORWARD, Named, named

FIELD = "parallel.fsdp.modules"

_CONTAINERS = (nn.ModuleList, nn.Sequential, nn.ModuleDict)


def chosen(model: nn.Module, patterns: Sequence[str] | None) -> Named:
    """The modules to shard on their own, inner ones first; without patterns the blocks that repeat.

    Raises:
        ConfigError: a pattern describes no module, or one that shares a parameter with the rest of the model,
            or that has no forward pass.
    """
    holders = _holders(model)
    if patterns is None:
        found = [entry for entry in _repeated(model, "") if not _shared(entry[1], holders)]
    else:
        found = named(model, patterns, FIELD)
        tied = [name for name, module in found if _shared(module, holders)]
        if tied:
            raise ConfigError(
                [
                    f"{FIELD}: {few(tied)} share parameters with other parts of the model, which must be "
                    "gathered together; leave them out, or name a module that contains all of them"
                ]
            )
    return sorted(found, key=lambda entry: -entry[0].count("."))


def check_parameters(model: nn.Module, modules: Named) -> None:
    """Check that torch can shard the parameters, and gather together what `modules` and the rest have.

    Raises:
        ConfigError: it cannot.
    """
    named = {name: each for name, each in model.named_parameters() if each.dim()}
    problems = [
        _problem([name for name, each in named.items() if each.requires_grad and not each.numel()], _EMPTY),
        _problem([name for name, each in named.items() if not each.is_contiguous()], _GAPS),
    ]
    left = dict.fromkeys(named.values())
    names = {each: name for name, each in named.items()}
    for module in (*(module for _, module in modules), model):
        together = [each for each in module.parameters() if each in left]
        kinds = Counter(each.dtype for each in together if each.requires_grad)
        usual = kinds.most_common(1)[0][0] if kinds else None
        odd = [each for each in together if each.requires_grad and each.dtype != usual]
        if odd:
            which = _MIXED.format(odd[0].dtype, usual)
            problems.append(_problem([names[each] for each in odd], which))
        for each in together:
            del left[each]
    if any(problems):
        raise ConfigError([each for each in problems if each])


_EMPTY = (
    "without elements, which parallel.strategy: fsdp cannot train; leave them out, or write strategy: ddp"
)
_GAPS = (
    "not contiguous, which parallel.strategy: fsdp cannot shard; call .contiguous() in build_model, or write "
    "strategy: ddp"
)
_MIXED = (
    "{}, but gathered together with {}, which parallel.strategy: fsdp cannot do; give them one type in "
    "build_model, name modules with one type in parallel.fsdp.modules, or write strategy: ddp"
)


def _problem(names: Sequence[str], what: str) -> str:
    return f"model: {few(names)}: {what}" if names else ""


def _repeated(module: nn.Module, prefix: str) -> Iterator[tuple[str, nn.Module]]:
    """The outermost items of containers that are not the only one of their class, and have parameters."""
    kinds = Counter(type(child) for child in module.children())
    for name, child in module.named_children():
        several = isinstance(module, _CONTAINERS) and kinds[type(child)] > 1
        if several and not isinstance(child, WITHOUT_FORWARD) and any(True for _ in child.parameters()):
            yield prefix + name, child
        else:
            yield from _repeated(child, f"{prefix}{name}.")


def _holders(model: nn.Module) -> dict[Tensor, set[nn.Module]]:
    """Each parameter with the modules that have it as their own."""
    holders: dict[Tensor, set[nn.Module]] = defaultdict(set)
    for module in model.modules():
        for parameter in module.parameters(recurse=False):
            holders[parameter].add(module)
    return holders


def _shared(module: nn.Module, holders: dict[Tensor, set[nn.Module]]) -> bool:
    inside = set(module.modules())
    return any(holders[parameter] - inside for parameter in module.parameters())
