"""A set of structures comes whole from an index, or not at all, and what was fetched is kept."""

from __future__ import annotations

import io
import json
import tarfile
import threading
from collections.abc import Iterator
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import gemmi
import numpy
import pytest

from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.dpo import fetch_structures
from castoff.trainers.dpo.fetch_structures import MANIFEST, Source, make
from castoff.trainers.dpo.structures.package_index import Archive, fetched, index_address
from castoff.trainers.dpo.structures.reading import read_chains, read_structure
from tests.trainers.dpo.helices import helix, structure

LONG = "ACDEFGHIKLMNPQRSTVWY" * 2


class Index:
    """A package index on this host, and what was asked of it."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.html = False
        self.page: bytes | None = None
        """What it says of a package, whatever there is."""
        self.gives_parts = True
        self.ends_after: int | None = None
        self.asked: list[tuple[str, str | None, str | None]] = []
        """Path, Range and Authorization."""
        index = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                index.asked.append((self.path, self.headers["Range"], self.headers["Authorization"]))
                index.answer(self)

            def log_message(self, format: str, *words: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self._server.server_port}/simple"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        name = handler.path.strip("/").rpartition("/")[2]
        first, content, kind = 0, self.files.get(name), "application/gzip"
        if content is None:
            links = [file for file in self.files if file.startswith(f"{name}-")]
            kind = "text/html" if self.html else "application/vnd.pypi.simple.v1+json"
            given = [{"filename": file, "url": f"../../files/{file}"} for file in links]
            rows = "".join(f'<a  href="../../files/{file}#sha256=00">{file}</a>' for file in links)
            content = self.page or (rows if self.html else json.dumps({"files": given})).encode()
        elif (said := handler.headers["Range"]) and self.gives_parts:
            first = int(said.removeprefix("bytes=").rstrip("-"))
            if first >= len(content):
                handler.send_error(416)
                return
        handler.send_response(206 if first else 200)
        handler.send_header("Content-Type", kind)
        handler.send_header("Content-Length", str(len(content) - first))
        handler.end_headers()
        cut = self.ends_after if kind == "application/gzip" else None
        handler.wfile.write(content[first:][:cut])

    def close(self) -> None:
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
            self._server.server_close()


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    for name in ("http_proxy", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    made = Index()
    yield made
    made.close()


def packed(**members: bytes) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as archive:
        for name, content in members.items():
            given = tarfile.TarInfo(f"some-1/tests/{name.replace('_', '.')}")
            given.size = len(content)
            archive.addfile(given, io.BytesIO(content))
    return data.getvalue()


def pdb(*chains: gemmi.Chain, full: dict[str, str] | None = None) -> bytes:
    return structure(*chains, full=full).make_pdb_string().encode()


@pytest.fixture
def sources(index: Index, monkeypatch: pytest.MonkeyPatch) -> list[Source]:
    """Two packages: of six chains four are whole, and of these one is a part of another's."""
    holes = helix("C", LONG)
    for residue in list(holes)[:25]:
        residue.remove_atom("O", "\0", gemmi.Element("O"))
    index.files["some-1.tar.gz"] = packed(
        a_pdb=pdb(helix("A", LONG), helix("B", LONG[3:30], 20.0), holes),
        notes_txt=b"nothing",
        wrong_pdb=b"nothing",
        short_pdb=pdb(helix("A", "ACDEF")),
    )
    index.files["more-2.tar.gz"] = packed(
        a_pdb=pdb(helix(" ", "MKV" * 9)),
        b_cif=structure(helix("H", "GHIK" * 6), full={"H": "AA" + "GHIK" * 6}).make_mmcif_document()
        .as_string().encode(),
    )  # fmt: skip
    made = [
        Source(Archive(name, version, file, sha256(index.files[file]).hexdigest()), "MIT")
        for name, version, file in (("some", "1", "some-1.tar.gz"), ("more", "2", "more-2.tar.gz"))
    ]
    monkeypatch.setattr(fetch_structures, "SOURCES", tuple(made))
    return made


@pytest.mark.parametrize("html", [False, True])
def test_makes_a_set_of_distinct_chains(
    html: bool, index: Index, sources: list[Source], tmp_path: Path
) -> None:
    index.html = html
    assert make(tmp_path / "set", index.address) == (3, 40 + 27 + 24)
    names = sorted(each.name for each in (tmp_path / "set").iterdir())
    assert names == [MANIFEST, "more-a-A.cif", "more-b-H.cif", "some-a-A.cif"]
    manifest = json.loads((tmp_path / "set" / MANIFEST).read_bytes())
    for chain in manifest["chains"]:
        content = (tmp_path / "set" / chain["file"]).read_bytes()
        assert sha256(content).hexdigest() == chain["sha256"]
    assert manifest["chains"][1] == {
        **manifest["chains"][1],
        **{"file": "more-b-H.cif", "chain": "H", "residues": 26, "resolved": 24, "package": "more"},
    }
    assert manifest["sources"][0]["sha256"] == sources[0].archive.sha256
    assert sorted(each.name for each in tmp_path.iterdir()) == [".set.lock", "set"]


