"""Writing and reading graphs, beside other ways: `python -m bench.graphs [GRAPHS]`.

A measurement, not a test. CPU time of one process, the least of several rounds in which all take turns. The
others are torch_geometric's InMemoryDataset, and a file for each graph, as QuantumGrav writes them.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from torch_geometric.data import Data
    from torch_geometric.data.collate import collate
    from torch_geometric.data.separate import separate

from castoff.trainers.gnn.causets.samples import sample
from castoff.trainers.gnn.causets.settings import Causets
from castoff.trainers.gnn.graphs.records import encoded
from castoff.trainers.gnn.graphs.saved import Saved, write

_ROUNDS = 5


def main(number: int) -> None:
    """Print the rate of each, and its ratio to ours."""
    torch.set_num_threads(1)
    settings = Causets(number=number)
    begin = time.process_time()
    graphs = [sample(settings, 0, index) for index in range(number)]
    print(f"made: {number / (time.process_time() - begin):,.0f} graphs a second")
    with tempfile.TemporaryDirectory() as folder:
        _report("written", number, _writers(graphs, Path(folder)))
        _report("read in random order", number, _readers(number, Path(folder)))


def _report(what: str, number: int, ways: dict[str, Callable[[], Any]]) -> None:
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(_ROUNDS):
        for name, way in ways.items():
            begin = time.process_time()
            way()
            taken[name].append(time.process_time() - begin)
    ours = min(taken["ours"])
    for name, times in taken.items():
        least = min(times)
        print(f"{what}, {name}: {least / number * 1e6:,.0f} µs a graph, {least / ours:.2f} times ours")


def _writers(graphs: list[Data], folder: Path) -> dict[str, Callable[[], Any]]:
    """What has been written last stays for the readers."""
    rounds = iter(range(_ROUNDS))
    each = folder / "each"
    each.mkdir()

    def ours() -> None:
        place = folder / f"ours-{next(rounds)}"
        write(place, (encoded(graph) for graph in graphs), {})
        (folder / "ours").unlink(missing_ok=True)
        (folder / "ours").symlink_to(place)

    def in_memory() -> None:
        data, slices, _ = collate(Data, graphs, add_batch=False)
        torch.save((data.to_dict(), slices), folder / "all.pt")

    def one_by_one() -> None:
        for index, graph in enumerate(graphs):
            torch.save(graph, each / f"{index}.pt")

    return {"ours": ours, "InMemoryDataset's file": in_memory, "a file each": one_by_one}


def _readers(number: int, folder: Path) -> dict[str, Callable[[], Any]]:
    order = list(range(number))
    random.Random(0).shuffle(order)
    saved = Saved(folder / "ours")
    content, slices = torch.load(folder / "all.pt", weights_only=False)
    data = Data.from_dict(content)

    def part(index: int) -> Any:
        return separate(Data, data, index, slices, decrement=False)

    def file(index: int) -> Any:
        return torch.load(folder / "each" / f"{index}.pt", weights_only=False)

    def all_by(read: Callable[[int], Any]) -> Callable[[], None]:
        def every() -> None:
            for index in order:
                read(index)

        return every

    return {
        "ours": all_by(saved.__getitem__),
        "InMemoryDataset without its cache": all_by(part),
        "a file each": all_by(file),
    }


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1500)
