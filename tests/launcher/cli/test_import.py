"""castoff import, through the real command."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import yaml

from castoff import JobSpec

from ..conftest import Castoff, objects

SCRIPT = """#!/bin/bash
#SBATCH --job-name=demo
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --time=30
module load pytorch
srun python train.py --lr 0.1
"""


def write(folder: Path, text: str = SCRIPT, name: str = "train.sbatch") -> None:
    (folder / name).write_bytes(text.encode(errors="surrogateescape"))


def test_the_job_file_is_printed(castoff: Castoff, tmp_path: Path) -> None:
    write(tmp_path)
    answer = castoff("import", "train.sbatch")
    assert (answer.returncode, answer.stderr) == (0, "")
    assert castoff("import", "train.sbatch", "-o", "-").stdout == answer.stdout
    found = yaml.safe_load(answer.stdout)
    assert found["command"] == ["python", "train.py", "--lr", "0.1"]
    assert (found["nodes"], found["ranks_per_node"], found["walltime"]) == (2, 4, "00:30:00")


def test_it_is_rendered_as_it_was_written(castoff: Castoff, tmp_path: Path) -> None:
    write(tmp_path)
    answer = castoff("import", "train.sbatch", "-o", "job.yaml")
    assert answer.returncode == 0
    assert answer.stdout == "wrote job.yaml; next: castoff render job.yaml --site slurm\n"
    assert JobSpec.load(tmp_path / "job.yaml").name == "demo"
    script = castoff("render", "job.yaml", "--site", "slurm").stdout
    assert "#SBATCH --ntasks-per-node=4\n" in script and "module load pytorch\n" in script


def test_the_answer_for_programs(castoff: Castoff, tmp_path: Path) -> None:
    write(tmp_path, SCRIPT.replace("--time=30", "--time=soon"))
    answer = castoff("import", "train.sbatch", "--json")
    assert (answer.returncode, answer.stderr) == (3, "")
    found = json.loads(answer.stdout)
    assert found["job_file"] == castoff("import", "train.sbatch").stdout
    assert (found["site"], found["kept"]) == ("slurm", "a directive is not expressed")
    (refused,) = found["refused"]
    assert (refused["line"], refused["text"]) == (5, "#SBATCH --time=soon")
    (found,) = objects(castoff("import", "train.sbatch", "--ranks", "--json").stdout)
    assert found["job_file"] is None and found["kept"]


def test_a_file_that_is_there_is_kept(castoff: Castoff, tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "job.yaml").write_text("mine")
    answer = castoff("import", "train.sbatch", "-o", "job.yaml")
    assert answer.returncode == 1
    assert answer.stderr == "castoff: job.yaml: exists already; name another file, or remove it\n"
    assert (tmp_path / "job.yaml").read_text() == "mine"


def test_what_is_not_expressed_is_said(castoff: Castoff, tmp_path: Path) -> None:
    write(tmp_path, SCRIPT.replace("--time=30", "--time=soon").replace("=demo", "=demo\n#SBATCH hetjob"))
    answer = castoff("import", "train.sbatch", "-o", "job.yaml")
    assert answer.returncode == 3
    first, second, kept = answer.stderr.splitlines()
    assert kept == "castoff: train.sbatch: kept as a script: a directive is not expressed"
    assert first.startswith("castoff: train.sbatch:3: not expressed: #SBATCH hetjob: a heterogeneous job")
    assert second.startswith("castoff: train.sbatch:6: not expressed: #SBATCH --time=soon: ")
    comments = " ".join(line.strip("# ") for line in (tmp_path / "job.yaml").read_text().splitlines())
    assert "line 6: #SBATCH --time=soon" in comments
    assert JobSpec.load(tmp_path / "job.yaml").script is not None


def test_lines_that_are_read_otherwise_than_they_look(castoff: Castoff, tmp_path: Path) -> None:
    write(tmp_path, SCRIPT.replace("#SBATCH --time=30", "#SBTACH --time=30") + "#SBATCH -N 9\n")
    misspelled, too_low = castoff("import", "train.sbatch").stderr.splitlines()
    assert misspelled.startswith("castoff: train.sbatch: line 5 is a comment to sbatch")
    assert too_low.endswith("line 8 is a comment to sbatch, because it is below the first command")


def test_a_script_that_is_kept(castoff: Castoff, tmp_path: Path) -> None:
    write(tmp_path, SCRIPT + "python summary.py\n")
    answer = castoff("import", "train.sbatch")
    assert answer.returncode == 0
    assert answer.stderr == "castoff: train.sbatch: kept as a script: line 7 runs srun, and more follows\n"
    text = yaml.safe_load(answer.stdout)["script"]
    assert (
        text
        == "#!/bin/bash\n" + "".join(f"{line}\n" for line in SCRIPT.splitlines()[5:]) + "python summary.py\n"
    )
    (tmp_path / "job.yaml").write_text(answer.stdout)
    script = castoff("render", "job.yaml", "--site", "slurm").stdout
    assert "#SBATCH --nodes=2\n" in script and text in script


def test_what_one_wishes(castoff: Castoff, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path)
    answer = castoff("import", "train.sbatch", "--driver")
    assert (answer.returncode, answer.stderr) == (0, "")
    assert "script" in yaml.safe_load(answer.stdout)
    assert "exclude each other" in castoff("import", "train.sbatch", "--driver", "--ranks").stderr
    assert castoff("import", "train.sbatch", "--ranks").stdout == castoff("import", "train.sbatch").stdout
    write(tmp_path, SCRIPT + "wait\n")
    answer = castoff("import", "train.sbatch", "--ranks")
    assert (answer.returncode, answer.stdout) == (3, "")
    assert (
        answer.stderr
        == "castoff: train.sbatch: castoff cannot start its ranks: line 7 runs srun, and more follows\n"
    )
    monkeypatch.setitem(sys.modules, "tree_sitter_bash", None)
    answer = castoff("import", "train.sbatch", "--ranks")
    assert answer.returncode == 1 and "pip install 'castoff[import]'" in answer.stderr


def test_line_ends_of_windows_are_said(castoff: Castoff, tmp_path: Path) -> None:
    write(tmp_path, SCRIPT.replace("\n", "\r\n"))
    answer = castoff("import", "train.sbatch")
    assert answer.returncode == 0
    assert "end as on Windows" in answer.stdout and "\r" not in answer.stdout


def test_mistakes(castoff: Castoff, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    write(tmp_path, "", "empty.sh")
    write(tmp_path, "#!/usr/bin/env python\nimport torch\n", "train.py")
    write(tmp_path, "\x00\x01", "binary")
    write(tmp_path, SCRIPT + "echo x\udce9\n# \udcff\n".replace("echo", "\necho"), "latin")
    write(tmp_path, "<!DOCTYPE html>\n", "page.sbatch")
    for name, code, words in (
        ("missing", 1, "missing: cannot be read: No such file or directory"),
        ("folder", 1, "folder: is a folder"),
        ("empty.sh", 2, "empty.sh: is empty"),
        ("train.py", 2, "train.py: is a program in python"),
        ("binary", 2, "binary: is not text"),
        ("latin", 2, "latin: is not UTF-8 text (line 9); save it as UTF-8"),
        ("page.sbatch", 2, "page.sbatch: is a page of HTML or XML"),
    ):
        answer = castoff("import", name)
        assert (answer.returncode, answer.stdout) == (code, "")
        assert answer.stderr.startswith(f"castoff: {words}") and answer.stderr.count("\n") == 1


def test_nothing_is_run(castoff: Castoff, tmp_path: Path) -> None:
    write(tmp_path, SCRIPT + "touch touched $(touch touched) `touch touched`\n")
    castoff("import", "train.sbatch")
    assert not (tmp_path / "touched").exists()


def test_a_script_in_the_place_of_a_job_file(castoff: Castoff, tmp_path: Path) -> None:
    write(tmp_path, name="train.sh")
    answer = castoff("render", "train.sh", "--site", "slurm")
    assert answer.returncode == 2
    assert "castoff import train.sh" in answer.stderr
