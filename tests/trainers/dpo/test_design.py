"""The program that designs sequences, on made-up structures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import gemmi
import numpy
import pytest
import torch

from castoff.trainers.dpo.alphabet import LETTERS
from castoff.trainers.dpo.design import main
from castoff.trainers.dpo.network.model import InverseFolding
from castoff.trainers.dpo.network.sampling import Sampled, sampled
from castoff.trainers.dpo.network.weights import save
from castoff.trainers.dpo.samples.batch import Backbones
from castoff.trainers.dpo.structures.synthetic import made_up

A, B = 14, 11
"""Residues of the chains."""
HOLE = 5
"""A residue of A whose CA is not there."""


class Record(NamedTuple):
    name: str
    header: dict[str, str]
    letters: str


Run = Callable[..., list[Record]]


def network(neighbours: int = 8) -> InverseFolding:
    torch.manual_seed(0)
    return InverseFolding(8, 1, 1, neighbours).eval()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Structures of two chains and of one, and a model."""
    place = tmp_path_factory.mktemp("design")
    save(place / "best_model.pt", network(), 0.2)
    two = made_up(A, numpy.random.default_rng(0))
    two[0]["A"][HOLE].remove_atom("CA", "*")
    other = made_up(B, numpy.random.default_rng(1))[0]["A"]
    other.name = "B"
    for residue in other:
        for atom in residue:
            atom.pos += gemmi.Position(8, 0, 0)
    two[0].add_chain(other)
    two.write_pdb(str(place / "two chains.pdb"))
    made_up(9, numpy.random.default_rng(2)).make_mmcif_document().write_file(str(place / "one.cif"))
    return place


@pytest.fixture
def run(folder: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    def given(model: Path) -> list[str]:
        return ["--model", str(model), "--device", "cpu"]

    def run(structures: Sequence[str] | str, *words: str, model: str = "best_model.pt") -> list[Record]:
        names = [structures] if isinstance(structures, str) else structures
        main(
            [
                *(str(folder / name) for name in names),
                "--model",
                str(folder / model),
                "--device",
                "cpu",
                *words,
            ]
        )
        return records(capsys.readouterr().out)

    return run


def records(text: str) -> list[Record]:
    lines = text.splitlines()
    found = []
    for header, letters in zip(lines[::2], lines[1::2], strict=True):
        name, *given = header.split()
        assert name.startswith(">")
        found.append(Record(name[1:], dict(each.split("=") for each in given), letters))
    return found


def native(folder: Path, chain: str) -> str:
    structure = gemmi.read_structure(str(folder / "two chains.pdb"))
    return "".join(gemmi.find_tabulated_residue(each.name).one_letter_code for each in structure[0][chain])


def test_the_structures_own_sequence_then_designs(folder: Path, run: Run) -> None:
    found = run("two chains.pdb", "--number", "3", "--temperature", "1", "--seed", "7")
    assert [each.name for each in found] == ["two_chains", *(f"two_chains_{n}" for n in (1, 2, 3))]
    assert found[0].letters == f"{native(folder, 'A')}/{native(folder, 'B')}"
    assert found[0].header.keys() == {"score", "designed", "chains", "model"}
    assert found[0].header["designed"] == str(A + B - 1)
    assert (found[0].header["chains"], found[0].header["model"]) == ("A,B", "best_model.pt")
    for each in found[1:]:
        assert (each.header["temperature"], each.header["seed"]) == ("1", "7")
        pairs = [(new, old) for new, old in zip(each.letters, found[0].letters, strict=True) if old != "/"]
        assert pairs.pop(HOLE)[0] == native(folder, "A")[HOLE]
        assert each.header["recovery"] == f"{sum(new == old for new, old in pairs) / len(pairs):.4f}"
        assert set(each.letters) <= {*LETTERS[:-1], "/"}


def test_scores_are_those_of_the_network(folder: Path, run: Run) -> None:
    """Of one in which residues have no neighbours, so that the order of decoding is of no importance."""
    save(folder / "alone.pt", model := network(neighbours=1), 0.2)
    found = run("one.cif", "--number", "2", "--temperature", "1", model="alone.pt")
    structure = gemmi.read_structure(str(folder / "one.cif"))
    atoms = torch.tensor(
        [[each[name][0].pos.tolist() for name in ("N", "CA", "C", "O")] for each in structure[0]["A"]]
    )
    backbones = Backbones(
        atoms[None], torch.ones(1, 9, dtype=torch.bool), torch.zeros(1, 9).long(), torch.arange(9)[None]
    )
    for each in found:
        tokens = torch.tensor([[[LETTERS.index(letter) for letter in each.letters]]])
        with torch.no_grad():
            logits = model(backbones, tokens, torch.arange(9)[None])
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 2), tokens.flatten())
        assert float(each.header["score"]) == pytest.approx(float(loss), abs=2e-4)
    cold = run("one.cif", "--number", "1", "--temperature", "0", model="alone.pt")[1]
    assert float(cold.header["score"]) < min(float(each.header["score"]) for each in found)


