"""The machines that --on knows, and the file that has them."""

from __future__ import annotations

from pathlib import Path

import pytest

from castoff.launcher.errors import CastoffError, InvalidInput
from castoff.launcher.remote.entries import Entry, add, entries, entries_file, entry_named, remove


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "castoff").mkdir()
    return {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}


def test_what_is_added_is_read_again_and_comments_stay(environ: dict[str, str]) -> None:
    path = entries_file(environ)
    path.write_text("# mine\nlab:  # the old one\n  host: me@lab\n  dir: /scratch/me\n")
    assert path.stat().st_mode & 0o022 == 0
    full = Entry(
        name="on",
        host="h",
        dir='/a "b" é',
        site="aurora",
        python="python3.12",
        setup=["module load x", "export A='b'"],
        castoff="/x",
    )
    add(full, environ)
    add(Entry(name="lab2", host="h", dir="~"), environ)
    assert entries(environ)["on"] == full and [*entries(environ)] == ["lab", "on", "lab2"]
    add(Entry(name="on", host="other", dir="/d"), environ)
    assert entries(environ)["on"] == Entry(name="on", host="other", dir="/d")
    remove("on", environ)
    assert [*entries(environ)] == ["lab", "lab2"] and path.read_text().startswith(
        "# mine\nlab:  # the old one\n"
    )


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"name": "a b"}, "NAME: is 'a b', but takes letters"),
        ({"name": "local"}, "NAME: is 'local', which means this machine"),
        ({"host": "-oProxyCommand=x"}, "host: is '-oProxyCommand=x', but takes USER@HOST"),
        ({"host": "a b"}, "host: is 'a b'"),
        ({"dir": ""}, "dir: is '', but takes one line of text"),
        ({"dir": "$SCRATCH/x"}, "dir: is '$SCRATCH/x', but variables are not expanded in it"),
        ({"dir": "~you/x"}, "dir: is '~you/x', but ~ works only for your own home"),
        (
            {"dir": "./my work"},
            "is './my work', but takes a whole path; in your home there: '~/my work'",
        ),
    ],
)
def test_what_cannot_be_an_entry_is_not_written(
    environ: dict[str, str], fields: dict[str, str], message: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        add(Entry(**{"name": "lab", "host": "h", "dir": "/d", **fields}), environ)  # type: ignore[arg-type]
    assert message in str(caught.value)
    assert not entries_file(environ).exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lab: {host: h}", "on.yaml:1: lab.dir: is missing"),
        ("lab: {host: h, dir: /d, sight: x}", "lab.sight: there is no such field; did you mean site?"),
        ("lab: {host: -x, dir: /d}", "lab.host: is '-x', but takes USER@HOST"),
        ("- lab", "holds no entries"),
        ("'a b': {host: h, dir: /d}", "is 'a b', but takes letters"),
    ],
)
def test_mistakes_in_the_file_are_named_with_their_lines(
    environ: dict[str, str], text: str, message: str
) -> None:
    entries_file(environ).write_text(text)
    with pytest.raises(InvalidInput) as caught:
        entries(environ)
    assert message in str(caught.value)


def test_a_name_that_is_not_there_shows_how_to_add_it(environ: dict[str, str]) -> None:
    add(Entry(name="aurora", host="h", dir="/d"), environ)
    with pytest.raises(CastoffError) as caught:
        entry_named("arora", environ, "CASTOFF_ON")
    assert "CASTOFF_ON: 'arora' is not an entry of" in str(caught.value)
    assert "did you mean aurora?" in str(caught.value)
    assert "`castoff on add arora USER@HOST --dir FOLDER` adds it" in str(caught.value)


def test_a_file_that_others_can_write_to_is_not_read(environ: dict[str, str]) -> None:
    add(Entry(name="lab", host="h", dir="/d"), environ)
    entries_file(environ).chmod(0o666)
    with pytest.raises(CastoffError, match="is not used, since"):
        entries(environ)
