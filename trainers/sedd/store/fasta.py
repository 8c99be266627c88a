"""FASTA files, plain or gzip, read in blocks of whole records.

Written by hand: what Biopython, pyfastx and pysam offer besides sequences is not needed, and Biopython makes
an object of each record, pyfastx an index of the file, and pysam needs htslib.
"""

from __future__ import annotations

import gzip
import io
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from castoff.trainers.configuration.fields import ConfigError

BLOCK = 1 << 22
"""Bytes of text in a block, or one record if that is longer."""

_WHITE = b" \t\r\n\v\f"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_GZIP = b"\x1f\x8b"
_COMPRESSED = {
    b"\x28\xb5\x2f\xfd": "zstd -d",
    b"\xfd7zXZ\0": "xz -d",
    b"BZh": "bzip2 -d",
    b"PK\x03\x04": "unzip",
}


class Fasta:
    """An open FASTA file. Its content shows whether it is gzip, which may have several members, like bgzip's.

    Raises:
        ConfigError: the file cannot be read, or is compressed, but not by gzip.
    """

    def __init__(self, path: Path):
        self._path = path
        try:
            self._raw = _Summed(path)
            beginning = io.BufferedReader(self._raw, 1 << 18)
            magic = beginning.peek(len(max(_COMPRESSED, key=len)))
        except OSError as error:
            raise _refused(path, f"cannot be read: {error.strerror or error}") from error
        for known, tool in _COMPRESSED.items():
            if magic.startswith(known):
                raise _refused(path, f"is compressed, but not by gzip; unpack it first with {tool}")
        self._gzip = magic.startswith(_GZIP)
        self._file: Any = gzip.GzipFile(fileobj=beginning, mode="rb") if self._gzip else beginning
        self._buffer = beginning

    def __enter__(self) -> Fasta:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        self._buffer.close()

    @property
    def consumed(self) -> int:
        """Bytes of the file that have been read; its size after the last block."""
        return self._raw.consumed

    @property
    def crc32(self) -> int:
        """CRC-32 of the bytes that have been read."""
        return self._raw.crc32

    def blocks(self, size: int = BLOCK) -> Iterator[bytes]:
        """Yield the text in order; each block begins with a header and ends at the end of a record.

        Raises:
            ConfigError: the file does not begin with a header, or is damaged.
        """
        text = bytearray()
        begun, line = False, 1
        while piece := self._read(size):
            searched = max(len(text) - 1, 0)
            text += piece
            if not begun:
                line += _remove_leading_blanks(text)
                if not text:
                    continue
                self._check_beginning(text, line)
                begun, searched = True, 0
            end = text.rfind(b"\n>", searched)
            if end >= 0:
                yield bytes(text[: end + 1])
                del text[: end + 1]
        if text:
            yield bytes(text)

    def _read(self, size: int) -> bytes:
        try:
            read: bytes = self._file.read(size)
        except EOFError as error:
            raise _refused(
                self._path,
                f"ends in the middle of its gzip data, after {self.consumed:,} bytes; it was not copied "
                "or downloaded completely (check with gzip -t): get it again",
            ) from error
        except (zlib.error, gzip.BadGzipFile) as error:
            raise _refused(self._path, f"is damaged ({error}; check with gzip -t): get it again") from error
        except OSError as error:
            raise _refused(self._path, f"cannot be read: {error.strerror or error}") from error
        return read

    def _check_beginning(self, text: bytearray, line: int) -> None:
        if not text.startswith(b">"):
            first = bytes(text[:200]).splitlines()[0][:40].decode("latin-1")
            raise _refused(
                self._path,
                f"line {line}: is {first!r}, but FASTA begins with a header, as in >sp|P69905; a store is "
                "made of FASTA, plain or gzip, or of a .pt of sequences",
            )
        if b"\n" not in text and re.search(rb"\r[^\n]", text):
            raise _refused(
                self._path,
                r"line 1: ends in a carriage return without a newline; convert the file with tr '\r' '\n'",
            )


def sequences(block: bytes) -> list[bytes]:
    """The letters of each record of a block, without white space and a `*` at the end.

    Empty for a header without a sequence.
    """
    return [_letters(record) for record in block[1:].split(b"\n>")]


def _letters(record: bytes) -> bytes:
    return record.partition(b"\n")[2].translate(None, _WHITE).rstrip(b"*")


def _remove_leading_blanks(text: bytearray) -> int:
    """Remove leading blank lines and a byte order mark; return the number of lines removed."""
    if text.startswith(_BYTE_ORDER_MARK):
        del text[: len(_BYTE_ORDER_MARK)]
    length = len(text) - len(text.lstrip(_WHITE))
    lines = text.count(b"\n", 0, length)
    del text[:length]
    return lines


def _refused(path: Path, why: str) -> ConfigError:
    return ConfigError([why], str(path))


class _Summed(io.RawIOBase):
    """A file whose CRC-32 is computed while it is read."""

    def __init__(self, path: Path):
        self._file = path.open("rb", buffering=0)
        self.consumed = 0
        self.crc32 = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer; return the number of bytes read."""
        length = self._file.readinto(buffer) or 0
        self.crc32 = zlib.crc32(memoryview(buffer)[:length], self.crc32)
        self.consumed += length
        return length

    def close(self) -> None:
        if not self.closed and hasattr(self, "_file"):
            self._file.close()
        super().close()
