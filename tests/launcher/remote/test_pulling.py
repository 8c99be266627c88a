"""What castoff pull lists on a machine, and what it makes of messages here, whatever the machine sends."""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from castoff.launcher.errors import CastoffError
from castoff.launcher.process.locks import locked
from castoff.launcher.remote import pulling, results
from castoff.launcher.remote.messages import (
    MOST_LISTED,
    ConnectionLost,
    Files,
    Item,
    Listed,
    Message,
    Part,
    Result,
    Results,
    Send,
    UnexpectedMessage,
    Wanted,
    Whole,
)
from castoff.launcher.remote.pulling import Pull
from castoff.launcher.remote.results import Sender

from ..fake_slurm import OnSlurm

NOT_ON_A_MAC = pytest.mark.skipif(sys.platform == "darwin", reason="its file systems take other names")


class Far:
    """A machine, by the messages of its castoff: a real `Sender`'s, or those of a test."""

    def __init__(self, listed: Sequence[Message] = (), answers: Sequence[Message | Exception] = ()):
        self.sent = 0
        """The bytes of files that were sent."""
        self.doing = ""
        self.listed_then: Callable[[], object] = lambda: None
        self._sender = Sender()
        self._answers: Iterator[Any] = iter((*listed, *answers))
        self._is_scripted = bool(listed)

    @contextlib.contextmanager
    def session(self, _typed: list[str]) -> Iterator[Far]:
        yield self

    def ask(self, message: Message, _doing: str) -> Message:
        assert isinstance(message, Wanted)
        if not self._is_scripted:
            self._answers = self._sender.find(message.run, message.selectors, message.patterns, os.environ)
        first = self.answer()
        self.listed_then()
        return first

    def send(self, message: Message) -> None:
        assert isinstance(message, Send)
        if not self._is_scripted:
            self._answers = self._sender.send(message.items)

    def answer(self) -> Message:
        answer = next(self._answers)
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, Part | Whole):
            self.sent += len(answer.data)
        found: Message = answer
        return found


def pull(far: Far, to: Path, run: str = "run", *patterns: str, selectors: Sequence[str] = ()) -> Pull:
    machine: Any = SimpleNamespace(session=far.session)
    found = Pull(machine, Wanted(run, [*selectors], [*patterns]), to, lambda _: None)
    found.once(["castoff"])
    return found


def listing(*files: Result) -> list[Message]:
    return [Listed("run", False, [Results("run", len(files), [], [])]), Files([*files])]


def whole(data: bytes, at: int = 0, before: bytes = b"") -> Whole:
    return Whole(at, data, hashlib.sha256(before + data).digest(), 10**18)


def inside(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.fixture
def there(tmp_path: Path) -> Path:
    """A run directory on the machine."""
    return OnSlurm(tmp_path).run.path


# Names


@pytest.mark.parametrize(
    "name",
    [b"../x", b"/etc/x", b"a/../../x", b"", b".", b"a//b", b"a/./b", b"x\0", b"link/x", b".castoff-pull/x"],
)
def test_no_name_leads_out_of_the_folder(name: bytes, tmp_path: Path) -> None:
    to, outside = tmp_path / "to", tmp_path / "outside"
    to.mkdir()
    outside.mkdir()
    (to / "link").symlink_to(outside)
    pulled = pull(Far(listing(Result(name, 1, 0, 0o644)), [whole(b"x")]), to)
    assert len(pulled.failed) == 1 and not pulled.fetched
    assert inside(tmp_path) == {"to", "outside"} and not inside(outside)


@pytest.mark.parametrize("name", [b"a\nb \x1b[31m", pytest.param(b"\xff", marks=NOT_ON_A_MAC)])
def test_odd_names_are_only_odd(name: bytes, tmp_path: Path) -> None:
    far = Far(listing(Result(name, 1, 0, 0o644)), [whole(b"x")])
    pulled = pull(far, tmp_path)
    assert (tmp_path / os.fsdecode(name)).read_text() == "x"
    assert "".join(pulled.fetched).isprintable()


def test_a_name_that_the_disk_does_not_take(tmp_path: Path) -> None:
    pulled = pull(
        Far(listing(Result(b"x" * 300, 1, 0, 0o644), Result(b"y", 1, 0, 0o644)), [whole(b"y")]), tmp_path
    )
    assert pulled.failed[0].why == "its name cannot be one here: File name too long"
    assert [*pulled.fetched] == ["y"]


def test_a_link_here_is_replaced_and_a_folder_stays(tmp_path: Path) -> None:
    secret, to = tmp_path / "secret", tmp_path / "to"
    secret.write_text("mine")
    (to / "folder").mkdir(parents=True)
    (to / "link").symlink_to(secret)
    wanted = listing(Result(b"folder", 1, 0, 0o644), Result(b"link", 1, 0, 0o644))
    pulled = pull(Far(wanted, [whole(b"x")]), to)
    assert secret.read_text() == "mine" and (to / "link").read_text() == "x"
    assert not (to / "link").is_symlink()
    assert [(one.name, one.why) for one in pulled.failed] == [("folder", "is a folder here")]


@NOT_ON_A_MAC
def test_names_that_are_one_on_this_disk(tmp_path: Path) -> None:
    """As on a Mac's; here both are links to one file."""
    far = Far(listing(Result(b"A", 1, 0, 0o644), Result(b"a", 2, 0, 0o644)), [whole(b"x"), whole(b"yy")])
    (tmp_path / "a").touch()
    place = pulling._Folder._place

    def as_on_a_mac(folder: pulling._Folder, draft: Path, final: Path) -> str | None:
        why = place(folder, draft, final)
        (tmp_path / "a").unlink(missing_ok=True)
        os.link(tmp_path / "A", tmp_path / "a")
        return why

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pulling._Folder, "_place", as_on_a_mac)
        pulled = pull(far, tmp_path)
    assert (tmp_path / "A").read_text() == "x" and [one.name for one in pulled.failed] == ["a"]


