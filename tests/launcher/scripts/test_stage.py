"""Copies on each node's own disk: made, checked, and gone afterwards."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from tests.cases import others_long

from .conftest import Benches
from .harness import PROBE, Bench, Ended, Started

KINDS = ["local", "hydra", "openmpi", "pals", "srun"]
ONE_NODE = others_long(KINDS, ("local", "pals"))
SEVERAL_NODES = ["pals", "srun"]

INNER = ["one", "a b/two", "a b/new\nline", "-n", "$(touch x)"]
ENDINGS = ["tar", "tar.gz", "tar.zst", "tgz", "zip"]


class Staging(NamedTuple):
    """A bench with a folder of each node's own."""

    bench: Bench
    storage: Path
    source: Path

    def left(self) -> list[str]:
        """What is still there on any node."""
        nodes = [self.storage, *self.storage.parent.glob(f"{self.storage.name}.*")]
        return [str(path) for node in nodes for path in node.iterdir()]

    def run(self, *items: dict[str, Any], **fields: Any) -> Ended:
        return self.start(*items, **fields).end()

    def start(self, *items: dict[str, Any], **fields: Any) -> Started:
        return self.bench.start(stage=[*items], **{"ranks_per_node": 1, **fields})

    def item(self, name: str, text: str = "text\n", **more: Any) -> dict[str, Any]:
        """A file to stage."""
        (self.source / name).write_text(text)
        return {"from": str(self.source / name), **more}


@pytest.fixture
def staging(bench: Benches, tmp_path: Path) -> Iterator[Callable[..., Staging]]:
    """`staging("srun", nodes=2)`: where `stage` copies from and to; in the end nothing may be left."""
    made: list[Staging] = []

    def make(kind: str, nodes: int = 1, folder: str = "here", name: str = "local") -> Staging:
        if nodes > 1 and os.geteuid() != 0:
            pytest.skip("only root can give each node a file system of its own")
        here = bench(kind, folder)
        storage, source = tmp_path / name, tmp_path / "source"
        for node in range(nodes):
            (tmp_path / (f"{name}.{node}" if node else name)).mkdir()
        source.mkdir(exist_ok=True)
        here.site = msgspec.structs.replace(here.site, local_storage=str(storage))
        here.env["STUB_LOCAL_STORAGE"] = str(storage) if nodes > 1 else ""
        made.append(Staging(here, storage, source))
        return made[-1]

    yield make
    assert [path for one in made for path in one.left()] == []


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def filled(folder: Path) -> Path:
    """A folder with names and links that a careless script would trip over."""
    (folder / "a b").mkdir(parents=True)
    (folder / "empty").mkdir()
    for name in INNER:
        (folder / name).write_bytes(os.urandom(3000))
    (folder / "link").symlink_to("one")
    (folder / "leads nowhere").symlink_to("gone")
    return folder


def packed(folder: Path, archive: Path) -> Path:
    """The folder's files as an archive."""
    if archive.suffix == ".zip":
        with zipfile.ZipFile(archive, "w") as file:
            for name in INNER[:2]:
                file.write(folder / name, name)
    else:
        subprocess.run(["tar", "-caf", archive, "-C", folder, *INNER[:3]], check=True)
    return archive


LOOK = """
import hashlib, os, pathlib, sys
root = pathlib.Path(os.environ["CASTOFF_STAGE_DIR"])
for path in sorted(root.rglob("*")):
    if path.is_symlink():
        print(repr(str(path.relative_to(root))), "->", os.readlink(path))
    elif path.is_file() and not path.name.startswith(".castoff"):
        print(repr(str(path.relative_to(root))), hashlib.sha256(path.read_bytes()).hexdigest())
print(oct(root.stat().st_mode & 0o777), (root / "tree" / "empty").is_dir())
"""
"""A program that says what it finds."""


def test_options_of_setups_own(staging: Callable[..., Staging]) -> None:
    """With `set -C`, a shell overwrites no file."""
    here = staging("srun")
    ended = here.run(here.item("one"), setup=["set -Cf", "IFS=,"])
    assert ended.code == 0, ended.output


