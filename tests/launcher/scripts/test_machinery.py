"""The lower half of scripts: shell that is the same in many, and that nothing in a job can lead astray."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from castoff import CastoffError, render
from castoff.launcher.planning.containers import RUNTIMES
from castoff.launcher.planning.machinery import machinery
from castoff.launcher.planning.render import template_folder
from castoff.launcher.ranks import is_stale
from castoff.launcher.ranks.environment import STALE_NAMES, STALE_PREFIXES
from castoff.launcher.runs.script import MARK, directives_of, head_of, scheduler_in
from castoff.launcher.schedulers.registry import scheduler_of
from docs.generate.script_parts import OF_A_LAUNCHER, OF_A_SCHEDULER
from tests import patience
from tests.cases import others_long

from .conftest import Benches
from .examples import EXAMPLES
from .harness import Bench
from .machine import FOLDER, below, inner, known_parts, part
from .test_rendering import rendered
from .test_templates import planned, write

PARTS = sorted(FOLDER.rglob("*.sh"))
SHELLCHECK = Path(sys.executable).with_name("shellcheck")

# SC2218: functions are defined below their calls, since the script reads them first. SC2154: what only some
# jobs have is asked for by "${x+…}". SC2174: the folder above is there. SC2046: names of functions. In what
# people write, SC1091: it would read what they activate; SC2016: no shell is to read a program's $SCRATCH.
EXCLUDED = "SC2329,SC2034,SC2218,SC2154,SC2119,SC2120,SC1091,SC2016,SC2046,SC2174,SC3067"

REQUIRED = {
    "schedulers": {"locate"},
    "launchers": set[str](),
    "runtimes": set[str](),
}
"""What each scheduler's, launcher's and runtime's file defines."""

QUEUED = {"schedulers": {"hosts", "clear_env", "end_time"}, "launchers": {"advise"}}
"""What those for other people's clusters define beside."""

OPTIONAL = {
    "schedulers": {
        "begin",
        "choose_log",
        "submit_next",
        "finish",
        "listen",
        "requeue",
        "enforce_walltime",
        "kill_delay",
        "end_now",
        "guard",
        "find_launcher",
        "has_lost_host",
        "ended_rank",
    },
    "launchers": {
        "each",
        "beside",
        "name_hosts",
        "place",
        "export",
        "cancel",
        "host_of_rank_0",
        "has_ended",
        "tries_again",
    },
    "runtimes": {"flags"},
}
"""What is called where it is defined."""


def named(path: Path) -> str:
    return path.relative_to(FOLDER).with_suffix("").as_posix()


def shellcheck(shell: str, exclude: str, paths: list[Path]) -> str:
    command = [str(SHELLCHECK), f"--exclude={exclude}", f"--shell={shell}", *map(str, paths)]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


