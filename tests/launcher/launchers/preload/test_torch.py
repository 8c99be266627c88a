"""A copy of a process that has imported torch: threads, random states, and workers of its loaders."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest

from .test_copies import Ended, Node, ended, node, script

__all__ = ["node"]
pytestmark = pytest.mark.costly


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """An agent with torch, of which every variable that says how many threads is unset."""
    made = Node(tmp_path_factory.mktemp("node"))
    made.begin([sys.executable, "program.py"], ["torch"], env=without_threads())
    yield made
    made.end()


def without_threads(**others: str) -> dict[str, str]:
    """The same for all tests, and for the agent that began before them."""
    return {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "HOME": "/nonexistent", **others}


THREADS = """
import os, torch, numpy
one = numpy.ones((600, 600))
one @ one
blas = len(os.listdir("/proc/self/task"))
torch.ones(600, 600) @ torch.ones(600, 600)
print(torch.get_num_threads(), torch.get_num_interop_threads(), blas, len(os.listdir("/proc/self/task")))
"""


@pytest.mark.parametrize(("threads", "cores"), [(None, "all"), (None, "one"), ("2", "one"), ("1", "all")])
def test_as_many_threads(loaded: Node, threads: str | None, cores: str) -> None:
    """Of torch and of numpy's OpenBLAS, though both have been loaded with other variables and cores."""
    environment = without_threads(**({} if threads is None else {"OMP_NUM_THREADS": threads}))

    def bind() -> None:
        if cores == "one":
            os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

    command = script(loaded.folder, THREADS)
    plain = ended(command, loaded.folder, env=environment, preexec_fn=bind)
    assert loaded.run(command, env=environment, preexec_fn=bind) == plain


def test_random_states_of_its_own(loaded: Node) -> None:
    text = (
        "import random, numpy, torch\n"
        "print(random.random(), numpy.random.rand(), float(torch.rand(1)), torch.initial_seed())"
    )
    command = script(loaded.folder, text)
    first, second = (loaded.run(command, env=without_threads()) for _ in range(2))
    assert (first.code, first.errors) == (0, "")
    assert not {*first.output.split()} & {*second.output.split()}
    text = (
        "import random, numpy, torch\nrandom.seed(3), numpy.random.seed(3), torch.manual_seed(3)\n"
        "print(random.random(), numpy.random.rand(), float(torch.rand(1)), torch.initial_seed())"
    )
    command = script(loaded.folder, text)
    assert loaded.run(command, env=without_threads()) == ended(command, loaded.folder, env=without_threads())


WORKERS = """
import os
os.environ["PYTHONWARNINGS"] = "ignore"  # of what a process that tracks semaphores missed, if it was slow
import torch
from torch.utils.data import DataLoader, Dataset

class Numbers(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, place):
        return torch.tensor(place)

if __name__ == "__main__":
    for how in ("fork", "spawn"):
        loader = DataLoader(Numbers(), 2, num_workers=1, multiprocessing_context=how)
        print(how, [batch.tolist() for batch in loader])
"""


def test_workers_of_loaders(loaded: Node) -> None:
    command = script(loaded.folder, WORKERS)
    assert loaded.run(command, env=without_threads()) == ended(command, loaded.folder, env=without_threads())


def test_what_the_first_optimizer_needs_is_there(node: Node) -> None:
    """For a script that may train; it takes as long to import as torch itself."""
    text = "import sys, torch\nprint('torch._dynamo' in sys.modules)"
    for words, there in (("", False), ("# and torch.optim", True)):
        command = script(node.folder, f"{text} {words}")
        node.begin(command, ["torch"])
        assert node.run(command) == Ended(0, f"{there}\n", "")
        node.end()