@pytest.mark.everyday("local")
@pytest.mark.parametrize("kind", ONE_NODE)
def test_archives_folders_and_files(
    kind: str, staging: Callable[..., Staging], system_program: Callable[[str, str], Path]
) -> None:
    for program in ("unzip", "zstd"):
        system_program(program, program)
    here = staging(kind, folder="with 'quotes' and spaces", name="it's $HOME")
    tree = filled(here.source / "it's $HOME, a (tree)")
    archives = [packed(tree, here.source / f"it's packed.{ending}") for ending in ENDINGS]
    one = sha256(tree / "one")
    items: list[dict[str, Any]] = [
        *({"from": str(archive), "to": f"archives/{archive.name}"} for archive in archives),
        {"from": str(tree), "to": "tree"},
        {"from": f"../source/{tree.name}/one", "sha256": one},
        {"from": str(archives[1]), "unpack": False, "sha256": sha256(archives[1])},
    ]
    expected = {f"archives/{archive.name}/{name}": name for archive in archives for name in INNER[:2]}
    expected |= {f"archives/{archive.name}/{INNER[2]}": INNER[2] for archive in archives[:-1]}
    expected |= {f"tree/{name}": name for name in INNER} | {"one": "one"}
    sums = {place: sha256(tree / name) for place, name in expected.items()}
    sums |= {archives[1].name: sha256(archives[1])}
    lines = [f"{place!r} {found}" for place, found in sums.items()]
    lines += ["'tree/link' -> one", "'tree/leads nowhere' -> gone", "0o700 True"]

    ended = here.run(*items, command=["python3", "-c", LOOK], ranks_per_node=2)
    assert ended.code == 0, ended.output
    for rank in range(2):
        log = (ended.run_dir / "logs" / "0.0" / f"rank-{rank:05d}.log").read_text()
        assert sorted(log.splitlines()) == sorted(lines)
    assert "castoff: staging 0.1 MiB to each node\n" in ended.output
    assert f"s on {os.uname().nodename}" in ended.output.partition("castoff: staged in ")[2]


@pytest.mark.everyday("srun")
@pytest.mark.parametrize("kind", SEVERAL_NODES)
def test_each_node_has_its_own(kind: str, staging: Callable[..., Staging]) -> None:
    here = staging(kind, nodes=3)
    ended = here.run(here.item("words"), nodes=3, ranks_per_node=2, command=["sh", "-c", SHOW])
    assert ended.code == 0, ended.output
    for rank in range(6):
        assert (here.bench.seen / f"words-{rank}").read_text() == "text\n"
    assert sorted(re.findall(r"castoff: staged in \d+ s on (\S+)\n", ended.output))[1:] == ["x1", "x2"]


NO_STAGING = '#!/bin/sh\ncase $1 in -a | -p) ;; *) exec /bin/cp "$@" ;; esac\n'
"""The beginning of a cp that is a stub for staging alone."""

SHOW = 'cat "$CASTOFF_STAGE_DIR/words" >"$PROBE_FOLDER/words-$RANK"'


@pytest.mark.long
def test_uneven_ranks_do_not_make_staging_uneven(staging: Callable[..., Staging]) -> None:
    here = staging("srun", nodes=2)
    ended = here.run(here.item("words"), nodes=2, ranks_per_node=None, ranks=3, command=["sh", "-c", SHOW])
    assert ended.code == 0, ended.output
    assert len(list(here.bench.seen.glob("words-*"))) == 3


@pytest.mark.long
def test_many_nodes_are_summed_up(staging: Callable[..., Staging]) -> None:
    here = staging("srun", nodes=33)
    ended = here.run(here.item("words"), nodes=33, command=["true"])
    assert ended.code == 0, ended.output
    (line,) = [line for line in ended.output.splitlines() if "staged" in line]
    assert re.fullmatch(r"castoff: staged on 33 nodes, from \d+ s on \S+ to \d+ s on \S+", line)


def environment(folder: Path, **programs: str) -> Path:
    (folder / "bin").mkdir(parents=True)
    for name, text in programs.items():
        path = folder / "bin" / name.replace("_", "-")
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
    return folder