@pytest.mark.parametrize("run", ["..", "a/b", "", "a\nb"])
def test_a_run_has_a_name_for_a_folder(run: str, tmp_path: Path) -> None:
    with pytest.raises(UnexpectedMessage, match="a run that cannot be one"):
        pull(Far([Listed(run, False, [])]), tmp_path)


# Contents


def test_only_what_is_new_of_a_log_that_grows(there: Path, tmp_path: Path) -> None:
    log, to = there / "logs" / "job-0.log", tmp_path / "to"
    log.parent.mkdir(exist_ok=True)
    log.write_bytes(b"1234567890" * 1000)
    pull(Far(), to, str(there), "logs")
    with log.open("ab") as file:
        file.write(b"new")
    far = Far()
    pull(far, to, str(there), "logs")
    assert far.sent == 3 and (to / "logs/job-0.log").read_bytes() == log.read_bytes()
    log.write_bytes(b"another, longer than before" * 1000)
    far = Far()
    pull(far, to, str(there), "logs")
    assert far.sent == log.stat().st_size and (to / "logs/job-0.log").read_bytes() == log.read_bytes()
    log.write_bytes(b"short")
    pull(Far(), to, str(there), "logs")
    assert (to / "logs/job-0.log").read_bytes() == b"short"
    assert not (to / ".castoff-pull").exists()


def test_what_has_arrived_is_kept_and_continued(there: Path, tmp_path: Path) -> None:
    (there / "model").write_bytes(os.urandom(3 << 20))
    content, to = (there / "model").read_bytes(), tmp_path / "to"
    wanted = listing(Result(b"model", len(content), 0, 0o644))
    cut: list[Message | Exception] = [
        Part(0, content[:1000]),
        Part(1000, content[1000:2000]),
        ConnectionLost(""),
    ]
    with pytest.raises(ConnectionLost):
        pull(Far(wanted, cut), to)
    assert not (to / "model").exists()
    far = Far()
    pulled = pull(far, to, str(there), "model")
    assert far.sent == len(content) - 2000 and (to / "model").read_bytes() == content
    assert [*pulled.fetched] == ["model"] and inside(to) == {"model"}


def test_another_content_of_the_same_length_is_sent_whole(there: Path, tmp_path: Path) -> None:
    (there / "model").write_bytes(b"new content")
    (tmp_path / "model").write_bytes(b"old content")
    pull(Far(), tmp_path, str(there), "model")
    assert (tmp_path / "model").read_bytes() == b"new content"


def test_a_damaged_file_gets_no_name(tmp_path: Path) -> None:
    far = Far(listing(Result(b"x", 3, 0, 0o644)), [Whole(0, b"abc", b"another", 0)])
    assert pull(far, tmp_path).failed[0].why == "arrived damaged; call the command again"
    assert not inside(tmp_path)


@pytest.mark.parametrize(
    "answers", [[whole(b"more than it said")], [Part(5, b"x")], [Part(0, b"a"), Part(0, b"b")]]
)
def test_a_machine_that_sends_something_else(answers: list[Message], tmp_path: Path) -> None:
    with pytest.raises(UnexpectedMessage):
        pull(Far(listing(Result(b"x", 3, 0, 0o644)), answers), tmp_path)
    assert not (tmp_path / "x").exists()


def test_a_file_that_cannot_be_read_does_not_end_the_others(there: Path, tmp_path: Path) -> None:
    (there / "a").write_text("a")
    (there / "b").write_text("b")
    far = Far()
    far.listed_then = (there / "a").unlink
    pulled = pull(far, tmp_path, str(there), "a", "b")
    assert [(one.name, one.why) for one in pulled.failed] == [
        ("a", "cannot be read there: No such file or directory")
    ]
    assert (tmp_path / "b").read_text() == "b" and not (tmp_path / ".castoff-pull").exists()


def test_a_file_is_never_whole_in_memory(there: Path, tmp_path: Path) -> None:
    with (there / "model").open("wb") as file:
        file.truncate(64 << 20)
    tracemalloc.start()
    pull(Far(), tmp_path, str(there), "model")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (tmp_path / "model").stat().st_size == 64 << 20 and peak < 32 << 20


