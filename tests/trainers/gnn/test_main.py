"""The program: a real training, custom tasks, and how it ends when something is wrong."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NoReturn

import pytest
import torch
from torch import nn

from castoff.launcher.ranks import RankEnv
from castoff.trainers.checkpointing.errors import CheckpointError
from castoff.trainers.configuration.config import Config
from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.distributed.errors import DistributedError
from castoff.trainers.distributed.explanations import explained
from castoff.trainers.distributed.failures import end, words
from castoff.trainers.gnn.__main__ import main
from castoff.trainers.task import Loss
from tests.trainers.toys import Ranks, Toy

pytestmark = pytest.mark.usefixtures("for_real")

ROOT = Path(__file__).parents[3]

YAML = """
name: causets
training:
  path: out
  num_epochs: 1
  batch_size: 16
  device: cpu
  optimizer_type: !pyobject torch.optim.AdamW
  optimizer_kwargs: {lr: 0.005}
data: {causets: {number: 64, size: [8, 16]}, split: [0.5, 0.125, 0.375]}
"""


def program(folder: Path, text: str, *words: str) -> subprocess.CompletedProcess[str]:
    """`python -m castoff.trainers.gnn`, in a folder, on a configuration."""
    (folder / "causets.yaml").write_text(text)
    return subprocess.run(
        [sys.executable, "-m", "castoff.trainers.gnn", "causets.yaml", *words],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


ONE_EPOCH = pytest.mark.filterwarnings("ignore:No artists with labels")
"""One point makes no curve, so the picture's legend may be empty."""


class Here:
    """The same in this process, which has loaded torch already."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]):
        self.monkeypatch = monkeypatch
        self.capfd = capfd
        self.stdout = self.stderr = ""

    def __call__(self, folder: Path, text: str, *words: str) -> int:
        """Its exit code."""
        (folder / "causets.yaml").write_text(text)
        self.monkeypatch.chdir(folder)
        self.monkeypatch.setattr(sys, "argv", ["castoff.trainers.gnn", "causets.yaml", *words])
        self.monkeypatch.setattr(sys, "path", list(sys.path))
        code: Any = 0
        try:
            main()
        except SystemExit as ended:
            code = ended.code
        self.stdout, self.stderr = self.capfd.readouterr()
        return int(code or 0)


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Iterator[Here]:
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    yield Here(monkeypatch, capfd)
    root.setLevel(level)
    root.handlers[:] = handlers


def numbers(shown: str) -> dict[str, float]:
    """The test's metrics, above the comparison."""
    rows = [line.rsplit("  ", 1) for line in shown.splitlines() if line.startswith("test ")]
    return {name.strip(): float(value) for name, value in rows}


@pytest.mark.long
def test_it_learns_what_causal_sets_are(tmp_path: Path) -> None:
    """On sets it has not seen, by what is built in: chance has half of them right."""
    overrides = ["data.causets={number: 500, size: [24, 32]}", "training.num_epochs=4"]
    done = program(tmp_path, YAML, *(word for each in overrides for word in ("--set", each)))
    assert done.returncode == 0, done.stderr
    shown = numbers(done.stdout)
    assert shown["test accuracy"] > 0.6
    assert shown["test dimension_error"] < 1.5
    folder = tmp_path / "out" / "causets"
    assert {"config.yaml", "metrics.jsonl", "checkpoints", "curves.png"} <= {p.name for p in folder.iterdir()}


@ONE_EPOCH
@pytest.mark.long
def test_one_head_alone(tmp_path: Path, here: Here) -> None:
    assert here(tmp_path, YAML, "--set", "model.active_tasks.1=false") == 0, here.stderr
    assert set(numbers(here.stdout)) == {"test loss", "test accuracy", "test f1"}


@ONE_EPOCH
def test_no_test_set(tmp_path: Path, here: Here) -> None:
    assert here(tmp_path, YAML, "--set", "data.split=[0.8,0.2,0]") == 0, here.stderr
    assert numbers(here.stdout) == {}


OWN = """
import sys
from tests.trainers.toys import Toy
class Mine(Toy):
    pass
assert "torch" in sys.modules
"""


@pytest.mark.long
def test_a_task_of_ones_own_beside_the_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not in the working directory; and nothing there hides a module that is installed."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "own_task.py").write_text(OWN)
    (tmp_path / "mine" / "msgspec.py").write_text("raise SystemExit('the wrong one')")
    text = YAML.partition("data:")[0] + "task: !pyobject own_task.Mine\ntask_kwargs: {samples: 60}\n"
    (tmp_path / "mine" / "own.yaml").write_text(text)
    (tmp_path / "elsewhere").mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "castoff.trainers.gnn", "../mine/own.yaml"],
        cwd=tmp_path / "elsewhere",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert set(numbers(done.stdout)) == {"test loss"}