def test_a_chain_is_what_it_was(index: Index, sources: list[Source], tmp_path: Path) -> None:
    (tmp_path / "b.cif").write_bytes(
        structure(helix("H", "GHIK" * 6), full={"H": "AA" + "GHIK" * 6})
        .make_mmcif_document()
        .as_string()
        .encode()
    )
    make(tmp_path / "set", index.address)
    was, is_now = (read_structure(tmp_path / name) for name in ("b.cif", "set/more-b-H.cif"))
    assert numpy.allclose(was.atoms, is_now.atoms, atol=1e-3)
    assert [part.tolist() for part in was[1:5]] == [part.tolist() for part in is_now[1:5]]
    assert was.names == is_now.names
    (chain,) = read_chains(tmp_path / "set" / "more-b-H.cif")
    assert chain.resolved.all() and len(chain.sequence) == 26


def test_a_set_that_is_there_is_left_as_it_is(index: Index, sources: list[Source], tmp_path: Path) -> None:
    made = make(tmp_path / "set", index.address)
    index.asked.clear()
    assert make(tmp_path / "set", index.address) == made
    assert not index.asked
    (tmp_path / "other").mkdir()
    with pytest.raises(ConfigError, match="other: exists already and is not a set of structures"):
        make(tmp_path / "other", index.address)


def test_an_interrupted_download_resumes(index: Index, sources: list[Source], tmp_path: Path) -> None:
    more = index.files.pop("more-2.tar.gz")
    with pytest.raises(ConfigError, match=r"/simple/more/ has no more-2\.tar\.gz; name an index"):
        make(tmp_path / "set", index.address)
    assert not (tmp_path / "set").exists()
    index.files["more-2.tar.gz"], index.ends_after = more, 100
    with pytest.raises(ConfigError, match=r"cannot be fetched \(.*more-2.* files fetched so far are kept"):
        make(tmp_path / "set", index.address)
    index.ends_after = None
    index.asked.clear()
    assert make(tmp_path / "set", index.address)[0] == 3
    asked = [(path.rpartition("/")[2], part) for path, part, _ in index.asked if path.startswith("/files")]
    assert asked == [("more-2.tar.gz", "bytes=100-")]


def test_another_file_of_that_name_is_not_taken(index: Index, sources: list[Source], tmp_path: Path) -> None:
    index.files["some-1.tar.gz"] += b"more"
    with pytest.raises(ConfigError, match=r"is not the published some-1\.tar\.gz"):
        fetched(sources[0].archive, tmp_path, index.address)
    assert not list(tmp_path.iterdir())


def test_all_but_the_last_step_was_done(index: Index, sources: list[Source], tmp_path: Path) -> None:
    (tmp_path / "some-1.tar.gz.part").write_bytes(index.files["some-1.tar.gz"])
    assert fetched(sources[0].archive, tmp_path, index.address).name == "some-1.tar.gz"


def test_a_server_that_gives_no_parts(index: Index, sources: list[Source], tmp_path: Path) -> None:
    (tmp_path / "some-1.tar.gz.part").write_bytes(index.files["some-1.tar.gz"][:50])
    index.gives_parts = False
    assert fetched(sources[0].archive, tmp_path, index.address).read_bytes() == index.files["some-1.tar.gz"]


def test_a_missing_network_is_reported(index: Index, sources: list[Source], tmp_path: Path) -> None:
    index.close()
    with pytest.raises(ConfigError, match=r"127\.0\.0\.1:\d+/simple/some/ cannot be fetched \(.*refused"):
        make(tmp_path / "set", index.address)
    with pytest.raises(ConfigError, match=r"nowhere/some/ cannot be fetched \(unknown url type"):
        make(tmp_path / "set", "nowhere")


@pytest.mark.parametrize("page", [b"please log in", b"[]", b"{}", b'{"files": "none"}', b"\xff"])
def test_a_page_that_is_not_an_index_is_reported(
    page: bytes, index: Index, sources: list[Source], tmp_path: Path
) -> None:
    index.page = page
    with pytest.raises(
        ConfigError, match=r"/simple/some/ is not a page of a package index; name another one"
    ):
        make(tmp_path / "set", index.address)


def test_a_password_is_sent_to_the_server_and_nowhere_else(
    index: Index, sources: list[Source], tmp_path: Path
) -> None:
    address = index.address.replace("http://", "http://me:se%40cret@")
    fetched(sources[0].archive, tmp_path, address)
    assert [given for _, _, given in index.asked] == ["Basic bWU6c2VAY3JldA=="] * 2
    del index.files["more-2.tar.gz"]
    with pytest.raises(ConfigError) as caught:
        fetched(sources[1].archive, tmp_path, address)
    assert "cret" not in str(caught.value)


def test_the_index_is_that_of_pip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "https://packages.example/simple")
    assert index_address() == "https://packages.example/simple"


def test_the_program(
    index: Index, sources: list[Source], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fetch_structures.main([str(tmp_path / "set"), "--index", index.address])
    assert capsys.readouterr().out == f"chains: 3; resolved residues: 91; in {tmp_path / 'set'}\n"
    (tmp_path / "other").mkdir()
    with pytest.raises(
        SystemExit, match=r"python -m castoff\.trainers\.dpo\.fetch_structures: .*other: exists already"
    ):
        fetch_structures.main([str(tmp_path / "other"), "--index", index.address])
