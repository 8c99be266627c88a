"""render, init, sites, schema and explain, through the real command."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from pathlib import Path

import jsonschema
import pytest
import yaml

from castoff import InvalidInput, JobSpec
from castoff.launcher.cli.job_options import load_site
from tests.command_line import COMMAND, NO_BYTECODE

from ..conftest import Castoff
from ..terminal import on_terminal

JOB = "name: causets\nranks_per_node: 2\ncommand: [python, train.py]\n"


def script(castoff: Castoff, *words: str | Path) -> str:
    answer = castoff("render", *words)
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


class TestRender:
    def test_a_job_file(self, castoff: Castoff, tmp_path: Path) -> None:
        (tmp_path / "job.yaml").write_text(JOB)
        answer = castoff("render", "job.yaml", "--site", "slurm")
        assert answer.returncode == 0 and answer.stderr == ""
        assert answer.stdout.startswith("#!/bin/bash -l\n#SBATCH --")
        assert "#SBATCH --job-name=causets\n" in answer.stdout
        checked = subprocess.run(["bash", "-n"], input=answer.stdout, text=True, capture_output=True)
        assert (checked.returncode, checked.stderr) == (0, "")

    def test_command_line_over_file(self, castoff: Castoff, tmp_path: Path) -> None:
        (tmp_path / "job.yaml").write_text(JOB + "env: {A: file}\n")
        flags = ["--site", "slurm", "--nodes", "3", "--name", "other", "--set", "env.A=line"]
        flags += ["--walltime", "1m", "--grace", "7s"]
        shown = script(castoff, "job.yaml", *flags, "--", "echo", "hello you")
        for words in (
            "--nodes=3\n",
            "--job-name=other\n",
            "export A=line\n",
            "echo 'hello you'\n",
            "B:USR2@7\n",
        ):
            assert words in shown
        assert "train.py" not in shown

    def test_the_chosen_site_is_reported(self, castoff: Castoff) -> None:
        answer = castoff("render", "--", "true", env={"CASTOFF_SITE": "pbs"})
        assert answer.stderr == "castoff: site pbs: CASTOFF_SITE is set\n"
        assert "#PBS" in answer.stdout

    def test_the_head_alone(self, castoff: Castoff) -> None:
        words = ["--site", "slurm", "--", "true"]
        head = script(castoff, "--head", *words)
        assert head.splitlines()[-1].startswith("# === castoff for slurm and srun")
        whole = script(castoff, *words)
        assert whole.startswith(head) and len(whole) > 3 * len(head)

    def test_json(self, castoff: Castoff) -> None:
        words = ["--site", "slurm", "--", "true"]
        reported = json.loads(script(castoff, "--json", *words))
        assert reported["script"] == script(castoff, *words)
        assert reported["plan"]["command"] == ["true"]
        assert reported["plan"]["scheduler"] == "slurm"

    def test_problems_name_file_and_line(self, castoff: Castoff, tmp_path: Path) -> None:
        (tmp_path / "job.yaml").write_text(JOB + "walltme: 1h\nnodes: 0\n")
        answer = castoff("render", "job.yaml", "--site", "slurm")
        assert (answer.returncode, answer.stdout) == (2, "")
        first, second = sorted(answer.stderr.splitlines())
        assert first.startswith("castoff: job.yaml:4: walltme: ") and "did you mean walltime?" in first
        assert second.startswith("castoff: job.yaml:5: nodes: ")

    def test_a_file_that_is_missing(self, castoff: Castoff, tmp_path: Path) -> None:
        """Named is one beside it whose name is near, not just any that ends alike."""
        for name, meant in (("job.yml", "job.yaml"), ("trian.yaml", "train.yml"), ("a.yaml", None)):
            for each in ("job.yaml", "train.yml", "b.yaml"):
                (tmp_path / each).touch()
            answer = castoff("render", name, "--site", "local")
            hint = "" if meant is None else f"; did you mean {meant}?"
            assert (answer.returncode, answer.stderr) == (2, f"castoff: {name}: no such file{hint}\n")

    def test_a_file_that_is_none(self, castoff: Castoff, tmp_path: Path, bad_file: Path) -> None:
        (tmp_path / "image.yaml").write_bytes(b"\x89PNG\xff")
        for path, said in (
            (tmp_path / "missing.yaml", "no such file"),
            (tmp_path, " is a folder, not a job file"),
            (bad_file, "cannot be read: "),
            (tmp_path / "image.yaml", "is not UTF-8"),
            (Path(os.devnull), "command: is missing"),
        ):
            answer = castoff("render", path, "--site", "local")
            assert answer.returncode != 0 and answer.stdout == ""
            assert answer.stderr.startswith(f"castoff: {path}")
            assert answer.stderr.count("\n") == 1 and said in answer.stderr, answer.stderr


class TestOutputFile:
    def test_it_holds_what_is_printed(self, castoff: Castoff, tmp_path: Path, umask: None) -> None:
        words = ["--site", "slurm", "--", "true"]
        answer = castoff("render", "-o", "job.sh", *words)
        assert (answer.returncode, answer.stdout, answer.stderr) == (0, "", "")
        path = tmp_path / "job.sh"
        assert path.read_text() == script(castoff, *words)
        assert stat.S_IMODE(path.stat().st_mode) == 0o755
        assert [entry.name for entry in tmp_path.iterdir()] == ["job.sh"]

    def test_an_old_one_is_replaced_and_a_link_followed(self, castoff: Castoff, tmp_path: Path) -> None:
        (tmp_path / "real.sh").write_text("old")
        (tmp_path / "link.sh").symlink_to("real.sh")
        script(castoff, "-o", tmp_path / "link.sh", "--site", "local", "--", "true")
        assert (tmp_path / "link.sh").is_symlink()
        assert (tmp_path / "real.sh").read_text().startswith("#!/bin/bash")

    def test_no_job_no_change(self, castoff: Castoff, tmp_path: Path) -> None:
        (tmp_path / "job.sh").write_text("old")
        assert castoff("render", "-o", "job.sh", "--nodes", "0", "--site", "slurm", "--", "x").returncode == 2
        assert (tmp_path / "job.sh").read_text() == "old"

    def test_a_pipe_or_device_is_written_into(self, castoff: Castoff, tmp_path: Path) -> None:
        shown = script(castoff, "-o", "/dev/stdout", "--site", "local", "--", "true")
        assert shown.startswith("#!/bin/bash\n")
        assert not Path("/dev/stdout").is_file() or Path("/dev/stdout").is_symlink()

    def test_a_dash_is_standard_output(self, castoff: Castoff, tmp_path: Path) -> None:
        words = ("--site", "local", "--", "true")
        assert script(castoff, "-o", "-", *words) == script(castoff, *words)
        assert script(castoff, "--picture", "-", *words).startswith("<svg ")
        assert list(tmp_path.iterdir()) == []

    def test_what_cannot_be_written(self, castoff: Castoff, tmp_path: Path) -> None:
        (tmp_path / "folder").mkdir()
        (tmp_path / "file").touch()
        for name in ("folder", "missing/job.sh", "file/job.sh", "x" * 300):
            answer = castoff("render", "-o", name, "--site", "local", "--", "true")
            assert (answer.returncode, answer.stdout) == (1, "")
            assert answer.stderr.startswith(f"castoff: {name}: cannot be written: ")
            assert answer.stderr.count("\n") == 1
        assert {entry.name for entry in tmp_path.rglob("*")} == {"folder", "file"}

    def test_a_full_disk_leaves_the_old_one(self, castoff: Castoff, tmp_path: Path) -> None:
        (tmp_path / "job.sh").write_text("old")
        limited = f'{NO_BYTECODE}; ulimit -f 1; exec castoff render -o job.sh --site slurm -- true "$0"'
        words = ["bash", "-c", limited, "x" * 5000]
        answer = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert answer.returncode == 1
        assert answer.stderr == "castoff: job.sh: cannot be written: File too large\n"
        assert [(entry.name, entry.read_text()) for entry in tmp_path.iterdir()] == [("job.sh", "old")]


class TestInit:
    def test_what_it_writes_renders_everywhere(self, castoff: Castoff, tmp_path: Path) -> None:
        sites = [row["name"] for row in json.loads(castoff("sites", "--json").stdout)["sites"]]
        assert {"aurora", "local", "pbs", "slurm"} <= set(sites)
        for site in sites:
            made = castoff("init", f"{site}.yaml", "--site", site)
            assert made.stdout == f"wrote {site}.yaml; next: castoff render {site}.yaml --site {site}\n"
            answer = castoff("render", f"{site}.yaml", "--site", site)
            assert (answer.returncode, answer.stderr) == (0, "")

    def test_editors_find_the_schema_beside_it(self, castoff: Castoff, tmp_path: Path) -> None:
        castoff("init", "--site", "slurm")
        first = (tmp_path / "job.yaml").read_text().partition("\n")[0]
        named = first.removeprefix("# yaml-language-server: $schema=")
        schema = json.loads((tmp_path / named).read_text())
        assert schema == json.loads(castoff("schema").stdout)
        jsonschema.validate(yaml.safe_load((tmp_path / "job.yaml").read_text()), schema)
        castoff("init", "other.yaml", "--site", "slurm")
        assert {path.name for path in tmp_path.iterdir()} == {"job.yaml", "other.yaml", named}

    def test_a_profiles_text_stays_text(self, castoff: Castoff, tmp_path: Path) -> None:
        folder = tmp_path / ".castoff" / "sites"
        folder.mkdir(parents=True)
        fact = "source: here\n    date: 2026-11-20"
        profile = f"""
