"""Parameters of an array's members in a script: exact words, the file, and restarts."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from castoff import InvalidInput, JobSpec, Site, plan, render
from castoff.launcher.config.parameters import Table
from castoff.launcher.config.references import filled
from castoff.launcher.planning.parameters import for_torchrun, members, script_rows
from castoff.launcher.planning.render import template_folder
from castoff.launcher.runs.parameters import parameters_of
from castoff.launcher.runs.run import RunDirectory
from castoff.launcher.text.quoting import parameter_mark, shell_word
from tests.hostile import ANY_LINE, QUOTES

from .conftest import Benches

VALUES = (
    ANY_LINE
    | QUOTES
    | st.sampled_from(["", "True", "FALSE", "-n", "\t", "\\", '\\"', "\\t", "${x}", "1e-3", "~"])
).filter(lambda text: not any((ord(letter) < 32 and letter != "\t") or ord(letter) == 127 for letter in text))

AS_WORDS = """
set -euo pipefail
{functions}
for CASTOFF_ARRAY_INDEX in {members}; do
  CASTOFF_ATTEMPT_DIR=$PWD/$CASTOFF_ARRAY_INDEX
  mkdir -p "$CASTOFF_ATTEMPT_DIR"
  castoff_parameters a b <<'CASTOFF_PARAMETERS'
{rows}
CASTOFF_PARAMETERS
  printf '%s\\0' {words} >"$CASTOFF_ATTEMPT_DIR/words"
