"""A machine whose castoff is hostile or broken: what it says is bounded, and moves no cursor here."""

from __future__ import annotations

import os
import sys
import termios
import threading
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest

from castoff.launcher.cli import elsewhere
from castoff.launcher.cli.output import print_facts
from castoff.launcher.errors import CastoffError
from castoff.launcher.remote import completing, passing, ssh
from castoff.launcher.remote.completing import words_there
from castoff.launcher.remote.entries import Entry
from castoff.launcher.remote.machine import Machine, RefusedByMachine
from castoff.launcher.remote.submission import reported_site
from castoff.launcher.remote.transient import Transient
from tests import patience

SSH = """#!/bin/sh
for word; do case $word in -G | -O) exit 0 ;; esac; done
exec /bin/sh -c "$word"
"""

REFUSES = f"""#!{sys.executable}
import os, sys, time
from castoff.launcher.remote import messages
while not os.path.exists("heard"):
    time.sleep(0.01)
messages.write(sys.stdout.buffer, messages.Failed("no", 10**18))
"""

NO_END = "#!/bin/sh\nexec yes | tr -d '\\n'\n"
"""One line that never ends."""


class Far:
    """A machine whose castoff is a program of this test's."""

    def __init__(self, folder: Path):
        ssh = folder / "bin" / "ssh"
        ssh.parent.mkdir()
        ssh.write_text(SSH)
        ssh.chmod(0o755)
        self.folder = folder
        self.environ: Mapping[str, str] = {**os.environ, "PATH": f"{ssh.parent}:{os.environ['PATH']}"}

    def running(self, program: str) -> Machine:
        path = self.folder / "castoff"
        path.write_text(program)
        path.chmod(0o755)
        entry = Entry(name="far", host="far", dir=str(self.folder), castoff=str(path))
        return Machine(entry, self.environ, as_named=True)


@pytest.fixture
def far(tmp_path: Path) -> Far:
    return Far(tmp_path)


def test_silence_is_reported_and_an_error_has_a_code(far: Far, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []

    def hear(line: str) -> None:
        said.append(line)
        (far.folder / "heard").touch()  # upon which the machine answers

    monkeypatch.setattr(ssh, "_FIRST_REPORT", 0.5)
    monkeypatch.setattr(ssh, "report", hear)
    with pytest.raises(RefusedByMachine, match="far: no") as refused, far.running(REFUSES).session([]):
        pass
    assert refused.value.exit_code == 1  # the shell would have seen 0
    assert said and said[0].startswith("far: no answer yet after ")
    assert said[0].endswith("; waiting for castoff there; Ctrl-C ends the wait")


def test_on_a_terminal_silence_is_one_line_that_vanishes(far: Far, monkeypatch: pytest.MonkeyPatch) -> None:
    leader, follower = os.openpty()
    monkeypatch.setattr(ssh, "_FIRST_REPORT", 0.05)
    monkeypatch.setattr(ssh, "_UPDATE", 0.01)
    shown = b""
    with os.fdopen(follower, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)

        def read() -> None:
            nonlocal shown
            while shown.count(b"waiting for") < 3:
                shown += os.read(leader, 1000)
            (far.folder / "heard").touch()

        reader = threading.Thread(target=read)
        reader.start()
        with pytest.raises(RefusedByMachine), far.running(REFUSES).session([]):
            pass
        reader.join()
        print("after", file=terminal, flush=True)
        while not shown.endswith(b"\n"):
            shown += os.read(leader, 10_000)
    os.close(leader)
    assert b"castoff: far: waiting for castoff there: 0s" in shown and shown.count(b"\n") == 1
    assert shown.endswith(b"\r\x1b[Kafter\r\n")


def test_silence_is_not_shown_while_ssh_asks_for_a_password(monkeypatch: pytest.MonkeyPatch) -> None:
    leader, follower = os.openpty()
    with os.fdopen(follower, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        settings = termios.tcgetattr(follower)
        settings[3] &= ~termios.ECHO
        termios.tcsetattr(follower, termios.TCSANOW, settings)
        line = Transient()
        line.show("no answer yet")
        line.erase()
        print("password", file=terminal, flush=True)
        assert os.read(leader, 1000) == b"password\r\n"
    os.close(leader)


COMPLETIONS = r"""#!/bin/sh
printf 'plain,train\nplain,tr$(touch x)\nplain,tr\033[2J\nfile,tr\nplain,other\nnothing\n'
"""


def test_a_key_offers_only_harmless_words(far: Far, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completing, "_PATIENCE", patience.SECONDS)
    assert words_there(far.running(COMPLETIONS), ["logs", "tr"]) == ["train"]
    assert words_there(far.running(NO_END), ["logs", "tr"]) == []
    monkeypatch.setattr(completing, "_PATIENCE", 0.3)
    assert words_there(far.running("#!/bin/sh\nexec sleep 60 >&-\n"), ["logs", "tr"]) == []
    assert words_there(far.running("#!/bin/sh\nexit 1\n"), ["logs", "tr"]) == []


def test_an_answer_without_end_is_given_up(far: Far, tmp_path: Path) -> None:
    machine = far.running(NO_END)
    with pytest.raises(CastoffError, match="far: what `castoff wait` prints there is larger than 4"):
        passing.wait_through(passing.Passed(machine, "wait", [], None), far.environ)
    page = tmp_path / "page.html"
    with pytest.raises(CastoffError, match="far: the page is larger than 6"):
        elsewhere._report(machine, ["--output", str(page)])
    assert not page.exists()


def test_a_profile_of_too_many_values_is_refused_unread(far: Far) -> None:
    site = {"name": "far", "env": {f"NAME_{number}": "" for number in range(300_000)}}
    session = SimpleNamespace(hello=SimpleNamespace(site=site))

    with pytest.raises(CastoffError, match="far: the profile that castoff there reports has more than"):
        reported_site(session, far.running("").entry, far.environ)  # type: ignore[arg-type]


def test_what_a_machine_says_moves_no_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    print_facts(folder="/far\x1b[2J\nrun         forged")
    assert capsys.readouterr().out == "folder      /far\\x1b[2J\\nrun         forged\n"
