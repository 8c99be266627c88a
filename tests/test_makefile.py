"""Which build of PyTorch `make` installs: package indexes served here, with wheels that hold nothing."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple

import pytest

from tests import patience
from tests.cases import others_long

CHECKOUT = Path(__file__).resolve().parents[1]
(VERSION,) = re.findall(r"^TORCH := torch==(\S+)$", (CHECKOUT / "Makefile").read_text(), re.MULTILINE)
UNREACHABLE = "http://127.0.0.1:1/simple"  # a port of the system's own, which takes no connection

pytestmark = [pytest.mark.costly, pytest.mark.usefixtures("for_real")]


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """No line for each request."""


@pytest.fixture(scope="module")
def indexes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address below which lie three indexes: pip's default one, one of CPU builds, and a site's own."""
    folder = tmp_path_factory.mktemp("indexes")
    for index, version in (("default", VERSION), ("cpu", f"{VERSION}+cpu"), ("site", f"{VERSION}+site")):
        make_wheel(folder / index / "torch", version)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def make_wheel(folder: Path, version: str) -> None:
    folder.mkdir(parents=True)
    about = f"torch-{version}.dist-info"
    with zipfile.ZipFile(folder / f"torch-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n")
        wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{about}/RECORD", "")


class Made(NamedTuple):
    code: int
    version: str
    output: str


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", folder / ".venv"], check=True, timeout=patience.SECONDS)
    return folder / ".venv"


def make(folder: Path, environment: Path, default_index: str, *variables: str) -> Made:
    """Run `make .venv/.torch` with pip as it comes, but for its default index."""
    shutil.copytree(environment, folder / ".venv", symlinks=True)
    for name in ("Makefile", "constraints.txt", "pyproject.toml"):
        shutil.copy(CHECKOUT / name, folder)
    # Its pip, not one that makes an environment anew: that takes longer than all else.
    python = folder / "python"
    python.write_text(f'#!/bin/sh\n[ "$2" = venv ] || exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    done = subprocess.run(
        ["make", f"PYTHON={python}", *variables, ".venv/.torch"],
        cwd=folder,
        env={
            "HOME": str(folder),
            "PATH": os.environ["PATH"],
            "PIP_INDEX_URL": default_index,
            "PIP_CONFIG_FILE": os.devnull,
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=patience.SECONDS,
        check=False,
    )
    installed = [each.name for each in folder.glob(".venv/lib/python*/site-packages/torch-*.dist-info")]
    version = installed[0].removeprefix("torch-").removesuffix(".dist-info") if installed else ""
    return Made(done.returncode, version, done.stdout)


CPU, DEFAULT, SITE = f"{VERSION}+cpu", VERSION, f"{VERSION}+site"
CASES = {
    "no device": ("default", ["CPU_INDEX={}/cpu", "NVIDIA="], CPU, "CPU build, as there is no NVIDIA device"),
    "pip's own has it": ("cpu", [f"CPU_INDEX={UNREACHABLE}", "NVIDIA="], CPU, "about 0.2 GB to download"),
    "unreachable": ("default", [f"CPU_INDEX={UNREACHABLE}", "NVIDIA="], DEFAULT, "about 2.8 GB to download"),
    "an NVIDIA device": ("default", ["NVIDIA=/dev/nvidiactl"], DEFAULT, "about 2.8 GB to download"),
    "another index": ("default", ["TORCH_INDEX={}/site", "NVIDIA="], SITE, "from TORCH_INDEX"),
}


@pytest.mark.parametrize("case", others_long(CASES, ("no device", "unreachable")))
def test_the_build_that_fits_the_machine(case: str, indexes: str, environment: Path, tmp_path: Path) -> None:
    of_pip, variables, version, words = CASES[case]
    variables = [each.format(indexes) for each in variables]
    made = make(tmp_path, environment, f"{indexes}/{of_pip}", *variables)
    assert (made.code, made.version) == (0, version), made.output
    # Its size is stated before pip takes anything.
    assert words in made.output.partition("Collecting torch")[0]
    if case == "unreachable":
        assert UNREACHABLE in made.output and "TORCH_INDEX=URL make" in made.output


def test_an_index_without_this_version_is_an_error(indexes: str, environment: Path, tmp_path: Path) -> None:
    made = make(tmp_path, environment, UNREACHABLE, f"TORCH_INDEX={indexes}/nothing", "NVIDIA=")
    assert made.code != 0 and made.version == ""
    assert not (tmp_path / ".venv" / ".torch").exists()
    assert "ERROR" in made.output and f"torch=={VERSION}" in made.output


def test_daemons_are_found_where_su_leaves_their_folders_out_of_path() -> None:
    """Else `make test` installs packages that are there, and its tests fail."""
    bare = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent"}
    words = [sys.executable, "-c", "import tests, os; print(os.environ['PATH'])"]
    shown = subprocess.run(words, cwd=CHECKOUT, env=bare, check=True, capture_output=True, text=True)
    assert shown.stdout.strip() == "/usr/bin:/bin:/usr/local/sbin:/usr/sbin"
    words = ["make", "--eval=path: ; @echo $$PATH", "path"]
    for environ in (bare, {}):
        shown = subprocess.run(words, cwd=CHECKOUT, env=environ, check=True, capture_output=True, text=True)
        assert shown.stdout.strip().endswith("bin:/bin:/usr/local/sbin:/usr/sbin")