done
"""


@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(values=st.lists(VALUES, min_size=1, max_size=12))
def test_words_are_exact(values: list[str], tmp_path: Path) -> None:
    table = Table.of({"a": values, "b": ["$b", "1"]})
    a, b = parameter_mark("a"), parameter_mark("b")
    doubled = for_torchrun(f"${b}")
    words = " ".join(map(shell_word, [a, f"x '{a}'$(no)/{b}", f"--{b}", doubled]))
    script = AS_WORDS.format(
        functions=(template_folder() / "machinery" / "parameters.sh").read_text(),
        members=" ".join(map(str, range(table.size))),
        rows="\n".join(script_rows(table)),
        words=words,
    )
    subprocess.run(["bash"], input=script.encode(), cwd=tmp_path, check=True)
    for member in range(table.size):
        value = table.values(member)
        seen = (tmp_path / str(member) / "words").read_bytes().decode().split("\0")[:-1]
        twice = f"${value['b']}".replace("$", "$$")
        assert seen == [value["a"], f"x '{value['a']}'$(no)/{value['b']}", f"--{value['b']}", twice]
        written = json.loads((tmp_path / str(member) / "parameters.json").read_text())
        assert written == table.typed(member)


JOB: dict[str, Any] = {
    "array": {"parameters": {"lr": ["1e-3", "a $b"], "seed": ["0", "1"]}},
    "command": ["sh", "-c", 'printf "%s|" "$@" "$OUT" "$PWD"; cat "$CASTOFF_PARAMETERS"', "sh", "--lr={lr}"],
    "env": {"OUT": "out/{seed}"},
    "workdir": "in {lr}",
    "name": "try-{lr}",
}


@pytest.mark.everyday("srun")
@pytest.mark.parametrize("kind", ["srun", "pals", "hydra", "openmpi"])
def test_a_script_alone_runs_its_member(kind: str, bench: Benches) -> None:
    here = bench(kind)
    (here.folder / "in a $b").mkdir()
    here.array_index = 3
    ended = here.start_plan(here.plan_of(**JOB, ranks_per_node=2)).end()
    assert ended.code == 0, ended.output
    log = (ended.run_dir / "logs" / "3.0" / "rank-00001.log").read_text()
    folder = here.folder / "in a $b"
    assert log == f'--lr=a $b|out/1|{folder}|{{"lr": "a $b", "seed": 1}}\n'
    found = parameters_of(RunDirectory(ended.run_dir))
    assert found.values(3) == {"lr": "a $b", "seed": "1"}


def test_a_member_that_does_not_exist(bench: Benches) -> None:
    here = bench("srun")
    here.array_index = 4
    ended = here.start_plan(here.plan_of(**JOB, ranks_per_node=1)).end()
    assert ended.code == 1
    assert "castoff: this array has no member 4\n" in ended.output


def test_an_attempt_after_a_restart_has_the_file_again(bench: Benches) -> None:
    here = bench("local")
    program = '[ "$CASTOFF_ATTEMPT" = 1 ] && cat "$CASTOFF_PARAMETERS"'
    ended = here.run(
        command=["sh", "-c", program],
        array=JOB["array"],
        ranks_per_node=1,
        restart={"max": 1},
    )
    assert ended.code == 0, ended.output
    log = (ended.run_dir / "logs" / "0.1" / "rank-00000.log").read_text()
    assert log == '{"lr": 1e-3, "seed": 0}\n'
    assert (ended.run_dir / "attempts" / "0.1" / "parameters.json").read_text() == log


class TestPlans:
    def test_members_run_what_is_shown(self) -> None:
        decided = plan(JobSpec.of(JOB), Site.load("slurm"))
        shown = [*members(decided)]
        assert [member.number for member in shown] == [0, 1, 2, 3]
        last = shown[-1]
        assert (last.name, last.workdir, last.env) == ("try-a $b", "./in a $b", {"OUT": "out/1"})
        assert last.command == [filled(word, last.parameters) for word in JOB["command"]]

    def test_the_run_has_the_name_without_parameters(self) -> None:
        assert plan(JobSpec.of(JOB), Site.load("slurm")).name == "try"
        alone = {**JOB, "name": "{lr}", "command": ["python", "train.py"]}
        assert plan(JobSpec.of(alone), Site.load("slurm")).name == "train"

    def test_members_that_share_a_job(self) -> None:
        job = {**JOB, "array": {**JOB["array"], "together": 2}, "workdir": "{lr}", "ranks_per_node": 1}
        decided = plan(JobSpec.of({**job, "exclusive": True}), Site.load("slurm"))
        script = render(decided)
        assert (decided.name, decided.member_name, decided.workdir) == ("try", "try-{lr}", "./{lr}")
        assert "#SBATCH --job-name=try\n" in script and "castoff_dispatch" in script
        assert script.index("\ncastoff_begin #") < script.index("\ncastoff_parameters lr seed <<")
        wrong = {**job, "array": {"parameters": {"lr": [":", "a"], "seed": ["0", "0"]}, "together": 2}}
        with pytest.raises(InvalidInput, match="is ':' for member 0"):
            plan(JobSpec.of({**wrong, "command": ["x", "{lr}", "{seed}"]}), Site.load("slurm"))

    @pytest.mark.parametrize(
        ("site", "value", "refused"),
        [("slurm", ":", True), ("flux", "{{id}}", None), ("local", ":", False), ("slurm", "a:b", False)],
    )
    def test_words_that_a_launcher_would_read(self, site: str, value: str, refused: bool | None) -> None:
        job = {"command": ["x", "{a}"], "array": {"parameters": {"a": ["1", value]}}}
        if refused is False:
            assert plan(JobSpec.of(job), Site.load(site)).parameters
            return
        with pytest.raises(InvalidInput) as caught:
            plan(JobSpec.of(job), Site.load(site))
        message = "which srun would read itself" if refused else "array"
        assert message in str(caught.value)

    @pytest.mark.parametrize(
        ("folders", "message"),
        [
            (["/data/a", "b"], "is absolute for member 0, and relative for member 1"),
            (["", "b"], "is empty for member 0"),
            (["~/x"], "is in a home folder for member 0"),
        ],
    )
    def test_folders_of_different_kinds(self, folders: list[str], message: str) -> None:
        job = {"command": ["x"], "workdir": "{d}", "array": {"parameters": {"d": folders}}}
        with pytest.raises(InvalidInput, match=message):
            plan(JobSpec.of(job), Site.load("slurm"))

    def test_absolute_folders(self) -> None:
        job = {"command": ["x"], "workdir": "{d}", "array": {"parameters": {"d": ["/data/a", "/data/b"]}}}
        assert 'cd /"${castoff_parameter[d]}"\n' in render(plan(JobSpec.of(job), Site.load("slurm")))

    def test_a_table_that_no_script_can_hold(self) -> None:
        job = {"command": ["x", "{a}"], "array": {"parameters": {"a": ["x" * 100_000] * 36}}}
        with pytest.raises(InvalidInput, match="makes a table of 3,600,108 bytes, and a script can hold"):
            plan(JobSpec.of(job), Site.load("slurm"))

    def test_a_job_without_parameters_is_not_changed(self) -> None:
        job = {"command": ["x", "{a}", "{{b}}"], "env": {"A": "{c}"}, "array": {"count": 2}}
        script = render(plan(JobSpec.of(job), Site.load("slurm")))
        assert "x '{a}' '{{b}}'" in script and "export A='{c}'" in script
        assert "castoff_parameter" not in script
