"""castoff logs, with and without -f."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from castoff.launcher.cli import main as cli
from castoff.launcher.runs.run import RunDirectory
from tests import patience
from tests.launcher.logs.conftest import MadeRun
from tests.launcher.scripts.harness import CASTOFF, Bench

from ..conftest import LocalJobs

Benches = Callable[[str], Bench]


class Answer(NamedTuple):
    code: int
    out: bytes
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.decode(errors="replace").splitlines()


class Logs:
    """`castoff logs` in this process: a Python of its own would take longer than most of what it does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self._monkeypatch = monkeypatch

    def __call__(self, run: RunDirectory | str, *words: str) -> Answer:
        out, err = io.BytesIO(), io.StringIO()
        code: object = None
        reference = str(run.path) if isinstance(run, RunDirectory) else run
        with self._monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", io.TextIOWrapper(out, "utf-8", write_through=True))
            with contextlib.redirect_stderr(err):
                try:
                    cli.main(["logs", reference, *words])
                except SystemExit as exit:
                    code = exit.code
            assert isinstance(code, int)
            return Answer(code, out.getvalue(), err.getvalue())


@pytest.fixture
def logs(monkeypatch: pytest.MonkeyPatch) -> Logs:
    return Logs(monkeypatch)


class Following:
    """`castoff logs -f` as a process of its own, read line by line."""

    def __init__(self, run: RunDirectory | str, *words: str, env: dict[str, str] | None = None):
        reference = str(run.path) if isinstance(run, RunDirectory) else run
        self.process = subprocess.Popen(
            [CASTOFF, "logs", "-f", reference, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **(env or {})},
        )

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().rstrip("\n")

    def end(self) -> tuple[int, str, str]:
        """Code, the rest of the output, and what was said."""
        out, err = self.process.communicate(timeout=patience.SECONDS)
        return self.process.returncode, out, err


@pytest.fixture
def follow() -> Iterator[Callable[..., Following]]:
    started = []

    def start(run: RunDirectory | str, *words: str, **more: dict[str, str]) -> Following:
        started.append(Following(run, *words, **more))
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            one.process.kill()
            one.process.communicate()


@pytest.fixture
def bench(tmp_path: Path, system_program: Callable[[str, str], Path], for_real: None) -> Benches:
    return lambda kind: Bench(tmp_path, kind, system_program)


TRACEBACK = "import os; exec(compile('def f():\\n    raise ValueError(7)\\nf()', 'train.py', 'exec'))"


