"""Each private name of torch that the trainers use does what they use it for."""

from __future__ import annotations

import ast
import inspect
import os
import select
import signal
import sys
import warnings
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset, TensorDataset, get_worker_info

from castoff.trainers.distributed import private_torch
from castoff.trainers.distributed.process_group import cleanup_ddp, initialize_ddp
from tests import patience

TESTED = {
    *("multiply_all", "lerp_all", "norms", "version_of", "after_backward", "rebuild_buckets"),
    *("mark_as_stepped", "Store", "TCPStore", "default_store", "set_group_timeout", "begun_collectives"),
    *("import_compiler", "die_with_parent", "end_workers", "hide_worker", "in_bad_fork", "ExceptionWrapper"),
    *("tree_map_only", "is_view", "in_backward", "dump_memory", "DispatchMode", "cpu_attention"),
}


def test_there_is_a_test_for_each() -> None:
    assert set(private_torch.__all__) == TESTED
    text = Path(__file__).read_text()
    assert all(f"private_torch.{name}" in text for name in TESTED)


def private(module: Path) -> Iterator[str]:
    """Private names of torch that a module uses, as far as it names torch there."""
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "torch":
            names = [*(node.module or "").split("."), *(each.name for each in node.names)]
            yield from (f"{node.module}: {name}" for name in names if name.startswith("_"))
        elif isinstance(node, ast.Attribute) and node.attr.startswith("_") and node.attr[1] != "_":
            root: Any = node
            while isinstance(root, ast.Attribute):
                root = root.value
            if isinstance(root, ast.Name) and root.id in ("torch", "dist", "nn"):
                yield ast.unparse(node)


def test_nothing_else_uses_one() -> None:
    folder = Path(private_torch.__file__).parents[1]
    found = {module: list(private(module)) for module in sorted(folder.rglob("*.py"))}
    own = found.pop(Path(private_torch.__file__))
    assert len(own) > 9
    assert {str(module): names for module, names in found.items() if names} == {}


# --- Tensors --------------------------------------------------------------------------------------


def test_many_tensors_at_once() -> None:
    several = [torch.tensor([3.0, 4.0]), torch.tensor([6.0])]
    assert [float(each) for each in private_torch.norms(several)] == [5.0, 6.0]
    private_torch.multiply_all(several, torch.tensor(2.0))
    assert [each.tolist() for each in several] == [[6.0, 8.0], [12.0]]
    private_torch.lerp_all(several, [torch.zeros(2), torch.zeros(1)], 0.25)
    assert [each.tolist() for each in several] == [[4.5, 6.0], [9.0]]


def test_a_version_grows_with_changes_in_place() -> None:
    tensor = torch.zeros(2)
    before = private_torch.version_of(tensor)
    tensor += 1
    assert private_torch.version_of(tensor) > before


def test_a_view_is_known_from_what_has_its_own_memory() -> None:
    tensor = torch.ones(2, requires_grad=True) * 2
    assert private_torch.is_view(tensor.view(1, 2))
    assert not private_torch.is_view(tensor)


def test_a_part_of_each_kind_is_mapped() -> None:
    found = private_torch.tree_map_only(torch.Tensor, torch.neg, {"a": [torch.ones(1), 2]})
    assert found == {"a": [torch.tensor([-1.0]), 2]}


# --- Training -------------------------------------------------------------------------------------


def test_what_is_called_after_a_backward_pass() -> None:
    called: list[str] = []
    weight = torch.ones(2, requires_grad=True)
    weight.register_hook(lambda _: called.append("gradient"))
    total = (weight * 2).sum()
    total.register_hook(lambda _: private_torch.after_backward(lambda: called.append("over")))
    total.backward()
    assert called == ["gradient", "over"]


def test_a_scheduler_before_the_optimizer() -> None:
    optimizer = torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=1.0)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    private_torch.mark_as_stepped(optimizer)
    with warnings.catch_warnings(action="error"):
        scheduler.step()


# --- Ranks ----------------------------------------------------------------------------------------


@pytest.fixture
def group() -> Iterator[None]:
    """A group of one, of which collectives are as of several."""
    initialize_ddp(0, 1, master_port=str(20000 + os.getpid() % 9999), device="cpu")
    yield
    cleanup_ddp()


