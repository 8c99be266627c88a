"""castoff top on a real terminal, and where it cannot be shown."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partialmethod
from pathlib import Path

import pytest

from castoff.launcher.cli import top
from castoff.launcher.runs.index import Index
from castoff.launcher.screen.app import TopApp
from castoff.launcher.screen.looking import Looker
from tests.conftest import SystemProgram
from tests.patience import until

from ..conftest import Castoff, LocalJobs
from ..terminal import on_terminal

CASTOFF = str(Path(sys.executable).with_name("castoff"))


class Screen:
    """A terminal of tmux's, on a server of its own: it shows what a command does, and its code."""

    def __init__(self, tmux: Path, folder: Path):
        self._tmux = (str(tmux), "-S", str(folder / "tmux.socket"), "-f", "/dev/null")
        self._folder = folder

    def start(self, *words: str, columns: int = 80, lines: int = 24) -> None:
        script = f"trap : INT; {shlex.join(words)}; echo code $?; exec sleep 3600"
        size = ("-x", str(columns), "-y", str(lines))
        self._call("new-session", "-d", *size, "-c", str(self._folder), "sh", "-c", script)

    def type(self, *keys: str) -> None:
        self._call("send-keys", *keys)

    def text(self) -> str:
        return self._call("capture-pane", "-p").rstrip()

    def reads(self, *words: str) -> str:
        """The screen, once it shows all of these."""

        def shows() -> str | None:
            text = self.text()
            return text if all(re.search(word, text) for word in words) else None

        return until(shows, f"never: {words}")

    def close(self) -> None:
        subprocess.run([*self._tmux, "kill-server"], capture_output=True, check=False)

    def _call(self, *words: str) -> str:
        return subprocess.run([*self._tmux, *words], capture_output=True, text=True, check=True).stdout


@pytest.fixture
def screen(
    system_program: SystemProgram, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Screen]:
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    monkeypatch.delenv("TMUX", raising=False)
    one = Screen(system_program("tmux", "tmux"), tmp_path)
    yield one
    one.close()


LOOP = """
total=1000 step=0
while [ ! -e "$CASTOFF_STOP_FILE" ]; do
  step=$((step + 1))
  echo "{\\"step\\": $step, \\"total_steps\\": $total, \\"loss\\": 0.5}" >>"$CASTOFF_METRICS_FILE"
  echo "step $step"
  sleep 0.1
done
echo resume >"$CASTOFF_OUTCOME_FILE"
"""


def test_runs_on_a_real_terminal(screen: Screen, jobs: LocalJobs) -> None:
    """One ends by itself; another's logs are followed, and it is stopped by a key."""
    short = jobs.submit("--name", "short", sh="until [ -e go ]; do sleep 0.05; done")
    loop = jobs.submit("--name", "loop", sh=LOOP)
    screen.start(CASTOFF, "top", "--interval", "1s")
    progress = r"[█░]+ +\d+% \d+/1,000"
    screen.reads("castoff top, 2 running", rf"loop\S+ +running +{progress} +0.5", r"short\S+ +running")
    (jobs.folder / "go").touch()
    screen.reads("1 running, 1 ended", r"short\S+ +done")
    screen.type("l")
    screen.reads(r"\[0\] step \d+")
    screen.type("C-c")
    screen.reads("castoff top, 1 running", "q quit")
    screen.type("Enter")
    screen.reads(re.escape(loop.id), "── the end of rank 0's log", rf"step +{progress}", "hosts .* rank 0")
    screen.type("s")
    screen.reads("Ask loop-.* to save and stop")
    screen.type("y")
    screen.reads("state +ended, resume")
    assert jobs.wait(loop)["ending"] == "resume" and jobs.wait(short)["ending"] == "done"
    screen.type("Escape")
    screen.reads("castoff top, 2 ended")
    screen.type("q")
    screen.reads("code 0")


@pytest.mark.long
def test_ctrl_z_leaves_it_to_the_shell(screen: Screen, castoff: Castoff) -> None:
    screen.start("env", "PS1=here> ", "sh", "-i")
    screen.reads("here>")
    screen.type(f"{CASTOFF} top", "Enter")
    screen.reads("no runs yet", "q quit")
    screen.type("C-z")
    screen.reads("Stopped")
    screen.type("fg", "Enter")
    screen.reads("no runs yet", "q quit")
    screen.type("q")
    screen.reads("here> ?$")