class TestPrint:
    def test_the_first_failing_rank_comes_first(self, jobs: LocalJobs, logs: Logs) -> None:
        program = 'echo "hello $RANK"; [ $RANK = 2 ] && { echo "broken" >&2; exit 9; }; sleep 600'
        run = jobs.submit("--name", "mine", "--ranks-per-node", "3", sh=program)
        jobs.wait(run)
        answer = logs("mine")
        assert answer.code == 0
        first, hello, broken, rest, *everything = answer.lines
        assert first.startswith("--- rank 2 on ") and first.endswith(" failed first: exit code 9 ---")
        assert (hello, broken, rest) == ("hello 2", "broken", "--- all ranks ---")
        assert {"[2] broken"} <= set(everything)
        for rank in range(3):
            alone = logs("mine", "--rank", str(rank)).out.decode()
            assert alone in (f"hello {rank}\n" + "broken\n" * (rank == 2), "")
        missing = logs("mine", "--rank", "3")
        assert missing.code == 1
        assert "no rank 3; ranks are 0 to 2" in missing.err
        reported = json.loads(logs("mine", "--json").out)
        (attempt,) = reported["attempts"]
        assert reported["id"] == run.id and attempt["script"] == str(run.script_log())
        assert len(attempt["ranks"]) == 3 and attempt["nodes"] == []
        assert attempt["failure"]["rank"] == 2 and "broken" in attempt["failure"]["excerpt"]
        assert attempt["failure"]["log"] == attempt["ranks"][2]

    def test_its_traceback_is_whole(self, jobs: LocalJobs, logs: Logs) -> None:
        run = jobs.submit("--", sys.executable, "-c", f"print('x\\n' * 1000); {TRACEBACK}")
        jobs.wait(run)
        lines = logs(run).lines
        assert lines[1] == "Traceback (most recent call last):" and "train.py" in lines[3]
        assert lines[lines.index("--- all ranks ---") - 1] == "ValueError: 7"

    def test_bytes_arrive_as_they_were(self, jobs: LocalJobs, logs: Logs) -> None:
        run = jobs.submit(sh="printf 'a\\n\\377\\000x'")
        jobs.wait(run)
        assert logs(run, "--rank", "0").out == b"a\n\xff\0x"
        assert logs(run, "--rank", "0", "-n", "1").out == b"\xff\0x"

    def test_some_ranks(self, jobs: LocalJobs, logs: Logs) -> None:
        run = jobs.submit("--ranks-per-node", "3", sh="echo a $RANK; echo b $RANK")
        jobs.wait(run)
        assert logs(run, "--rank", "2", "--rank", "0").lines == ["[0] a 0", "[0] b 0", "[2] a 2", "[2] b 2"]
        assert logs(run, "--rank", "2", "--rank", "0", "-n1").lines == ["[0] b 0", "[2] b 2"]
        assert sorted(logs(run, "-n", "6").lines) == sorted(logs(run).lines[1:])

    def test_the_newest_attempt_or_another(self, jobs: LocalJobs, logs: Logs) -> None:
        program = 'echo "attempt $CASTOFF_ATTEMPT"; echo resume >"$CASTOFF_OUTCOME_FILE"'
        job = jobs.job("setup: ['echo setup']\nrequeue: {max: 2}\ncommand: [x]\n")
        run = jobs.submit(job, sh=program)
        jobs.wait(run)

        def words(*options: str) -> list[str]:
            return [
                line
                for line in logs(run, *options).lines
                if not re.search("castoff: (1 rank|stop|not requeued)", line)
            ]

        assert words() == ["castoff: attempt 2 begins", "setup", "[0] attempt 2"]
        assert words("--attempt", "1") == ["castoff: attempt 1 begins", "setup", "[0] attempt 1"]
        assert words("--attempt", "0") == ["setup", "[0] attempt 0"]
        assert logs(run, "--attempt", "0", "-n1").lines == ["[0] attempt 0"]
        assert words("-f") == [*words("--attempt", "0"), *words("--attempt", "1"), *words()]
        missing = logs(run, "--attempt", "3")
        assert missing.err == f"castoff: {run.id}: has no attempt 3; there is 0, 1, 2\n"

    def test_members(self, jobs: LocalJobs, logs: Logs) -> None:
        program = 'echo "member $CASTOFF_ARRAY_INDEX"; exit $((CASTOFF_ARRAY_INDEX * 7))'
        run = jobs.submit("--set", "array.count=3", sh=program)
        jobs.wait(run)
        lines = logs(run).lines
        assert {"[0.0:0] member 0", "[1.0:0] member 1", "[2.0:0] member 2"} <= {*lines}
        headers = [line for line in lines if line.startswith("---") and "all ranks" not in line]
        assert len(headers) == 2 and lines[0] == headers[0]
        lines = logs(run, "--member", "2").lines
        assert lines[0].startswith("--- rank 0 on ") and "[0] member 2" in lines
        wrong = logs(run, "--member", "3")
        assert wrong.err.endswith(": no member 3; members are 0 to 2\n")
        reported = json.loads(logs(run, "--json", "--member", "2", "--member", "0").out)
        assert [one["member"] for one in reported["attempts"]] == [0, 2]

    def test_before_it_began(self, jobs: LocalJobs, logs: Logs) -> None:
        first = jobs.submit("--name", "first", sh="sleep 60")
        run = jobs.submit("--set", "after.afterok=[first]", sh="true")
        answer = logs(run)
        assert answer.code == 1
        because = f"it waits for afterok of {first.id}"
        assert answer.err == f"castoff: {run.id}: has not begun, so it has no logs: {because}\n"
        assert f"\nstate      pending\n           {because}\n" in jobs.castoff("status", run.path).stdout

    def test_a_log_that_cannot_be_read(self, tmp_path: Path, logs: Logs) -> None:
        made = MadeRun(tmp_path / "run")
        folder = made.begin()
        (folder / "rank-00000.log").mkdir()
        (folder / "rank-00001.log").write_text("one\n")
        made.end()
        answer = logs(made)
        assert (answer.code, answer.lines) == (1, ["[1] one"])
        assert answer.err == f"castoff: {folder}/rank-00000.log: cannot be read: Is a directory\n"


