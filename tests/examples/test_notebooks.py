"""The notebooks of the examples: they run, and carry no outputs of whoever ran them last."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbclient
import nbformat
import pytest

from tests import patience

EXAMPLES = Path(__file__).parents[2] / "examples"
NOTEBOOKS = sorted(EXAMPLES.rglob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_it_has_no_outputs(path: Path) -> None:
    book = json.loads(path.read_text())
    nbformat.validate(book)  # a notebook of the version that it names
    for cell in book["cells"]:
        assert cell["metadata"] == {}
        if cell["cell_type"] == "code":
            assert (cell["outputs"], cell["execution_count"]) == ([], None)
    assert set(book["metadata"]) == {"kernelspec", "language_info"}


@pytest.fixture
def executed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, for_real: None) -> Callable[[str], Any]:
    """A notebook after all its cells have run in a folder of their own."""
    monkeypatch.setenv("PATH", os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    def execute(name: str) -> Any:
        for beside in EXAMPLES.glob(f"{Path(name).stem}.*"):
            shutil.copy(beside, tmp_path)
        text = (tmp_path / name).read_text()
        book = nbformat.reads(text, as_version=4)  # type: ignore[no-untyped-call]
        client = nbclient.NotebookClient(
            book,
            timeout=int(patience.SECONDS),
            kernel_name="python3",
            resources={"metadata": {"path": str(tmp_path)}},
        )
        client.execute()
        return book

    return execute


def outputs(book: Any, kind: str) -> list[str]:
    """What its cells show of a MIME type, in order."""
    cells = [cell for cell in book.cells if cell.cell_type == "code"]
    shown = [output.data for cell in cells for output in cell.outputs if "data" in output]
    return [data[kind] for data in shown if kind in data]


@pytest.mark.long
def test_the_graph_trainers(executed: Callable[[str], Any]) -> None:
    assert len(outputs(executed("train_ddp.ipynb"), "image/png")) == 2


@pytest.mark.costly
def test_submitting(executed: Callable[[str], Any]) -> None:
    book = executed("submit.ipynb")
    submitted, done, table, wrong, function = outputs(book, "text/html")
    assert "<strong>fit-" in submitted and ("pending" in submitted or "running" in submitted)
    assert "</span> done" in done and "step 400/400, loss 0." in done
    assert done.count("data:image/svg+xml") == 1
    assert "<th>loss</th>" in table and "<td>400.0</td>" in table
    assert "</span> failed" in wrong and "failed first: exit code 1" in wrong
    assert "<strong>square-" in function and "</span> done" in function
    line, status, *_ = outputs(book, "text/plain")[1:]
    assert line.startswith("fit-") and ": done, step 400/400" in line
    assert status.startswith("RunStatus(id='fit-")
    printed = "".join(
        output.text for cell in book.cells for output in cell.get("outputs", ()) if "text" in output
    )
    assert "the last loss is 0." in printed
    assert "ValueError: invalid literal for int()" in printed
    assert "[1, 4, 9]" in printed