@pytest.mark.everyday("local")
@pytest.mark.parametrize("kind", ["local", "hydra", "srun"])
def test_an_environment_is_activated(kind: str, staging: Callable[..., Staging]) -> None:
    """Its programs come first for the ranks, and for nobody else: it may bring an mpiexec of its own."""
    here = staging(kind)
    wrong = "echo wrong program; exit 9"
    env = environment(
        here.source / "env",
        tool='echo "tool in $(cd "$(dirname "$0")/.." && pwd), $(cat "$(dirname "$0")/unpacked")"',
        conda_unpack='command -v conda-unpack >"$(dirname "$0")/unpacked"; echo unpacking',
        mpiexec=wrong, srun=wrong, castoff=wrong, timeout=wrong,
    )  # fmt: skip
    archive = here.source / "env.tar.gz"
    subprocess.run(["tar", "-czf", archive, "-C", env, "."], check=True)
    ended = here.run({"from": str(archive), "activate": True}, command=["tool"])
    assert ended.code == 0, ended.output
    (log,) = (ended.run_dir / "logs" / "0.0").glob("rank-*")
    place = f"{here.storage}/castoff-{ended.record('start')['job']}.0.0/env"
    assert log.read_text() == f"tool in {place}, {place}/bin/conda-unpack\n"


def test_the_temporary_folder_is_the_default(staging: Callable[..., Staging], tmp_path: Path) -> None:
    here = staging("srun")
    here.bench.site = msgspec.structs.replace(here.bench.site, local_storage=None)
    ended = here.run(here.item("words"), command=["sh", "-c", SHOW], env={"TMPDIR": str(here.storage)})
    assert ended.code == 0, ended.output
    assert (here.bench.seen / "words-0").read_text() == "text\n"


READ_ONLY = """#!/bin/sh
exec unshare --mount --propagation private sh -euc '
mkdir "$1/$(id -un)"
mount --bind "$1" "$1"
mount -o remount,bind,ro "$1"
mount -t tmpfs tmpfs "$1/$(id -un)"
shift
exec /bin/bash "$@"' sh {storage} "$@"
"""


def test_a_folder_in_the_users_name(staging: Callable[..., Staging]) -> None:
    """As on Frontier, where each user has a folder in one that only root may write."""
    if os.geteuid() != 0:
        pytest.skip("only root can make a file system read-only")
    here = staging("local")
    here.bench.stub("bash", READ_ONLY.format(storage=shlex.quote(str(here.storage))))
    ended = here.run(here.item("words"), command=PROBE)
    assert ended.code == 0, ended.output
    user = subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip()
    place = here.bench.ranks()[0]["environ"]["CASTOFF_STAGE_DIR"]
    assert place.startswith(f"{here.storage}/{user}/castoff-local-")
    (here.storage / user).rmdir()


# What goes wrong


def failed(here: Staging, ended: Ended, *texts: str, host: str | None = None, code: int = 1) -> None:
    """Staging failed, was recorded as a rank's failure would be, and no rank was started."""
    assert ended.ending == ("failed", code), ended.output
    assert ended.code == code
    for text in texts:
        assert text in ended.output
    failure = ended.record("failure")
    assert (failure["program"], failure["code"], failure["log"]) == ("staging", code, "stage.log")
    assert failure["host"] == (host or os.uname().nodename)
    assert "and no rank was started" in ended.output
    assert here.bench.ranks() == [] and list(here.bench.seen.glob("words-*")) == []


def test_what_is_not_there(staging: Callable[..., Staging]) -> None:
    here = staging("srun")
    ended = here.run({"from": "it's gone.tar.gz"}, command=["sh", "-c", SHOW])
    failed(here, ended, f"stage: on {os.uname().nodename}: there is no file or folder ./it's gone.tar.gz")
    assert here.bench.calls("srun") == []  # one look is enough


@pytest.mark.everyday("srun-words.tar")
@pytest.mark.parametrize("name", ["words", "words.tar"])
@pytest.mark.parametrize("kind", others_long(["local", "hydra", "srun"], ["srun"]))
def test_a_wrong_sum(kind: str, name: str, staging: Callable[..., Staging]) -> None:
    here = staging(kind)
    ended = here.run(here.item(name, sha256="ab" * 32), command=["sh", "-c", SHOW])
    true = sha256(here.source / name)
    failed(here, ended, f"{name} has the SHA-256 sum {true}, and not {'ab' * 32}")