description: mine
extends: slurm
required:
  - field: account
    because: "line\\ncommand: [rm, -rf, /]"
    example: "account: 'it''s'"
    {fact}
queues:
  "null #\\u2028 'x' \\\\":
    {fact}
"""
        (folder / "it's $(x) \x1b[31m.yaml").write_text(profile)
        made = castoff("init", "a \x1b.yaml", "--site", "it's $(x) \x1b[31m")
        assert made.returncode == 0, made.stderr
        assert made.stdout.strip().isprintable() and made.stderr.strip().isprintable()
        text = (tmp_path / "a \x1b.yaml").read_text()
        assert all(line.isprintable() for line in text.split("\n"))
        spec = JobSpec.load(tmp_path / "a \x1b.yaml")
        assert (spec.command, spec.account, spec.queue) == (
            ["python", "train.py"],
            "it's",
            "null #\u2028 'x' \\",
        )
        next_step = made.stdout.partition("; next: ")[2]
        words = subprocess.run(["bash", "-c", f"printf '%s|' {next_step}"], capture_output=True, text=True)
        assert words.stdout == "castoff|render|a \x1b.yaml|--site|it's $(x) \x1b[31m|"

    def test_a_profiles_example_that_is_none(self, castoff: Castoff, tmp_path: Path) -> None:
        folder = tmp_path / ".castoff" / "sites"
        folder.mkdir(parents=True)
        required = "- {field: account, because: x, example: 'accunt: x', source: y, date: 2026-11-20}"
        (folder / "mine.yaml").write_text(f"description: m\nextends: slurm\nrequired:\n  {required}\n")
        answer = castoff("init", "--site", "mine")
        assert answer.returncode == 1
        assert "site mine: correct the examples under `required:`" in answer.stderr
        assert "accunt: there is no such field; did you mean account?" in answer.stderr
        assert not (tmp_path / "job.yaml").exists()

    def test_it_writes_over_nothing(self, castoff: Castoff, tmp_path: Path) -> None:
        (tmp_path / "job.yaml").write_text("mine")
        (tmp_path / "dangling.yaml").symlink_to("nowhere")
        (tmp_path / "folder").mkdir()
        for name in ("job.yaml", "dangling.yaml", "folder"):
            answer = castoff("init", name, "--site", "local")
            assert answer.returncode == 1
            assert answer.stderr == f"castoff: {name}: exists already; name another file, or remove it\n"
        assert (tmp_path / "job.yaml").read_text() == "mine"
        assert {entry.name for entry in tmp_path.iterdir()} == {"job.yaml", "dangling.yaml", "folder"}

    def test_where_nothing_can_be_written(self, castoff: Castoff) -> None:
        answer = castoff("init", "no/such/job.yaml", "--site", "local")
        assert answer.returncode == 1
        assert answer.stderr == "castoff: no/such/job.yaml: cannot be written: No such file or directory\n"

    def test_a_full_disk_leaves_nothing(self, tmp_path: Path) -> None:
        words = [
            "bash",
            "-c",
            f"{NO_BYTECODE}; ulimit -f 0; exec castoff init --site local",
        ]
        answer = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert answer.returncode == 1 and "cannot be written" in answer.stderr
        assert list(tmp_path.iterdir()) == []


class TestSites:
    def test_the_list_and_the_choice(self, castoff: Castoff) -> None:
        answer = castoff("sites", env={"CASTOFF_SITE": "aurora"})
        assert (answer.returncode, answer.stderr) == (0, "")
        *rows, choice = answer.stdout.splitlines()
        assert [row.split()[0] for row in rows] == sorted(row.split()[0] for row in rows)
        assert choice == "without --site: aurora, because CASTOFF_SITE is set"

    def test_one_resolved(self, castoff: Castoff, tmp_path: Path) -> None:
        folder = tmp_path / ".castoff" / "sites"
        folder.mkdir(parents=True)
        (folder / "mine.yaml").write_text("description: mine\nextends: slurm\ndirectives: {qos: high}\n")
        reported = json.loads(castoff("sites", "mine", "--json").stdout)
        assert reported["scheduler"] == "slurm" and reported["directives"]["qos"] == "high"
        assert "scheduler: slurm\n" in castoff("sites", "mine").stdout

    def test_one_that_is_broken(self, castoff: Castoff, tmp_path: Path) -> None:
        folder = tmp_path / ".castoff" / "sites"
        folder.mkdir(parents=True)
        (folder / "mine.yaml").write_text("extends: slurm\nscheduler: condor\n")
        for words in (["sites"], ["sites", "mine"], ["render", "--site", "mine", "--", "x"]):
            answer = castoff(*words, env={"CASTOFF_SITE": "local"})
            assert (
                answer.returncode == 2
                and "site mine: scheduler: is 'condor', which castoff does not know" in answer.stderr
            )
            assert answer.stderr.count("\n") == 1


def test_schema_describes_what_init_writes(castoff: Castoff) -> None:
    reported = json.loads(castoff("schema").stdout)
    assert reported["$schema"].startswith("https://json-schema.org/")
    ((_, job),) = [item for item in reported["$defs"].items() if item[0] == "JobSpec"]
    assert {"command", "nodes", "walltime", "env_from", "requeue"} <= set(job["properties"])
    assert all("description" in field or "$ref" in str(field) for field in job["properties"].values())


class TestExplain:
    def test_each_rank_of_launch(self, castoff: Castoff) -> None:
        answer = castoff("launch", "-n", "2", "--", "castoff", "explain", "--json")
        reported = {}
        for rank in "01":
            lines = [line[4:] for line in answer.stdout.splitlines() if line.startswith(f"[{rank}] ")]
            reported[rank] = json.loads("\n".join(lines))
        assert [one["placement"]["rank"] for one in reported.values()] == [0, 1]
        assert all(one["launcher"] == "local" and one["error"] is None for one in reported.values())

    def test_a_stale_environment(self, castoff: Castoff) -> None:
        answer = castoff("explain", env={"RANK": "3"})
        assert answer.returncode == 1
        assert "The rank of this process is not known" in answer.stdout
        assert json.loads(castoff("explain", "--json", env={"RANK": "3"}).stdout)["error"]


class TestNoSiteNamed:
    """Where neither Slurm nor PBS is, a cluster's job is not planned for a laptop."""

    @pytest.mark.parametrize(
        ("lines", "words"),
        [
            ("nodes: 2\nqueue: debug", "is for a cluster (nodes: 2, queue: debug), but no site is named"),
            ("account: me", "is for a cluster (account: me), but"),
            ("directives: {pbs: {filesystems: home}}", "is for a cluster (directives), but"),
            ("nodes: 1\nranks_per_node: 2\nwalltime: 1h\narray: {count: 2}", None),
        ],
    )
    def test_a_job(
        self, lines: str, words: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("PATH", str(tmp_path))
        Path("job.yaml").write_text(f"command: [x]\n{lines}\n")
        spec = JobSpec.load("job.yaml")
        if words is None:
            assert load_site(None, spec).name == "local"
            return
        with pytest.raises(InvalidInput) as caught:
            load_site(None, spec)
        reported = str(caught.value)
        assert reported.startswith(f"job.yaml: {words}") and "--site local" in reported
        assert (
            "with --site, one of aurora, crux, flux, frontier, " in reported
            and "one of local" not in reported
        )
        assert load_site("local", spec).name == "local"
        monkeypatch.setenv("CASTOFF_SITE", "local")
        assert load_site(None, spec).name == "local"


class TestOnATerminal:
    """A script is longer than a screen."""

    WORDS = (COMMAND, "render", "--site", "local", "--", "true")

    def test_it_goes_through_the_pager_that_is_chosen(self, castoff: Castoff, tmp_path: Path) -> None:
        whole = castoff(*self.WORDS[1:]).stdout
        shown = on_terminal(*self.WORDS, cwd=tmp_path, env={"PAGER": "sed -n 's/^/paged: /p;$='"})
        lines = shown.output.replace("\r", "").splitlines()
        assert "castoff: --head shows the job's part alone, without castoff's own functions" in lines
        assert [line.removeprefix("paged: ") for line in lines if line.startswith("paged: ")] == (
            whole.splitlines()
        )

    def test_less_waits_for_no_key_where_all_is_seen(self, tmp_path: Path) -> None:
        (tmp_path / "pager").write_text('#!/bin/sh\necho "LESS=$LESS"\ncat >/dev/null\n')
        (tmp_path / "pager").chmod(0o755)
        for given, used in ((None, "FRX"), ("S", "S")):
            env = {"PAGER": str(tmp_path / "pager"), **({} if given is None else {"LESS": given})}
            assert f"\nLESS={used}\n" in on_terminal(*self.WORDS, cwd=tmp_path, env=env).output

    def test_a_pager_that_is_left_early_is_no_error(self, tmp_path: Path) -> None:
        shown = on_terminal(*self.WORDS, cwd=tmp_path, env={"PAGER": "head -n 1"})
        assert shown.code == 0 and "#!/bin/bash" in shown.output and "Traceback" not in shown.output

    def test_a_pipe_gets_the_bytes_alone(self, castoff: Castoff, tmp_path: Path) -> None:
        with (tmp_path / "script").open("wb") as file:
            shown = on_terminal(*self.WORDS, cwd=tmp_path, env={"PAGER": "false"}, stdout=file.fileno())
        assert (tmp_path / "script").read_text() == castoff(*self.WORDS[1:]).stdout
        assert "--head" not in shown.output