class TestParts:
    @pytest.mark.parametrize("kind", REQUIRED)
    def test_each_defines_what_others_call(self, kind: str) -> None:
        """The interface: functions of fixed names, as docs/reference/templates.md has them."""
        allowed = REQUIRED[kind] | QUEUED.get(kind, set()) | OPTIONAL[kind]
        for path in sorted((FOLDER / kind).iterdir()):
            text = path.read_text()
            found = set(re.findall(rf"^castoff_{kind.removesuffix('s')}_(\w+)\(\)", text, re.MULTILINE))
            required = REQUIRED[kind] | (set() if path.stem == "local" else QUEUED.get(kind, set()))
            assert required <= found <= allowed, path
        document = (Path(__file__).parents[3] / "docs" / "reference" / "templates.md").read_text()
        assert all(f"`castoff_{kind.removesuffix('s')}_{name}`" in document for name in allowed)

    @pytest.mark.parametrize(
        ("kind", "table"), [("schedulers", OF_A_SCHEDULER), ("launchers", OF_A_LAUNCHER)]
    )
    def test_no_others_are_documented(self, kind: str, table: dict[str, str]) -> None:
        allowed = REQUIRED[kind] | QUEUED[kind] | OPTIONAL[kind]
        assert set(table) == {f"castoff_{kind.removesuffix('s')}_{name}" for name in allowed}

    def test_shared_ones_name_no_scheduler_or_launcher(self) -> None:
        own = {path.stem for path in PARTS if "/" in named(path)}
        for path in PARTS:
            conditions = re.findall(r"^#(?:if|elif) (.*)", path.read_text(), re.MULTILINE)
            assert not own & set(re.findall(r"[\w-]+", " ".join(conditions))), path

    def test_comments_hold_nothing_that_a_shell_would_run(self) -> None:
        """A comment that a quote or a here-document of somebody's swallows is not a comment any more."""
        for path in sorted(template_folder().rglob("*.*")):
            if path.suffix in (".sh", ".j2") and path.name != "job.yaml.j2":
                for line in path.read_text().splitlines():
                    comment = re.search(r"(?:^|\s)#\s.*", line)
                    assert not (comment and re.search(r"[`$]", comment[0])), f"{path}: {line}"

    def test_none_of_them_holds_a_template(self) -> None:
        for path in PARTS:
            assert "{{" not in path.read_text().replace("${{", "") and "{%" not in path.read_text(), path

    def test_each_is_used_by_some_job(self) -> None:
        plans = [example.plan() for example in EXAMPLES.values()]
        assert known_parts() == {
            name for decided in plans for name in machinery(decided, scheduler_of(decided.scheduler)).names
        }

    @pytest.mark.parametrize("runtime", RUNTIMES)
    def test_a_runtime_is_reported_alike_here_and_there(self, runtime: str) -> None:
        text = part(f"runtimes/{runtime}")
        reported = RUNTIMES[runtime]  # type: ignore[index]
        script = f'{text}\nprintf %s "${{castoff_unbindable-}}"'
        said = subprocess.check_output(["bash", "-c", script], text=True)
        assert said == (reported.unbindable if reported.binds_run else "")


class TestWhole:
    @pytest.mark.long
    def test_its_bytes_follow_from_the_marker(self) -> None:
        found: dict[str, str] = {}
        for name in EXAMPLES:
            marker, text = head_of(rendered(name)).splitlines()[-1], below(rendered(name))
            features = re.match(r"(#.*\n)*", text)
            assert features and found.setdefault(marker + features[0], text) == text, name
        assert len(found) < 0.75 * len(EXAMPLES)

    def test_no_function_can_be_replaced(self) -> None:
        for text, name in {below(rendered(name)): name for name in EXAMPLES}.items():
            command = ["bash", "-c", f"{text}\ndeclare -F"]
            lines = subprocess.check_output(command, text=True).splitlines()
            assert len(lines) > 10 and all(line.startswith("declare -fr castoff_") for line in lines), name

    def test_every_function_that_is_called_is_there(self) -> None:
        for name in EXAMPLES:
            script = rendered(name).replace("\\\n", " ")
            defined = set(re.findall(r"^ *(castoff_\w+)\(\)", script, re.MULTILINE))
            called = set(re.findall(r"^ *(?:if |! )*(castoff_\w+)(?: [\"$\w].*)?$", script, re.MULTILINE))
            assert called <= defined, name

    def test_every_function_that_is_there_is_called(self) -> None:
        """Or a head calls it, for some jobs."""
        heads = "".join(path.read_text() for path in template_folder().glob("*.j2"))
        for name in EXAMPLES:
            script = rendered(name) + heads
            words = Counter(re.findall(r"\w+", script))
            for function in re.findall(r"^(castoff_\w+)\(\)", script, re.MULTILINE):
                assert words[function] > 1, (name, function)

    @pytest.mark.long
    def test_shells_parse_all_of_it(self, tmp_path: Path, system_program: Callable[[str, str], Path]) -> None:
        dash = system_program("dash", "dash")
        script = tmp_path / "job.sh"
        tried: set[str] = set()
        for name in EXAMPLES:
            script.write_text(rendered(name))
            subprocess.run(["bash", "-n", script], check=True)
            programs = inner(rendered(name))
            features = machinery(*EXAMPLES[name].decided()).features
            assert ("RANK" in programs) == features.isdisjoint({"here", "script"})
            for text in {*programs.values()} - tried:
                script.write_text(text)
                subprocess.run([dash, "-n", script], check=True)
                tried.add(text)

    @pytest.mark.parametrize("part", others_long(["head", "script"], ["head"]))
    def test_shellcheck_finds_nothing(self, part: str, tmp_path: Path) -> None:
        """In every head; in as many whole scripts as have each part of the machinery once."""
        found = {name: machinery(*example.decided()) for name, example in EXAMPLES.items()}
        parts = {name: {*one.features, *one.parts} for name, one in found.items()}
        seen: set[str] = set()
        paths = []
        for name in sorted(EXAMPLES, key=lambda name: -len(parts[name])):
            text = head_of(rendered(name)) if part == "head" else rendered(name)
            if part == "script" and parts[name] <= seen:
                continue
            seen |= parts[name]
            path = tmp_path / f"{name}.sh"
            path.write_text(text)
            paths.append(path)
        assert shellcheck("bash", EXCLUDED, paths) == ""

    def test_shellcheck_finds_nothing_in_what_nodes_run(self, tmp_path: Path) -> None:
        """As many of these programs as have each of their lines once."""
        texts = {
            text for name in EXAMPLES if name != "slurm-script" for text in inner(rendered(name)).values()
        }
        seen: set[str] = set()
        paths: list[Path] = []
        for text in sorted(texts, key=lambda text: (-len(text), text)):
            if {*text.splitlines()} <= seen:
                continue
            seen |= {*text.splitlines()}
            paths.append(tmp_path / f"{len(paths)}.sh")
            paths[-1].write_text(f"#!/bin/sh\n{text}")
        assert shellcheck("sh", EXCLUDED, paths) == ""