def test_a_design_is_the_same_whatever_else_is_drawn(run: Run) -> None:
    first = run("one.cif", "--number", "5", "--temperature", "1")
    assert len({each.letters for each in first}) == 6
    assert run("one.cif", "--number", "5", "--temperature", "1", "--batch_size", "2") == first
    assert run(["two chains.pdb", "one.cif"], "--number", "2", "--temperature", "1")[3:] == first[:3]
    other = run("one.cif", "--number", "5", "--temperature", "1", "--seed", "1")
    assert not {each.letters for each in other[1:]} & {each.letters for each in first[1:]}


def test_fixed_chains_are_seen_and_not_written(folder: Path, run: Run) -> None:
    alone = run("two chains.pdb", "--chains", "A", "--number", "1", "--temperature", "1")
    seen = run("two chains.pdb", "--fixed_chains", "B", "--number", "1", "--temperature", "1")
    assert alone[0].letters == seen[0].letters == native(folder, "A")
    assert "fixed_chains" not in alone[0].header
    assert (seen[0].header["chains"], seen[0].header["fixed_chains"]) == ("A", "B")
    assert seen[0].header["designed"] == str(A - 1)
    assert seen[0].header["score"] != alone[0].header["score"]
    both = run("two chains.pdb", "--chains", "B,A", "--number", "1")
    assert both[0].letters == f"{native(folder, 'B')}/{native(folder, 'A')}"


def test_only_mutable_positions_are_designed(run: Run) -> None:
    words = ["--mutable_positions", "0", "3", str(HOLE), "--mutable_ranges", f"{A - 1}-{A + 1}"]
    found = run("two chains.pdb", "--number", "20", "--temperature", "5", *words)
    assert found[0].header["designed"] == "5"
    sequences = [each.letters.replace("/", "") for each in found]
    changed = {
        place for each in sequences for place, letter in enumerate(each) if letter != sequences[0][place]
    }
    assert changed == {0, 3, A - 1, A, A + 1}


