"""FASTA in every way it is written gives the same sequences; what is none is refused in words."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.sedd.store.fasta import Fasta, sequences

ANY_FOLDER = settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


def read(path: Path, size: int = 1 << 16) -> list[bytes]:
    with Fasta(path) as fasta:
        blocks = list(fasta.blocks(size))
        assert fasta.consumed == path.stat().st_size
        assert fasta.crc32 == zlib.crc32(path.read_bytes())
    assert all(block.startswith(b">") for block in blocks)
    return [letters for block in blocks for letters in sequences(block)]


def refused(path: Path) -> str:
    with pytest.raises(ConfigError) as error, Fasta(path) as fasta:
        list(fasta.blocks())
    return str(error.value)


HEADER = some.text(some.characters(blacklist_categories=["Cs"], blacklist_characters="\r\n"), max_size=12)
LETTERS = some.text("ACDEFGHIKLMNPQRSTVWYXBacd-.", max_size=40)


@ANY_FOLDER
@given(
    records=some.lists(some.tuples(HEADER, LETTERS), min_size=1, max_size=8),
    data=some.data(),
)
def test_reads_what_was_written_however_it_was_laid_out(
    records: list[tuple[str, str]], data: some.DataObject, tmp_path: Path
) -> None:
    end = data.draw(some.sampled_from(["\n", "\r\n"]))
    lines = data.draw(some.sampled_from([[], [""], ["", "  "]]))
    for header, letters in records:
        lines.append(f">{header}")
        width = data.draw(some.integers(1, 20))
        rows = [letters[first : first + width] for first in range(0, len(letters), width)]
        if data.draw(some.booleans()):
            rows.append("*")
        lines += rows + [""] * data.draw(some.integers(0, 2))
    text = (end.join(lines) + data.draw(some.sampled_from(["", end]))).encode()
    if data.draw(some.booleans()):
        cut = data.draw(some.integers(0, len(text)))
        text = gzip.compress(text[:cut]) + gzip.compress(b"") + gzip.compress(text[cut:])
    path = tmp_path / "some.fasta"
    path.write_bytes(text)

    found = read(path, data.draw(some.integers(1, 64)))

    assert found == [letters.encode() for _, letters in records]


def test_a_star_or_greater_sign_inside_a_sequence_stays(tmp_path: Path) -> None:
    path = tmp_path / "odd.fasta"
    path.write_bytes(b">a>b *\nAC*DE\nF>G**\n>c\n*\n")
    assert read(path) == [b"AC*DEF>G", b""]


def test_a_byte_order_mark_is_skipped(tmp_path: Path) -> None:
    path = tmp_path / "windows.fasta"
    path.write_bytes(b"\xef\xbb\xbf\r\n>a\r\nAC\r\n")
    assert read(path) == [b"AC"]


def test_an_empty_file_has_no_sequences(tmp_path: Path) -> None:
    path = tmp_path / "empty.fasta"
    path.write_bytes(b"\n\n")
    assert read(path) == []


def test_text_before_the_first_header_is_reported_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "headless.fasta"
    path.write_bytes(b"\r\n\nMKV\n>a\nAC\n")
    said = refused(path)
    assert str(path) in said and "line 3" in said and "'MKV'" in said


@pytest.mark.parametrize("kept", [0.3, 0.9, 0.999])
def test_gzip_that_ends_too_early_is_reported(kept: float, tmp_path: Path) -> None:
    path = tmp_path / "half.fasta.gz"
    whole = gzip.compress(b">a\nACDEFGHIKLMNPQ\n" * 500)
    path.write_bytes(whole[: int(len(whole) * kept)])
    said = refused(path)
    assert str(path) in said and "gzip -t" in said


def test_gzip_that_is_damaged_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "damaged.fasta.gz"
    whole = bytearray(gzip.compress(b">a\nACDEFGHIKLMNPQ\n" * 500))
    whole[-8] ^= 1  # in its checksum
    path.write_bytes(whole)
    assert "is damaged" in refused(path)


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"\x28\xb5\x2f\xfd....", "zstd -d"),
        (b"BZh91AY", "bzip2 -d"),
        (b">a\rACD\r>b\rEF\r", "carriage return"),
        (bytes(range(256)), "FASTA begins with a header"),
    ],
)
def test_of_other_files_the_error_names_the_format(content: bytes, word: str, tmp_path: Path) -> None:
    path = tmp_path / "other.fasta"
    path.write_bytes(content)
    assert word in refused(path)


def test_a_file_that_is_not_there_is_reported(tmp_path: Path) -> None:
    assert "No such file" in refused(tmp_path / "none.fasta")
