"""A store is built from files as they are, whole or not at all, and the same however many build it."""

from __future__ import annotations

import gzip
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.sedd.alphabet import decode
from castoff.trainers.sedd.prepare import main
from castoff.trainers.sedd.store import building, fasta, packing
from castoff.trainers.sedd.store.building import build
from castoff.trainers.sedd.store.token_store import Dropped, Filters, TokenStore
from tests import patience
from tests.mounts import mount_small, with_mounts
from tests.trainers.sedd.stores import write_fasta


def proteins_of(folder: Path) -> list[str]:
    store = TokenStore.open(folder)
    return [decode(store[index]) for index in range(len(store))]


def files_of(folder: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in folder.iterdir()}


PROTEIN = some.text("ACX", max_size=6)
FILTERS = some.builds(
    Filters,
    min_length=some.integers(1, 3),
    max_length=some.one_of(some.none(), some.integers(3, 6)),
    max_unknown=some.sampled_from([0.0, 0.5, 1.0]),
    keep_duplicates=some.booleans(),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=50)
@given(parts=some.lists(some.lists(PROTEIN, max_size=12), min_size=1, max_size=3), filters=FILTERS)
def test_takes_what_the_filters_let_through_once_in_order(
    parts: list[list[str]], filters: Filters, tmp_path: Path
) -> None:
    sources = [write_fasta(tmp_path / f"{number}.fasta", part) for number, part in enumerate(parts)]
    left: dict[str, int] = dict.fromkeys(("too_short", "too_long", "unknown", "duplicates"), 0)
    taken: list[str] = []
    for protein in (protein for part in parts for protein in part):
        if len(protein) < filters.min_length:
            left["too_short"] += 1
        elif filters.max_length and len(protein) > filters.max_length:
            left["too_long"] += 1
        elif protein.count("X") > filters.max_unknown * len(protein):
            left["unknown"] += 1
        elif protein in taken and not filters.keep_duplicates:
            left["duplicates"] += 1
        else:
            taken.append(protein)
    if not taken:
        with pytest.raises(ConfigError, match=r"no protein of it is left|there is no sequence in it"):
            build(sources, tmp_path / "store", filters, processes=1)
        return

    manifest = build(sources, tmp_path / "store", filters, processes=1)

    assert proteins_of(tmp_path / "store") == taken
    assert manifest == TokenStore.open(tmp_path / "store").manifest
    assert manifest.dropped == Dropped(**left)
    assert (manifest.shortest, manifest.longest) == (min(map(len, taken)), max(map(len, taken)))
    assert manifest.counts[0] == "".join(taken).count("A")
    assert manifest.residues == sum(manifest.counts) == len("".join(taken))
    assert manifest.lengths == {"0": len(taken)}


def test_moves_tokens_together_over_any_gaps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "_LENGTHS", 7)
    monkeypatch.setattr(packing, "RUN", 30)
    monkeypatch.setattr(packing.pack, "__kwdefaults__", {"run": 50})
    proteins = [("ACDEFGHIKL"[n % 10] * (n * 37 % 101 + 1)) for n in range(300)]
    source = write_fasta(tmp_path / "some.fasta", [*proteins[:5], *proteins])
    manifest = build([source], tmp_path / "store", Filters(), processes=1)
    taken = list(dict.fromkeys(proteins))
    assert proteins_of(tmp_path / "store") == taken
    assert (manifest.shortest, manifest.longest) == (min(map(len, taken)), max(map(len, taken)))
    assert manifest.counts[:10] == ["".join(taken).count(letter) for letter in "ACDEFGHIKL"]


def test_one_bad_letter_is_unknown_and_drops_nothing(tmp_path: Path) -> None:
    source = write_fasta(tmp_path / "some.fasta", ["MKVLAAGIBQ", "mkvlaagicq"])
    build([source], tmp_path / "store", Filters(), processes=1)
    assert proteins_of(tmp_path / "store") == ["MKVLAAGIXQ", "MKVLAAGICQ"]


def test_lengths_are_counted_in_bins(tmp_path: Path) -> None:
    source = write_fasta(tmp_path / "some.fasta", ["A" * length for length in (1, 63, 64, 65, 200)])
    manifest = build([source], tmp_path / "store", Filters(), processes=1)
    assert manifest.lengths == {"0": 2, "64": 2, "192": 1}