def test_what_is_not_designed_is_decoded_first(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that all of it is known to what is."""
    orders = []

    def noted(*given: Any) -> Sampled:
        orders.append(given[4])
        return sampled(*given)

    monkeypatch.setattr("castoff.trainers.dpo.design.sampled", noted)
    run("one.cif", "--number", "4", "--mutable_positions", "2", "5")
    (order,) = orders
    assert order.shape == (1, 4, 9)
    assert (order[..., [2, 5]] >= 7).all()
    assert len({tuple(each) for each in order[0].tolist()}) == 4


def test_a_residue_that_nobody_knows_is_designed_and_not_compared(folder: Path, run: Run) -> None:
    structure = made_up(9, numpy.random.default_rng(2))
    structure[0]["A"][3].name = "UNK"
    structure.write_pdb(str(folder / "unknown.pdb"))
    found = run("unknown.pdb", "--number", "1", "--mutable_positions", "3")
    assert [each.letters[3] == "X" for each in found] == [True, False]
    assert (found[0].header["score"], found[1].header["recovery"]) == ("nan", "nan")


def test_a_file_appears_once_it_is_whole(
    folder: Path, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    printed = run("one.cif", "--number", "2")
    out = tmp_path / "designs.fasta"
    out.write_text("of an earlier time")

    def interrupted(*_: Any) -> None:
        assert out.read_text() == "of an earlier time"
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("castoff.trainers.dpo.design.sampled", interrupted)
        with pytest.raises(SystemExit) as met:
            run("one.cif", "--out", str(out))
    assert met.value.code == 130
    assert list(tmp_path.iterdir()) == [out]
    assert out.read_text() == "of an earlier time"
    assert run("one.cif", "--number", "2", "--out", str(out)) == []
    assert records(out.read_text()) == printed
    assert list(tmp_path.iterdir()) == [out]


@pytest.mark.parametrize(
    ("structures", "words", "said"),
    [
        (
            ["one.cif"],
            ["--chains", "A", "--fixed_chains", "A"],
            ["chain A is listed as designed and"],
        ),
        (
            ["one.cif"],
            ["--fixed_chains", "A"],
            ["one.cif: has no protein chain to design besides"],
        ),
        (
            ["one.cif", "two chains.pdb"],
            ["--chains", "C", "--fixed_chains", "D"],
            [
                "2 of 2 structures: {folder}/one.cif: has no protein chain 'D'; there are A",
                "{folder}/one.cif: has no protein chain 'C'; there are A",
                "{folder}/two chains.pdb: has no protein chain 'C'; there are A, B",
            ],
        ),
        (["none.pdb"], [], ["{folder}/none.pdb: cannot be read: No such file"]),
        (
            ["one.cif"],
            ["--mutable_positions", "9", "--mutable_ranges", "8-20"],
            ["has positions from 0 to 8 in the chains to design, but not 9", "but not 20"],
        ),
        (
            ["two chains.pdb"],
            ["--mutable_positions", str(HOLE)],
            [
                "two chains.pdb: has nothing to design: no residue that may be designed has all of N, CA, "
                "C and O"
            ],
        ),
        (
            ["one.cif"],
            ["--model", "{folder}/best.pt"],
            ["best.pt: does not exist; did you mean best_model"],
        ),
        (["one.cif"], ["--device", "xpu"], ["--device is xpu, but"]),
        (
            ["one.cif"],
            ["--out", "{folder}/none/x.fasta"],
            ["--out: is ", "there is no folder", "none; create it"],
        ),
        (["one.cif"], ["--out", "{folder}"], ["--out: is ", "which is a folder; name a file"]),
        (["one.cif"], ["--out", "/dev/null"], ["--out: is '/dev/null', which is not a file"]),
    ],
)
def test_what_cannot_be_is_reported(
    folder: Path, run: Run, structures: list[str], words: list[str], said: list[str]
) -> None:
    with pytest.raises(SystemExit) as met:
        run(structures, *(word.format(folder=folder) for word in words))
    lines = str(met.value.code).splitlines()
    assert all(line.startswith("python -m castoff.trainers.dpo.design: ") for line in lines)
    assert all(each.format(folder=folder) in "\n".join(lines) for each in said)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--temperature", "-1"], "is '-1', but takes a number of at least 0"),
        (["--temperature", "nan"], "is 'nan', but takes a number"),
        (["--number", "0"], "is '0', but takes a whole number of at least 1"),
        (["--mutable_ranges", "5-3"], "is '5-3', but takes the first and the last position, such as 10-15"),
        (["--mutable_positions", "-3"], "is '-3', but takes a whole number of at least 0"),
        (["--chains", "A,,B"], "is 'A,,B', but takes different chains, such as A,B"),
        (["--chains", "A,A"], "is 'A,A', but takes different chains"),
    ],
)
def test_what_no_flag_takes(
    run: Run, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    with pytest.raises(SystemExit):
        run("one.cif", *words)
    assert said in capsys.readouterr().err