@pytest.mark.long
def test_a_shell_and_the_logs_of_what_is_over(screen: Screen, jobs: LocalJobs) -> None:
    run = jobs.submit("--name", "loop", sh=LOOP)
    screen.start("env", "SHELL=/bin/sh", "PS1=here> ", "PAGER=less", CASTOFF, "top", "--interval", "1s")
    screen.reads(r"loop\S+ +running")
    screen.type("x")
    screen.reads("[#$>]$")
    screen.type('echo "rank $RANK of $WORLD_SIZE"; exit', "Enter")
    screen.reads("castoff top, 1 running")
    jobs.castoff("stop", run.path)
    screen.reads(r"loop\S+ +resume")
    screen.type("l")
    screen.reads(r"\[0\] step 1\n")  # from its beginning, by the pager
    screen.type("q")
    screen.reads("castoff top, 1 ended")
    screen.type("C-c")
    screen.reads("code 130")


@pytest.mark.long
@pytest.mark.parametrize("aside", [False, True], ids=["on the screen", "beside its logs"])
def test_one_that_is_terminated_leaves_the_terminal_as_it_was(
    screen: Screen, jobs: LocalJobs, aside: bool
) -> None:
    jobs.submit("--name", "loop", sh=LOOP)
    pid = jobs.folder / "pid"
    screen.start("sh", "-c", f"echo $$ >{pid}; exec {CASTOFF} top --interval 1s")
    screen.reads(r"loop\S+ +running")
    if aside:
        screen.type("l")
        screen.reads(r"\[0\] step \d+")
    os.kill(int(pid.read_text()), signal.SIGTERM)
    text = screen.reads("code 143")
    assert "castoff top" not in text  # it was on the other screen


@pytest.mark.everyday("colours")
@pytest.mark.parametrize("env", [{"NO_COLOR": "1"}, {}], ids=["plain", "colours"])
def test_without_colours(castoff: Castoff, tmp_path: Path, env: dict[str, str]) -> None:
    """The cursor is reversed, and what counts is in words; a background is the terminal's own in any case."""
    answer = on_terminal(CASTOFF, "top", cwd=tmp_path, columns=80, env=env, then=[("no runs yet", "q")])
    assert answer.code == 0
    codes = [code for one in re.findall(r"\x1b\[([\d;]+)m", answer.output) for code in one.split(";")]
    assert not {"40", "48", "38"} & {*codes}


@pytest.mark.parametrize("env", [{"TERM": "dumb"}, None])
def test_where_there_is_no_screen(castoff: Castoff, tmp_path: Path, env: dict[str, str] | None) -> None:
    said = "castoff: castoff top needs a terminal that can show a screen; `castoff list` prints a table\n"
    if env is None:
        answer = castoff("top")
        assert (answer.returncode, answer.stderr) == (1, said)
    else:
        found = on_terminal(CASTOFF, "top", cwd=tmp_path, env=env)
        assert (found.code, found.output) == (1, said)


def test_without_its_package(castoff: Castoff, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(top, "is_terminal", lambda _: True)
    monkeypatch.setattr(top, "find_spec", lambda name: None)
    answer = castoff("top", env={"TERM": "xterm"})
    assert answer.returncode == 1
    assert "needs the package textual" in answer.stderr
    assert "python -m pip install 'castoff[tui]'" in answer.stderr


@pytest.mark.parametrize(
    ("value", "said"),
    [("0s", "is '0s', which is too short: write 1s or more"), ("often", "is 'often', but takes a duration")],
)
def test_intervals(castoff: Castoff, value: str, said: str) -> None:
    for verb in ("top", "list"):
        answer = castoff(verb, "--interval", value)
        assert answer.returncode == 2 and said in answer.stderr


@pytest.mark.parametrize(("part", "method"), [(TopApp, "tick"), (Looker, "_look")])
def test_a_crash_is_one_line(
    castoff: Castoff, monkeypatch: pytest.MonkeyPatch, part: type, method: str
) -> None:
    def crash(self: object) -> None:
        raise RuntimeError("a\nb")

    monkeypatch.setattr(top, "is_terminal", lambda stream: True)
    monkeypatch.setattr(part, method, crash)
    monkeypatch.setattr(TopApp, "run", partialmethod(TopApp.run, headless=True))
    answer = castoff("top", env={"TERM": "xterm"})
    log = Index.of(os.environ).path.with_name("top.log")
    words = "castoff top failed, which should not happen: RuntimeError: a b"
    assert answer.returncode == 1
    assert answer.stderr == f"castoff: {words}; its traceback is in {log}\n"
    assert "in crash\n" in log.read_text()
