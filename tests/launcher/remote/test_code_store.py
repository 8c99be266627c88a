"""Code on the machine: complete or not there, never outside of its folder, never another than was sent."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from castoff.launcher.errors import CastoffError
from castoff.launcher.remote.code_store import Store
from castoff.launcher.remote.messages import Code, File


def a_file(name: bytes, content: bytes, mode: int = 0o644) -> File:
    return File(name, mode, len(content), hashlib.sha256(content).digest())


def code(*files: File, name: str = "abc") -> Code:
    return Code("project", name, list(files))


def parts(content: bytes) -> Iterator[bytes]:
    half = len(content) // 2
    yield content[:half]
    yield content[half:]


def a_store(folder: Path, wanted: Code) -> Store:
    with ExitStack() as held:
        return Store(folder, wanted, held)


def store(folder: Path, wanted: Code, contents: dict[bytes, bytes]) -> tuple[Path, int]:
    """Store code, and say how many contents it took."""
    found = a_store(folder, wanted)
    if found.is_complete:
        return found.folder, 0
    lacking = found.lacking()
    for number in lacking:
        found.take(number, parts(contents[wanted.files[number].digest]))
    return found.finish(), len(lacking)


def digests(*contents: bytes) -> dict[bytes, bytes]:
    return {hashlib.sha256(content).digest(): content for content in contents}


def test_names_modes_and_links_are_kept(tmp_path: Path) -> None:
    names = [b"a b", b"\xff\xfe", b"deep/\n/x", b"-rf", b"empty"]
    files = [a_file(name, name, 0o4777) for name in names[:-1]] + [a_file(b"empty", b"", 0o400)]
    link = File(b"deep/link", 0, 0, b"", b"../a b")
    outside = File(b"out", 0, 0, b"", b"/scratch/data")
    folder, _ = store(tmp_path, code(*files, link, outside), digests(*names))
    held = {os.fsencode(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir()}
    assert held == {*names, b"deep/link", b"out"}
    assert (folder / "a b").stat().st_mode & 0o7777 == 0o755
    assert (folder / "empty").stat().st_mode & 0o777 == 0o600
    assert os.readlink(folder / "out") == "/scratch/data"  # noqa: PTH115
    assert {path.name for path in folder.parent.iterdir()} == {"abc", ".abc.files", ".lock"}


def test_only_what_is_new_is_taken_and_earlier_code_stays(tmp_path: Path) -> None:
    first, taken = store(
        tmp_path, code(a_file(b"a", b"1"), a_file(b"b", b"1"), a_file(b"c", b"2")), digests(b"1", b"2")
    )
    assert taken == 2  # the same content once
    second, taken = store(tmp_path, code(a_file(b"a", b"1"), a_file(b"c", b"3"), name="def"), digests(b"3"))
    assert taken == 1 and (second / "a").read_bytes() == b"1"
    assert not (first / "a").samefile(second / "a")
    (second / "a").write_bytes(b"changed by a job")
    assert (first / "a").read_bytes() == b"1"
    third, taken = store(tmp_path, code(a_file(b"x", b"1"), name="ghi"), {})
    assert taken == 0 and (third / "x").read_bytes() == b"1"  # of the first, as the second's was changed


def test_what_arrived_damaged_is_not_kept(tmp_path: Path) -> None:
    found = a_store(tmp_path, code(a_file(b"a", b"right"), a_file(b"b", b"other")))
    assert found.lacking() == [0, 1]
    found.take(1, parts(b"other"))
    for wrong in (b"wrong", b"right and more", b"rig"):
        with pytest.raises(CastoffError, match="a: arrived damaged"):
            found.take(0, parts(wrong))
    with pytest.raises(CastoffError, match="a: did not arrive"):
        found.finish()
    again = a_store(tmp_path, code(a_file(b"a", b"right"), a_file(b"b", b"other")))
    assert not again.is_complete and again.lacking() == [0]  # continues


def test_changed_code_is_left_alone(tmp_path: Path) -> None:
    wanted = code(a_file(b"a", b"1"))
    first, _ = store(tmp_path, wanted, digests(b"1"))
    assert store(tmp_path, wanted, {}) == (first, 0)
    (first / "trained").mkdir()  # what jobs write beside it does not matter
    os.utime(first / "a")
    assert store(tmp_path, wanted, {}) == (first, 0)
    (first / "a").write_bytes(b"2")
    found = a_store(tmp_path, wanted)
    assert found.folder == first.with_name("abc.2") and "a was changed on the machine" in str(found.note)
    second, _ = store(tmp_path, wanted, digests(b"1"))
    assert (first / "a").read_bytes() == b"2" and (second / "a").read_bytes() == b"1"


def test_the_same_name_with_other_files_is_another_folder(tmp_path: Path) -> None:
    first, _ = store(tmp_path, code(a_file(b"a", b"1")), digests(b"1"))
    second, _ = store(tmp_path, code(a_file(b"a", b"2")), digests(b"2"))
    assert (first.name, second.name) == ("abc", "abc.2")


def test_two_transfers_of_the_same_do_not_disturb_each_other(tmp_path: Path) -> None:
    wanted = code(a_file(b"a", b"1"), a_file(b"b", b"2"))
    one, other = a_store(tmp_path, wanted), a_store(tmp_path, wanted)
    assert one.lacking() == other.lacking() == [0, 1]
    one.take(0, parts(b"1"))
    other.take(0, parts(b"1"))
    other.take(1, parts(b"2"))
    folder = other.finish()
    one.take(1, parts(b"2"))
    assert one.finish() == folder
    assert sorted(path.name for path in folder.parent.iterdir()) == [".abc.files", ".lock", "abc"]


def test_a_transfer_leaves_other_transfers_alone(tmp_path: Path) -> None:
    files = code(a_file(b"a", b"1"), a_file(b"b/c", b"2"), name="slow")
    slow = a_store(tmp_path, files)
    slow.take(slow.lacking()[0], parts(b"1"))
    arriving = slow.folder.with_name(".abc.draft")
    arriving.write_bytes(b"2 or")
    store(tmp_path, code(a_file(b"x", b"3"), name="quick"), digests(b"3"))
    assert arriving.exists()
    again = a_store(tmp_path, files)
    assert again.lacking() == [1]
    again.take(1, parts(b"2"))
    assert sorted(path.name for path in again.finish().iterdir()) == ["a", "b"]


def test_only_transfers_that_nobody_continues_are_removed(tmp_path: Path) -> None:
    begun = {name: code(a_file(b"a", b"1"), a_file(b"b", b"2"), name=name) for name in ("mine", "left")}
    for files in begun.values():
        half = a_store(tmp_path, files)
        half.take(half.lacking()[0], parts(b"1"))
        half.folder.with_name(f".{files.name}.draft").touch()
    for path in tmp_path.glob("code/project/.*"):
        os.utime(path, (0, 0))
    continued = a_store(tmp_path, begun["mine"])
    assert continued.lacking() == [1]  # which takes long, so another begins beside it
    store(tmp_path, code(a_file(b"x", b"3"), name="other"), digests(b"3"))
    assert not [*tmp_path.rglob(".left.*")] and not [*tmp_path.rglob("*.draft")]
    continued.take(1, parts(b"2"))
    assert continued.finish().is_dir()


@pytest.mark.parametrize(
    "names",
    [
        *([name] for name in (b"../x", b"/etc/x", b"a/../../x", b"a//b", b".", b"", b"a/", b"x\0y")),
        [b"a", b"a/b"],
        [b"a", b"a"],
    ],
)
def test_nothing_is_written_outside(tmp_path: Path, names: list[bytes]) -> None:
    with pytest.raises(CastoffError, match=r"^code: "):
        a_store(tmp_path, code(*(a_file(name, b"") for name in names)))
    with pytest.raises(CastoffError, match=r"^code: "):
        a_store(tmp_path, code(File(names[0], 0, 0, b"", b"/etc"), a_file(names[0] + b"/passwd", b"")))
    assert not [*tmp_path.rglob("x")]


@pytest.mark.parametrize(
    ("project", "name"), [("..", "x"), ("x", "../y"), ("", "x"), ("x", ".files"), ("a/b", "x")]
)
def test_folders_have_plain_names(tmp_path: Path, project: str, name: str) -> None:
    with pytest.raises(CastoffError, match="is not a name for a folder"):
        a_store(tmp_path, Code(project, name, []))


_NAMES = st.lists(st.binary(min_size=1, max_size=4), max_size=4).map(b"/".join)


@given(names=st.lists(_NAMES, max_size=6))
def test_whatever_is_listed_stays_within(
    tmp_path_factory: pytest.TempPathFactory, names: list[bytes]
) -> None:
    folder = tmp_path_factory.mktemp("far")
    try:
        found, _ = store(folder, code(*(a_file(name, b"x") for name in names)), digests(b"x"))
    except (CastoffError, OSError):
        found = folder / "code"
    around = {path for path in folder.rglob("*") if not path.is_relative_to(folder / "code")}
    assert not around and found.is_relative_to(folder)
