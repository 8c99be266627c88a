"""Repeated hashes are found on disk: those that a set finds, however they fall into buckets."""

from __future__ import annotations

from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from castoff.trainers.sedd.store.deduplication import HASH, mark_repeated


def marks(hashes: list[bytes], folder: Path, bucket: int) -> list[int]:
    (folder / "hashes").write_bytes(b"".join(hashes))
    found = mark_repeated(folder / "hashes", folder / "marks", bucket=bucket)
    marked = list((folder / "marks").read_bytes())
    assert sum(marked) == found
    assert sorted(each.name for each in folder.iterdir()) == ["hashes", "marks"]
    return marked


def expected(hashes: list[bytes]) -> list[int]:
    firsts: dict[bytes, int] = {}
    return [int(firsts.setdefault(each, place) != place) for place, each in enumerate(hashes)]


ONE = some.one_of(
    some.binary(min_size=HASH, max_size=HASH),
    # Alike in one half, or in the bits that choose a bucket.
    some.tuples(some.integers(0, 3), some.integers(0, 3)).map(
        lambda pair: pair[0].to_bytes(8, "little") + pair[1].to_bytes(8, "big")
    ),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(hashes=some.lists(ONE, max_size=60), bucket=some.integers(1, 70))
def test_marks_all_but_the_first_of_each(hashes: list[bytes], bucket: int, tmp_path: Path) -> None:
    assert marks(hashes, tmp_path, bucket) == expected(hashes)


def test_one_hash_may_fill_every_bucket(tmp_path: Path) -> None:
    assert marks([bytes(HASH)] * 1000, tmp_path, 7) == [0] + [1] * 999


def test_the_first_of_many_stays(tmp_path: Path) -> None:
    hashes = [(n * n % 101).to_bytes(8, "little") + bytes([n % 7 * 36] * 8) for n in range(3000)]
    assert marks(hashes, tmp_path, 400) == expected(hashes)


def test_progress_is_reported(tmp_path: Path) -> None:
    (tmp_path / "hashes").write_bytes(b"".join(n.to_bytes(HASH, "big") for n in range(100)))
    stated: list[int] = []
    mark_repeated(tmp_path / "hashes", tmp_path / "marks", bucket=10, report=stated.append)
    assert stated == sorted(stated) and stated[-1] == 100