def test_the_sum_of_a_folder(staging: Callable[..., Staging]) -> None:
    here = staging("local")
    filled(here.source / "tree")
    ended = here.run({"from": f"{here.source}/tree", "sha256": "ab" * 32}, command=["sh", "-c", SHOW])
    failed(here, ended, f"{here.source}/tree is a folder, and a sha256 is a file's")


def test_an_archive_that_is_none(staging: Callable[..., Staging]) -> None:
    here = staging("srun")
    ended = here.run(here.item("words.tar.gz", "no archive"), command=["sh", "-c", SHOW])
    failed(
        here, ended, "gzip: stdin: not in gzip format", f"cannot unpack {here.source}/words.tar.gz", code=2
    )


def test_an_environment_that_is_none(staging: Callable[..., Staging]) -> None:
    here = staging("srun")
    filled(here.source / "env")
    ended = here.run({"from": f"{here.source}/env", "activate": True}, command=["sh", "-c", SHOW])
    failed(here, ended, f"{here.source}/env is to be activated, but has no bin")


@pytest.mark.everyday("pals")
@pytest.mark.parametrize("kind", SEVERAL_NODES)
def test_no_room_on_one_node(kind: str, staging: Callable[..., Staging]) -> None:
    here = staging(kind, nodes=3)
    (here.storage.parent / f"{here.storage.name}.2").rmdir()  # the stub gives it 64 KiB
    words = here.item("words", "x" * 3_000_000)
    ended = here.run(words, nodes=3, command=["sh", "-c", SHOW])
    text = f"castoff: stage: on x2: {here.storage} has 0.1 MiB free, and stage needs at least 2.9 MiB"
    failed(here, ended, text, host="x2")


def test_no_room_after_all(staging: Callable[..., Staging]) -> None:
    """An archive says less than it holds."""
    here = staging("srun", nodes=2)
    (here.storage.parent / f"{here.storage.name}.1").rmdir()
    (here.source / "words").write_bytes(bytes(3_000_000))
    archive = here.source / "words.tar.gz"
    subprocess.run(["tar", "-czf", archive, "-C", here.source, "words"], check=True)
    ended = here.run({"from": str(archive)}, nodes=2, command=["sh", "-c", SHOW])
    failed(
        here,
        ended,
        "tar: words: Wrote only 512 of 10240 bytes",
        "stage: on x1: cannot unpack",
        host="x1",
        code=2,
    )


def test_no_such_storage(staging: Callable[..., Staging]) -> None:
    here = staging("srun")
    gone = f"{here.storage}/gone"
    here.bench.site = msgspec.structs.replace(here.bench.site, local_storage=gone)
    ended = here.run(here.item("words"), command=["sh", "-c", SHOW])
    failed(here, ended, f"there is no folder {gone} that can be written")


@pytest.mark.everyday("folder")
@pytest.mark.parametrize("what", ["folder", "link", "file"])
def test_a_place_that_is_taken(what: str, staging: Callable[..., Staging]) -> None:
    here = staging("srun")
    place, other = here.storage / "castoff-12.0.0", here.source / "somebody's"
    other.mkdir()
    (other / "precious").touch()
    if what == "link":
        place.symlink_to(other)
    elif what == "folder":
        place.mkdir()
        (place / "precious").touch()
    else:
        place.touch()
    ended = here.run(here.item("words"), command=["sh", "-c", SHOW])
    failed(here, ended, f"cannot make {place} anew")
    assert (other / "precious").exists()
    assert what != "folder" or (place / "precious").exists()
    if place.is_symlink() or place.is_file():
        place.unlink()
    else:
        shutil.rmtree(place)


def test_nodes_that_share_their_storage(staging: Callable[..., Staging]) -> None:
    """A folder that all nodes see is none of their own: the second one to come says so."""
    here = staging("srun")
    ended = here.run(here.item("words"), nodes=2, command=["sh", "-c", SHOW])
    failed(here, ended, f"is {here.storage} really a folder of this node alone?")