class HalfUsed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.used, self.unused = nn.Linear(2, 1), nn.Linear(2, 1)

    def forward(self, numbers: torch.Tensor) -> Any:
        return self.used(numbers)


@pytest.mark.usefixtures("group")
def test_buckets_that_wait_for_a_gradient() -> None:
    wrapped = DistributedDataParallel(HalfUsed())
    wrapped(torch.ones(1, 2)).sum().backward()
    with pytest.raises(RuntimeError, match=r"did not receive grad for rank 0: 2 3"):
        private_torch.rebuild_buckets(wrapped)


@pytest.mark.usefixtures("group")
def test_the_group_of_all() -> None:
    before = private_torch.begun_collectives()
    dist.all_reduce(torch.ones(1))
    assert private_torch.begun_collectives() == before + 1
    store = private_torch.default_store()
    assert isinstance(store, private_torch.Store)
    store.set("key", "value")
    assert store.get("key") == b"value"
    assert dist.group.WORLD is not None
    private_torch.set_group_timeout(12.5, dist.group.WORLD)
    assert dist.group.WORLD._get_backend(torch.device("cpu")).options._timeout == timedelta(seconds=12.5)


def test_a_store_listens_where_it_is_told() -> None:
    store = private_torch.TCPStore("127.0.0.1", 0, 1, True, timedelta(seconds=patience.SECONDS))
    assert isinstance(store, private_torch.Store) and store.port


def test_the_compiler_is_imported() -> None:
    private_torch.import_compiler()
    assert "torch._dynamo" in sys.modules


# --- Processes ------------------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform != "linux", reason="prctl is Linux's")
def test_a_process_dies_with_its_parent() -> None:
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        if not os.fork():
            private_torch.die_with_parent(signal.SIGKILL)
            os.write(writing, b"!")
            signal.pause()
        os.close(writing)
        os.read(reading, 1)  # the grandchild is ready
        os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    assert select.select([reading], [], [], patience.SECONDS)[0], "it lives on"
    assert os.read(reading, 1) == b""  # its end of the pipe is closed
    os.close(reading)


def test_workers_that_a_loader_keeps_end() -> None:
    """Though its iterator is still held, as by the frames of an error; the next pass has new ones."""
    loader: DataLoader[Any] = DataLoader(
        TensorDataset(torch.arange(4)), num_workers=1, persistent_workers=True
    )
    held = iter(loader)
    next(held)
    (worker,) = held._workers  # type: ignore[attr-defined]
    private_torch.end_workers(loader)
    assert worker.exitcode is not None
    assert len(list(loader)) == 4
    private_torch.end_workers(loader)
    private_torch.end_workers(loader)  # which has none


class Workers(IterableDataset[bool]):
    """Whether a worker knows that it is one, before and after that is hidden."""

    def __iter__(self) -> Iterator[bool]:
        yield get_worker_info() is not None
        private_torch.hide_worker()
        yield get_worker_info() is not None


def test_a_worker_is_hidden() -> None:
    loader = DataLoader(Workers(), batch_size=None, num_workers=1)
    assert list(loader) == [True, False]


def test_the_error_of_a_worker_is_raised_here() -> None:
    try:
        raise KeyError("lost")
    except KeyError:
        wrapped = private_torch.ExceptionWrapper(where="in a worker")
    with pytest.raises(KeyError, match="in a worker"):
        wrapped.reraise()


def test_whether_a_backward_pass_runs() -> None:
    seen = []
    numbers = torch.ones(1, requires_grad=True)
    numbers.register_hook(lambda _: seen.append(private_torch.in_backward()))
    seen.append(private_torch.in_backward())
    numbers.sum().backward()
    assert seen == [False, True]


def test_attention_on_a_cpu_is_seen() -> None:
    seen = set()

    class Sees(private_torch.DispatchMode):
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.add(function.overloadpacket)
            return function(*args, **(kwargs or {}))

    query = torch.ones(1, 1, 2, 4, requires_grad=True)
    with Sees():  # type: ignore[no-untyped-call]
        nn.functional.scaled_dot_product_attention(query, query, query).sum().backward()
    assert {*private_torch.cpu_attention()} <= seen


def test_a_snapshot_of_memory() -> None:
    assert inspect.signature(torch.cuda.memory._dump_snapshot).parameters, "private_torch.dump_memory"


def test_whether_a_fork_is_bad() -> None:
    assert private_torch.in_bad_fork(torch.cuda) is False