@ONE_EPOCH
def test_defaults_are_written_to_the_runs_configuration(tmp_path: Path, here: Here) -> None:
    """And what the section says changes the built-in network."""
    assert here(tmp_path, YAML, "--set", "model={encoder_kwargs: {hidden: [64]}}") == 0, here.stderr
    written = Config.load(tmp_path / "out" / "causets" / "config.yaml")
    assert written.criterion == "manifold_and_dimension"
    assert written.model["encoder_kwargs"]["hidden"] == [64]
    assert written.model["encoder_kwargs"]["convolution"] == "sage"
    names = [[each.name for each in part.evaluator_tasks] for part in evaluators(written)]
    assert names == [["accuracy", "f1", "dimension_error"]] * 2


def evaluators(config: Config) -> list[Any]:
    return [config.validation.validator, config.testing.tester]


# --- Errors ------------------------------------------------------------------------------------------


def test_mistakes_are_reported_and_nothing_is_left(tmp_path: Path) -> None:
    text = YAML.replace("num_epochs", "num_epoch").replace("batch_size: 16", "batch_size: 0")
    (tmp_path / "torch.py").write_text("raise SystemExit('torch was loaded')")
    done = program(tmp_path, text)
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert [re.sub(r":\d+: .*", "", line) for line in lines] == ["castoff train: causets.yaml"] * 2
    assert "training.batch_size: is 0" in done.stderr and "did you mean num_epochs?" in done.stderr
    assert not (tmp_path / "out").exists()


def test_a_folder_that_cannot_be_written_to(tmp_path: Path, here: Here) -> None:
    (tmp_path / "out").write_text("a file")
    assert here(tmp_path, YAML) == 1
    *_, line = here.stderr.splitlines()
    assert line.startswith("castoff train: training.path: out/causets: ") and "Not a directory" in line


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("training.optimizer_type=!pyobject torch.optim.Adan", "has no Adan; did you mean Adam?"),
        ("criterion=!pyobject no_such_module.loss", "there is no module no_such_module here"),
        ("training.device=xpu", "training.device is xpu, but "),
        ("parallel.world_size=2", "parallel.world_size: is 2, but this process has not joined a group"),
        ("model.encoder_kwargs.convolution=gatt", "is 'gatt', but no convolution is known by that name"),
        ("data.causets.sizes=3", "data.causets.sizes: there is no such field; did you mean size?"),
    ],
)
def test_mistakes_that_show_later(override: str, says: str, tmp_path: Path, here: Here) -> None:
    assert here(tmp_path, YAML, "--set", override) == 1
    (line,) = (line for line in here.stderr.splitlines() if not line.startswith("[RANK 0]"))
    assert line.startswith("castoff train: ") and says in line


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (ConfigError(["a: is missing", "b: is missing"]), "a: is missing\nb: is missing"),
        (DistributedError("training.device is cuda, but …"), "training.device is cuda, but …"),
        (CheckpointError("every checkpoint is damaged"), "every checkpoint is damaged"),
        (PermissionError(13, "Permission denied", "/w/out/x/metrics.jsonl"), "training.path: /w/out/x/metr"),
        (FileNotFoundError(2, "No such file or directory", "/w"), "training.path: /w: No such file"),
        (OSError(28, "No space left on device"), "training.path: /w/out: No space left on device"),
        (torch.distributed.DistNetworkError("The client socket\nhas timed out"), "could not connect"),
        (
            RuntimeError("[gloo/transport/tcp/pair.cc:547] Connection closed by peer"),
            "another rank has ended",
        ),
    ],
)
def test_what_a_user_can_mend_is_explained(error: Exception, says: str) -> None:
    given = explained(error, "/w/out")
    assert given is not None
    assert says in given


@pytest.mark.parametrize(
    "error",
    [
        KeyError("x"),
        RuntimeError("mat1 and mat2 shapes cannot be multiplied"),
        RuntimeError("connection closed"),  # not the ranks'
        RuntimeError("[enforce fail at gloo/transport/tcp/pair.cc:446] op.preamble.length <= op.nbytes"),
        FileNotFoundError(2, "No such file or directory", "/data/x.pt"),
        OSError(22, "Invalid argument"),
        PermissionError(13, "Permission denied", 3),
        ModuleNotFoundError("No module named 'x'", name="x"),
    ],
)
def test_a_mistake_in_the_program_keeps_its_traceback(error: Exception) -> None:
    assert explained(error, "/w/out") is None


@pytest.mark.parametrize("numbers", [10, 1_000_000])
def test_a_full_disk_is_found_behind_torchs_error(numbers: int) -> None:
    """Of a large file, that a position was unexpected."""
    with Path("/dev/full").open("wb") as full:
        with pytest.raises((OSError, RuntimeError)) as error:
            save(torch.zeros(numbers), full)
        with contextlib.suppress(OSError):
            full.close()
    assert explained(error.value, "/w/out") == "training.path: /w/out: No space left on device"


