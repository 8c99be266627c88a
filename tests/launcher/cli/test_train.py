"""castoff train: hands over to a trainer of our own, whatever lies about with its name."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from castoff.launcher.cli.train import TRAININGS

from ..conftest import Castoff

ROOT = Path(__file__).parents[3]
COMMAND = str(Path(sys.executable).parent / "castoff")


def complains(answer: subprocess.CompletedProcess[str], said: str, code: int) -> None:
    assert (answer.returncode, answer.stdout) == (code, "")
    (line,) = answer.stderr.splitlines()
    assert line.startswith("castoff: ") and said in line


@pytest.fixture
def started(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program that castoff becomes prints its command line, as bytes, and ends with 7."""
    folder = tmp_path_factory.mktemp("sitecustomize")
    (folder / "sitecustomize.py").write_text(
        "import os, sys\n"
        "if 'castoff.trainers.gnn' in sys.orig_argv:\n"
        "    print(os.getpid(), [os.fsencode(word) for word in sys.orig_argv], flush=True)\n"
        "    os._exit(7)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(folder))


SAFELY = [b"-P"] if sys.version_info >= (3, 11) else []


@pytest.mark.parametrize(
    "words",
    [
        [b"c.yaml", b"--set", b"training.num_epochs=3"],
        [b"", b"a b", b"-n", b"--nodes", b"$HOME", b"'\"\\", b"*", b"\xff\xfe", b"\n", "ä\u2028".encode()],
        [b"--help"],
        [b"-h", b"--version", b"--json"],
        [b"--", b"c.yaml", b"--", b"--help"],
        [b"c.yaml", b"--"],
        [],
    ],
)
@pytest.mark.usefixtures("started")
def test_every_byte_is_handed_over(words: list[bytes], tmp_path: Path) -> None:
    """By the same Python, in the same process, whose code is the trainer's."""
    with subprocess.Popen(
        [os.fsencode(COMMAND), b"train", b"gnn", *words], cwd=tmp_path, stdout=subprocess.PIPE
    ) as process:
        shown = process.communicate()[0].decode()
    pid, _, line = shown.partition(" ")
    assert (process.returncode, int(pid)) == (7, process.pid)
    python, *rest = ast.literal_eval(line)
    assert rest == [*SAFELY, b"-m", b"castoff.program", b"castoff.trainers.gnn", *words]
    assert Path(os.fsdecode(python)).parent == Path(sys.executable).parent


@pytest.mark.everyday("lacking1")
@pytest.mark.parametrize("lacking", [["torch"], ["torch_geometric"], ["torch", "torch_geometric"]])
def test_what_is_not_installed_is_named(lacking: list[str], castoff: Castoff, tmp_path: Path) -> None:
    pytest.importorskip("torch_geometric")
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.machinery as machinery\n"
        "find = machinery.PathFinder.find_spec\n"
        "machinery.PathFinder.find_spec = staticmethod(\n"
        f"    lambda name, *rest: None if name in {lacking} else find(name, *rest))\n"
    )
    answer = castoff("train", "gnn", "none.yaml", env={"PYTHONPATH": str(tmp_path)})
    assert (answer.returncode, answer.stdout) == (1, "")
    (line,) = answer.stderr.splitlines()
    assert line.startswith("castoff train: ") and f"has no {' and no '.join(lacking)};" in line
    assert "pip install 'castoff[gnn]'" in line and "an installed torch from 2.8 on is kept" in line
    assert castoff("train", "gnn", "--help", env={"PYTHONPATH": str(tmp_path)}).returncode == 0


def test_help_is_the_trainers(castoff: Castoff) -> None:
    answer = castoff("train", "gnn", "--help")
    assert (answer.returncode, answer.stderr) == (0, "")
    assert answer.stdout.startswith("usage: castoff train gnn ")
    assert "--set FIELD=VALUE" in answer.stdout
    wrong = castoff("train", "gnn", "--nope")
    assert wrong.returncode == 2 and "castoff train gnn" in wrong.stderr


def test_trainings_are_listed(castoff: Castoff) -> None:
    shown = castoff("train", "--help").stdout
    width = max(map(len, TRAININGS))
    for name, words in TRAININGS.items():
        assert f"  {name:{width}}  {words}\n" in shown
        assert (ROOT / "trainers" / name / "__main__.py").exists()
    assert set(TRAININGS) == {path.parent.name for path in (ROOT / "trainers").glob("*/__main__.py")}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["gmn", "c.yaml"],
            "is 'gmn', but takes one of dpo, gnn, sedd; did you mean gnn? (see castoff train",
        ),
        (["c.yaml"], "is 'c.yaml', but takes one of dpo, gnn, sedd"),
        (["\x1b[2J"], "is '\\x1b[2J', but takes one of"),
        ([], "NAME is missing: one of dpo, gnn, sedd"),
        (["--", "gnn"], "NAME is missing: one of dpo, gnn, sedd"),
        (["--set", "a=b", "gnn"], "is '--set', but takes one of dpo, gnn, sedd"),
    ],
)
def test_names_that_are_none(words: list[str], said: str, castoff: Castoff) -> None:
    complains(castoff("train", *words), said, 2)


def test_castoff_itself_loads_nothing_heavy(tmp_path: Path) -> None:
    code = (
        "import os, sys\n"
        "os.execv = lambda path, words: (print(*sys.modules), os._exit(0))\n"
        "sys.stdout.reconfigure(line_buffering=True)\n"
        "from castoff.launcher.cli.main import main\n"
        "main(['train', 'gnn', 'c.yaml'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert "click" in loaded
    assert not loaded & {"torch", "torch_geometric", "numpy", "yaml", "msgspec", "rich"}
