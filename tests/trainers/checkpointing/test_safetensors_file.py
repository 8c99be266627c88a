"""The weights of a checkpoint as one file, as the library of this format reads it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, load_model
from torch import nn

from castoff.trainers import export
from castoff.trainers.checkpointing.checkpoints import Checkpoints, load_part
from castoff.trainers.checkpointing.errors import CheckpointError
from castoff.trainers.checkpointing.safetensors_file import export_safetensors
from tests.trainers.checkpointing.sharded import Tied, begin, end
from tests.trainers.toys import run


def many_types() -> dict[str, torch.Tensor]:
    kinds = ("float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool")
    made = {kind: torch.arange(6).reshape(2, 3).to(getattr(torch, kind)) for kind in kinds}
    return {
        **made,
        "scalar": torch.tensor(3.5),
        "empty": torch.empty(0, 4),
        "turned": made["float32"].t().clone().t(),
    }


def saved(folder: Path, **parts: dict[str, torch.Tensor]) -> Path:
    kept = Checkpoints(folder / "checkpoints")
    kept.save(3, {**parts, "training": {}})
    kept.record(3, {"better": True})
    kept.save(4, {**parts, "training": {}})
    kept.wait()
    return kept.path(3)


def test_every_type_is_read_back(tmp_path: Path) -> None:
    best = saved(tmp_path, model=many_types(), ema={"w": torch.ones(2)})
    for source in (tmp_path, tmp_path / "checkpoints", best):
        exported = export_safetensors(source, tmp_path / "model.safetensors")
        assert exported.checkpoint == best
        read = load_file(tmp_path / "model.safetensors")
        assert read.keys() == many_types().keys()
        for name, each in many_types().items():
            assert read[name].dtype == each.dtype and torch.equal(read[name], each)
        assert exported[1:] == (len(read), (tmp_path / "model.safetensors").stat().st_size)
    export_safetensors(tmp_path, tmp_path / "average.safetensors", ema=True)
    assert load_file(tmp_path / "average.safetensors").keys() == {"w"}


def tied_and_saved(folder: Path, kind: str) -> None:
    training = begin(kind)
    training.step()
    training.save(Checkpoints(folder / "checkpoints"), 1)
    end()


@pytest.mark.usefixtures("for_real")
@pytest.mark.parametrize(("kind", "ranks"), [("fsdp", 2), ("ddp", 1)])
def test_a_weight_with_two_names_is_written_once(kind: str, ranks: int, tmp_path: Path) -> None:
    run(tied_and_saved, tmp_path, kind, folder=tmp_path / "ranks", world_size=ranks)
    file = tmp_path / "model.safetensors"
    exported = export_safetensors(tmp_path, file)
    with safe_open(file, "pt") as opened:
        assert opened.metadata() == {"format": "pt", "last.weight": "first.weight"}
    model = Tied()
    assert not any(load_model(model, file))  # names that are missing, and that do not belong there
    wanted = load_part(exported.checkpoint, "model")
    assert wanted.keys() == model.state_dict().keys()
    for name, each in model.state_dict().items():
        assert torch.equal(each, wanted[name])


def test_what_cannot_be_exported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(CheckpointError, match="has no castoff checkpoint; pass a run's folder"):
        export_safetensors(tmp_path, tmp_path / "model.safetensors")
    saved(tmp_path / "plain", model={"w": torch.ones(2)})
    with pytest.raises(CheckpointError, match="has no averaged weights"):
        export_safetensors(tmp_path / "plain", tmp_path / "model.safetensors", ema=True)
    saved(tmp_path / "odd", model={"w": torch.ones(2, dtype=torch.complex128)})
    with pytest.raises(CheckpointError, match=r"w is of type torch\.complex128, which a"):
        export_safetensors(tmp_path / "odd", tmp_path / "model.safetensors")
    with pytest.raises(
        CheckpointError, match=r"model\.pt: .* torch\.load cannot read; name it .*l\.safetensors$"
    ):
        export_safetensors(tmp_path / "plain", tmp_path / "model.pt")
    with pytest.raises(CheckpointError, match=r"folder .*/missing does not exist$"):
        export_safetensors(tmp_path / "plain", tmp_path / "missing" / "model.safetensors")
    assert not list(tmp_path.glob("*model*"))
    with pytest.raises(SystemExit) as ended:
        export.main([str(tmp_path), "model.safetensors"])
    assert str(ended.value).startswith("python -m castoff.trainers.export: ")
    assert capsys.readouterr().out == ""


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    best = saved(tmp_path, model=nn.Linear(3, 2).state_dict())
    file = tmp_path / "model.safetensors"
    export.main([str(tmp_path), str(file)])
    assert capsys.readouterr().out == f"{file}: weights of {best}, 2 tensors, 0.0 MB\n"