class TestOnATerminal:
    def shown(self, run: RunDirectory, *words: str, **env: str) -> bytes:
        main, other = pty.openpty()
        with subprocess.Popen(
            [CASTOFF, "logs", str(run.path), *words],
            stdout=other,
            stderr=subprocess.PIPE,
            env={**os.environ, "TERM": "xterm", **env},
        ) as process:
            os.close(other)
            got = b""
            with contextlib.suppress(OSError), os.fdopen(main, "rb", buffering=0) as terminal:
                while data := terminal.read(4096):
                    got += data
            assert process.stderr is not None and process.stderr.read() == b""
        return got.replace(b"\r\n", b"\n")

    def test_colours_and_nothing_dangerous(self, tmp_path: Path) -> None:
        made = MadeRun(tmp_path / "run")
        (made.begin() / "rank-00000.log").write_bytes(b"\x1b[32mgreen \x1b]0;title\x07\x1b[2J\xff\n")
        made.end()
        green = b"\x1b[32mgreen \xff\x1b[0m\n"
        assert self.shown(made) == b"\x1b[36m[0]\x1b[0m " + green
        assert self.shown(made, "--rank", "0") == green
        assert self.shown(made, NO_COLOR="1") == self.shown(made, TERM="dumb") == b"[0] " + green


