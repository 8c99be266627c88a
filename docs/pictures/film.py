"""python -m docs.pictures.film: record work from a laptop in a terminal, as root, and keep its screens.

The machine is a real sshd here, the one of the tests; tmux is the terminal. `docs.pictures` then draws the
screens.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from docs.pictures.recorded import FILM, FILM_COLUMNS, FILM_ROWS, FOLDER, Screen
from tests.remote_machine import remote_machine

PROMPT = "$"
PATIENCE = 30
"""Seconds."""

FILES = {
    "job.yaml": "name: rings\ncommand: [python3, train.py]\nranks_per_node: 2\nwalltime: 10m\n",
    "train.py": """\
import json, os, time

rank = os.environ["RANK"]
for step in range(1, 601):
    time.sleep(0.1)
    loss = 2 / (1 + step / 60)
    if rank == "0":
        line = {"step": step, "total_steps": 600, "time": time.time(), "train/loss": loss}
        with open(os.environ["CASTOFF_METRICS_FILE"], "a") as file:
            file.write(json.dumps(line) + "\\n")
    if step % 10 == 0:
        print(f"step {step}: loss {loss:.3f}", flush=True)
""",
}

PLAY = (
    ("castoff --on cluster submit -f job.yaml\n", "step 20", 1.0),
    ("^C", PROMPT, 0.6),
    ("castoff --on cluster top\n", "castoff top,", 2.5),
    ("\n", "began", 2.5),
    ("q", PROMPT, 0.5),
    ("castoff --on cluster logs -n 3\n", "newest run", 1.0),
)
"""What is typed; what then appears on the screen; for how many seconds it is looked at."""


class Terminal:
    """A tmux, and what its screen has shown so far."""

    def __init__(self, folder: Path, environment: dict[str, str]):
        self._tmux = ["tmux", "-S", str(folder / "tmux"), "-f", "/dev/null"]
        size = ("-x", str(FILM_COLUMNS), "-y", str(FILM_ROWS))
        shell = ("env", "-i", *(f"{name}={value}" for name, value in environment.items()), "bash", "--norc")
        self._call("new-session", "-d", "-s", "film", *size, "-c", str(folder / "project"), *shell)
        self._call("set", "-g", "status", "off")
        self._begin = time.monotonic()
        self.screens: list[Screen] = []

    def type(self, text: str) -> None:
        """Key by key."""
        for key in ["C-c"] if text == "^C" else text:
            self._call("send-keys", "-t", "film", *(("Enter",) if key == "\n" else ("--", key)))
            self.look(0.03)

    def look(self, seconds: float, until: str = "") -> None:
        """Keep screens that differ, for a time from when a text appears in the last lines."""
        end, begin = None, time.monotonic()
        while end is None or time.monotonic() < end:
            lines = self._call("capture-pane", "-e", "-p", "-t", "film").split("\n")[:FILM_ROWS]
            if not self.screens or self.screens[-1].lines != lines:
                self.screens.append(Screen(round(time.monotonic() - self._begin, 2), lines))
            written = [_plain(line) for line in lines if line.strip()]
            if end is None and (written[-1:] == [PROMPT] if until == PROMPT else until in "\n".join(written)):
                end = time.monotonic() + seconds
            if end is None and time.monotonic() > begin + PATIENCE:
                raise SystemExit(f"no {until!r} on the screen:\n" + "\n".join(written))
            time.sleep(0.02)

    def close(self) -> None:
        """End it."""
        self._call("kill-server")

    def _call(self, *words: str) -> str:
        return subprocess.run([*self._tmux, *words], check=True, capture_output=True, text=True).stdout


def _plain(line: str) -> str:
    return re.sub(r"\x1b\[[0-9;:]*m", "", line).strip()


def film(folder: Path) -> list[Screen]:
    """The screens of PLAY."""
    project, far = folder / "project", folder / "work"
    for each in (project, far):
        each.mkdir()
    for name, text in FILES.items():
        (project / name).write_text(text, encoding="utf-8")
    about = ("-c", "user.name=ann", "-c", "user.email=ann@example.org", "-c", "init.defaultBranch=main")
    for words in (
        ("init", "--quiet"),
        ("add", "--all"),
        ("commit", "--quiet", "--message", "Train on rings"),
    ):
        subprocess.run(["git", *about, *words], cwd=project, check=True)
    (folder / "machine").mkdir(mode=0o755)
    with remote_machine(folder / "machine") as machine:
        environment = {**machine.environment(folder), "TERM": "tmux-256color", "PS1": "$ ", "LANG": "C.UTF-8"}
        environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
        castoff = str(Path(sys.executable).with_name("castoff"))
        added = ("on", "add", "cluster", "bash", "--dir", str(far), "--site", "local", "--castoff", castoff)
        subprocess.run([castoff, *added], cwd=project, env={**os.environ, **environment}, check=True)
        terminal = Terminal(folder, environment)
        try:
            terminal.look(0.5, PROMPT)
            for typed, appears, seconds in PLAY:
                terminal.type(typed)
                terminal.look(seconds, appears)
        finally:
            terminal.close()
            end = [castoff, "--on", "cluster", "cancel", "--name", "rings"]
            subprocess.run(end, cwd=project, env={**os.environ, **environment}, check=True)
    place = {str(far): "/project/ann", str(folder): "/home/ann"}
    return [one._replace(lines=[_elsewhere(line, place) for line in one.lines]) for one in terminal.screens]


def _elsewhere(line: str, places: dict[str, str]) -> str:
    for path, name in places.items():
        line = line.replace(path, name)
    return line


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="film-") as place:
        shown = film(Path(place))
    (FOLDER / FILM).write_text(json.dumps(shown, ensure_ascii=False) + "\n", encoding="utf-8")