def test_a_copy_that_is_short(staging: Callable[..., Staging]) -> None:
    here = staging("srun")
    filled(here.source / "tree")
    here.bench.stub("cp", f'{NO_STAGING}/bin/cp "$@" || exit\nfor last; do :; done\nrm "$last/one"\n')
    ended = here.run({"from": f"{here.source}/tree"}, command=["sh", "-c", SHOW])
    failed(here, ended, f"the copy of {here.source}/tree has 4 files of 12000 bytes, the original 5 of 15000")


@pytest.mark.long
def test_a_link_out_of_the_folder(staging: Callable[..., Staging]) -> None:
    """As in a model's cache: the copy would hold a link to nothing."""
    here = staging("srun")
    (here.source / "blobs").mkdir()
    (here.source / "blobs" / "one").touch()
    (here.source / "model").mkdir()
    (here.source / "model" / "it's").symlink_to("../blobs/one")
    ended = here.run({"from": f"{here.source}/model"}, command=["sh", "-c", SHOW])
    failed(here, ended, f"{here.source}/model/it's is a link out of the folder, so the copy lacks it")
    both = staging("srun", folder="both", name="local-2")
    assert both.run({"from": str(here.source)}, command=["true"]).code == 0


CP = f"""{NO_STAGING}
if [ "$(hostname)" = x1 ]; then
  until [ -e "$PROBE_FOLDER/copying" ]; do sleep 0.05; done
  exit 7
fi
: >"$PROBE_FOLDER/copying"
exec sleep 86400
"""


@pytest.mark.everyday("pals")
@pytest.mark.parametrize("kind", SEVERAL_NODES)
def test_one_node_that_fails_ends_the_others(kind: str, staging: Callable[..., Staging]) -> None:
    here = staging(kind, nodes=2)
    here.bench.stub("cp", CP)
    ended = here.run(here.item("words"), nodes=2, command=["sh", "-c", SHOW])
    failed(here, ended, "stage: on x1: cannot copy", host="x1", code=7)


def test_a_launcher_that_starts_nothing(staging: Callable[..., Staging]) -> None:
    here = staging("srun")
    here.bench.stub("srun", "#!/bin/sh\necho srun: error: no nodes >&2\nexit 6\n")
    ended = here.run(here.item("words"))
    assert ended.ending == ("failed", 6)
    assert "srun: error: no nodes" in ended.output and "staging failed: 0 of 1 node did it" in ended.output
    silent = staging("srun", folder="silent", name="local-2")
    silent.bench.stub("srun", "#!/bin/sh\nexit 0\n")
    assert silent.run(silent.item("words")).ending == ("failed", 1)


# However it ends


@pytest.mark.everyday("*-pals")
@pytest.mark.parametrize("kind", ONE_NODE)
@pytest.mark.parametrize(("does", "ending"), [("outcome done", "done"), ("fail 0 3", "failed")])
def test_it_is_gone_afterwards(kind: str, does: str, ending: str, staging: Callable[..., Staging]) -> None:
    here = staging(kind)
    ended = here.run(here.item("words"), command=PROBE, env={"PROBE": does})
    assert ended.ending[0] == ending, ended.output
    assert here.bench.ranks()[0]["environ"]["CASTOFF_STAGE_DIR"].startswith(f"{here.storage}/castoff-")
    assert here.left() == []
    assert "may still be there" not in ended.output


@pytest.mark.everyday("local")
@pytest.mark.parametrize("kind", others_long(KINDS, ("local", "pals", "srun")))
def test_it_is_gone_after_a_cancelled_job(kind: str, staging: Callable[..., Staging]) -> None:
    nodes = 3 if kind in SEVERAL_NODES else 1
    here = staging(kind, nodes=nodes)
    ranks = 2 * nodes
    running = here.start(
        here.item("words"), command=PROBE, nodes=nodes, ranks_per_node=2, env={"PROBE": "wait resume"}
    )
    running.wait_for("ready", ranks)
    assert len(here.left()) == nodes
    running.process.send_signal(signal.SIGUSR2)
    running.wait_for("stopping", ranks)
    running.process.send_signal(signal.SIGTERM)
    ended = running.end()
    assert ended.ending == ("cancelled", 143)
    assert here.left() == []
    assert "may still be there" not in ended.output