def test_one_pull_writes_a_file_at_a_time(there: Path, tmp_path: Path) -> None:
    (there / "model").write_text("x")
    draft = tmp_path / ".castoff-pull" / hashlib.sha256(b"model").hexdigest()[:32]
    draft.parent.mkdir()
    with locked(draft), pytest.raises(CastoffError, match="another castoff pull writes there now"):
        pull(Far(), tmp_path, str(there), "model")


def test_a_full_disk_is_this_folders(there: Path, tmp_path: Path) -> None:
    (there / "model").write_text("x")
    (tmp_path / "to").write_text("a file")
    with pytest.raises(CastoffError, match=r"to/model: cannot be written: Not a directory"):
        pull(Far(), tmp_path / "to", str(there), "model")


def test_modes_are_the_owners_alone(there: Path, tmp_path: Path) -> None:
    (there / "run.sh").write_text("x")
    (there / "run.sh").chmod(0o777)
    (there / "plain").write_text("x")
    (there / "plain").chmod(0o444)
    pull(Far(), tmp_path, str(there), "run.sh", "plain")
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in ("run.sh", "plain")] == [0o700, 0o600]


# Lists


def names(there: Path, *patterns: str) -> set[str]:
    _, *listed = Sender().find(str(there), [], [*patterns], os.environ)
    return {os.fsdecode(file.name) for one in listed if isinstance(one, Files) for file in one.files}


def test_secrets_are_never_sent(there: Path) -> None:
    (there / "secrets.sh").write_text("export TOKEN=1\n")
    (there / "code").mkdir()
    (there / "code" / "train.py").touch()
    assert names(there, "*").isdisjoint({"secrets.sh", "local.lock"}) and "code/train.py" in names(there, "*")
    assert "secrets.sh" not in names(there) and "code/train.py" not in names(there)
    assert names(there, "secrets.sh") == set()


@pytest.mark.parametrize("pattern", ["../*", "a/../../b", "/etc/passwd", "~/x", "", "."])
def test_a_pattern_stays_in_its_folder(there: Path, pattern: str) -> None:
    with pytest.raises(CastoffError, match=r"is a path outside|is not a pattern for files"):
        names(there, pattern)


def test_a_pattern_that_only_newer_pythons_know(there: Path) -> None:
    with contextlib.suppress(CastoffError):
        assert names(there, "a**") == set()


def test_large_files_and_links_come_if_they_are_named(there: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "LARGE", 10)
    (there / "model.pt").write_text("x" * 11)
    (there / "latest.pt").symlink_to("model.pt")
    (there / "folder").symlink_to("attempts")
    listed = next(Sender().find(str(there), [], [], os.environ))
    assert isinstance(listed, Listed)
    assert {b"model.pt", b"latest.pt", b"folder"} <= {one.name for one in listed.runs[0].left_out}
    assert not {"model.pt", "latest.pt"} & names(there)
    assert names(there, "*.pt") == {"model.pt", "latest.pt"}


def test_members_have_files_of_their_own(tmp_path: Path) -> None:
    there = OnSlurm(tmp_path, members=3)
    for member in range(3):
        there.attempt(f"{member}.0")
        (there.run.path / "logs" / f"{member}.0").mkdir(parents=True)
        (there.run.path / "logs" / f"{member}.0" / "rank-00000.log").touch()
        (there.run.path / "logs" / f"job-{member}.log").touch()
    found = names(Path(f"{there.run.path}:1"))
    assert {"job.sh", "logs/job-1.log", "logs/1.0/rank-00000.log", "attempts/1.0/start.json"} <= found
    assert not [name for name in found if name.startswith(("logs/0", "logs/2", "attempts/0", "logs/job-0"))]


def test_a_pipe_or_a_dead_link_is_no_file(there: Path) -> None:
    os.mkfifo(there / "pipe")
    (there / "dead").symlink_to("nothing")
    assert names(there, "pipe", "dead") == set() and not {"pipe", "dead"} & names(there)


def test_too_many_files_are_refused(there: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "_MOST_FILES", 1)
    with pytest.raises(CastoffError, match=r"too many files \(at most 1, .*; name fewer, as in castoff pull"):
        names(there)


@pytest.mark.parametrize("files", [[], [Result(b"x", 1, 0, 0o644)] * (MOST_LISTED + 1)])
def test_a_list_that_is_none(files: list[Result], tmp_path: Path) -> None:
    announced = Listed("run", False, [Results("run", 1, [], [])])
    with pytest.raises(UnexpectedMessage, match="did not list the files"):
        pull(Far([announced, Files(files)]), tmp_path)


def test_a_list_of_several_messages(there: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "MOST_LISTED", 2)
    for number in range(5):
        (there / f"file {number}").write_text(str(number))
    pull(Far(), tmp_path, str(there), "file *")
    assert [(tmp_path / f"file {number}").read_text() for number in range(5)] == [*"01234"]


def test_a_file_that_is_not_in_the_list_is_not_sent(there: Path) -> None:
    sender = Sender()
    list(sender.find(str(there), [], [], os.environ))
    for run, number in ((0, 10**6), (1, 0), (-1, 0), (0, -1)):
        with pytest.raises(CastoffError, match="not in the list"):
            next(sender.send([Item(run, number)]))
