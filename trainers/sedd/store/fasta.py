"""FASTA as it is found, plain or gzip, read in blocks of whole records.

Written by hand: what Biopython, pyfastx and pysam bring beside the sequences is not needed, and Biopython
makes an object of each record, pyfastx an index of the file, pysam a build of htslib.
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
    """An open file, plain or gzip, whatever its name says; gzip may have several members, as bgzip's.

    Raises:
        ConfigError: it cannot be read, or is compressed in another way.
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
                raise _refused(path, f"is compressed, and not by gzip; unpack it first with {tool}")
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
        """Bytes of the file that have been read; all of them after the last block."""
        return self._raw.consumed

    @property
    def crc32(self) -> int:
        """CRC-32 of the bytes that were read."""
        return self._raw.crc32

    def blocks(self, size: int = BLOCK) -> Iterator[bytes]:
        """The text in order; each block begins with a header, and ends where a record does.

        Raises:
            ConfigError: what comes before the first header is not a record's, or the file is damaged.
        """
        held = bytearray()
        begun, line = False, 1
        while piece := self._read(size):
            searched = max(len(held) - 1, 0)
            held += piece
            if not begun:
                line += _without_what_leads(held)
                if not held:
                    continue
                self._check_beginning(held, line)
                begun, searched = True, 0
            end = held.rfind(b"\n>", searched)
            if end >= 0:
                yield bytes(held[: end + 1])
                del held[: end + 1]
        if held:
            yield bytes(held)

    def _read(self, size: int) -> bytes:
        try:
            read: bytes = self._file.read(size)
        except EOFError as error:
            raise _refused(
                self._path,
                f"ends in the middle of its gzip data, after {self.consumed:,} bytes; it was not copied or "
                "downloaded whole (gzip -t tells): get it again",
            ) from error
        except (zlib.error, gzip.BadGzipFile) as error:
            raise _refused(self._path, f"is damaged ({error}; gzip -t tells): get it again, whole") from error
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
                self._path, r"line 1: ends in a carriage return alone; write it anew with tr '\r' '\n'"
            )


def sequences(block: bytes) -> list[bytes]:
    """The letters of a block's records, without white space and a `*` at the end.

    Empty for a header that no sequence follows.
    """
    return [_letters(record) for record in block[1:].split(b"\n>")]


def _letters(record: bytes) -> bytes:
    return record.partition(b"\n")[2].translate(None, _WHITE).rstrip(b"*")


def _without_what_leads(text: bytearray) -> int:
    """Take blank lines and a byte order mark away; how many lines those were."""
    if text.startswith(_BYTE_ORDER_MARK):
        del text[: len(_BYTE_ORDER_MARK)]
    length = len(text) - len(text.lstrip(_WHITE))
    lines = text.count(b"\n", 0, length)
    del text[:length]
    return lines


def _refused(path: Path, why: str) -> ConfigError:
    return ConfigError([why], str(path))


class _Summed(io.RawIOBase):
    """A file that is summed while it is read."""

    def __init__(self, path: Path):
        self._file = path.open("rb", buffering=0)
        self.consumed = 0
        self.crc32 = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer; how many bytes came."""
        length = self._file.readinto(buffer) or 0
        self.crc32 = zlib.crc32(memoryview(buffer)[:length], self.crc32)
        self.consumed += length
        return length

    def close(self) -> None:
        if not self.closed and hasattr(self, "_file"):
            self._file.close()
        super().close()
