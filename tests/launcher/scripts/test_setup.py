"""Which lines of setup end a job, how they are reported, and what may be false without ending it."""

from __future__ import annotations

import sys

import msgspec
import pytest

from castoff import Site
from castoff.launcher.runs.records import Ending, read

from .conftest import Benches
from .harness import Bench

FILES = {
    "tests_last": "[ -f /no/such/file ] && . /no/such/file\n",
    "leaves_early": '[ -n "$NOT_SET_ANYWHERE" ] || return\nexit 9\n',
    "asks_in_a_function": 'add() { [ -d "$1" ] && PATH=$1:$PATH; }\nadd /no/such/folder\n:\n',
    "reads_another": ". ./tests_last\nnested() { . ./tests_last; }\nnested\n. ./tests_last\n",
    "fails_inside": "\ntrue\ngrep -q x /dev/null\ntrue\n",
    "fails_last": "true\nfalse\n",
    "refuses": 'echo "no licence" >&2\nreturn 3\n',
    "exits": "true\nexit 0\n",
}
"""What setup reads."""

MODULE = "module() {\n  eval 'false' && true\n  return $?\n}"
"""Of a module that is not there, as Lmod's function ends."""


@pytest.fixture
def here(bench: Benches) -> Bench:
    """A folder with these files."""
    made = bench("local")
    for name, text in FILES.items():
        (made.folder / name).write_text(text)
    return made


@pytest.mark.everyday("lines0-1-false")
@pytest.mark.parametrize(
    ("lines", "code", "said"),
    [
        (["false"], 1, "false"),
        (["true", "no-such-program x", "true"], 127, "no-such-program x"),
        (["cd /no/such && true; cd /no/such"], 1, "cd /no/such && true; cd /no/such"),
        ([MODULE, "  module load nosuch"], 1, "module load nosuch"),
        ([". ./not-there"], 1, ". ./not-there"),
        (["source fails_last"], 1, "source fails_last (fails_last, line 2: false)"),
        ([". ./fails_inside"], 1, ". ./fails_inside (./fails_inside, line 3: grep -q x /dev/null)"),
        ([". ./tests_last", ". ./fails_last"], 1, ". ./fails_last (./fails_last, line 2: false)"),
        ([". ./refuses"], 3, ". ./refuses"),
        ([". ./exits"], 0, ". ./exits"),
        (["exit 0"], 0, "exit 0"),
        (["(exit 4)"], 4, "(exit 4)"),
        (["[ -e /no/such/file ]"], 1, "[ -e /no/such/file ]"),
        (["false | cat"], 1, "false | cat"),
        (["if true; then", "  cat <<X", "false", "X", "  false", "fi"], 1, "false"),
        (["castoff_end() { :; }"], 1, "castoff_end() { :; }"),
        ([': "${NOT_SET_ANYWHERE:?}"'], 1, ': "${NOT_SET_ANYWHERE:?}"'),
        (["trap 'touch cleaned' EXIT", "false"], 1, "false"),
    ],
)  # fmt: skip
def test_the_line_that_ends_a_job_is_reported(here: Bench, lines: list[str], code: int, said: str) -> None:
    ended = here.run(setup=lines)
    reason = f"setup ended the job with code {code}, at this line: {said}"
    assert (ended.code, ended.ending) == (code or 1, ("failed", code or 1)), ended.output
    assert ended.output.splitlines()[-1] == f"castoff: {reason}"
    assert ended.record("ending")["reason"] == reason
    assert here.ranks() == []


def test_a_false_test_is_not_a_failure(here: Bench) -> None:
    lines = [
        "[ -f /no/such/file ] && . /no/such/file",
        *(". ./tests_last", "source leaves_early", ". ./asks_in_a_function", ". ./reads_another"),
        "f() { [[ -d $1 ]] && cd $1; }; f /no/such/folder",
        "g() { (($1)) && true; }; g 0",
        "for name in tests_last reads_another; do . ./$name; done",
        "case $- in *e*) ;; *) exit 9 ;; esac",  # the next one that fails would end the job
        "(false; exit 0) || true",
        "set +e; false; set -e",
        "x=$(false; echo 1); unset x $NOT_SET_ANYWHERE",
    ]
    ended = here.run(setup=lines, command=[sys.executable, "-c", "print('began')"])
    assert ended.ending == ("done", 0), ended.output
    assert "began" in ended.output


def test_after_setup_the_script_is_as_strict_as_before(here: Bench) -> None:
    """Whatever setup has switched off, and whatever traps it leaves."""
    lines = ["set +eu +o pipefail", "trap 'echo theirs' ERR RETURN DEBUG", ". ./tests_last"]
    ended = here.run(setup=lines, workdir="not-there")
    assert ended.ending == ("failed", 1), ended.output
    assert "reason" not in ended.record("ending")
    assert ended.output.splitlines()[-1].endswith("not-there: No such file or directory")


def test_a_reason_is_a_record_whatever_it_holds(here: Bench) -> None:
    line = 'echo "a\\b\tc" | grep -q "' + "ü" * 300 + '"'
    ended = here.run(setup=[line])
    found = read(ended.run_dir / "attempts" / "0.0" / "ending.json", Ending)
    assert found is not None and found.ending == "failed" and found.reason is not None
    assert found.reason.partition("this line: ")[2].startswith('echo "a\\b c" | grep -q "üü')


@pytest.mark.everyday("setup1")
@pytest.mark.parametrize("setup", [["export OF_SETUP=setup OF_JOB=setup GONE=setup"], []])
def test_which_variables_win(bench: Benches, setup: list[str]) -> None:
    """The site's are defaults for setup; an option's and the job's own come after it, and null unsets one."""
    here = bench("srun")
    fact = {"source": "s", "date": "2026-11-28", "description": "d"}
    given = ("OF_SITE", "OF_SETUP", "OF_JOB", "OF_OPTION", "GONE")
    here.site = msgspec.convert(
        {
            **msgspec.to_builtins(here.site),
            "env": dict.fromkeys(given, "site"),
            "defaults": {"env": {"OF_DEFAULTS": "defaults", "GONE_TOO": "defaults"}},
            "options": {"some": {**fact, "env": {"OF_OPTION": "option", "OF_JOB": "option"}}},
        },
        Site,
    )
    own = {"OF_JOB": "job", "GONE": None, "GONE_TOO": None, "NEVER_SET": None}
    decided = here.plan_of(setup=setup, command=["env"], options=["some"], env=own)
    ended = here.start_plan(decided).end()
    seen = dict(line.partition("=")[::2] for line in ended.output.splitlines())
    names = ("OF_", "GONE", "NEVER")
    assert {name: value for name, value in seen.items() if name.startswith(names)} == {
        "OF_SITE": "site",
        "OF_SETUP": "setup" if setup else "site",
        "OF_DEFAULTS": "defaults",
        "OF_OPTION": "option",
        "OF_JOB": "job",
    }
    threads = here.start_plan(here.plan_of(setup=["export OMP_NUM_THREADS=3"], command=["env"])).end()
    assert "OMP_NUM_THREADS=3" in threads.output.splitlines()
