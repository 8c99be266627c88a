"""The wheel alone is enough to render and to start ranks; the lock holds what is asked for."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
import tomllib
from packaging.requirements import Requirement

from tests import patience

pytestmark = pytest.mark.costly

CHECKOUT = Path(__file__).resolve().parents[1]
SCRIPTS = Path(sys.executable).parent
HEAVY = {"torch", "submitit", "numpy", "psutil", "rich"}

LOADED = "print(*sorted({name.partition('.')[0] for name in sys.modules}))"


def run(*argv: str | Path, cwd: Path, **more: str) -> str:
    """Standard output of a program that does well."""
    done = subprocess.run(
        [str(word) for word in argv],
        cwd=cwd,
        env={**os.environ, **more},
        capture_output=True,
        text=True,
        timeout=patience.SECONDS,
        check=False,
    )
    assert done.returncode == 0, f"{done.args} exited with {done.returncode}:\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory, for_real: None) -> Path:
    """castoff's wheel, built from its source distribution with the backend of the test environment."""
    folder = tmp_path_factory.mktemp("dist")
    build = (sys.executable, "-m", "build", "--no-isolation")
    run(*build, "--outdir", folder, CHECKOUT, cwd=folder)
    run(sys.executable, "-m", "twine", "check", "--strict", *folder.iterdir(), cwd=folder)
    (built,) = folder.glob("castoff-*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The scripts folder of an environment that holds the wheel and its dependencies, nothing else."""
    folder = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", folder, cwd=folder)
    pip = (folder / "bin" / "python", "-m", "pip", "install", "--quiet")
    run(*pip, "--constraint", CHECKOUT / "constraints.txt", wheel, cwd=folder)
    return folder / "bin"


def test_the_source_distribution_holds_no_tests_and_no_benches(wheel: Path) -> None:
    (source,) = wheel.parent.glob("castoff-*.tar.gz")
    with tarfile.open(source) as held:
        folders = {name.split("/")[1] for name in held.getnames() if "/" in name}
        docs = [name.partition("/")[2] for name in held.getnames() if "/docs/" in name]
    assert "castoff" in folders
    assert folders.isdisjoint({"tests", "bench", "examples"})
    assert docs == ["docs/castoff.1"]


def test_the_readme_of_the_index_needs_no_repository(wheel: Path) -> None:
    (metadata,) = [name for name in zipfile.ZipFile(wheel).namelist() if name.endswith("/METADATA")]
    text = zipfile.ZipFile(wheel).read(metadata).decode()
    readme = re.sub(r"^```.*?^```$", "", text.partition("\n\n")[2], flags=re.DOTALL | re.MULTILINE)
    links = re.findall(r"\]\(([^)]+)\)", readme)
    assert len(links) > 6 and all(link.startswith("https://") for link in links)


def test_wheel_carries_templates_and_sites(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    found = (CHECKOUT / "templates").rglob("*")  # a test that has loaded one of them leaves its bytecode
    files = [path for path in found if path.is_file() and path.parent.name != "__pycache__"]
    templates = {path.relative_to(CHECKOUT) for path in files}
    sites = {path.relative_to(CHECKOUT) for path in (CHECKOUT / "launcher" / "sites").glob("*.yaml")}
    assert {path.suffix for path in templates} == {".j2", ".py", ".sh", ".css", ".js", ""}
    assert sites
    assert {f"castoff/{path}" for path in [*templates, *sites]} <= names
    parts = ("__main__.py", "py.typed", "launcher/siting/probe_job.sh", "trainers/__init__.py")
    assert {f"castoff/{name}" for name in parts} <= names
    assert [name for name in names if not name.startswith(("castoff/", "castoff-"))] == []
    assert any(name.endswith(".data/data/share/man/man1/castoff.1") for name in names)
    assert [name for name in names if "__pycache__" in name or "tests" in name] == []


def test_wheel_renders_without_torch_and_without_the_checkout(installed: Path, tmp_path: Path) -> None:
    job = CHECKOUT / "examples" / "digits.yaml"
    script = run(installed / "castoff", "render", job, "--site", "aurora", cwd=tmp_path)
    assert script == run(SCRIPTS / "castoff", "render", job, "--site", "aurora", cwd=tmp_path)
    code = f"""
import importlib.util, sys
import castoff, castoff.launcher.cli.main
from castoff import JobSpec, Site, plan, render
from castoff.launcher.planning.render import template_folder
sys.stdout.write(render(plan(JobSpec.load({str(job)!r}), Site.load("aurora"))))
print("templates in", template_folder())
print("sites in", castoff.launcher.config.site._BUILT_IN)
print("torch", "is" if importlib.util.find_spec("torch") else "is not", "there")
{LOADED}
"""
    answer = run(installed / "python", "-c", code, cwd=tmp_path)
    assert answer.startswith(script)
    templates, sites, torch, loaded = answer.removeprefix(script).splitlines()
    home = installed.parent
    assert Path(templates.removeprefix("templates in ")).is_relative_to(home)
    assert Path(sites.removeprefix("sites in ")).is_relative_to(home)
    assert torch == "torch is not there"
    assert "castoff" in loaded.split()
    assert not HEAVY & set(loaded.split())


def test_wheel_launches_ranks(installed: Path, tmp_path: Path) -> None:
    answer = run(
        installed / "castoff",
        "launch",
        "-n",
        "2",
        "--",
        "sh",
        "-c",
        "echo $RANK of $WORLD_SIZE",
        cwd=tmp_path,
    )
    assert sorted(answer.splitlines()) == ["[0] 0 of 2", "[1] 1 of 2"]


def test_wheel_is_all_that_submitit_needs_for_pbs(installed: Path, tmp_path: Path) -> None:
    code = (
        "import submitit\n"
        "executor = submitit.AutoExecutor('runs', cluster='pbs')\n"
        "executor.update_parameters(nodes=2, tasks_per_node=2, timeout_min=5, pbs_queue='workq')\n"
        "print(executor._executor.render(print))\n"
    )
    script = run(installed / "python", "-c", code, cwd=tmp_path)
    assert "#PBS -q workq\n#PBS -l select=2:ncpus=2:mpiprocs=2\n" in script


@pytest.mark.long
def test_the_extras_that_documents_install(wheel: Path, tmp_path: Path) -> None:
    """With all that they ask for there already, as with a site's own torch: castoff alone is installed."""
    pages = [CHECKOUT / "README.md", *(CHECKOUT / "docs").rglob("*.md")]
    install = re.compile(r"pip install '\.(?:/castoff)?\[([^\]]+)\]'")
    shown = {name for page in pages for name in install.findall(page.read_text())}
    assert shown >= {"torch", "gnn"}
    for extra in sorted(shown):
        pip = (sys.executable, "-m", "pip", "install", "--dry-run", "--no-index", "--quiet", "--report", "-")
        (castoff,) = json.loads(run(*pip, f"{wheel}[{extra}]", cwd=tmp_path))["install"]
        assert extra in castoff["metadata"]["provides_extra"]


def test_the_lock_holds_what_pyproject_asks_for() -> None:
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    asked = [Requirement(text) for text in (*project["dependencies"], *extras["dev"], *extras["torch"])]
    lines = [line for line in (CHECKOUT / "constraints.txt").read_text().splitlines() if line[:1] != "#"]
    assert [line for line in lines if not re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][0-9a-z.]*", line)] == []
    locked = {_plain(name): version for name, version in (line.split("==") for line in lines)}
    assert locked["torch"] == "2.13.0"
    wrong = [str(r) for r in asked if not r.specifier.contains(locked.get(_plain(r.name), ""))]
    assert wrong == [], "make lock"


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
