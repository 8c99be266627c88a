"""The notebook of the graph trainer: it runs, and carries no outputs of whoever ran it last."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

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


@pytest.mark.long
@pytest.mark.usefixtures("for_real")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_it_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for beside in path.parent.glob("train_ddp.*"):
        shutil.copy(beside, tmp_path)
    monkeypatch.setenv("PATH", os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    text = (tmp_path / path.name).read_text()
    book = nbformat.reads(text, as_version=4)  # type: ignore[no-untyped-call]
    client = nbclient.NotebookClient(
        book,
        timeout=int(patience.SECONDS),
        kernel_name="python3",
        resources={"metadata": {"path": str(tmp_path)}},
    )
    client.execute()
    pictures = [
        output
        for cell in book.cells
        if cell.cell_type == "code"
        for output in cell.outputs
        if output.output_type == "display_data" and "image/png" in output.data
    ]
    assert len(pictures) == 2
