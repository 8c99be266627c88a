"""Environment modules that are not known on the host, as a shell with a `module` of its own says."""

from __future__ import annotations

from pathlib import Path

import pytest

from castoff.launcher.preflight import modules
from castoff.launcher.preflight.modules import unknown_modules

_INIT = """\
castoff_test_loaded=' '
module() {
  case $1 in
    load) castoff_test_loaded+="$2 " ;;
    is-avail)
      case $2 in
        gcc) return 0 ;;
        hdf5) [[ $castoff_test_loaded == *' gcc '* ]] ;;
        *) return 1 ;;
      esac ;;
  esac
}
"""
"""A hierarchy: hdf5 is known once gcc is loaded."""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "init").mkdir()
    (tmp_path / "init" / "bash").write_text(_INIT)
    return tmp_path


def unknown(home: Path, *loads: str) -> list[tuple[str, str]]:
    setup = [f"module load {name}" for name in loads]
    named = [(f"setup.{number}", name) for number, name in enumerate(loads)]
    environ = {"PATH": "/usr/bin:/bin", "MODULESHOME": str(home)}
    return [*unknown_modules(named, setup, environ)]


def test_a_module_that_is_not_known(home: Path) -> None:
    said = "loads gcb, a module that is not known on this host: see `module avail gcb`"
    assert unknown(home, "gcc", "gcb") == [("setup.1", said)]


def test_a_module_that_another_makes_known(home: Path) -> None:
    assert unknown(home, "gcc", "hdf5") == []
    assert [field for field, _ in unknown(home, "hdf5")] == ["setup.0"]


@pytest.mark.parametrize(
    "line",
    [
        *(
            "module load gcc; touch {}",
            "module load gcc && touch {}",
            "ml $(touch {})",
            "module load `touch {}`",
        ),
        *(
            "module use {} ; touch {}",
            "ml gcc > {}",
            "module load gcc\n touch {}",
            "module load {{,}} |tee {}",
        ),
    ],
)
def test_nothing_else_of_the_job_is_run(home: Path, tmp_path: Path, line: str) -> None:
    mark = tmp_path / "ran"
    setup = [line.replace("{}", str(mark)), "module load hdf5"]
    environ = {"PATH": "/usr/bin:/bin", "MODULESHOME": str(home)}
    assert [*unknown_modules([("setup.1", "hdf5")], setup, environ)] == []
    assert not mark.exists()


@pytest.mark.parametrize(
    ("line", "only_loads"),
    [
        ("module load gcc/12.2.0 hdf5", True),
        ("module --force purge", True),
        ("module use /usr/share", True),
        ("ml gcc", True),
        ("module use ./modules", False),
        ("module use modules", False),
        ("module use /tmp/modules", False),
        ("module load /tmp/module", False),
        ("module load $X", False),
    ],
)
def test_lines_that_load_modules_of_the_machine(line: str, only_loads: bool) -> None:
    assert modules._only_loads(line) is only_loads


@pytest.mark.parametrize(
    "init",
    [
        *("", "exit 3", "module() { return 0; }", "module() { return 1; }; exit 0"),
        "module() { sleep 600; }",
        "module() { echo castoff-asked; exit; }",
    ],
)
def test_no_answer_says_nothing(home: Path, init: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modules, "PATIENCE", 0.5 if "sleep" in init else 30)
    (home / "init" / "bash").write_text(init)
    assert unknown(home, "gcb") == []


def test_where_there_are_no_modules_nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("subprocess.run", lambda *_, **__: pytest.fail("a shell was started"))
    assert [*unknown_modules([("setup.0", "gcb")], ["module load gcb"], {"PATH": "/usr/bin"})] == []