@pytest.mark.long
@pytest.mark.parametrize("kind", SEVERAL_NODES)
def test_it_is_gone_from_every_node(kind: str, staging: Callable[..., Staging]) -> None:
    here = staging(kind, nodes=3)
    ended = here.run(here.item("words"), nodes=3, env={"PROBE": "fail 1 3"}, command=PROBE)
    assert ended.ending == ("failed", 3)
    assert here.left() == []


@pytest.mark.parametrize("kind", ONE_NODE)
def test_term_while_it_is_staged(kind: str, staging: Callable[..., Staging]) -> None:
    here = staging(kind)
    env = environment(here.source / "env", conda_unpack=': >"$PROBE_FOLDER/ready-0"; exec sleep 86400')
    running = here.start({"from": str(env), "activate": True}, command=["sh", "-c", SHOW])
    running.wait_for("ready", 1)
    running.process.terminate()
    ended = running.end()
    assert ended.ending == ("cancelled", 143), ended.output
    assert here.left() == [] and list(here.bench.seen.glob("words-*")) == []
    assert not (ended.run_dir / "attempts" / "0.0" / "failure.json").exists()


@pytest.mark.long
def test_the_last_rank_of_a_node_cleans_it(staging: Callable[..., Staging]) -> None:
    """One that ends early leaves it to the others; no second step is started for it."""
    here = staging("srun", nodes=2)
    program = 'sleep "0.$RANK"; cat "$CASTOFF_STAGE_DIR/words"'
    ended = here.run(here.item("words"), nodes=2, ranks_per_node=4, command=["sh", "-c", program])
    assert ended.code == 0, ended.output
    assert here.left() == []
    assert len(here.bench.calls("srun")) == 2


def test_a_node_that_had_it_all_when_the_job_was_cancelled_is_named(staging: Callable[..., Staging]) -> None:
    """Slurm starts nothing more there then, and no rank has begun that could clean up."""
    here = staging("srun", nodes=2)
    slow = '[ "$(hostname)" = x1 ] || { touch "$PROBE_FOLDER/ready-0"; exec sleep 86400; }'
    env = environment(here.source / "env", conda_unpack=slow)
    running = here.start({"from": str(env), "activate": True}, nodes=2, command=["true"])
    running.wait_for("ready", 1)
    log = here.bench.run_dir() / "logs" / "0.0" / "stage.log"
    while "s on x1" not in log.read_text():
        time.sleep(0.02)
    running.process.terminate()
    ended = running.end()
    assert ended.ending == ("cancelled", 143)
    (left,) = here.left()
    assert ".1/castoff-12.0.0" in left
    place = f"{here.storage}/castoff-12.0.0"
    assert f"castoff: {place} may still be there on nodes that had it all already: 1\n" in ended.output
    shutil.rmtree(left)


def test_folders_that_nobody_may_write_are_removed_too(staging: Callable[..., Staging]) -> None:
    here = staging("srun")
    tree = filled(here.source / "tree")
    for folder in (tree / "a b", tree):
        folder.chmod(0o555)
    ended = here.run({"from": str(tree)}, command=["true"])
    assert ended.code == 0 and here.left() == []


def test_files_that_cannot_be_removed_are_reported(staging: Callable[..., Staging]) -> None:
    here = staging("srun")
    here.bench.stub("rm", "#!/bin/sh\nexit 1\n")
    ended = here.run(here.item("words"), command=["true"])
    assert ended.ending == ("done", 0)
    (left,) = here.left()
    assert f"stage: on {os.uname().nodename}: cannot remove all of {left}" in ended.output
    assert f"castoff: {left} may still be there on some node" in ended.output
    shutil.rmtree(left)


# Of folders: the script removes small files of its own as well.
ENDLESS_REMOVAL = """#!/bin/sh
[ "$1" = -rf ] || exec /bin/rm "$@"
: >"$PROBE_FOLDER/removing-0"
exec sleep 86400
"""