def test_reads_gzip_and_pt_alike(tmp_path: Path) -> None:
    proteins = ["MKV", "ACD", "MKV"]
    plain = write_fasta(tmp_path / "plain.fasta", proteins)
    (tmp_path / "packed.fasta.gz").write_bytes(gzip.compress(plain.read_bytes()))
    torch.save({"sequences": [{"sequence": each} for each in proteins]}, tmp_path / "saved.pt")
    digests = {
        build([tmp_path / name], tmp_path / f"{name}.store", Filters(), processes=1).digest
        for name in ("plain.fasta", "packed.fasta.gz", "saved.pt")
    }
    assert len(digests) == 1


@pytest.mark.usefixtures("for_real")
def test_is_the_same_with_any_number_of_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fasta.Fasta.blocks, "__defaults__", (500,))  # dozens of blocks
    source = write_fasta(tmp_path / "some.fasta", ["ACDEFGHIKLX"[n % 11] * (n % 90) for n in range(700)])
    stores = []
    for processes in (1, 2, 3):
        build([source], tmp_path / f"by-{processes}", Filters(), processes=processes)
        stores.append(files_of(tmp_path / f"by-{processes}"))
    assert stores[0] == stores[1] == stores[2]
    assert set(stores[0]) == {"tokens", "offsets", "manifest.json"}


@pytest.mark.usefixtures("for_real")
def test_a_mistake_in_the_file_is_reported_with_other_processes_too(tmp_path: Path) -> None:
    source = write_fasta(tmp_path / "some.fasta", ["ACD"])
    (tmp_path / "bad.fasta").write_text("ACD\n")
    with pytest.raises(ConfigError, match="line 1"):
        build([source, tmp_path / "bad.fasta"], tmp_path / "store", Filters(), processes=2)


def test_the_manifest_records_its_source(tmp_path: Path) -> None:
    source = write_fasta(tmp_path / "some.fasta", ["ACD"])
    manifest = build([source], tmp_path / "deep" / "store", Filters(min_length=2), processes=1)
    (origin,) = manifest.origins
    assert (origin.name, origin.size) == ("some.fasta", 7)
    assert origin.modified == source.stat().st_mtime_ns
    assert manifest.filters == Filters(min_length=2)


def test_a_length_that_no_protein_can_have_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="max_length: is 3, below min_length 4"):
        build([], tmp_path / "store", Filters(min_length=4, max_length=3))


def test_a_folder_that_is_not_a_store_is_left_alone(tmp_path: Path) -> None:
    source = write_fasta(tmp_path / "some.fasta", ["ACD"])
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "thesis.tex").touch()
    with pytest.raises(ConfigError, match="exists already and is not a token store"):
        build([source], tmp_path / "store", Filters(), processes=1)
    assert (tmp_path / "store" / "thesis.tex").exists()


def test_a_source_that_is_none_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        build([tmp_path / "none.fasta"], tmp_path / "store", Filters(), processes=1)
    with pytest.raises(ConfigError, match="is a folder"):
        build([tmp_path], tmp_path / "store", Filters(), processes=1)
    assert [each.name for each in tmp_path.iterdir()] == [".store.lock"]


def test_a_source_that_grows_meanwhile_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write_fasta(tmp_path / "some.fasta", ["ACD"])
    blocks = fasta.Fasta.blocks

    def growing(self: fasta.Fasta) -> Iterator[bytes]:
        yield from blocks(self)
        with source.open("a") as file:
            file.write(">late\nMKV\n")

    monkeypatch.setattr(fasta.Fasta, "blocks", growing)
    with pytest.raises(ConfigError, match="was changed while it was read"):
        build([source], tmp_path / "store", Filters(), processes=1)


def test_reads_all_of_a_pipe(tmp_path: Path) -> None:
    """As of <(zcat …), of which a look at its beginning would take that away."""
    reading, writing = os.pipe()
    os.write(writing, b">a\nACD\n>b\nEF\n")
    os.close(writing)
    build([Path(f"/dev/fd/{reading}")], tmp_path / "store", Filters(), processes=1)
    os.close(reading)
    assert proteins_of(tmp_path / "store") == ["ACD", "EF"]
    assert TokenStore.open(tmp_path / "store").manifest.origins[0].size == 13


# --- Whole, or not at all -----------------------------------------------------------------------------


