"""What the TAB key offers: in a real bash, and in the words that zsh and fish get."""

from __future__ import annotations

import json
import os
import pty
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from castoff.launcher.remote.entries import Entry, add
from castoff.launcher.runs.index import Index
from castoff.launcher.runs.run import RunDirectory
from tests import patience
from tests.launcher.status.test_watch import Made

from ..conftest import Castoff

DRIVER = """
compopt() { options+=("${@: -1}"); }
offer() { # the words of a command line, the last of which is being typed
  COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); options=()
  _castoff_completion castoff "${@: -1}" "${@: -2:1}"
  printf '%s\\n' "${COMPREPLY[@]/#/= }" "${options[@]/#/option }" end
}
"""


@pytest.fixture
def bash(castoff: Castoff, tmp_path: Path) -> Bash:
    return Bash(castoff, tmp_path)


class Bash:
    """The completion function in a bash that is not interactive."""

    def __init__(self, castoff: Castoff, folder: Path):
        self.folder = folder
        self.script = castoff("completion", "bash").stdout

    def offers(self, *lines: list[str]) -> list[tuple[list[str], set[str]]]:
        """For each line what is offered, and the options for readline."""
        calls = "".join(f"offer {' '.join(map(quoted, line))}\n" for line in lines)
        done = subprocess.run(
            ["bash", "-c", self.script + DRIVER + calls],
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        found = []
        for text in done.stdout.split("end\n")[:-1]:
            rows = text.splitlines()
            values = [row[2:] for row in rows if row.startswith("= ") and row[2:]]
            found.append((values, {row[7:] for row in rows if row.startswith("option ") and row[7:]}))
        assert len(found) == len(lines)
        return found

    def values(self, *words: str) -> list[str]:
        ((found, _),) = self.offers(["castoff", *words])
        return found


def quoted(word: str) -> str:
    return "'" + word.replace("'", "'\\''") + "'"


def index(folder: Path, *names: str) -> list[RunDirectory]:
    """Runs that are in the index, as far as that needs them to be there."""
    known = Index.of(os.environ)
    runs = []
    for number, name in enumerate(names):
        path = folder / f"run{number}-20261121-120000-{number:04x}"
        (path / "attempts").mkdir(parents=True)
        (path / "job.sh").touch()
        runs.append(RunDirectory(path))
        known.add(runs[-1], name)
    return runs


class TestInBash:
    @pytest.mark.long
    def test_verbs_and_flags(self, bash: Bash) -> None:
        add(Entry(name="aurora", host="h", dir="/d"), os.environ)
        every, some, flags, of_verb, wrong, values, trainings, machines, there = bash.offers(
            ["castoff", ""],
            ["castoff", "s"],
            ["castoff", "--"],
            ["castoff", "status", "--"],
            ["castoff", "statsu", ""],
            ["castoff", "completion", ""],
            ["castoff", "train", ""],
            ["castoff", "--on", ""],
            ["castoff", "--on", "aurora", "can"],
        )
        assert (machines[0], there[0]) == (["aurora"], ["cancel"])
        assert {"cancel", "completion", "train", "wait"} <= set(every[0])
        assert some[0] == ["schema", "shell", "sites", "stacks", "status", "stop", "submit"]
        assert flags[0] == ["--on", "--version", "--help"]
        assert of_verb[0] == ["--name", "--json", "--help"]
        assert wrong == ([], set())
        assert values[0] == ["bash", "zsh", "fish"]
        assert trainings[0] == ["dpo", "gnn", "sedd"]

    def test_runs(self, bash: Bash, tmp_path: Path) -> None:
        names = ["old", "train", "eval", "train", "a b", "$(touch x)", "-flag", "x;y", "ünï", "gone"]
        runs = index(tmp_path, *names)
        shutil.rmtree(runs[-1].path)
        every, by_name, by_id, given, path = bash.offers(
            ["castoff", "status", ""],
            ["castoff", "wait", "tr"],
            ["castoff", "logs", "run"],
            ["castoff", "wait", "train", ""],
            ["castoff", "status", "./"],
        )
        assert every[0] == ["ünï", "train", "eval", "old"]
        assert by_name[0] == ["train"]
        assert by_id[0] == [run.id for run in reversed(runs[:-1])]
        assert given[0] == ["ünï", "eval", "old"]
        assert path == ([], {"dirnames"})
        assert not (tmp_path / "x").exists()

    def test_only_runs_that_are_not_over(self, bash: Bash, tmp_path: Path) -> None:
        known = Index.of(os.environ)
        made = {name: Made(tmp_path / name) for name in ("done", "older", "waits", "runs", "ended")}
        for name, one in made.items():
            (one.run.path / "job.sh").touch()
            moved = one.run.path.rename(one.run.path.with_name(f"{name}-20261121-120000-abcd"))
            one.run = RunDirectory(moved)
            known.add(one.run, "older" if name == "ended" else name)
        for name in ("older", "runs"):
            made[name].attempt("0.0")
        for name in ("done", "ended"):
            made[name].attempt("0.0", "done")
        with made["older"].alive(), made["waits"].alive(), made["runs"].alive():
            cancel, stop, shell, begun, status = bash.offers(
                ["castoff", "cancel", ""],
                ["castoff", "stop", "runs", ""],
                ["castoff", "shell", ""],
                ["castoff", "cancel", "ru"],
                ["castoff", "status", ""],
            )
        assert cancel[0] == ["runs", "waits", "older-20261121-120000-abcd"], "the newest `older` is over"
        assert stop[0] == ["waits", "older-20261121-120000-abcd"]
        assert shell[0] == ["runs", "older-20261121-120000-abcd"]
        assert begun[0] == ["runs", "runs-20261121-120000-abcd"]
        assert status[0] == ["older", "runs", "waits", "done"]

    def test_metrics_and_parameters_of_results(self, bash: Bash, tmp_path: Path) -> None:
        made = Made(tmp_path, members=2)
        (made.run.path / "job.sh").touch()
        Index.of(os.environ).add(made.run, "sweep")
        made.attempt("0.0")
        lines = [{"step": 1, "val/loss": 0.5, "val/f1 score": 1}, {"step": 2, "train/loss": 0.5}]
        metrics = made.run.path / "attempts/0.0/metrics.jsonl"
        metrics.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        table = {"blocks": [{"names": ["lr", "seed"], "rows": [["0.1", "0"], ["1e-2", "0"]]}]}
        plan = {"name": "sweep", "site": "local", "scheduler": "local", "array_count": 2}
        made.write("plan.json", {**plan, "parameters": table})
        by, validation, of_report, runs, parameters, values = bash.offers(
            ["castoff", "results", "--by", ""],
            ["castoff", "results", "sweep", "--by", "va"],
            ["castoff", "report", "sweep", "--by", "tr"],
            ["castoff", "results", ""],
            ["castoff", "results", "sweep", ""],
            ["castoff", "results", "sweep", "lr", "="],
        )
        assert by[0] == ["val/loss", "train/loss"]
        assert (validation[0], of_report[0]) == (["val/loss"], ["train/loss"])
        assert runs[0] == ["sweep", "lr=", "seed="]
        assert (parameters[0], values[0]) == (["lr=", "seed="], ["lr=0.1", "lr=1e-2"])
        newest = Made(tmp_path / "newest")
        (newest.run.path / "job.sh").touch()
        Index.of(os.environ).add(newest.run, "newest")
        of_newest, of_named = bash.offers(
            ["castoff", "results", "--by", ""], ["castoff", "results", "sweep", "lr=0.1", "--by", ""]
        )
        assert (of_newest[0], of_named[0]) == ([], ["val/loss", "train/loss"])

    @pytest.mark.long
    def test_many_runs(self, bash: Bash, tmp_path: Path) -> None:
        known = Index.of(os.environ)
        known.path.parent.mkdir(parents=True)
        here = tmp_path / "here"
        here.mkdir()
        for number in (*range(19_900, 20_000), 1234, *range(12_340, 12_350)):
            (here / str(number)).mkdir()
        lines = [
            json.dumps({"path": f"{here}/{number}", "name": f"r{number}"}) + "\n" for number in range(20_000)
        ]
        known.path.write_text("".join(lines) + "garbage\n")
        assert bash.values("status", "")[:2] == ["r19999", "r19998"]
        assert len(bash.values("status", "")) == 50
        assert bash.values("status", "r1234") == [*(f"r1234{digit}" for digit in "9876543210"), "r1234"]

    @pytest.mark.long
    def test_sites_as_bash_splits_words(self, bash: Bash, tmp_path: Path) -> None:
        (tmp_path / ".castoff" / "sites").mkdir(parents=True)
        for name in ("mine", "odd name"):
            (tmp_path / ".castoff" / "sites" / f"{name}.yaml").write_text("extends: slurm\n")
        clusters = [
            "aurora",
            "crux",
            "flux",
            "frontier",
            "local",
            "lsf",
            "mine",
            "pbs",
            "perlmutter",
            "polaris",
            "slurm",
            "sophia",
        ]
        every = [*clusters, "tuolumne"]
        lines = {
            ("submit", "--site", ""): every,
            ("render", "--site", "lo"): ["local"],
            ("render", "--site", "=", "lo"): ["local"],
            ("render", "--site", "="): every,
            ("render", "--site", "pbs", "--nodes", "=", "3", "--site", "lo"): ["local"],
            ("sites", "m"): ["mine"],
            ("init", "--site", "m"): ["mine"],
        }
        offered = bash.offers(*(["castoff", *words] for words in lines))
        assert [values for values, _ in offered] == list(lines.values())

    def test_fields(self, bash: Bash) -> None:
        every, array, snapshot, value, env = bash.offers(
            ["castoff", "render", "--set", ""],
            ["castoff", "launch", "--set", "arr"],
            ["castoff", "submit", "--set", "=", "snap"],
            ["castoff", "submit", "--set", "nodes", "="],
            ["castoff", "submit", "--set", "env."],
        )
        assert {"nodes=", "env.", "env=", "requeue.max=", "directives.", "mail.to="} <= set(every[0])
        assert "requeue=" not in every[0] and every[1] == {"nospace"}
        assert array[0][:5] == [
            *("array.count=", "array.indices=", "array.parameters.", "array.parameters=", "array.commands="),
        ]
        assert snapshot[0] == ["snapshot=", "snapshot.paths=", "snapshot.link=", "snapshot.limit="]
        assert value[0] == [] and env[0] == ["env."]

    def test_files_are_the_shells_also_behind_two_dashes(self, bash: Bash) -> None:
        lines = [
            ["launch", "-n", "2", "--", ""],
            ["submit", "--site", "local", "--", "python", "--he"],
            ["status", "--", "x", "--", "y"],
            ["render", "jo"],
            ["submit", "--set", "nodes", "=", "4", "jo"],
        ]
        assert bash.offers(*(["castoff", *words] for words in lines)) == len(lines) * [([], {"default"})]

    @pytest.mark.long
    def test_odd_words_complete_to_nothing(self, bash: Bash, tmp_path: Path) -> None:
        words = ["'", '"a', "$(touch x)", "`touch x`", "\\", "*", "a\tb", "::"]
        lines = [["castoff", "status", word] for word in words]
        lines += [["castoff", "$(touch x)", ""], ["castoff", '"a', ""]]
        assert all(values == [] for values, _ in bash.offers(*lines))
        assert not (tmp_path / "x").exists()

    def test_an_index_that_cannot_be_read(
        self, bash: Bash, bad_file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        known = Index.of(os.environ).path
        known.parent.mkdir(parents=True)
        known.symlink_to(bad_file)
        assert bash.offers(["castoff", "status", ""]) == [([], set())]


def test_the_tab_key(castoff: Castoff, tmp_path: Path) -> None:
    """All of it: an interactive bash, readline, a terminal."""
    (tmp_path / "castoff.bash").write_text(castoff("completion", "bash").stdout)
    (tmp_path / "careful.yaml").touch()
    index(tmp_path, "training")
    process, terminal = pty.fork()
    if process == 0:
        os.chdir(tmp_path)
        os.environ.update(TERM="dumb", PS1="> ", HISTFILE="/dev/null", INPUTRC="/dev/null")
        os.execvp("bash", ["bash", "--norc", "--noprofile", "-i"])
    shows = "show() { printf '<%s>' \"$@\"; echo; }; alias castoff=show"  # what it would be called with
    try:
        os.write(terminal, f". ./castoff.bash; {shows}; PS1='REA''DY '\n".encode())
        read_until(terminal, "READY ")
        for typed, becomes in (
            ("stat\ttra\t--js\t", ["status", "training", "--json"]),
            ("submit --si\tlo\tcar\t", ["submit", "--site", "local", "careful.yaml"]),
            ("submit --site=lo\t--set array.cou\t3", ["submit", "--site=local", "--set", "array.count=3"]),
            ("launch -- ./cast\t", ["launch", "--", "./castoff.bash"]),
        ):
            os.write(terminal, f"castoff {typed}\n".encode())
            assert "".join(f"<{word}>" for word in becomes) in read_until(terminal, ">\r\n")
    finally:
        os.kill(process, 9)
        os.waitpid(process, 0)
        os.close(terminal)


def read_until(terminal: int, end: str) -> str:
    """What a terminal shows, up to a text."""
    shown = ""
    give_up = time.monotonic() + patience.SECONDS
    while end not in shown:
        assert time.monotonic() < give_up, shown
        if select.select([terminal], [], [], 0.2)[0]:
            shown += os.read(terminal, 4096).decode(errors="replace")
    return shown


class TestOtherShells:
    @pytest.mark.parametrize(
        ("words", "offered"),
        [
            ("stat", "status"),
            ("render --site=lo", "--site=local"),
            ("render --set requeue.m", "requeue.max="),
            ("launch -- tr", "tr"),
        ],
    )
    def test_zsh_and_fish(self, words: str, offered: str, castoff: Castoff) -> None:
        asked = {"_CASTOFF_COMPLETE": "zsh_complete", "COMP_WORDS": f"castoff {words}"}
        zsh = castoff(env=asked | {"COMP_CWORD": str(len(words.split()))})
        asked["_CASTOFF_COMPLETE"] = "fish_complete"
        fish = castoff(env=asked | {"COMP_CWORD": words.split()[-1]})
        kind = "file" if "--" in words.split() else "plain"
        assert zsh.stdout.splitlines()[:2] == [kind, offered]
        assert fish.stdout.split("\t")[0].strip() == f"{kind},{offered}"

    @pytest.mark.parametrize(
        ("shell", "ours"), [("bash", "*[.=]"), ("zsh", "##*[.=]"), ("fish", "--no-files")]
    )
    def test_scripts(self, shell: str, ours: str, castoff: Castoff) -> None:
        done = castoff("completion", shell)
        assert (done.returncode, done.stderr) == (0, "")
        assert f"_CASTOFF_COMPLETE={shell}_complete" in done.stdout and ours in done.stdout

    def test_unknown_ones(self, castoff: Castoff) -> None:
        answer = castoff("completion", "tcsh")
        assert answer.returncode == 2 and "bash, zsh, fish" in answer.stderr
        assert castoff(env={"_CASTOFF_COMPLETE": "tcsh_complete"}).returncode == 1


LOADED = """
import atexit, sys
atexit.register(lambda: print(*sorted({name.partition(".")[0] for name in sys.modules}), file=sys.stderr))
from castoff.launcher.cli.main import main
main([])
"""


@pytest.mark.parametrize(
    ("words", "never"),
    [
        (["", "castoff"], "msgspec yaml"),
        (["", "castoff", "status"], "yaml"),
        (["--", "castoff", "submit"], ""),
        (["", "castoff", "render", "--site"], ""),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, list) else "",
)
def test_only_what_is_needed_is_loaded(words: list[str], never: str, tmp_path: Path) -> None:
    """It is 200 ms from the key to the answer; `make bench` measures it."""
    last, *before = words
    asked = {"_CASTOFF_COMPLETE": "bash_complete", "COMP_WORDS": "\n".join([*before, last])}
    done = subprocess.run(
        [sys.executable, "-c", LOADED],
        cwd=tmp_path,
        env={**os.environ, **asked, "COMP_CWORD": str(len(before))},
        capture_output=True,
        text=True,
        check=False,
    )
    loaded = set(done.stderr.splitlines()[-1].split())
    assert done.returncode == 0 and done.stdout and "click" in loaded
    assert not loaded & {"torch", "submitit", "rich", "psutil", "jinja2", *never.split()}
