"""A job that holds a batch script: it runs once, as its scheduler would run it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from castoff import JobSpec, Site
from castoff.launcher.config.workdir import as_path
from castoff.launcher.errors import InvalidInput
from castoff.launcher.planning.planner import decide
from castoff.launcher.planning.render import render, rendered
from castoff.launcher.runs.run import RunDirectory
from castoff.launcher.runs.states import why
from castoff.launcher.status.watch import status
from tests.patience import until

from .conftest import Benches

SIZES: dict[str, dict[str, Any]] = {
    "slurm": {
        "export": "NONE",
        "ntasks": "32",
        "gres": "gpu:a100:4",
        "mem-per-cpu": "2G",
        "output": "out-%j.txt",
    },
    "pbs": {"select": "2:ncpus=8:mpiprocs=4:ngpus=2+1:ncpus=1", "place": "scatter", "j": "oe"},
    "flux": {"nslots": "6", "cores-per-slot": "2", "output": "out.txt"},
}


def directives(site: str, **fields: Any) -> dict[str, str | bool]:
    spec = JobSpec.of({"script": "#!/bin/bash\n./prog\n", "walltime": "1h", **fields})
    return dict(decide(spec, Site.load(site))[0].directives)


@pytest.mark.parametrize("site", SIZES)
class TestSize:
    def test_is_what_its_directives_say(self, site: str) -> None:
        other = {"nodes": 3, "cores_per_rank": 7, "devices_per_rank": 5, "memory": "9G"}
        found = directives(site, directives=SIZES, **other)
        assert SIZES[site].items() <= found.items()
        assert not any(
            str(number) in str(found.get(name)) for number in (3, 7, 5, 9) for name in ("nodes", "mem")
        )
        nothing = {*directives(site)}
        assert {*found} - nothing == {*SIZES[site]} - nothing

    def test_is_that_of_the_fields_where_they_say_none(self, site: str) -> None:
        others = {name: said for name, said in SIZES.items() if name != site}
        found = directives(site, directives=others, nodes=3, cores_per_rank=7)
        assert {"slurm": ("nodes", "3"), "pbs": ("select", "3:ncpus=7:mpiprocs=1"), "flux": ("nslots", "3")}[
            site
        ] in [*found.items()]

    def test_those_directives_are_for_scripts_alone(self, site: str) -> None:
        spec = JobSpec.of({"command": ["x"], "walltime": "1h", "directives": {site: SIZES[site]}})
        with pytest.raises(InvalidInput):
            decide(spec, Site.load(site))


def test_what_excludes_a_script() -> None:
    with pytest.raises(InvalidInput) as caught:
        JobSpec.of({"script": "#!/bin/sh\n#SBATCH -N 2\nx\n", "command": ["x"], "ranks": 2, "setup": ["y"]})
    assert {problem.path for problem in caught.value.problems} == {"script", "command", "ranks", "setup"}


def test_a_site_adds_nothing_to_it() -> None:
    spec = JobSpec.of(
        {"script": "x\n", "account": "a", "walltime": "30m", "directives": {"filesystems": "home"}}
    )
    plan, scheduler = decide(spec, Site.load("aurora"))
    text = rendered(plan, scheduler).text
    assert "module load" not in text and "CCL_" not in text and text.startswith("#!/bin/bash\n")


@pytest.mark.parametrize(
    "text", ["CASTOFF_SCRIPT\n", "# === castoff for x\n", "cat <<'E'\n$x `y` \\\nE\n", "\tx  \n\n"]
)
def test_every_byte_stays(text: str, bench: Benches) -> None:
    here = bench("local")
    body = f'#!/bin/bash\ncp "$0" copied; exit\n{text}'
    ended = here.run(script=body, command=[])
    assert (ended.code, ended.ending) == (0, ("done", 0)), ended.output
    assert (here.folder / "copied").read_text() == body


BODY = """#!/usr/bin/env python3
import json, os, signal, sys
ignored = signal.getsignal(signal.SIGINT) == signal.SIG_IGN
json.dump([dict(os.environ), os.getcwd(), ignored], open("seen.json", "w"))
print("to the output", flush=True)
print("to the errors", file=sys.stderr, flush=True)
sys.exit(int(os.environ.get("CODE", 0)))
"""


@pytest.mark.parametrize("kind", ["local", "srun", "pals"])
def test_what_it_sees(kind: str, bench: Benches) -> None:
    here = bench(kind)
    its_own = {"SLURM_NTASKS": "8", "SLURM_PROCID": "0"} if kind == "srun" else {"FROM_MY_SHELL": "x"}
    ended = here.run(script=BODY, command=[], inherit="all", env={"CODE": "3"} | its_own)
    assert (ended.code, ended.ending) == (3, ("failed", 3)), ended.output
    environ, folder, ignores_interrupts = json.loads((here.folder / "seen.json").read_text())
    assert not ignores_interrupts  # as what bash starts in the background would
    assert its_own.items() <= environ.items() and folder == str(here.folder)
    assert {"RANK", "WORLD_SIZE", "MASTER_ADDR", "OMP_NUM_THREADS", "CASTOFF_HOSTS"}.isdisjoint(environ)
    assert "to the output\n" in ended.output
    words = f"the script on {ended.record('failure')['host']} failed: exit code 3"
    (member,) = status(RunDirectory(ended.run_dir)).members
    assert why(member.attempts[-1].failure, None) == [words], "it started no rank"
    assert not any(line.startswith("castoff") for line in ended.output.splitlines())


@pytest.mark.parametrize(
    ("named", "meant"),
    [("FOO,CASTOFF_RUN_DIR,BAR=1,CASTOFF_ATTEMPT", "FOO,BAR=1"), ("CASTOFF_RUN_DIR", "NONE")],
)
def test_srun_hands_on_what_the_script_says(named: str, meant: str, bench: Benches) -> None:
    """As `--export=NONE` does; castoff's own variables are named beside the script's."""
    here = bench("srun")
    ended = here.run(script='echo "$SLURM_EXPORT_ENV" >named\n', command=[], env={"SLURM_EXPORT_ENV": named})
    assert (ended.code, (here.folder / "named").read_text()) == (0, f"{meant}\n"), ended.output


@pytest.mark.parametrize("apart", [True, False])
def test_castoff_logs_finds_its_output(apart: bool, tmp_path: Path, bench: Benches) -> None:
    """In the files that --output and --error name."""
    here = bench("srun")
    script, out, errors = (tmp_path / name for name in ("job.sh", "out.txt", "errors.txt"))
    script.write_text(render(here.plan_of(script=BODY, command=[])))
    with out.open("wb") as one, errors.open("wb") as other:
        streams: Any = {"stdout": one, "stderr": other if apart else one}
        environment = {**os.environ, **here.environment()}
        subprocess.run(["bash", script], cwd=here.folder, env=environment, check=True, **streams)
    both = "to the output\nto the errors\n"
    assert out.read_text() == ("to the output\n" if apart else both)
    (log,) = here.folder.glob("castoff-*/logs/0.0/rank-00000.log")
    assert log.read_text() == both


WAITS = """#!/bin/bash
trap 'echo got USR1; kill %1' USR1
trap 'echo got TERM; kill %1; exit 0' TERM
sleep 1000 &
: >waits
wait
wait
exit 5
"""


@pytest.mark.parametrize("line", ["#!/bin/sh", "#! /bin/bash -e ", "#!/usr/bin/env -S bash -e", ""])
def test_its_first_line_names_its_shell(line: str, tmp_path: Path, bench: Benches) -> None:
    """As Linux reads it; and standard input is what --input names."""
    here = bench("srun")
    (tmp_path / "in").write_text("hello\n")
    job = tmp_path / "job.sh"
    job.write_text(
        render(here.plan_of(script=f"{line}\nread -r word; echo $word >out; false; exit 0\n", command=[]))
    )
    environment = {**os.environ, **here.environment()}
    with (tmp_path / "in").open() as given:
        done = subprocess.run(["bash", job], cwd=here.folder, env=environment, stdin=given, check=False)
    assert (here.folder / "out").read_text() == "hello\n"
    assert done.returncode == (1 if "-e" in line else 0)


@pytest.mark.parametrize(("sent", "code", "ending"), [("USR1", 5, "failed"), ("TERM", 0, "cancelled")])
def test_it_gets_signals_as_its_shell_would(sent: str, code: int, ending: str, bench: Benches) -> None:
    """And its exit code is the job's: scancel --batch --signal=USR1."""
    here = bench("srun")
    started = here.start(script=WAITS, command=[])
    until((here.folder / "waits").exists)
    started.process.send_signal(getattr(signal, f"SIG{sent}"))
    ended = started.end()
    assert f"got {sent}\n" in ended.output
    assert (ended.code, ended.ending[0]) == (code, ending)


@pytest.mark.parametrize("folder", ["~", "~/a b", "~x"])
def test_a_home_folder(folder: str, tmp_path: Path, bench: Benches) -> None:
    here = bench("local")
    expected = tmp_path / folder.removeprefix("~").lstrip("/") if folder != "~x" else here.folder / folder
    expected.mkdir(exist_ok=True)
    ended = here.run(
        script='pwd >"$WHERE"\n',
        command=[],
        workdir=folder,
        env={"HOME": str(tmp_path), "WHERE": str(tmp_path / "where")},
    )
    assert ended.code == 0, ended.output
    assert (tmp_path / "where").read_text() == f"{expected}\n"
    assert as_path(folder).is_absolute() == (folder != "~x")