@pytest.mark.parametrize("stage", ["_read", "mark_repeated", "pack", "write_checksummed"])
def test_a_build_that_fails_leaves_the_older_store(
    stage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_fasta(tmp_path / "some.fasta", ["ACD", "ACD"])
    build([source], tmp_path / "store", Filters(), processes=1)
    before = files_of(tmp_path / "store")

    def failing(*_: object, **__: object) -> object:
        raise RuntimeError("no")

    monkeypatch.setattr(building, stage, failing)
    with pytest.raises(RuntimeError, match="no"):
        build([source], tmp_path / "store", Filters(keep_duplicates=stage == "pack"), processes=1)
    assert files_of(tmp_path / "store") == before
    assert {each.name for each in tmp_path.iterdir()} == {"store", "some.fasta", ".store.lock"}


@pytest.mark.usefixtures("for_real")
def test_a_killed_build_leaves_no_store_and_no_process_and_the_next_one_cleans_up(tmp_path: Path) -> None:
    source = tmp_path / "endless.fasta"
    os.mkfifo(source)
    words = [
        sys.executable,
        "-m",
        "castoff.trainers.sedd.prepare",
        str(source),
        "--out",
        str(tmp_path / "store"),
    ]
    killed = subprocess.Popen([*words, "--processes", "2"], stderr=subprocess.PIPE)
    with source.open("wb", buffering=0) as file:
        file.write(b">a\nACD\n")
        helpers = patience.until(lambda: children_of(killed.pid, 2))
        assert list(tmp_path.glob(".store.draft-*"))
        killed.send_signal(signal.SIGKILL)
        killed.communicate()
    patience.until(lambda: not any(Path(f"/proc/{each}").exists() for each in helpers))
    assert not (tmp_path / "store").exists()

    build([write_fasta(tmp_path / "some.fasta", ["ACD"])], tmp_path / "store", Filters(), processes=1)
    assert not list(tmp_path.glob(".store.draft-*"))
    assert proteins_of(tmp_path / "store") == ["ACD"]


@pytest.mark.usefixtures("for_real")
def test_ctrl_c_leaves_no_draft_and_prints_nothing(tmp_path: Path) -> None:
    source = tmp_path / "endless.fasta"
    os.mkfifo(source)
    words = [
        sys.executable,
        "-m",
        "castoff.trainers.sedd.prepare",
        str(source),
        "--out",
        str(tmp_path / "store"),
    ]
    stopped = subprocess.Popen(
        [*words, "--processes", "2"], stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    with source.open("wb", buffering=0) as file:
        file.write(b">a\nACD\n")
        patience.until(lambda: children_of(stopped.pid, 2))
        os.killpg(stopped.pid, signal.SIGINT)
        _, said = stopped.communicate()
    assert stopped.returncode == 130
    assert said.splitlines() == [f"Building a token store of endless.fasta in {tmp_path / 'store'}"]
    assert sorted(each.name for each in tmp_path.iterdir()) == [".store.lock", "endless.fasta"]


@pytest.mark.usefixtures("for_real")
def test_a_helper_that_is_killed_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    block = b">a\nACD\n"

    def killing(self: fasta.Fasta) -> Iterator[bytes]:
        yield block
        for child in psutil.Process().children():
            if "parallel_map" in " ".join(child.cmdline()):
                child.kill()
        yield from [block] * 3

    monkeypatch.setattr(fasta.Fasta, "blocks", killing)
    source = write_fasta(tmp_path / "some.fasta", ["ACD"])
    with pytest.raises(ConfigError, match=r"was killed by signal 9.* --processes 1"):
        build([source], tmp_path / "store", Filters(), processes=2)


CHANGES = ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.truncate", "fsync")


def killed_at_effect(number: int) -> None:
    """Have this process killed right before its number-th change to the disk."""
    effects = count(1)

    def look(event: str, arguments: tuple[object, ...]) -> None:
        if event in CHANGES and next(effects) == number:
            os.kill(os.getpid(), signal.SIGKILL)

    flush = os.fsync

    def looked(descriptor: Any) -> None:
        look("fsync", ())
        flush(descriptor)

    vars(os)["fsync"] = looked
    sys.addaudithook(look)


@pytest.mark.usefixtures("for_real")
def test_killed_anywhere_there_is_a_whole_store_or_none(tmp_path: Path) -> None:
    build([write_fasta(tmp_path / "old.fasta", ["MKV"])], tmp_path / "old", Filters(), processes=1)
    new = write_fasta(tmp_path / "new.fasta", ["ACD", "ACD", "A"])
    here = tmp_path / "here"
    here.mkdir()
    seen = []
    for number in count(1):
        if not (here / "store").exists():
            shutil.copytree(tmp_path / "old", here / "store")
        pid = os.fork()
        if pid == 0:
            try:
                killed_at_effect(number)
                build([new], here / "store", Filters(), processes=1)
                os._exit(0)
            finally:
                os._exit(1)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        assert code in (0, -signal.SIGKILL)
        assert {each.name for each in here.iterdir() if not each.name.startswith(".")} <= {"store"}
        if (here / "store").exists():
            seen.append(proteins_of(here / "store"))
        if code == 0:
            break
    assert seen[0] == ["MKV"] and seen[-1] == ["ACD", "A"] and len(seen) > 15
    assert all(each in (["MKV"], ["ACD", "A"]) for each in seen)
    assert {each.name for each in here.iterdir()} == {"store", ".store.lock"}


def test_all_of_a_store_is_on_the_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a node that loses its power may keep files of the right size that hold zeros: all alanine."""
    flushed: list[Path] = []
    flush, rename = os.fsync, Path.rename

    def noted(descriptor: int) -> None:
        flushed.append(Path(f"/proc/self/fd/{descriptor}").readlink())
        flush(descriptor)

    def looked(self: Path, target: Path) -> Path:
        assert {self, *self.iterdir()} <= {*flushed}
        return rename(self, target)

    monkeypatch.setattr(os, "fsync", noted)
    monkeypatch.setattr(Path, "rename", looked)
    source = write_fasta(tmp_path / "some.fasta", ["ACD", "MKV", "ACD"])
    build([source], tmp_path / "store", Filters(), processes=1)
    assert flushed[-1] == tmp_path


def children_of(pid: int, number: int) -> list[int]:
    """All of so many; nobody before they are there."""
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(word) for word in found] if len(found) == number else []


def test_a_full_disk_is_reported(tmp_path: Path) -> None:
    def test() -> None:
        source = write_fasta(tmp_path / "some.fasta", ["ACDEFGHIKL" * 100 + "A" * n for n in range(300)])
        mount_small(tmp_path / "small", "size=256k")
        with pytest.raises(ConfigError, match=r"there is too little room for it .* bytes are free") as error:
            build([source], tmp_path / "small" / "store", Filters(), processes=1)
        assert str(tmp_path / "small" / "store") in str(error.value)
        free = shutil.disk_usage(tmp_path / "small").free
        assert f" {free:,} bytes are free" in str(error.value)
        assert [each.name for each in (tmp_path / "small").iterdir()] == [".store.lock"]

    with_mounts(tmp_path, test)


# --- The command --------------------------------------------------------------------------------------


def test_the_command_builds_and_prints_a_summary(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write_fasta(tmp_path / "some.fasta", ["ACD", "ACD", "A", "XXXXX", "ACDEFGHIKL"])
    words = ["--min_length", "2", "--max_length", "9", "--max_unknown", "0.5", "--processes", "1"]
    main([str(source), "--out", str(tmp_path / "store"), *words])
    stated = capsys.readouterr().out
    assert stated == (
        "proteins: 1; residues: 3; lengths: 3 to 3\n"
        "left out: 1 too short, 1 too long, 1 of too many unknown residues, 1 duplicates\n"
    )
    main([str(source), "--out", str(tmp_path / "store"), "--keep_duplicates"])
    assert "proteins: 4; residues: 17; lengths: 1 to 10\nleft out: 1 of" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--min_length", "0"], "min_length: is 0, but takes a whole number of at least 1"),
        (["--max_unknown", "3"], "max_unknown: is 3.0, but takes a number from 0 to 1"),
    ],
)
def test_the_command_refuses_what_makes_no_sense(words: list[str], said: str, tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as error:
        main([str(tmp_path / "some.fasta"), "--out", str(tmp_path / "store"), *words])
    assert said in str(error.value)


def test_the_command_takes_no_fewer_than_one_process(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["some.fasta", "--out", "store", "--processes", "0"])
    assert "is '0', but takes a whole number of at least 1" in capsys.readouterr().err


@pytest.mark.usefixtures("for_real")
def test_the_command_loads_no_torch(tmp_path: Path) -> None:
    code = "import sys, castoff.trainers.sedd.prepare; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