@pytest.mark.long
def test_cleaning_takes_no_longer_than_it_may(staging: Callable[..., Staging]) -> None:
    """PBS kills 10 s after a TERM: the ending must be written before."""
    here = staging("srun")
    here.bench.stub("rm", ENDLESS_REMOVAL)
    running = here.start(here.item("words"), command=PROBE, env={"PROBE": "wait done"})
    running.wait_for("ready", 1)
    running.process.send_signal(signal.SIGUSR2)
    running.wait_for("stopping", 1)
    running.process.send_signal(signal.SIGTERM)
    ended = running.end()
    assert ended.ending == ("done", 0)
    (left,) = here.left()
    assert (
        f"castoff: {left} may still be there on some node: removing it failed or took over 4 s"
        in ended.output
    )
    shutil.rmtree(left)


@pytest.mark.parametrize(("kind", "ending"), [("local", ("done", 0)), ("hydra", ("cancelled", 143))])
def test_a_signal_ends_the_cleaning(
    kind: str, ending: tuple[str, int], staging: Callable[..., Staging]
) -> None:
    """Where the ranks themselves clean up, they have not ended before."""
    here = staging(kind)
    here.bench.stub("rm", ENDLESS_REMOVAL)
    running = here.start(here.item("words"), command=["true"])
    running.wait_for("removing", 1)
    running.process.terminate()
    ended = running.end()
    assert ended.ending == ending
    (left,) = here.left()
    shutil.rmtree(left)


# Attempts, members, and containers


@pytest.mark.long
def test_each_attempt_stages_anew_and_is_cleaned_before_the_next(staging: Callable[..., Staging]) -> None:
    here = staging("srun")
    asked = 'test "$1" = requeue && ls -d "$STUB_LOCAL"/* >"$PROBE_FOLDER/left-at-requeue"'
    here.bench.stub("scontrol", f"#!/bin/sh\nif [ $1 = show ]; then echo x0; else {asked}; exit 0; fi\n")
    places = []
    for attempt in range(2):
        env = {
            "PROBE": "outcome resume",
            "SLURM_RESTART_COUNT": str(attempt),
            "STUB_LOCAL": str(here.storage),
        }
        ended = here.run(here.item("words"), command=PROBE, requeue={"max": 1}, env=env)
        places.append(Path(here.bench.ranks()[0]["environ"]["CASTOFF_STAGE_DIR"]).name)
        assert ended.record("ending", f"0.{attempt}")["ending"] == ("resume", "walltime")[attempt]
    assert places == ["castoff-12.0.0", "castoff-12.0.1"]
    assert (here.bench.seen / "left-at-requeue").read_text() == ""


def test_members_do_not_meet(staging: Callable[..., Staging]) -> None:
    here = staging("hydra")
    here.bench.array_index = 3
    ended = here.run(here.item("words"), array={"count": 4}, command=PROBE)
    assert ended.code == 0, ended.output
    assert here.bench.ranks()[0]["environ"]["CASTOFF_STAGE_DIR"] == f"{here.storage}/castoff-7[].head.3.0"


def test_nothing_is_staged_without_being_asked_for(bench: Benches) -> None:
    here = bench("srun")
    assert here.run().code == 0
    assert "CASTOFF_STAGE_DIR" not in here.ranks()[0]["environ"]
    assert len(here.calls("srun")) == 1


@pytest.mark.long
def test_words_of_a_job_reach_the_shell_as_they_are(staging: Callable[..., Staging]) -> None:
    """Whatever stands in `from` and `to`."""
    here = staging("srun")
    names = ["it's", "$(touch x)", "`id`", "a;b", "*", "-rf", 'say "hi"', "\\", "#", "new\tline"]
    items = [here.item(name, to=f"{number} {name}") for number, name in enumerate(names)]
    ended = here.run(*items, command=["sh", "-c", 'ls -A "$CASTOFF_STAGE_DIR" --quoting-style=literal'])
    assert ended.code == 0, ended.output
    listed = (ended.run_dir / "logs" / "0.0" / "rank-00000.log").read_text().splitlines()
    assert sorted(listed) == sorted([".castoff", *(f"{number} {name}" for number, name in enumerate(names))])
