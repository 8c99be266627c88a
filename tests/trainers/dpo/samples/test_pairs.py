"""The JSON of pairs: what is read of it, what is said of mistakes, and where sequences find their places."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as some

from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.dpo.alphabet import LETTERS
from castoff.trainers.dpo.samples.pairs import Fitted, Pair, fitted, read_pairs
from castoff.trainers.dpo.structures.reading import Chain, Layout, read_chains
from tests.trainers.dpo.helices import helix, structure, written

SEQUENCE = "ACDEFGHIKLMNPQRSTVWYACDE"
OTHER = "ACDEFGHIKLMNPQRSTVWYACDW"
GAPS = (5, 6, 15, 16, 17)


def pair(**fields: Any) -> dict[str, Any]:
    return {"pdb_file": "a.pdb", "preferred_seq": SEQUENCE, "unpreferred_seq": OTHER, **fields}


Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(*pairs: Any) -> Path:
        (tmp_path / "pairs.json").write_text(json.dumps(list(pairs)))
        return tmp_path / "pairs.json"

    return write


def problems_of(path: Path) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        read_pairs(path)
    return caught.value.problems


# --- Reading ------------------------------------------------------------------------------------------


def test_reads_what_people_write(write: Write) -> None:
    stated = [
        pair(chain_id="A", description="first", comment="hm"),
        pair(design_chains=["B", "C"], fixed_chains=["A"], preferred_seq="ac/de", unpreferred_seq="acd/e"),
        pair(mutable_positions=[1, 2], mutable_ranges=[[5, 10], [15, 20]]),
        pair(chain_id=None, design_chains=None, fixed_chains=None, mutable_positions=None),
    ]
    stated[1]["unpreferred_seq"] = "AC/DF"
    found = read_pairs(write(*stated))
    assert [each.designed_chains() for each in found] == [["A"], ["B", "C"], [], []]
    assert found[1].fixed_chains == ["A"]
    assert found[2].mutable() == [(1, 1), (2, 2), (5, 10), (15, 20)]
    assert [each.mutable() for each in found][::3] == [[], []]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"mutable": [1]}, "mutable: there is no such field; did you mean mutable_ranges"),
        ({"mutable_positions": [-1]}, "mutable_positions.0: is -1, but takes a whole"),
        ({"mutable_positions": [1.5]}, "mutable_positions.0: is 1.5, but takes a whole"),
        ({"mutable_ranges": [[1, 2, 3]]}, "mutable_ranges.0: is [1, 2, 3], but takes"),
        ({"mutable_ranges": [[7, 3]]}, "mutable_ranges: has [7, 3], whose end is before its beginning"),
        ({"preferred_seq": "ACB1"}, "preferred_seq: has '1', 'B', first as letter 2 from 0, but takes"),
        ({"preferred_seq": "ſ"}, "preferred_seq: has 'ſ', first as letter 0"),
        ({"preferred_seq": "", "unpreferred_seq": ""}, "preferred_seq: is empty"),
        ({"preferred_seq": SEQUENCE[:-1]}, "preferred_seq has 23 residues and unpreferred_seq 24"),
        ({"preferred_seq": "A/CD", "unpreferred_seq": "AC/E"}, "preferred_seq has 1/2 residues and"),
        ({"preferred_seq": OTHER.lower()}, "preferred_seq and unpreferred_seq are the same"),
        ({"preferred_seq": OTHER[:3] + "/" + OTHER[3:]}, "preferred_seq and unpreferred_seq are the same"),
        ({"chain_id": "A", "design_chains": ["A"]}, "has chain_id and design_chains; write one of them"),
        ({"fixed_chains": ["A"]}, "fixed_chains: needs design_chains"),
        ({"chain_id": "A", "fixed_chains": ["A"]}, "names chain 'A' twice"),
        ({"design_chains": "AB"}, "design_chains: is 'AB', but takes a list"),
        ({"pdb_file": [3]}, "pdb_file: is a list, but takes text"),
    ],
)
def test_mistakes_are_reported_with_their_pair(wrong: dict[str, Any], words: str, write: Write) -> None:
    problems = problems_of(write(pair(), pair(**wrong)))
    named = "pair 2: " if "pdb_file" in wrong else "pair 2 (a.pdb): "
    assert any(problem.startswith(f"{named}{words}") for problem in problems), problems


def test_missing_fields_are_reported(write: Write) -> None:
    problems = problems_of(write({"pdb_file": "a.pdb"}, "no pair"))
    assert problems[0] == "pair 1 (a.pdb): preferred_seq: is missing; it takes text"
    assert problems[1] == "pair 1 (a.pdb): unpreferred_seq: is missing; it takes text"
    assert problems[2].startswith("pair 2: is 'no pair', but takes fields: pdb_file, preferred_seq,")
    assert "use" not in problems[2].split(), "a file's name alone would not be a pair"


def test_of_many_mistakes_the_first_few(write: Write) -> None:
    problems = problems_of(write(*(pair(preferred_seq="1" * 24) for _ in range(30))))
    assert len(problems) == 6
    assert problems[-1] == "and 25 more of this kind"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is not JSON"),
        ("[{]", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("\ud800".encode("utf-8", "surrogatepass").decode("latin-1"), "is not JSON"),
        (
            "{}\n{}\n",
            r"is not JSON: .*line 2 column 1 .*; if each line is a pair, make a list of them: \[{…}, {…}\]",
        ),
        ("[]", "holds no pair"),
        ('{"pdb_file": "a.pdb"}', "holds one object, but takes a list of pairs"),
        ("3", "holds 3, but takes a list of pairs"),
    ],
)
def test_a_file_without_pairs_is_reported(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "pairs.json").write_text(text, encoding="latin-1")
    with pytest.raises(ConfigError, match=rf"pairs\.json: {words}"):
        read_pairs(tmp_path / "pairs.json")


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"pairs\.json: cannot be read: No such file"):
        read_pairs(tmp_path / "pairs.json")


values = some.recursive(
    some.none() | some.booleans() | some.integers() | some.floats() | some.text(max_size=8),
    lambda inner: some.lists(inner, max_size=3) | some.dictionaries(some.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
entries = some.dictionaries(
    some.sampled_from([*Pair.__struct_fields__, "else"]),
    values | some.sampled_from([SEQUENCE, OTHER, "A", ["A"], [0], [[0, 3]]]),
)


@given(some.lists(entries | values, max_size=3) | values)
def test_whatever_it_holds_is_read_or_reported(
    tmp_path_factory: pytest.TempPathFactory, content: Any
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.json"
    path.write_text(json.dumps(content))
    try:
        pairs = read_pairs(path)
    except ConfigError:
        return
    assert len(pairs) == len(content)


# --- Fitting ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def chains(tmp_path_factory: pytest.TempPathFactory) -> list[Chain]:
    """A: 19 residues modelled of 29, numbered over 24. B: 12 residues without gaps."""
    chain = helix("A", SEQUENCE)
    for place in reversed(GAPS):
        del chain[place]
    made = structure(chain, helix("B", "GHIK" * 3, 15.0), full={"A": f"GSH{SEQUENCE}GG", "B": "GHIK" * 3})
    return read_chains(written(made, tmp_path_factory.mktemp("chains") / "two.pdb"))


def mutated(sequence: str, *places: int) -> str:
    changed = list(sequence)
    for place in places:
        changed[place] = "W" if sequence[place] != "W" else "A"
    return "".join(changed)


def fit(chains: Sequence[Chain], preferred: str, *places: int, mutable: Any = (), **fields: Any) -> Fitted:
    stated = Pair(
        pdb_file="a", preferred_seq=preferred, unpreferred_seq=mutated(preferred, *places or (0,)), **fields
    )
    problems: list[str] = []
    found = fitted(stated, chains, mutable, problems)
    if found is None:
        raise ConfigError(problems)
    assert not problems
    return found


MODELLED = "".join(letter for place, letter in enumerate(SEQUENCE) if place not in GAPS)


def test_sequences_of_each_length_find_their_places(chains: list[Chain]) -> None:
    for sequence, layout in ((MODELLED, Layout.MODELLED), (SEQUENCE, Layout.NUMBERED)):
        found = fit(chains, sequence, chain_id="A")
        assert found.chains == ((0, layout),)
        assert found.designed.sum() == 19
        native = found.structure(chains).native
        assert numpy.array_equal(found.sequences[0][found.designed], native[found.designed])
    found = fit(chains, f"GSH{SEQUENCE}GG", 3, chain_id="A")
    assert found.chains == ((0, Layout.FULL),)
    assert numpy.flatnonzero(~found.designed).tolist() == [0, 1, 2, 8, 9, 18, 19, 20, 27, 28]


@pytest.mark.parametrize("length", [18, 20, 23, 25, 28, 30])
def test_no_other_length_is_padded_or_cut(length: int, chains: list[Chain]) -> None:
    with pytest.raises(ConfigError) as caught:
        fit(chains, ("ACDEFGHIKLMNPQRSTVWY" * 2)[:length], chain_id="A")
    assert caught.value.problems == [
        f"its sequences have {length} residues, but chain 'A' may have 19 (modelled residues) or 29 (the "
        "file's full sequence) or 24 (gaps of residue numbers filled); nothing is padded or cut to fit"
    ]


def test_where_two_layouts_are_of_one_length_residues_decide(tmp_path: Path) -> None:
    """24 numbers with three gaps, and a full sequence of 24 that begins before the model."""
    chain = helix("A", SEQUENCE)
    for place in (12, 11, 10):
        del chain[place]
    full = "GSH" + SEQUENCE[:10] + SEQUENCE[13:]
    made = structure(chain, full={"A": full})
    found = read_chains(written(made, tmp_path / "a.pdb"))
    assert found[0].length_in(Layout.FULL) == found[0].length_in(Layout.NUMBERED) == 24
    assert fit(found, full, 5).chains == ((0, Layout.FULL),)
    assert fit(found, SEQUENCE, 5).chains == ((0, Layout.NUMBERED),)


def test_chains_that_are_designed_come_one_after_the_other(chains: list[Chain]) -> None:
    found = fit(chains, "GHIK" * 3 + SEQUENCE, 2, design_chains=["B", "A"])
    assert found.chains[1] == (0, Layout.NUMBERED)
    assert [number for number, _ in found.chains] == [1, 0]
    laid = found.structure(chains)
    assert laid.names == ("B", "A")
    assert found.length == len(laid.native) == 36
    assert numpy.array_equal(found.sequences[0][found.designed], laid.native[found.designed])


def test_chains_may_be_written_apart(chains: list[Chain]) -> None:
    assert fit(chains, "GHIK" * 3 + "/" + MODELLED, design_chains=["B", "A"]).length == 31
    with pytest.raises(ConfigError, match=r"have 13/18 residues"):
        fit(chains, "GHIK" * 3 + MODELLED[:1] + "/" + MODELLED[1:], design_chains=["B", "A"])
    with pytest.raises(ConfigError, match=r"have 10/9/12 residues"):
        fit(chains, f"{MODELLED[:10]}/{MODELLED[10:]}/{'GHIK' * 3}", design_chains=["A", "B"])


def test_chains_that_are_fixed_are_seen_and_not_designed(chains: list[Chain]) -> None:
    found = fit(chains, MODELLED, design_chains=["A"], fixed_chains=["B"])
    assert len(found.designed) == 19
    assert found.length == 31
    assert found.structure(chains).names == ("A", "B")


def test_without_a_name_it_is_the_first_chain(chains: list[Chain]) -> None:
    assert fit(chains, MODELLED).chains[0][0] == 0


def test_mutable_positions(chains: list[Chain]) -> None:
    own = {"mutable_positions": [0, 2], "mutable_ranges": [[4, 6], [5, 7]]}
    found = fit(chains, SEQUENCE, chain_id="A", **own)
    assert numpy.flatnonzero(found.designed).tolist() == [0, 2, 4, 7]  # 5 and 6 are not modelled
    found = fit(chains, SEQUENCE, chain_id="A", mutable=[(1, 3)])
    assert numpy.flatnonzero(found.designed).tolist() == [1, 2, 3]
    assert found.differs_elsewhere
    found = fit(chains, SEQUENCE, 1, chain_id="A", mutable=[(1, 3)])
    assert not found.differs_elsewhere
    found = fit(chains, SEQUENCE, chain_id="A", mutable=[(1, 3)], **own)
    assert numpy.flatnonzero(found.designed).tolist() == [0, 2, 4, 7]


def test_an_unknown_residue_is_not_designed(chains: list[Chain]) -> None:
    found = fit(chains, "X" + MODELLED[1:], 1, chain_id="A")
    assert numpy.flatnonzero(~found.designed).tolist() == [0]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"chain_id": "Z"}, r"has no protein chain 'Z'; there are A, B"),
        ({"chain_id": "A", "fixed_chains": ["Y", "Z"]}, r"no protein chain 'Y'.*\n.*no protein chain 'Z'"),
        (
            {"chain_id": "A", "mutable_ranges": [[3, 10**15]]},
            r"its mutable positions go up to 10+, but",
        ),
        (
            {"chain_id": "A", "mutable": [(3, 19)]},
            r"data.mutable_positions and data.mutable_ranges go up to 19",
        ),
    ],
)
def test_a_sequence_that_does_not_fit_is_reported(
    fields: dict[str, Any], words: str, chains: list[Chain]
) -> None:
    with pytest.raises(ConfigError, match=words):
        fit(chains, MODELLED, **fields)


def test_a_pair_without_designed_residues_is_reported(chains: list[Chain]) -> None:
    with pytest.raises(ConfigError, match=r"nothing of it is designed: of 24 residues 2 are mutable"):
        fit(chains, SEQUENCE, chain_id="A", mutable_positions=[5, 6])
    with pytest.raises(ConfigError, match="holds no protein chain"):
        fit([], SEQUENCE)


@given(some.data())
def test_a_sequence_never_moves(chains: list[Chain], data: some.DataObject) -> None:
    """Whatever the layouts of two chains, each modelled residue stands where the sequences have it."""
    order = data.draw(some.permutations([0, 1]))
    layouts = [data.draw(some.sampled_from(Layout)) for _ in order]
    native = [
        "".join(LETTERS[token] if token < 20 else "A" for token in chains[number].laid_out(layout).native)
        for number, layout in zip(order, layouts, strict=True)
    ]
    sequence = data.draw(some.sampled_from(["", "/"])).join(native)
    place = data.draw(some.integers(0, len("".join(native)) - 1))
    ranged = [[0, len("".join(native)) - 1]]
    plain = "".join(native)
    stated = Pair(
        pdb_file="a",
        preferred_seq=sequence,
        unpreferred_seq=mutated(plain, place),
        design_chains=[chains[number].name for number in order],
        mutable_ranges=[(ranged[0][0], ranged[0][1])],
    )
    found = fitted(stated, chains, (), [])
    assert found is not None
    laid = found.structure(chains)
    assert numpy.array_equal(found.sequences[0][laid.resolved], laid.native[laid.resolved])
    assert found.designed.tolist() == laid.resolved.tolist()