class TestHead:
    def test_ends_with_its_last_marker(self) -> None:
        for name in EXAMPLES:
            script = rendered(name)
            assert head_of(script).count(f"\n{MARK}") == 1
            assert head_of(script) + below(script) == script
            assert scheduler_in(script) == EXAMPLES[name].plan().scheduler

    def test_text_of_the_job_is_not_taken_for_the_marker(self) -> None:
        text = f"\n{MARK}for evil and mean\nexport CASTOFF_ARRAY_COUNT=9\ncastoff_loaded=1\n"
        text += "#SBATCH --array=0-3\n"

        script = render(planned(None, setup=[f"cat <<'X'{text}X"], env={"A": text}, command=["echo", text]))
        assert scheduler_in(script) == "slurm"
        assert head_of(script).count(text) == 3 and "castoff_begin() {" not in head_of(script)
        assert "--array" not in directives_of(script)

    def test_a_script_without_one(self) -> None:
        assert head_of("#!/bin/sh\ntrue\n") == "#!/bin/sh\ntrue\n"
        assert scheduler_in("#!/bin/sh\n#SBATCH -N 1\n") is None
        assert directives_of("") == ""


def refused(script: Path, here: Bench) -> str:
    """What a script says that does not begin."""
    reported = {**os.environ, **here._scheduler()}
    answer = subprocess.run(
        ["bash", script],
        cwd=here.folder,
        env=reported,
        capture_output=True,
        text=True,
        check=False,
        timeout=patience.SECONDS,
    )
    assert answer.returncode != 0, answer.stdout
    assert [path.name for path in here.folder.iterdir()] == ["job.sh"], "nothing was made"
    assert here.ranks() == []
    return answer.stderr


