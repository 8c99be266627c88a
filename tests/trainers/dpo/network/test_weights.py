"""The public format of models: what it takes, and what it says of files that are something else."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.dpo.network.model import InverseFolding
from castoff.trainers.dpo.network.weights import load, save
from castoff.trainers.files.durable import draft_of
from tests.trainers.dpo.network.folds import letters, shuffled, wandering


def small(**sizes: int) -> InverseFolding:
    torch.manual_seed(0)
    stated = {"hidden_size": 4, "encoder_layers": 1, "decoder_layers": 2, "neighbours": 5} | sizes
    return InverseFolding(**stated).eval()


def content(model: InverseFolding | None = None) -> dict[str, Any]:
    weights = dict((model or small()).state_dict())
    return {"num_edges": 5, "noise_level": 0.2, "model_state_dict": weights}


def refusal(path: Path) -> str:
    with pytest.raises(ConfigError) as met:
        load(path)
    assert met.value.origin == str(path)
    return str(met.value).replace(f"{path}: ", "")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "model.pt"


def test_a_model_comes_back(file: Path) -> None:
    model = small()
    save(file, model, 0.1)
    before = torch.get_rng_state()
    found = load(file)
    assert torch.equal(torch.get_rng_state(), before)
    assert found.noise_level == 0.1
    assert found.model.neighbours == 5
    assert all(parameter.requires_grad for parameter in found.model.parameters())
    given = (wandering(9), letters(1, 9), shuffled(9))
    assert torch.equal(found.model(*given), model(*given))
    assert torch.equal(found.model.train()(*given), model(*given)), "there is dropout"


def test_the_file_is_as_the_public_code_reads_it(file: Path) -> None:
    save(file, small().to(torch.bfloat16), 0)
    found = torch.load(file, weights_only=True)
    assert list(found) == ["num_edges", "noise_level", "model_state_dict"]
    assert (found["num_edges"], found["noise_level"]) == (5, 0.0)
    assert type(found["model_state_dict"]) is dict
    assert {value.dtype for value in found["model_state_dict"].values()} == {torch.float32}


def test_names_and_sizes_are_those_of_the_public_weights() -> None:
    sizes = {name: tuple(value.shape) for name, value in InverseFolding().state_dict().items()}
    linears = {
        "features.embeddings.linear": (16, 66),
        "W_e": (128, 128),
        "W_out": (21, 128),
    }
    norms = {"features.norm_edges"}
    for number in range(3):
        encoder, decoder = f"encoder_layers.{number}.", f"decoder_layers.{number}."
        linears |= {encoder + name: (128, 384) for name in ("W1", "W11")} | {decoder + "W1": (128, 512)}
        linears |= {encoder + name: (128, 128) for name in ("W2", "W3", "W12", "W13")}
        linears |= {decoder + name: (128, 128) for name in ("W2", "W3")}
        for layer in (encoder, decoder):
            linears |= {layer + "dense.W_in": (512, 128), layer + "dense.W_out": (128, 512)}
        norms |= {encoder + name for name in ("norm1", "norm2", "norm3")}
        norms |= {decoder + name for name in ("norm1", "norm2")}
    expected: dict[str, tuple[int, ...]] = {
        "features.edge_embedding.weight": (128, 416),
        "W_s.weight": (21, 128),
    }
    expected |= {name + ".weight": size for name, size in linears.items()}
    expected |= {name + ".bias": size[:1] for name, size in linears.items()}
    expected |= {name + part: (128,) for name in norms for part in (".weight", ".bias")}
    assert sizes == expected


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.", "module._orig_mod.", "_orig_mod.module."])
def test_what_wraps_a_model_is_taken_off(file: Path, prefix: str) -> None:
    held = content()
    weights = held["model_state_dict"]
    held["model_state_dict"] = {prefix + name: value.half() for name, value in weights.items()}
    torch.save(held | {"epoch": 7, "optimizer_state_dict": {}}, file)  # as training has them
    assert {name: value.dtype for name, value in load(file).model.state_dict().items()} == dict.fromkeys(
        weights, torch.float32
    )


def test_what_was_there_is_replaced_as_a_whole(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(file, small(), 0.1)
    before = file.read_bytes()
    with subprocess.Popen(["true"]) as killed:
        pass
    name = draft_of(file).name.removesuffix(str(os.getpid()))
    (file.parent / f"{name}{killed.pid}").write_text("left by one that was killed")

    def full(*_: Any) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        with pytest.raises(OSError, match="No space left"):
            save(file, small(), 0.3)
    assert file.read_bytes() == before
    assert list(file.parent.iterdir()) == [file]  # what is left of a draft would fill the disk
    save(file, small(), 0.3)
    assert load(file).noise_level == 0.3
    assert list(file.parent.iterdir()) == [file]


# What is refused


@pytest.mark.parametrize(
    ("there", "said"),
    [
        ([], "does not exist; {folder} has no .pt file"),
        (["v_48_002.pt", "v_48_020.pt"], "does not exist; did you mean v_48_020.pt?"),
        (["a.pt", "b.pt", "c.pt", "d.pt"], "does not exist; there are a.pt, b.pt, c.pt and 1 more"),
    ],
)
def test_a_file_that_is_not_there(tmp_path: Path, there: list[str], said: str) -> None:
    for name in there:
        (tmp_path / name).touch()
    assert refusal(tmp_path / "v_48_20.pt") == said.format(folder=tmp_path)


def test_no_folder_and_a_folder(tmp_path: Path) -> None:
    assert refusal(tmp_path / "a" / "b.pt") == f"does not exist, nor does its folder {tmp_path / 'a'}"
    assert refusal(tmp_path) == "is a folder, but takes the file of a model"
    (tmp_path / "best_model.pt").touch()
    assert refusal(tmp_path) == "is a folder, but takes the file of a model; in it is best_model.pt"


@given(junk=st.binary(max_size=300))
@example(junk=b"")
@example(junk=b"PK\x03\x04")
@example(junk=b"\x80\x02}q\x00.")
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_bytes_of_something_else(file: Path, junk: bytes) -> None:
    file.write_bytes(junk)
    assert refusal(file).startswith(("is damaged, incomplete, or not written by torch.save", "holds "))


@given(data=st.data())
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_files_that_are_damaged(file: Path, data: Any) -> None:
    """A byte that is another one, or an end that is missing, is reported or has no effect."""
    save(file, small(hidden_size=2), 0.2)
    whole = bytearray(file.read_bytes())
    expected = torch.load(file, weights_only=True)["model_state_dict"]
    place = data.draw(st.integers(0, len(whole) - 1))
    if data.draw(st.booleans()):
        file.write_bytes(whole[:place])
    else:
        whole[place] ^= data.draw(st.integers(1, 255))
        file.write_bytes(whole)
    try:
        found = load(file).model.state_dict()
    except ConfigError:
        return
    assert all(torch.equal(found[name], value) for name, value in expected.items())


def test_a_weight_that_is_another_on_the_disk(file: Path) -> None:
    model = small()
    with torch.no_grad():
        model.W_out.bias[:] = 1234.5
    save(file, model, 0.2)
    file.write_bytes(file.read_bytes().replace(model.W_out.bias.detach().numpy().tobytes(), b"\0" * 84))
    assert "does not match its checksum" in refusal(file)


def changed(change: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    held = content()
    change(held)
    return held


def without_weights(held: dict[str, Any], *names: str) -> None:
    for name in names:
        del held["model_state_dict"][name]


@pytest.mark.parametrize(
    ("held", "said"),
    [
        ([1, 2], "holds a list; it takes a file with num_edges, noise_level and model_state_dict"),
        ({}, "holds nothing; it takes a file with num_edges"),
        ({"epoch": 1, "step": 2}, "holds 'epoch', 'step'; it takes a file with num_edges"),
        (content()["model_state_dict"], "holds only weights, not how many neighbours a residue has"),
        (
            changed(lambda held: held.update(num_edges=0)),
            "num_edges: is 0, but takes a whole number of at least 1",
        ),
        (changed(lambda held: held.pop("num_edges")), "num_edges: is missing, but takes"),
        (changed(lambda held: held.update(num_edges=True)), "num_edges: is True, but takes"),
        (changed(lambda held: held.update(noise_level="low")), "noise_level: is 'low', but takes a number"),
        (changed(lambda held: held.update(noise_level=torch.nan)), "noise_level: is nan, but takes a number"),
        (
            changed(lambda held: held.update(model_state_dict={})),
            "has no weights of a network like ProteinMPNN's, but no",
        ),
        (
            changed(lambda held: without_weights(held, "W_s.weight", "W_e.bias")),
            "lacks weights: W_e.bias, W_s.weight",
        ),
        (
            changed(lambda held: without_weights(held, "encoder_layers.0.W1.weight")),
            "lacks weights: encoder_layers.0.W1.weight",
        ),
        (
            changed(
                lambda held: held["model_state_dict"].update({f"extra_{i}": torch.ones(1) for i in range(5)})
            ),
            "has weights that the network does not have: extra_0, extra_1, extra_2 and 2 more",
        ),
        (
            changed(
                lambda held: held["model_state_dict"].update({"encoder_layers.3.W1.bias": torch.ones(4)})
            ),
            "has weights that the network does not have: encoder_layers.3.W1.bias",
        ),
        (
            changed(lambda held: held["model_state_dict"].update({"W_e.bias": torch.ones(3)})),
            "has weights of other sizes: W_e.bias of (3,), not (4,)",
        ),
        (
            changed(lambda held: held["model_state_dict"].update({"W_e.bias": "text"})),
            "has values that are not tensors of numbers: W_e.bias",
        ),
        (
            changed(lambda held: held["model_state_dict"].update({"W_e.bias": torch.full((4,), torch.nan)})),
            "has weights that are not finite numbers: W_e.bias",
        ),
        (
            changed(lambda held: held["model_state_dict"].update({"W_out.weight": torch.ones(33, 4)})),
            "W_out.weight is for 33 kinds of residues, but there are 21: ACDEFGHIKLMNPQRSTVWYX",
        ),
        (
            changed(
                lambda held: held["model_state_dict"].update(
                    {"W_v.weight": torch.ones(4, 4), "features.node_embedding.weight": torch.ones(4, 3)}
                )
            ),
            "is a CA-only model, which sees no other atoms; use one that sees whole backbones",
        ),
        (
            {"model": small},
            "it holds objects other than tensors, numbers, texts, lists and dicts, and those are not read",
        ),
    ],
)
def test_what_a_file_holds(file: Path, held: Any, said: str) -> None:
    torch.save(held, file)
    assert said in refusal(file)


def test_all_that_is_wrong_is_reported_at_once(file: Path) -> None:
    held = content()
    held["num_edges"] = "48"
    without_weights(held, "W_e.bias")
    held["model_state_dict"]["W_x"] = torch.ones(1)
    torch.save(held, file)
    said = refusal(file)
    assert all(word in said for word in ("num_edges: is '48'", "lacks weights: W_e.bias", "not have: W_x"))