def save(tensor: torch.Tensor, file: IO[bytes]) -> None:
    torch.save({"w": tensor}, file)
    file.flush()


def test_before_the_folder_is_known_no_error_is_about_it() -> None:
    assert explained(PermissionError(13, "Permission denied", "/w"), None) is None


def test_every_line_names_its_program() -> None:
    assert words("a\nb") == ["castoff train: a", "castoff train: b"]


def test_a_bug_alone_is_shown_with_its_place(capfd: pytest.CaptureFixture[str]) -> None:
    me = RankEnv.detect({})
    with pytest.raises(RuntimeError) as bug:
        broken()
    with pytest.raises(SystemExit) as ended:
        end(bug.value, me, "out")
    assert ended.value.code == 1
    assert "in broken" in capfd.readouterr().err


def broken() -> NoReturn:
    raise RuntimeError("a bug")


# --- Several ranks -----------------------------------------------------------------------------------


class SmallToy(Toy):
    """Needs no torch_geometric, whose loading takes seconds."""


class BreaksOnRank1(Toy):
    """A bug that only one rank meets, while the other waits for its gradients."""

    def loss(self, model: nn.Module, batch: Any) -> Loss:
        if os.environ["RANK"] == "1":
            broken()
        return super().loss(model, batch)


class NeedsMore(Toy):
    """What a task finds out for itself, on one rank: a data set is not on that host."""

    def build_data(self) -> Any:
        if os.environ["RANK"] == "1":
            raise ConfigError(["data: is not on this host", "and neither is the rest"])
        return super().build_data()


def ranks_end(tmp_path: Path, text: str, **environ: str) -> list[str]:
    """What each of two ranks said; nobody ends them from outside, so a rank that waited would fail this."""
    path = tmp_path / "causets.yaml"
    path.write_text(text.replace("path: out", f"path: {tmp_path / 'out'}"))
    ranks = Ranks(tmp_path / "ranks", 2, environ)
    ranks.start(as_program, str(path))
    assert ranks.end() == [1, 1], ranks.log(0) + ranks.log(1)
    return [ranks.log(0), ranks.log(1)]


def as_program(path: str) -> None:
    sys.argv = ["castoff.trainers.gnn", path]
    main()


def own(name: str) -> str:
    return YAML.partition("data:")[0] + f"task: !pyobject {__name__}.{name}\n"


@pytest.mark.long
def test_every_rank_finds_the_same_mistake(tmp_path: Path) -> None:
    first, second = ranks_end(tmp_path, YAML.replace("num_epochs", "num_epoch"))
    path = tmp_path / "causets.yaml"
    problem = f"castoff train: {path}:5: training.num_epoch: there is no such field; did you mean num_epochs?"
    assert first.splitlines() == [problem]
    assert set(second.splitlines()) == {f"[RANK 1] {problem}"}


@pytest.mark.long
def test_rank_0_alone_finds_one(tmp_path: Path) -> None:
    """The other waits for it to make the folder, and gets the same error."""
    (tmp_path / "out").write_text("a file")
    first, second = ranks_end(tmp_path, own("SmallToy"))
    assert "castoff train: training.path: " in first and "Not a directory" in first
    assert "[RANK 1] castoff train: training.path: " in second and "Not a directory" in second
    assert "Traceback" not in first + second


@pytest.mark.long
def test_another_rank_finds_one(tmp_path: Path) -> None:
    first, second = ranks_end(tmp_path, own("NeedsMore"))
    assert "[RANK 1] castoff train: data: is not on this host\n" in second
    assert "[RANK 1] castoff train: and neither is the rest" in second
    assert "castoff train: " in first
    assert "Traceback" not in first + second


def test_a_bug_on_one_rank_ends_both(tmp_path: Path) -> None:
    first, second = ranks_end(tmp_path, own("BreaksOnRank1"))
    assert "in broken" in second and "RuntimeError: a bug" in second
    assert re.search(r"castoff train: rank 1 \(\S+\) ended before .* RuntimeError: a bug", first)
    assert "Traceback" not in first


@pytest.mark.long
def test_damaged_checkpoints(tmp_path: Path) -> None:
    left = tmp_path / "out" / "causets_run" / "checkpoints" / "step-0000000001"
    left.mkdir(parents=True)
    first, second = ranks_end(tmp_path, own("SmallToy"), CASTOFF_RUN_DIR=str(tmp_path / "run"))
    assert "castoff train: every checkpoint is damaged" in first
    assert "[RANK 1] castoff train: " in second
    assert "Traceback" not in first + second