class TestLoader:
    MESSAGE = "cannot be read: is all of it there?"

    def script(self, here: Bench) -> Path:
        """Of a job that is done by the time that a part of it is cut off."""
        setup = ["touch $PROBE_FOLDER/began"]
        assert here.run(ranks_per_node=1, env={"A": f"\n{MARK}\n"}, setup=setup).code == 0
        for path in (here.run_dir() / "job.sh", here.run_dir()):
            subprocess.run(["rm", "-r", path], check=True)
        for path in here.seen.iterdir():
            path.unlink()
        return here.folder / "job.sh"

    def test_one_that_is_cut_short(self, bench: Benches) -> None:
        here = bench("srun")
        script = self.script(here)
        lines = script.read_text().splitlines(keepends=True)
        begin = next(at for at, line in enumerate(lines) if line.startswith("{ POSIXLY_CORRECT="))
        mark = max(at for at, line in enumerate(lines) if line.startswith(MARK))
        for end in (*range(begin + 1, mark + 10), *range(mark + 10, len(lines), 9), len(lines) - 1):
            script.write_text("".join(lines[:end]))
            said = refused(script, here)
            assert self.MESSAGE in said or "syntax error" in said or "unexpected EOF" in said, (end, said)
            assert not (here.seen / "began").exists()

    def test_one_that_cannot_be_read(self, bench: Benches) -> None:
        here = bench("srun")
        script = self.script(here)
        text = script.read_text()
        reported = {**os.environ, **here._scheduler()}
        answer = subprocess.run(
            ["bash"],
            input=text,
            cwd=here.folder,
            env=reported,
            capture_output=True,
            text=True,
            check=False,
            timeout=patience.SECONDS,
        )
        assert answer.returncode != 0 and self.MESSAGE in answer.stderr
        assert not (here.seen / "began").exists()

    @pytest.mark.long
    def test_a_name_that_awk_or_a_command_would_take_for_something_else(self, bench: Benches) -> None:
        here = bench("srun")
        script = self.script(here)
        for name in ("a=b", "-n"):
            script.rename(here.folder / name)
            reported = {**os.environ, **here._scheduler(), "PROBE_FOLDER": str(here.seen)}
            subprocess.run(
                ["bash", "--", name], cwd=here.folder, env=reported, check=True, timeout=patience.SECONDS
            )
            subprocess.run(["rm", "-r", here.run_dir()], check=True)
            script = here.folder / name

    @pytest.mark.parametrize("line", ["nothing-of-this-name", ': "${NOT_SET_ANYWHERE:?}"'])
    def test_errors_name_their_lines(self, line: str, bench: Benches) -> None:
        """Those of the head, and those of the machinery."""
        here = bench("srun")
        ended = here.run(ranks_per_node=1, setup=["# one line", line], env={"STUB_HOSTS": "x0"})
        lines = (here.folder / "job.sh").read_text().splitlines()
        assert f"job.sh: line {lines.index(line) + 1}: " in ended.output
        outside = here.start(ranks_per_node=1, env={"SLURM_JOB_ID": ""})
        output, _ = outside.process.communicate(timeout=patience.SECONDS)
        lines = (here.folder / "job.sh").read_text().splitlines()
        number = next(at for at, text in enumerate(lines, 1) if "${SLURM_JOB_ID:?" in text)
        assert f"job.sh: line {number}: SLURM_JOB_ID: castoff: submit this script with sbatch" in output


def called_in_scripts() -> set[str]:
    """Names of builtins and programs that scripts may call."""
    text = "".join(path.read_text() for path in PARTS)
    builtins = subprocess.check_output(["bash", "-c", "compgen -b"], text=True).split()
    found = {word for word in re.findall(r"[a-z]+", text) if word in builtins or shutil.which(word)}
    found -= set(subprocess.check_output(["bash", "-c", "compgen -k"], text=True).split())
    found -= {"srun", "mpiexec"}  # the job's own words, which may well be functions
    assert {"kill", "wait", "cp", "sed", "printf", "date", "unset", "set"} <= found and len(found) > 30
    return found