class TestFollow:
    def test_to_the_end(self, jobs: LocalJobs, follow: Callable[..., Following]) -> None:
        program = (
            "echo one $RANK; while [ ! -e go ]; do sleep 0.05; done; echo two $RANK; "
            "[ $RANK = 1 ] || { touch said; sleep 600; }; while [ ! -e said ]; do sleep 0.05; done; exit 5"
        )
        run = jobs.submit("--name", "mine", "--ranks-per-node", "2", sh=program)
        followed = follow("mine")
        assert followed.line().startswith("castoff: 2 ranks on ")
        assert {followed.line(), followed.line()} == {"[0] one 0", "[1] one 1"}
        (jobs.folder / "go").touch()
        code, out, err = followed.end()
        assert code == 5
        assert err.startswith(f"castoff: {run.id}: failed; rank 1 on ")
        assert err.endswith(f"; its log: {run.log_folder}/0.0/rank-00001.log\n")
        lines = out.splitlines()
        assert {"[1] two 1", "[0] two 0", "--- all ranks ---"} <= {*lines}
        assert lines[lines.index("--- all ranks ---") - 1] == "two 1"

    def test_through_attempts_and_members(self, jobs: LocalJobs, follow: Callable[..., Following]) -> None:
        """Those that begin later come too."""
        program = (
            "echo $CASTOFF_ARRAY_INDEX.$CASTOFF_ATTEMPT; touch here.$CASTOFF_ARRAY_INDEX.$CASTOFF_ATTEMPT; "
            '[ $CASTOFF_ATTEMPT = 1 ] && exit; echo resume >"$CASTOFF_OUTCOME_FILE"'
        )
        words = ["--set", "array={count: 2, max_concurrent: 1}", "--set", "requeue.max=1"]
        run = jobs.submit(*words, sh=program)
        code, out, err = follow(run).end()
        assert (code, err) == (0, f"castoff: {run.id}: done\n")
        shown = [line for line in out.splitlines() if ":0]" in line]
        assert sorted(shown) == ["[0.0:0] 0.0", "[0.1:0] 0.1", "[1.0:0] 1.0", "[1.1:0] 1.1"]
        assert shown.index("[0.0:0] 0.0") < shown.index("[0.1:0] 0.1")

    @pytest.mark.long
    def test_before_it_begins(self, jobs: LocalJobs, follow: Callable[..., Following]) -> None:
        first = jobs.submit("--name", "first", sh="while [ ! -e go ]; do sleep 0.05; done")
        run = jobs.submit("--set", "after.afterok=[first]", sh="echo second")
        followed = follow(run)
        assert followed.process.stderr is not None
        said = followed.process.stderr.readline()
        assert (
            said == f"castoff: {run.id} has not begun: it waits for afterok of {first.id}; waiting for it\n"
        )
        (jobs.folder / "go").touch()
        code, out, _ = followed.end()
        assert code == 0 and out.splitlines()[-1] == "[0] second"

    def test_for_programs(self, jobs: LocalJobs, logs: Logs) -> None:
        run = jobs.submit(sh="echo one; exit 3")
        answer = logs(run, "-f", "--json")
        assert answer.code == 3
        events = [json.loads(line) for line in answer.lines]
        assert [one["event"] for one in events if one.get("rank", 0) is not None][-1] == "end"
        assert {"event": "line", "member": 0, "attempt": 0, "rank": 0, "node": None, "text": "one"} in events
        assert (events[-1]["ending"], events[-1]["code"]) == ("failed", 3)

    def test_interrupted(self, jobs: LocalJobs, follow: Callable[..., Following]) -> None:
        run = jobs.submit(sh="echo one; sleep 60")
        followed = follow(run)
        followed.line()
        followed.process.send_signal(signal.SIGINT)
        code, _, said = followed.end()
        assert code == 130 and said.startswith(f"\ncastoff: {run.id} was not stopped: `castoff logs -f ")
        assert jobs.status(run)["state"] == "running"

    def test_a_reader_that_leaves(self, jobs: LocalJobs) -> None:
        """It ends at once, and not only when there is something to write."""
        run = jobs.submit(sh="echo one; sleep 86400")
        words = f"{CASTOFF} logs -f {run.path} | head -n 1; echo ${{PIPESTATUS[0]}}"
        done = subprocess.run(["bash", "-c", words], capture_output=True, text=True, timeout=patience.SECONDS)
        assert done.stderr == "" and done.stdout.startswith("castoff: 1 rank on ")
        assert jobs.status(run)["state"] == "running"

    def test_wrong_words(self, jobs: LocalJobs, logs: Logs) -> None:
        run = jobs.submit("--ranks-per-node", "2", sh="sleep 60")
        for words, said in (
            (["--rank", "2"], "no rank 2; ranks are 0 to 1"),
            (["--member", "1"], "no member 1; members are 0 to 0"),
        ):
            answer = logs(run, "-f", *words)
            assert (answer.code, answer.out, answer.err) == (1, b"", f"castoff: {run.id}: {said}\n")


