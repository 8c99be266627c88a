"""The command line as a whole: help, errors, `--`, pipes; through the real command."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from castoff.launcher.cli import group
from castoff.launcher.cli.help import _OPTIONS, ABOUT, GROUPS, help_text

from ..conftest import Castoff, objects

VERBS = [
    *("init", "import", "render", "schema", "submit", "launch", "alloc", "train", "top", "list", "status"),
    *(
        "logs",
        "usage",
        "results",
        "report",
        "pull",
        "wait",
        "watch",
        "stacks",
        "shell",
        "stop",
        "cancel",
        "resubmit",
    ),
    *("clean", "on", "notify", "sites", "explain", "doctor", "trust"),
    *("mcp", "completion"),
]
COMMAND = str(Path(sys.executable).parent / "castoff")


def complains(answer: subprocess.CompletedProcess[str], *words: str, code: int | None = None) -> None:
    """It says so in one line on standard error, and nothing else."""
    assert answer.returncode != 0
    assert code is None or answer.returncode == code
    lines = [line for line in answer.stderr.splitlines() if not line.startswith("castoff: site ")]
    assert len(lines) == 1, answer.stderr
    assert lines[0].startswith("castoff: ")
    for word in words:
        assert word in lines[0]
    assert answer.stdout == ""


class TestHelp:
    def test_verbs_are_listed(self, castoff: Castoff) -> None:
        for words in (["--help"], ["-h"], [], ["help"]):
            answer = castoff(*words)
            assert answer.returncode == 0 and answer.stderr == ""
            groups = answer.stdout.partition("\nOptions:\n")[0].partition("\nWrite a job:\n")[2]
            listed = [line.split()[0] for line in groups.splitlines() if line.startswith("  ")]
            assert listed == VERBS

    @pytest.mark.parametrize("columns", ["-1", "20", "63", "80", "200"])
    def test_it_looks_as_click_would_print_it(self, columns: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("COLUMNS", columns)
        monkeypatch.setattr(group.castoff, "help", "\n\n".join(ABOUT))
        with group.castoff.make_context("castoff", [], help_option_names=["-h", "--help"]) as context:
            formatter = context.make_formatter()
            formatter.write_usage("castoff", "VERB [OPTIONS] [ARGUMENTS]...")
            group.castoff.format_help_text(context, formatter)
            for title, verbs in {**GROUPS, "Options": _OPTIONS}.items():
                with formatter.section(title):
                    width = max(map(len, VERBS))
                    formatter.write_dl([(name.ljust(width), words) for name, words in verbs.items()])
            assert help_text() == formatter.getvalue().rstrip("\n")

    @pytest.mark.parametrize("verb", VERBS)
    def test_each_verb_explains_itself(self, castoff: Castoff, verb: str) -> None:
        answer = castoff(verb, "--help")
        assert answer.returncode == 0 and answer.stderr == ""
        assert answer.stdout.startswith(f"Usage: castoff {verb} ")
        # What makes or shows something has an answer for programs; schema is JSON, completion for shells,
        # a report for people: results, status and usage have its numbers; mcp has a protocol of its own.
        assert ("--json" in answer.stdout) == (
            verb
            not in (
                *("alloc", "completion", "init", "launch", "mcp", "report", "schema", "shell", "top"),
                *("train", "watch"),
            )
        )

    @pytest.mark.parametrize("verb", VERBS)
    def test_each_verb_shows_examples_of_itself(self, castoff: Castoff, verb: str) -> None:
        answer = castoff("help", verb)
        assert answer.stdout == castoff(verb, "--help").stdout
        shown = answer.stdout.partition("\n  Examples:\n")[2].splitlines()
        assert shown and any(re.search(rf"castoff (--on aurora )?{verb}\b", line) for line in shown)

    @pytest.mark.parametrize("verb", ["doctor", "launch", "render", "submit"])
    def test_a_verbs_usage_shows_where_a_program_goes(self, castoff: Castoff, verb: str) -> None:
        usage = castoff(verb, "--help").stdout.partition("\n")[0]
        assert re.search(r"-- COMMAND|\[--\] COMMAND", usage), usage

    @pytest.mark.parametrize("word", ["--version", "version"])
    def test_version(self, castoff: Castoff, word: str) -> None:
        answer = castoff(word)
        assert answer.returncode == 0
        assert answer.stdout.startswith("castoff, version 0.")

    def test_as_a_module(self, tmp_path: Path) -> None:
        words = [sys.executable, "-m", "castoff.launcher.cli.main", "schema"]
        answer = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True)
        assert answer.stdout.startswith("{")


class TestWrongWords:
    @pytest.mark.parametrize(
        ("words", "said"),
        [
            (["statsu"], "no verb 'statsu'; did you mean status?"),
            (["xyzzy"], "no verb 'xyzzy'; there are: init, "),
            (["--nope"], "no option --nope; castoff's own are --on, --version and --help (see"),
            (["render", "--nodez", "3", "--", "x"], "did you mean --nodes?"),
            (["ls"], "no verb 'ls'; here: castoff list (see castoff --help)"),
            (["submit", "--gpus-per-task=2", "--", "x"], "; here: --devices-per-rank 2 (see"),
            (["submit", "--partition", "a b", "--", "x"], "no option --partition; here: --queue 'a b' (see"),
            (["submit", "--torchrun", "--", "x"], "here: --set launcher.torchrun=true (see"),
            (["kill", "a b", "c"], "no verb 'kill'; here: castoff cancel 'a b' c (see castoff --help)"),
            (["sbatch", "-n", "2", "--", "x"], "here: castoff submit -n 2 -- x (see castoff --help)"),
            (["submit", "-l", "walltime=1h", "--", "x"], "no option -l; here: --walltime 1h (see"),
            (
                ["submit", "-l", "select=2:ncpus=4", "--", "x"],
                "here: --nodes 2 --cores-per-rank 4 (",
            ),
            (["launch", "--gpus", "2", "x"], "here: -n 2 --devices-per-rank 1 (see"),
            (["list", "--state", "runing"], "; did you mean running? (see castoff list --help)"),
            (
                ["launch", "-n", "two", "x"],
                "-n: is 'two', but takes a whole number of 1 or more (see castoff launch --help)",
            ),
            (["resubmit"], "RUN is missing; `castoff list` shows your runs (see"),
            (["submit", "a.yaml", "nodes=2"], "a field is set by --set nodes=2 (see castoff submit --help)"),
            (["submit", "--"], "name a job file, or a program after --"),
            (["submit", "--site", "local", "--", "-x"], "the program: is '-x', which looks like an option"),
            (["help", "statsu"], "no verb 'statsu'; did you mean status?"),
            (["monitor"], "here: castoff top, or castoff logs -f"),
            (["launch", "-np", "2", "python"], "no option -np; here: --ranks 2 (see castoff launch --help)"),
            (["launch", "-n"], "-n needs a value: -n N (see castoff launch --help)"),
            (["render", "-t", "10", "--", "x"], "1d12h; sbatch's 10 is 10m in castoff"),
            (["submit", "-N", "mine", "--site", "slurm", "--", "x"], "qsub's -N NAME is -J NAME"),
            (["render", "--exclusive"], "no option --exclusive; here: --set exclusive=true (see"),
            (["render", "--rdzv_endpoint", "x"], "; here: the job script chooses where ranks meet"),
            (["logs", "--partition", "x"], "no option --partition (see"),
            (["logs", "x", "--ranks", "1"], "no option --ranks; here: --rank 1"),
            (
                ["render", "a.yaml", "b.yaml"],
                "takes no word 'b.yaml'; one job file at a time; here: castoff render a.yaml",
            ),
            (
                ["shell", "a", "--rank", "3", "hostname"],
                "--; here: castoff shell a --rank 3 -- hostname (see",
            ),
            (
                ["render", "a.yaml", "sh", "-c", "b c"],
                "follows --: castoff render a.yaml -- sh -c 'b c' (see",
            ),
            (["render", "a.yaml", "--set", "nodes", "2"], "here: castoff render a.yaml --set nodes=2 (see"),
            (["render", "-nodes", "2", "a.yaml"], "no option -nodes; did you mean --nodes? (see"),
            (["submit", "-follow", "a.yaml"], "no option -follow; did you mean --follow? (see"),
            (
                ["--site", "x", "submit", "a.yaml"],
                "--site before a verb; here: castoff submit --site x a.yaml",
            ),
            (["launch", "a.yaml", "b.yaml"], "launch takes no word 'b.yaml'; one job file at a time"),
            (
                ["submit", "sh"],
                "sh is a program, not a job file; programs follow --: castoff submit -- sh (see",
            ),
            (
                ["submit", "-N", "2", "train.py", "--lr", "a b"],
                "programs follow --: castoff submit -N 2 -- python train.py --lr 'a b' (see",
            ),
            (["stop"], "name a run, or all of a name by --name NAME; `castoff list` shows your runs (see"),
            (["wait", "x", "--timeout", "soon"], "--timeout: is 'soon', but takes a duration"),
            (["cancel"], "name a run, or all of a name by --name NAME"),
            (["init", "-o", "a.yaml"], "no option -o; here: castoff init a.yaml (see"),
            (["cancel", "--all"], "no option --all; here: --name '*' (see castoff cancel --help)"),
            (["resubmit", "a", "b"], "resubmit takes no word 'b'; here: castoff resubmit a"),
            (["render"], "name a job file, or a program after --, as in castoff render -- python train.py"),
            (["submit"], "as in castoff submit -- python train.py"),
            (["launch"], "name a program or a job file, as in castoff launch -n 2 python train.py"),
            (["launch", "--"], "name a program or a job file"),
        ],
    )
    def test_a_wrong_word_is_reported_in_one_line(
        self, castoff: Castoff, words: list[str], said: str
    ) -> None:
        complains(castoff(*words), said, code=2)

    def test_all_problems_at_once(self, castoff: Castoff) -> None:
        flags = ["--nodes", "two", "--ranks", "0", "--walltime", "soon", "--set", "walltme=1h"]
        answer = castoff("render", "--site", "local", *flags, "--", "x")
        assert answer.returncode == 2
        lines = answer.stderr.splitlines()
        assert len(lines) == 4
        for flag in ("--nodes: ", "--ranks: ", "--walltime: ", "--set walltme=1h: "):
            assert sum(line.startswith(f"castoff: {flag}") for line in lines) == 1

    def test_what_a_flag_is_elsewhere_is_said_where_that_was_meant(self, castoff: Castoff) -> None:
        for words in (["-N", "-1"], ["--set", "nodes=two"]):
            assert "sbatch" not in castoff("render", *words, "--site", "slurm", "--", "x").stderr

    def test_for_programs_errors_are_json_too(self, castoff: Castoff) -> None:
        """On standard error, one object, whatever is wrong, and with the same exit code."""
        wrong: list[tuple[list[str], str]] = [
            (["status", "no-such-run"], "no-such-run: no such run"),
            (["wait", "x", "--xyzzy"], "no option --xyzzy (see castoff wait --help)"),
            (["status", "a\nb"], "a\nb: no such run"),
        ]
        for words, said in wrong:
            plain, reported = castoff(*words), castoff(*words, "--json")
            assert (reported.stdout, reported.returncode) == ("", plain.returncode)
            (error,) = objects(reported.stderr)
            assert error["error"].startswith(said) and error["exit_code"] == plain.returncode
        answer = castoff("render", "--site", "local", "--nodes", "two", "--ranks", "0", "--json", "--", "x")
        (error,) = objects(answer.stderr)
        assert [one["where"] for one in error["problems"]] == ["--nodes", "--ranks"]
        assert answer.returncode == error["exit_code"] == 2

    def test_a_failing_disk_prints_no_traceback(self, tmp_path: Path) -> None:
        with Path("/dev/full").open("w") as full:
            words = [COMMAND, "render", "--site", "local", "--", "true"]
            answer = subprocess.run(
                words, cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, text=True, check=False
            )
        assert answer.returncode == 1
        assert answer.stderr == "castoff: standard output: No space left on device\n"


class TestProgram:
    def test_its_flags_are_its_own(self, castoff: Castoff) -> None:
        program = ["python", "train.py", "-n", "2", "--help", "--nodes", "9", "--", "-x", "--set", "a=b"]
        answer = castoff("render", "--site", "slurm", "--nodes", "2", "--", *program)
        assert answer.returncode == 0, answer.stderr
        assert "#SBATCH --nodes=2\n" in answer.stdout
        assert f" {' '.join(program)}\n" in answer.stdout

    def test_launch_hands_every_byte_over(self, tmp_path: Path) -> None:
        odd = [b"", b"a b", b"--", b"-n", b"$HOME", b"'\"\\", b"*", "ä\u2028".encode(), b"\xff\xfe", b"\n"]
        program = "import os, sys; print([os.fsencode(word) for word in sys.argv[1:]])"
        words = [COMMAND, "launch", "--", sys.executable, "-c", program]
        answer = subprocess.run([*map(os.fsencode, words), *odd], cwd=tmp_path, capture_output=True)
        assert answer.stdout.decode() == f"[0] {odd}\n"

    def test_a_job_file_that_is_not_utf8_is_refused(self, tmp_path: Path) -> None:
        words = [os.fsencode(COMMAND), b"render", b"--site", b"local", b"--", b"x", b"\xff"]
        answer = subprocess.run(words, cwd=tmp_path, capture_output=True)
        assert answer.returncode == 2 and answer.stdout == b""
        assert answer.stderr.count(b"\n") == 1 and b"not UTF-8" in answer.stderr

    @pytest.mark.parametrize(
        "verb", sorted({*VERBS} - {"alloc", "doctor", "launch", "render", "shell", "submit", "train"})
    )
    def test_other_verbs_take_none(self, castoff: Castoff, verb: str) -> None:
        complains(castoff(verb, "--", "x"), f"{verb} takes no program", code=2)

    def test_no_verb_before_it(self, castoff: Castoff) -> None:
        complains(castoff("--", "python", "train.py"), "name a verb first", code=2)


class TestMessages:
    """What somebody else wrote is shown, and does nothing to the terminal."""

    RED = "\x1b[31mred\x1b[0m"

    @pytest.mark.parametrize(
        "words",
        [
            ["render", "no-such \x1b[2J\r\nfile.yaml"],
            ["render", "--site", "no-such \x1b[2J\x07\nsite", "--", "x"],
            ["render", "--site", "local", "--set", f"nodes={RED}", "--", "x"],
            ["render", "--site", "local", "--set", "templates=/no/\x1b[2J\u202e", "--", "x"],
            ["render", "--site", "local", "-o", "/no/\x1b[2J\n", "--", "x"],
            ["init", "/no/\x1b[2J\n", "--site", "local"],
            ["status", "no-such \x1b[2J run"],
            ["\x1b[2J"],
            ["launch", "--", "no-such \x1b[2J program"],
        ],
    )
    def test_control_characters(self, castoff: Castoff, words: list[str]) -> None:
        answer = castoff(*words)
        assert answer.returncode != 0 and answer.stdout == ""
        assert "\\x1b[" in answer.stderr
        assert answer.stderr.replace("\n", "").isprintable(), answer.stderr
        assert all(line.startswith("castoff: ") for line in answer.stderr.splitlines())

    def test_of_the_local_launcher(self, castoff: Castoff) -> None:
        answer = castoff("launch", "--", "true", env={"OMP_NUM_THREADS": self.RED})
        assert "OMP_NUM_THREADS=\\x1b[31mred\\x1b[0m (given)" in answer.stderr

    def test_of_a_dry_run(self, castoff: Castoff) -> None:
        words = [
            "submit",
            "--dry-run",
            "--site",
            "slurm",
            "--set",
            f'after.afterok=["{RED_ESCAPED}"]',
            "--",
            "x",
        ]
        answer = castoff(*words)
        assert "--dependency=afterok:\\033[31mred'" in answer.stderr

    def test_a_long_value_is_cut_short(self, castoff: Castoff) -> None:
        answer = castoff("render", "--site", "pbs", "--name", "x" * 9000, "--", "x")
        assert answer.returncode == 2 and len(answer.stderr) < 300
        answer = castoff("render", "--site", "pbs", "--set", f"directives.x={'&' * 9000}", "--", "x")
        assert answer.returncode == 2 and answer.stderr.count("&") < 100


RED_ESCAPED = r"\x1b[31mred"


class TestPipes:
    @pytest.mark.parametrize("words", [["render", "--site", "local", "--", "x"], ["schema"]])
    def test_a_reader_that_closes_the_pipe(self, words: list[str], tmp_path: Path) -> None:
        gone_read, gone_write = os.pipe()
        os.close(gone_read)
        answer = subprocess.run(
            [COMMAND, *words], cwd=tmp_path, stdout=gone_write, stderr=subprocess.PIPE, text=True, check=False
        )
        os.close(gone_write)
        assert answer.returncode != 0
        assert answer.stderr == ""

    @pytest.mark.parametrize("words", [["sites"], ["schema"], ["render", "--site", "local", "--", "x"]])
    def test_no_output_at_all(self, words: list[str], tmp_path: Path) -> None:
        shell = ["sh", "-c", '"$0" "$@" >&-', COMMAND, *words]
        answer = subprocess.run(shell, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert (answer.returncode, answer.stderr) == (0, "")

    @pytest.mark.parametrize(
        ("words", "closed", "code"),
        [
            (["launch", "--here", "--", "sh", "-c", "cat; echo x; exit 4"], "<&- >&-", 4),
            (["shell", "nothing"], "<&-", 2),
        ],
    )
    def test_no_streams_at_all(self, words: list[str], closed: str, code: int, tmp_path: Path) -> None:
        shell = ["sh", "-c", f'"$0" "$@" {closed}', COMMAND, *words]
        answer = subprocess.run(shell, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert answer.returncode == code and "Traceback" not in answer.stderr

    def test_a_script_is_utf_8_whatever_the_locale(self, tmp_path: Path) -> None:
        words = [COMMAND, "render", "--site", "local", "--", "echo", "ä"]
        environment = {**os.environ, "PYTHONIOENCODING": "latin-1"}
        answer = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, check=True)
        assert "echo 'ä'".encode() in answer.stdout


LOADED = (
    "import sys, castoff.launcher.cli.main\n"
    "try: castoff.launcher.cli.main.main(sys.argv[1:])\n"
    "except SystemExit: print(*sorted(name.partition('.')[0] for name in sys.modules), file=sys.stderr)"
)


@pytest.mark.parametrize(
    ("words", "never"),
    [
        (["--help"], "click typing pathlib msgspec yaml jinja2 psutil rich subprocess"),
        (["status", "nothing"], "yaml jinja2 psutil rich"),
        (["launch", "--", "true"], "msgspec yaml jinja2 rich"),
        (
            ["launch", "--here", "--ranks-per-node", "2", "--", "true"],
            "click dataclasses msgspec yaml",
        ),
        (["render", "--site", "local", "--", "true"], "jinja2 psutil rich"),
        (["explain"], "msgspec yaml jinja2 psutil rich subprocess"),
    ],
)
def test_only_what_is_needed_is_loaded(words: list[str], never: str, tmp_path: Path) -> None:
    answer = subprocess.run(
        [sys.executable, "-c", LOADED, *words], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    loaded = set(answer.stderr.splitlines()[-1].split())
    assert "castoff" in loaded
    assert not loaded & {"torch", "submitit", "numpy", *never.split()}