def test_an_older_bash_is_refused_before_anything_is_done(bench: Benches) -> None:
    here = bench("srun")
    script, newest = here.folder / "old.sh", ">= 404"
    text = render(here.plan_of(ranks_per_node=1))
    assert newest in text
    script.write_text(text.replace(newest, ">= 9904"))
    done = subprocess.run(["bash", script], cwd=here.folder, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    found = r"castoff: this needs bash 4\.4 or newer, not [5-9]\.\S+: name one as the profile's shell\n"
    assert re.fullmatch(found, done.stderr)
    assert list(here.folder.iterdir()) == [script]


class TestFunctionsOfTheEnvironment:
    @pytest.mark.parametrize("inherit", others_long(["all", ["PROBE_FOLDER"]], [["PROBE_FOLDER"]]))
    @pytest.mark.parametrize("kind", others_long(["local", "hydra", "pals", "srun"], ["local"]))
    def test_named_as_what_castoff_calls(self, kind: str, inherit: str | list[str], bench: Benches) -> None:
        """As `export -f` leaves them; bash itself has them before the first line of a script."""
        here = bench(kind)
        taken = here.folder / "taken"  # written by a redirection, for every word may be a function
        evil = {f"BASH_FUNC_{name}%%": f"() {{  >{taken}-{name}; }}" for name in called_in_scripts()}
        reported = {**evil, "BASH_FUNC_castoff_begin%%": "() {  exit 3; }"}
        ended = here.run(ranks=1, inherit=inherit, env=reported, requeue={"max": 1}, walltime="1h")
        assert (ended.code, ended.ending) == (0, ("done", 0)), ended.output
        assert list(here.folder.glob("taken-*")) == []

    @pytest.mark.parametrize(("inherit", "seen"), [("all", "function"), (["MINE"], ""), ("none", "")])
    def test_what_a_script_submitted_without_castoff_inherits(
        self, inherit: str | list[str], seen: str, bench: Benches
    ) -> None:
        here = bench("local")
        setup = ["type -t mine >mine || true"]
        env = {"BASH_FUNC_mine%%": "() {  echo mine; }", "MINE": "mine"}
        here.run(ranks=1, inherit=inherit, env=env, setup=setup)
        assert (here.folder / "mine").read_text().strip() == seen


class TestFunctionsOfSetup:
    @pytest.mark.long
    @pytest.mark.parametrize("kind", others_long(["local", "hydra", "pals", "srun"], ["srun"]))
    def test_named_as_what_castoff_calls(self, kind: str, bench: Benches) -> None:
        """A program or builtin of that name is what castoff means."""
        evil = called_in_scripts()
        lines = [f"{name}() {{ echo taken by {name}; exit 99; }}" for name in sorted(evil)]
        here = bench(kind)
        ended = here.run(ranks_per_node=2, setup=lines, requeue={"max": 1}, walltime="1h")
        assert (ended.code, ended.ending) == (0, ("done", 0)), ended.output
        assert "taken by" not in ended.output

    @pytest.mark.parametrize("name", ["castoff_end", "castoff_start", "castoff_scheduler_locate"])
    def test_named_as_castoffs_own(self, name: str, bench: Benches) -> None:
        """The job ends at that line."""
        here = bench("srun")
        line = f"{name}() {{ exit 0; }}"
        ended = here.run(ranks_per_node=1, setup=[line])
        assert (ended.code, ended.ending) == (1, ("failed", 1)), ended.output
        number = (here.folder / "job.sh").read_text().splitlines().index(line) + 1
        assert f"job.sh: line {number}: {name}: readonly function" in ended.output
        assert here.ranks() == []


def test_a_part_of_the_users_that_would_cut_the_script(tmp_path: Path) -> None:
    own = write(tmp_path, "blocks/stopping.sh", f"castoff_wait() {{ wait; }}\n{MARK}\n")
    with pytest.raises(CastoffError, match=r"blocks/stopping\.sh: no line may begin with # === castoff"):
        render(planned(own))


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_a_users_part_that_is_not_a_file_is_refused(make: Callable[[Path], None], tmp_path: Path) -> None:
    own = write(tmp_path, "blocks/stopping.sh", "")
    make(own / "blocks/ending.sh")
    with pytest.raises(CastoffError, match=r"blocks/ending\.sh: cannot be read as UTF-8: it is not a file"):
        render(planned(own))


def test_what_parents_ranks_were_reported_is_cleared() -> None:
    """And nothing that people set for a launcher to read, or that a batch job has of its scheduler."""
    stale = [*STALE_NAMES, *(f"{prefix}X" for prefix in STALE_PREFIXES)]
    kept = [
        *("PALS_PMI", "PALS_NRANKS", "PMI_NO_FORK", "PMIX_MCA_gds", "OMPI_MCA_btl", "I_MPI_DEBUG"),
        *("SLURM_JOB_ID", "SLURM_JOBID", "SLURM_NTASKS", "SLURM_STEPMGR", "SLURM_SRUN_REDUCE_TASK_EXIT_MSG"),
        *("SLURM_CONF", "SLURM_JOB_NODELIST", "FLUX_URI", "FLUX_JOB_ID", "TORCHELASTIC_ENABLE_FILE_TIMER"),
        *("RANKS", "MASTER", "LOCAL_RANKING", "ROLE_ARN"),
    ]
    assert all(map(is_stale, stale)) and not any(map(is_stale, kept))
    script = f"set -euo pipefail\n{part('environment').replace('  castoff_', '  : castoff_')}"
    answer = subprocess.check_output(
        ["bash", "-c", f"{script}\ncastoff_clear_stale_env; compgen -e"],
        env={**dict.fromkeys([*stale, *kept], "1"), "PATH": os.environ["PATH"]},
        text=True,
    )
    assert not set(answer.split()) & set(stale) and set(answer.split()) >= set(kept)