class TestOnACluster:
    """Scripts as a scheduler runs them, with real ranks and their own logs."""

    @pytest.mark.everyday("hydra")
    @pytest.mark.parametrize("kind", ["hydra", "srun"])
    def test_logs_of_a_script_submitted_without_castoff(
        self,
        kind: str,
        bench: Benches,
        follow: Callable[..., Following],
        logs: Logs,
    ) -> None:
        here = bench(kind)
        program = (
            "echo one $RANK; while [ ! -e go ]; do sleep 0.05; done; "
            "[ $RANK = 1 ] && { echo broken; exit 6; }; sleep 600"
        )
        started = here.start(ranks_per_node=3, command=["sh", "-c", program])
        try:
            while not list(here.folder.glob("castoff-*/job.sh")):
                time.sleep(0.05)
            run = RunDirectory(here.run_dir())
            followed = follow(run)
            assert {followed.line() for _ in range(3)} == {f"[{rank}] one {rank}" for rank in range(3)}
        finally:
            (here.folder / "go").touch()
            started.end()
        code, out, err = followed.end()
        lines = out.splitlines()
        assert code == 6, out + err
        if lines[0] == "[1] broken":  # its last line was seen before its failure was
            lines.append(lines.pop(0))
        assert re.fullmatch(r"--- rank 1 on \S+ failed first: exit code 6 ---", lines[0])
        assert lines[1:] == ["one 1", "broken", "--- all ranks ---", "[1] broken"]
        assert [line[:3] for line in logs(run).lines[4:]] == ["[0]", "[1]", "[1]", "[2]"]
        assert logs(run, "--rank", "1").lines == ["one 1", "broken"]

    def test_lines_of_the_script_itself_are_shown_once(self, bench: Benches, logs: Logs) -> None:
        """Each line once, though its log repeats those of the first rank and of the one that failed."""
        here = bench("hydra")
        program = (
            "echo one $RANK; echo two $RANK; [ $RANK = 0 ] && { touch said; sleep 600; }; "
            "while [ ! -e said ]; do sleep 0.05; done; exit 6"
        )
        ended = here.run(ranks_per_node=2, command=["sh", "-c", program], setup=["echo loading modules"])
        assert ended.output.count("one 0") == ended.output.count("one 1") == 1
        run = RunDirectory(ended.run_dir)
        run.script_log().write_text(ended.output)  # where `castoff submit` has the scheduler put it
        for words in ([], ["-f"]):
            lines = logs(run, *words).lines
            shown = lines[lines.index("--- all ranks ---") + 1 :]
            assert sorted(line for line in shown if line[:1] == "[") == [
                *("[0] one 0", "[0] two 0", "[1] one 1", "[1] two 1")
            ]
            own = [line for line in shown if line[:1] != "["]
            assert own[0] == "loading modules" and not any("one" in line.split() for line in own)
            assert sum("failed first: exit code 6" in line for line in own) == 1

    def test_many_ranks(
        self,
        bench: Benches,
        logs: Logs,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """Above 256 ranks: one log a node, and that of the rank that failed."""
        monkeypatch.setattr("castoff.launcher.planning.planner.PER_RANK_FILES", 2)
        ended = bench("hydra").run(ranks_per_node=3, env={"PROBE": "fail 1 3"})
        answer = logs(RunDirectory(ended.run_dir))
        assert answer.lines[1:] == [
            *("rank 1 was here", "--- all ranks ---", "[node 0] rank 0 was here", "[1] rank 1 was here")
        ]
        missing = logs(RunDirectory(ended.run_dir), "--rank", "2")
        assert "rank-00002.log: no such log; without --rank all" in missing.err


def test_many_writers_at_once(tmp_path: Path, follow: Callable[..., Following]) -> None:
    """Real files and a real process: every line of 256 logs once and in order."""
    ranks = 256
    made = MadeRun(tmp_path / "run")
    folder = made.begin()
    writer = f"""
from pathlib import Path
for step in range(30):
    for rank in range({ranks}):
        with Path({str(folder)!r}, f"rank-{{rank:05d}}.log").open("a") as file:
            for part in range(10):
                file.write(f"{{step}} ")
                if part == 5:
                    file.flush()
                file.write(f"{{part}}" + " x" * part + chr(10))
"""
    followed = follow(made)
    subprocess.run([sys.executable, "-c", writer], timeout=patience.SECONDS, check=True)
    made.end()
    code, out, _ = followed.end()
    assert code == 0
    expected = [f"{step} {part}" + " x" * part for step in range(30) for part in range(10)]
    got: dict[str, list[str]] = {}
    for line in out.splitlines():
        label, _, text = line.partition("] ")
        got.setdefault(label, []).append(text)
    assert {*got} == {f"[{rank}" for rank in range(ranks)}
    assert [label for label, lines in got.items() if lines != expected] == []
