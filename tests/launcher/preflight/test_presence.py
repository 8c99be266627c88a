"""What a job names and is not there is said before it is submitted, and nothing else is."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from castoff.launcher.config.job import JobSpec
from castoff.launcher.config.site import Site
from castoff.launcher.errors import InvalidInput
from castoff.launcher.planning.planner import plan
from castoff.launcher.preflight.presence import check_present
from tests.launcher.conftest import Castoff

Check = Callable[..., str]


@pytest.fixture
def check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Check:
    """What is said of a job, with `error` or `warning` before it, and the folder as FOLDER."""
    folder = tmp_path / "here"
    (folder / "pkg").mkdir(parents=True)
    for name in ("train.py", "run.sh", "pkg/__init__.py", "pkg/main.py"):
        (folder / name).touch()

    def said(command: str, site: str = "local", more: Mapping[str, str] | None = None, **fields: Any) -> str:
        spec = JobSpec.of({"name": "x", "command": command.split(), **fields})
        where = Site.load(site)
        try:
            environ = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), **(more or {})}
            check_present(spec, where, plan(spec, where), folder, environ)
        except InvalidInput as error:
            text = f"error: {error}"
        else:
            text = ""
        text = capsys.readouterr().err.replace("castoff: ", "") + text
        return re.sub(rf"x on {site}: ", "", text).replace(str(folder), "FOLDER").strip()

    return said


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("python trian.py", "command.1: is 'trian.py', which is not in FOLDER; did you mean train.py?"),
        ("bash rnu.sh", "command.1: is 'rnu.sh', which is not in FOLDER; did you mean run.sh?"),
        (
            "python pgk/main.py",
            "command.1: is 'pgk/main.py', which is not in FOLDER; did you mean pkg/main.py?",
        ),
        ("./other", "command.0: is './other', which is not in FOLDER"),
        (
            "./run.sh",
            "command.0: is './run.sh', which is not executable: chmod +x ./run.sh, or write bash before it",
        ),
        ("./pkg", "command.0: is './pkg', which is a folder"),
        (
            "train.py",
            "command.0: is 'train.py', which is looked up on PATH, not in FOLDER: write python train.py",
        ),
        (
            "python -m pkg.mian",
            "command.2: is 'pkg.mian', but FOLDER/pkg has no module mian; did you mean main?",
        ),
        (
            "python ~/train.py",
            "command.1: is '~/train.py', but no shell reads the command: write HOME/train.py, or "
            "command: [bash, -c, …]",
        ),
    ],
)
def test_a_program_that_is_not_there(check: Check, command: str, said: str, tmp_path: Path) -> None:
    for site in ("local", "slurm"):
        assert check(command, site) == f"error: {said.replace('HOME', str(tmp_path))}"


@pytest.mark.parametrize(
    "command",
    [
        *("python train.py", "python -m pkg.main", "python -m json.tool", "bash run.sh", "bash -c ./other"),
        *("echo x", "python -c 1", "python -m other.package"),
    ],
)
def test_a_program_that_is_there_or_may_be(check: Check, command: str) -> None:
    assert check(command) == check(command, "slurm") == ""


def test_a_program_that_other_hosts_may_have(check: Check) -> None:
    assert check("unheard-of-program x", "slurm") == ""
    assert check("unheard-of-program x").startswith("warning: command.0: is 'unheard-of-program', which is ")


def test_a_module_of_a_like_name(check: Check) -> None:
    assert check("python -m trian") == (
        "warning: command.2: is 'trian', and FOLDER has no such module; did you mean train?"
    )


def test_what_setup_or_another_job_may_make_is_a_warning(check: Check) -> None:
    for fields in ({"setup": ["git clone there ."]}, {"after": {"afterok": ["12"]}}):
        assert check("python trian.py", "slurm", **fields).startswith("warning: command.1: is 'trian.py', ")


def test_where_setup_changes_the_folder_nothing_is_said(check: Check) -> None:
    assert check("python other.py", setup=["cd src"]) == ""


def test_an_absolute_path_that_the_nodes_may_have(check: Check) -> None:
    """An error on this machine, and where the nodes share the file system."""
    for path in ("/nowhere/of/this/host.py", "/tmp/castoff-nothing.py", "/opt/nothing/x.py"):
        missing = f": command.1: is {path!r}, which is not there"
        assert (check(f"python {path}", "slurm"), check(f"python {path}")) == (
            f"warning{missing}",
            f"error{missing}",
        )


def test_a_file_in_the_home_folder(check: Check, tmp_path: Path) -> None:
    said = check("echo x", "slurm", setup=["source ~/venv/bin/activate"])
    assert said == "error: setup.0: sources '~/venv/bin/activate', which is not there"
    (tmp_path / "venv" / "bin").mkdir(parents=True)
    (tmp_path / "venv" / "bin" / "activate").touch()
    assert check("echo x", "slurm", setup=["source ~/venv/bin/activate"]) == ""


def test_an_activate_script_of_the_folder(check: Check) -> None:
    said = check("echo x", "slurm", setup=["source venv/bin/activate"])
    assert said == "error: setup.0: sources 'venv/bin/activate', which is not in FOLDER"


def test_the_folder_of_the_job(check: Check, tmp_path: Path) -> None:
    assert check("python main.py", workdir="pkg") == ""
    missing = "workdir: is 'pgk', which is not in FOLDER; did you mean pkg?"
    assert check("python main.py", workdir="pgk") == f"error: {missing}"
    assert check("python main.py", workdir="pgk", setup=["mkdir pgk"]) == f"warning: {missing}"
    assert check("python main.py", site="slurm", workdir="/no/x") == (
        "warning: workdir: is '/no/x', which is not there"
    )
    assert (
        check("python train.py", workdir="pkg")
        == "error: command.1: is 'train.py', which is not in FOLDER/pkg; did you mean main.py?"
    )


def test_beside_the_job_file(tmp_path: Path) -> None:
    beside = tmp_path / "project"
    beside.mkdir()
    (beside / "train.py").touch()
    (beside / "job.yaml").write_text("command: [python, train.py]\n")
    spec, site = JobSpec.load(beside / "job.yaml"), Site.load("local")
    with pytest.raises(InvalidInput) as caught:
        check_present(spec, site, plan(spec, site), tmp_path, {})
    assert str(caught.value) == (
        f"{beside}/job.yaml:1: command.1: is 'train.py', which is not in {tmp_path}, "
        f"but in the job file's folder: submit from {beside}, or set workdir: {beside}"
    )


def test_an_interpreter_and_what_is_staged(check: Check, tmp_path: Path) -> None:
    said = check("python train.py", python=f"{tmp_path}/venv/bin/python", stage=[{"from": "set.tar"}])
    assert said.splitlines() == [
        f"error: python: is '{tmp_path}/venv/bin/python', which is not there",
        "stage.0.from: is 'set.tar', which is not in FOLDER",
    ]


def test_a_program_within_a_container_may_be_the_images(check: Check, tmp_path: Path) -> None:
    image = tmp_path / "image.sif"
    fields = {"container": {"image": str(image), "runtime": "apptainer"}}
    assert check("python /nothing/x.py", "slurm", **fields).splitlines() == [
        "warning: command.1: is '/nothing/x.py', which is not there",
        f"error: container.image: is {str(image)!r}, which is not there",
    ]


def test_a_script_that_setup_sources_may_make_the_program_or_change_the_folder(
    check: Check, tmp_path: Path
) -> None:
    (tmp_path / "here" / "env.sh").touch()
    for command in ("python other.py", "python -m pkg.other"):
        assert check(command, setup=["source ./env.sh"]).startswith("warning: command.")
    assert check("python other.py", setup=["source /etc/profile"]).startswith("error: command.1")


def test_a_module_of_machine_code(check: Check, tmp_path: Path) -> None:
    (tmp_path / "here" / "pkg" / "fast.cpython-312-x86_64-linux-gnu.so").touch()
    assert check("python -m pkg.fast") == ""


def test_a_folder_that_nobody_may_look_into(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> bool:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "is_file", refuse)
    assert check("python -m pkg.main") == check("runs.sh", "slurm") == ""


class TestActiveEnvironment:
    """What is active in a terminal is not so in the job; nothing says so but an ImportError."""

    @pytest.fixture
    def active(self, tmp_path: Path) -> dict[str, str]:
        (tmp_path / "venv" / "bin").mkdir(parents=True)
        (tmp_path / "venv" / "bin" / "python").symlink_to("/bin/sh")
        return {"VIRTUAL_ENV": str(tmp_path / "venv")}

    @pytest.mark.parametrize("site", ["slurm", "pbs"])
    def test_it_is_said(self, site: str, active: dict[str, str], check: Check) -> None:
        said = check("python train.py", site, active)
        python = f"{active['VIRTUAL_ENV']}/bin/python"
        assert said.startswith("warning: python: is not set, ") and f": give --python {python}, or" in said

    @pytest.mark.parametrize(
        ("site", "fields"),
        [
            ("local", {}),
            ("slurm", {"setup": ["module load x"]}),
            ("slurm", {"python": "/bin/sh"}),
            ("slurm", {"env": {"PATH": "/x"}}),
        ],
    )
    def test_a_job_that_says_what_it_has(
        self, site: str, fields: dict[str, Any], active: dict[str, str], check: Check
    ) -> None:
        assert check("python train.py", site, active, **fields) == ""

    def test_neither_conda_base_nor_another_program(self, active: dict[str, str], check: Check) -> None:
        base = {"CONDA_PREFIX": active["VIRTUAL_ENV"], "CONDA_DEFAULT_ENV": "base"}
        assert check("python train.py", "slurm", base) == ""
        assert check("true", "slurm", active) == ""


@pytest.mark.parametrize(
    ("value", "setup"),
    [
        ("$HOME/hf", '"$HOME/hf"'),
        ("${SCRATCH}/hf", '"${SCRATCH}/hf"'),
        ("~/hf", "~/hf"),
        ("/a:~/b", '"/a:~/b"'),
    ],
)
def test_a_value_that_no_shell_expands(check: Check, value: str, setup: str) -> None:
    said = check("python train.py", site="slurm", env={"HF_HOME": value})
    assert said.startswith(f"warning: env.HF_HOME: is '{value}', which is passed on as written: ")
    assert said.endswith(f"setup: ['export HF_HOME={setup}']")


@pytest.mark.parametrize("value", ["/scratch/hf", "a$", "$1", "x~y", "5$", None])
def test_a_value_that_is_meant_as_written(check: Check, value: str | None) -> None:
    assert not check("python train.py", site="slurm", env={"HF_HOME": value})


@pytest.mark.parametrize("word", ["{lr}", "--lr={lr}", "optim.lr={lr}"])
def test_a_parameter_of_a_job_that_has_none(check: Check, word: str) -> None:
    said = check(f"python train.py {word}", site="slurm")
    assert said == (
        f"warning: command.2: is '{word}', which is passed on as written, since the job has no parameters; "
        "`array: {parameters: {lr: [1e-3, 1e-4]}}` makes a member of each value"
    )


def test_a_parameter_of_a_typed_program(castoff: Castoff) -> None:
    said = castoff("submit", "--dry-run", "--site", "slurm", "--", "echo", "{lr}").stderr
    assert "; --set 'array.parameters.lr=[1e-3, 1e-4]' makes a member of each value" in said


@pytest.mark.parametrize("word", ['{"lr":1}', "${lr}", "{a}-{b}", "{}"])
def test_braces_that_are_no_parameter(check: Check, word: str) -> None:
    assert "parameters" not in check(f"python train.py {word}", site="slurm")
    assert not check("python train.py {lr}", site="slurm", array={"parameters": {"lr": [1, 2]}})


def test_inherited_path_that_a_login_shell_may_reset(check: Check, tmp_path: Path) -> None:
    """As after `castoff import` of a script that relies on sbatch's export of everything."""
    tool = tmp_path / "venv" / "bin" / "mytool"
    tool.parent.mkdir(parents=True)
    tool.touch(mode=0o755)
    active = {"VIRTUAL_ENV": str(tmp_path / "venv"), "PATH": f"{tool.parent}:/usr/bin:/bin"}
    said = check("mytool", site="slurm", more=active, inherit="all")
    assert "login shell" in said and "may reset PATH" in said and f"--python {tool.parent}/python" in said
    assert not check("mytool", site="local", more=active, inherit="all")
    assert not check("mytool", site="slurm", more=active, inherit="all", setup=["module load x"])
    assert "may reset PATH" in check("mytool", site="slurm", more=active, inherit=["PATH"])


def test_a_webhook_that_is_not_here(check: Check, tmp_path: Path) -> None:
    folder = tmp_path / ".config" / "castoff" / "notify"
    folder.mkdir(parents=True)
    (folder / "phone").touch()
    assert check("python train.py", notify={"to": ["phone", "me@example.org"]}) == ""
    assert check("python train.py", notify={"to": "phnoe"}) == (
        "warning: notify.to: is 'phnoe', which is not a webhook on this host; did you mean phone?; "
        "`castoff notify add phnoe` adds it"
    )
