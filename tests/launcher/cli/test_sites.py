"""`castoff sites` from end to end, with programs that print what real schedulers answered."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from ..conftest import Castoff

Answers = Callable[..., dict[str, str]]

LAB = """
description: the machine that was recorded
extends: slurm
queues:
  debug:
    ranges: [{max_nodes: 2, max_walltime: 1h}]
    source: a wiki
    date: 2026-10-01
  gone: {source: a wiki, date: 2026-10-01}
array: {max_count: 65000, source: a wiki, date: 2026-10-01}
"""

MACHINE = """
description: the machine that was recorded
extends: slurm
queues:
  debug:
    ranges: [{max_nodes: 2, max_walltime: 30m}]
    source: the guide, and scontrol show partition debug
    date: 2026-10-01
array: {max_count: 65000, source: scontrol show config, date: 2026-10-01}
"""


def profile(folder: Path, name: str, text: str) -> Path:
    path = folder / ".castoff" / "sites" / f"{name}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


class TestCheck:
    def test_nothing_differs(self, castoff: Castoff, answering: Answers, tmp_path: Path) -> None:
        path = profile(tmp_path, "lab", MACHINE)
        answer = castoff("sites", "check", "lab", env=answering("slurm-accounting"))
        assert (answer.returncode, answer.stderr) == (0, f"castoff: site lab: uses the project's {path}\n")
        first, *rest = answer.stdout.splitlines()
        assert first == "lab and Slurm: nothing differs"
        assert rest and all(line.startswith("not compared: ") for line in rest)

    def test_what_differs(self, castoff: Castoff, answering: Answers, tmp_path: Path) -> None:
        path = profile(tmp_path, "lab", LAB)
        answer = castoff("sites", "check", "lab", env=answering("slurm-accounting"))
        assert (answer.returncode, answer.stderr) == (1, f"castoff: site lab: uses the project's {path}\n")
        assert answer.stdout.splitlines()[:3] == [
            "queues.debug.max_walltime: lab: 01:00:00 (a wiki, 2026-10-01); Slurm: 00:30:00",
            "queues.gone: lab: listed (a wiki, 2026-10-01); Slurm: not listed",
            "lab and Slurm: 2 differences",
        ]

    def test_for_programs(self, castoff: Castoff, answering: Answers, tmp_path: Path) -> None:
        profile(tmp_path, "lab", LAB)
        answer = castoff("sites", "check", "lab", "--json", env=answering("slurm-accounting"))
        assert answer.returncode == 1
        reported = json.loads(answer.stdout)
        assert (reported["site"], reported["scheduler"]) == ("lab", "Slurm")
        assert reported["differences"][1] == {
            "field": "queues.gone",
            "profile": "listed",
            "source": "a wiki",
            "date": "2026-10-01",
            "scheduler": "not listed",
        }
        assert reported["not_compared"]

    def test_the_site_that_a_job_would_have(self, castoff: Castoff, answering: Answers) -> None:
        environ = {**answering("slurm-plain"), "CASTOFF_SITE": "slurm"}
        answer = castoff("sites", "check", env=environ)
        assert answer.stderr.startswith("castoff: site slurm: CASTOFF_SITE is set")
        assert answer.returncode in (0, 1) and "slurm and Slurm: " in answer.stdout

    def test_accounting_that_is_off(self, castoff: Castoff, answering: Answers) -> None:
        answer = castoff("sites", "check", "perlmutter", env=answering("slurm-plain"))
        assert answer.returncode == 1
        assert "not compared: qos: `sacctmgr " in answer.stdout
        assert "You are not running a supported accounting_storage plugin" in answer.stdout

    @pytest.mark.parametrize("words", [(), ("--json",)])
    def test_no_scheduler(self, words: tuple[str, ...], castoff: Castoff, answering: Answers) -> None:
        answer = castoff("sites", "check", "polaris", *words, env=answering("slurm-plain"))
        assert (answer.returncode, answer.stdout) == (2, "")
        why = "site polaris: `qstat -Q -f`: qstat is not on PATH here; "
        why += "ask on a login node of the machine"
        if words:
            assert json.loads(answer.stderr) == {"error": why, "exit_code": 2}
        else:
            assert answer.stderr == f"castoff: {why}\n"

    def test_its_own_words(self, castoff: Castoff, answering: Answers) -> None:
        environ = answering("pbs", qstat="echo 'Connection refused' >&2; exit 111")
        answer = castoff("sites", "check", "polaris", env=environ)
        assert (answer.returncode, answer.stdout) == (2, "")
        assert "`qstat -Q -f`: qstat failed with exit code 111: Connection refused" in answer.stderr

    def test_local(self, castoff: Castoff) -> None:
        answer = castoff("sites", "check", "local")
        assert (answer.returncode, answer.stdout) == (2, "")
        assert "site local: has no scheduler to query" in answer.stderr


class TestUpdate:
    def test_into_the_projects(self, castoff: Castoff, answering: Answers, tmp_path: Path) -> None:
        path = profile(tmp_path, "lab", "# ours\n" + LAB.lstrip())
        answer = castoff("sites", "check", "lab", "--update", env=answering("slurm-accounting"))
        assert answer.returncode == 0
        assert answer.stdout.splitlines()[-1] == f"wrote {path}"
        text = path.read_text()
        assert text.startswith("# ours\n") and "max_walltime: 30m" in text and "gone" not in text
        again = castoff("sites", "check", "lab", "--update", env=answering("slurm-accounting"))
        assert (again.returncode, path.read_text()) == (0, text)
        assert "wrote" not in again.stdout

    def test_of_castoff_into_one_of_the_users(
        self, castoff: Castoff, answering: Answers, tmp_path: Path
    ) -> None:
        environ = {**answering("pbs"), "XDG_CONFIG_HOME": str(tmp_path / "config")}
        answer = castoff("sites", "check", "polaris", "--update", env=environ)
        assert answer.returncode == 0, answer.stderr
        path = tmp_path / "config" / "castoff" / "sites" / "polaris.yaml"
        assert answer.stdout.splitlines()[-1] == f"wrote {path}"
        assert path.read_text().startswith("extends: polaris\n")
        assert castoff("sites", "check", "polaris", env=environ).returncode == 0
        reported = json.loads(castoff("sites", "polaris", "--json", env=environ).stdout)
        assert reported["queues"]["debug-scaling"]["max_jobs"] == 2
        assert reported["queues"]["debug"]["ranges"], "what is right is inherited"

    def test_what_cannot_be_written(self, castoff: Castoff, answering: Answers, tmp_path: Path) -> None:
        """It is said, and the exit code says that something differs."""
        ranges = "[{max_nodes: 1}, {max_nodes: 2, max_walltime: 1h}]"
        path = profile(tmp_path, "lab", LAB.replace("[{max_nodes: 2, max_walltime: 1h}]", ranges))
        answer = castoff("sites", "check", "lab", "--update", env=answering("slurm-accounting"))
        assert answer.returncode == 1
        assert "not written: queues.debug.max_walltime: has several ranges" in answer.stdout
        assert ranges in path.read_text() and "gone" not in path.read_text()

    def test_one_that_is_a_link(self, castoff: Castoff, answering: Answers, tmp_path: Path) -> None:
        """As of those who keep such files elsewhere."""
        path = profile(tmp_path, "lab", LAB)
        path.rename(tmp_path / "kept.yaml")
        path.symlink_to(tmp_path / "kept.yaml")
        answer = castoff("sites", "check", "lab", "--update", env=answering("slurm-accounting"))
        assert answer.returncode == 0, answer.stderr
        assert path.is_symlink() and "gone" not in (tmp_path / "kept.yaml").read_text()

    def test_line_ends_stay(self, castoff: Castoff, answering: Answers, tmp_path: Path) -> None:
        path = profile(tmp_path, "lab", "")
        path.write_bytes(LAB.replace("\n", "\r\n").encode())
        answer = castoff("sites", "check", "lab", "--update", env=answering("slurm-accounting"))
        assert answer.returncode == 0, answer.stderr
        text = path.read_bytes()
        assert b"max_walltime: 30m" in text and text.count(b"\n") == text.count(b"\r\n") > 5

    def test_what_would_not_be_right(self, castoff: Castoff, answering: Answers, tmp_path: Path) -> None:
        """Other fields of the profile may not go with what the scheduler says: it stays as it was."""
        text = LAB + "node: {sockets: ['0-31'], source: s, date: 2026-01-01}\n"
        text += "options:\n  less: {description: d, reserved_cores: '30', source: s, date: 2026-01-01}\n"
        path = profile(tmp_path, "lab", text)
        nodes = "echo '2|1|8|8|20000|(null)|(null)'"
        answer = castoff("sites", "check", "lab", "--update", env=answering("slurm-accounting", sinfo=nodes))
        assert answer.returncode == 1 and path.read_text() == text
        assert f"{path}: is unchanged, since the values that Slurm reports" in answer.stderr
        assert "options.less.reserved_cores: is 30, which no socket has" in answer.stderr

    def test_for_programs(self, castoff: Castoff, answering: Answers, tmp_path: Path) -> None:
        path = profile(tmp_path, "lab", LAB)
        answer = castoff("sites", "check", "lab", "--update", "--json", env=answering("slurm-accounting"))
        reported = json.loads(answer.stdout)
        assert (reported["written"], reported["left"]) == (str(path), [])


class TestNew:
    @pytest.fixture
    def users(self, tmp_path: Path) -> Path:
        """Where a user's profiles lie."""
        return tmp_path / "config" / "castoff" / "sites"

    @pytest.fixture
    def lab(self, answering: Answers, tmp_path: Path) -> dict[str, str]:
        """A machine with Slurm."""
        return {**answering("slurm-accounting", sbatch="exit 1"), "XDG_CONFIG_HOME": str(tmp_path / "config")}

    def test_a_profile_and_what_to_do_next(self, castoff: Castoff, lab: dict[str, str], users: Path) -> None:
        answer = castoff("sites", "new", "lab", env=lab)
        path = users / "lab.yaml"
        assert answer.returncode == 0, answer.stderr
        assert answer.stderr.startswith("castoff: site lab: asking Slurm: /")
        assert answer.stdout.splitlines() == [
            f"wrote      {path}",
            "node       64 cores, 4 a100, 20000M, the most frequent of queue debug; "
            "1 other kind: castoff sites new OTHER-NAME with --queue QUEUE or --gpu-type TYPE",
            "open       1 question in it, the lines with `# ?`",
            "next       castoff render --site lab --nodes 2 --walltime 30m -- python train.py",
            "           export CASTOFF_SITE=lab   or `site: lab` in .castoff/config.yaml: for every job",
            "           castoff sites probe lab   a job that asks one of its nodes",
        ]
        assert castoff("sites", "check", "lab", env=lab).returncode == 0
        words = ("render", "--site", "lab", "--nodes", "2", "--walltime", "30m", "--", "python", "train.py")
        script = castoff(*words, env=lab).stdout
        assert "#SBATCH --account=phys\n" in script and "#SBATCH --gpus-per-node=4\n" in script

    def test_never_over_one_that_is_there(self, castoff: Castoff, lab: dict[str, str], users: Path) -> None:
        users.mkdir(parents=True)
        (users / "lab.yaml").write_text("mine")
        answer = castoff("sites", "new", "lab", env=lab)
        assert (answer.returncode, answer.stdout) == (1, "")
        assert f"site lab: exists already, {users / 'lab.yaml'}; `castoff sites check lab`" in answer.stderr
        assert (users / "lab.yaml").read_text() == "mine"
        answer = castoff("sites", "new", "perlmutter", env=lab)
        assert answer.returncode == 1 and "site perlmutter: comes with castoff" in answer.stderr

    def test_to_look_at(self, castoff: Castoff, lab: dict[str, str], users: Path, tmp_path: Path) -> None:
        answer = castoff("sites", "new", "perlmutter", "-o", "-", env=lab)
        assert answer.returncode == 0 and answer.stdout.startswith(
            "# Made by `castoff sites new perlmutter` on "
        )
        assert "\nextends: slurm\n" in answer.stdout and not users.exists()
        assert castoff("sites", "new", "lab", "-o", "lab.yaml", env=lab).returncode == 0
        assert (tmp_path / "lab.yaml").read_text().startswith("# Made by `castoff sites new lab` on ")
        answer = castoff("sites", "new", "lab", "-o", "lab.yaml", env=lab)
        assert answer.returncode == 1 and "-o: lab.yaml exists already" in answer.stderr

    def test_for_a_project(self, castoff: Castoff, lab: dict[str, str], tmp_path: Path) -> None:
        """Which others share: it holds no account."""
        answer = castoff("sites", "new", "lab", "--project", env=lab)
        assert answer.returncode == 1 and "to make this folder one: mkdir .castoff" in answer.stderr
        (tmp_path / ".castoff").mkdir()
        assert castoff("sites", "new", "lab", "--project", env=lab).returncode == 0
        text = (tmp_path / ".castoff" / "sites" / "lab.yaml").read_text()
        assert "\ndefaults:" not in text and "# defaults: {account: phys}" in text

    def test_another_queue(self, castoff: Castoff, lab: dict[str, str], users: Path) -> None:
        assert castoff("sites", "new", "cpus", "--queue", "long", env=lab).returncode == 0
        assert 'sockets: ["0-63", "64-127"]' in (users / "cpus.yaml").read_text()
        assert castoff("sites", "check", "cpus", env=lab).returncode == 0
        words = ("render", "--site", "cpus", "--nodes", "2", "--", "true")
        assert "#SBATCH --partition=long\n" in castoff(*words, env=lab).stdout
        answer = castoff("sites", "new", "other", "--queue", "lnog", env=lab)
        assert answer.returncode == 1
        assert "--queue: is lnog, but Slurm has no such queue; did you mean long?" in answer.stderr
        assert not (users / "other.yaml").exists()

    def test_a_type_of_gpu(self, castoff: Castoff, lab: dict[str, str], users: Path) -> None:
        words = ("sites", "new", "other", "--queue", "long", "--gpu-type")
        answer = castoff(*words, "a100", env=lab)
        assert answer.returncode == 1
        assert (
            "--gpu-type: is a100, but no node in queue long has such GPUs; there are: a100 (in debug, gpu)"
            in answer.stderr
        )
        answer = castoff("sites", "new", "other", "--gpu-type", "a10", env=lab)
        assert answer.returncode == 1 and "did you mean a100?" in answer.stderr and not users.exists()
        assert castoff("sites", "new", "other", "--gpu-type", "a100", env=lab).returncode == 0

    @pytest.mark.parametrize("name", ["my lab", "../lab", "-x", ""])
    def test_what_is_no_name(self, name: str, castoff: Castoff, lab: dict[str, str], users: Path) -> None:
        answer = (
            castoff("sites", "new", "--", name, env=lab)
            if name != "-x"
            else castoff("sites", "new", name, env=lab)
        )
        assert answer.returncode in (1, 2) and not users.exists()

    def test_no_scheduler(self, castoff: Castoff, tmp_path: Path, users: Path) -> None:
        environ = {"PATH": str(tmp_path / "nothing"), "XDG_CONFIG_HOME": str(tmp_path / "config")}
        answer = castoff("sites", "new", "lab", env=environ)
        assert (answer.returncode, answer.stdout) == (2, "")
        assert "this host has no scheduler" in answer.stderr and "on a login node" in answer.stderr
        assert not users.exists()

    def test_one_that_does_not_answer(
        self, castoff: Castoff, answering: Answers, tmp_path: Path, users: Path
    ) -> None:
        """Its own words; and the other one that is here is named."""
        said = "echo 'Unable to contact slurm controller (connect failure)' >&2; exit 1"
        programs = {"sbatch": "exit 1", "scontrol": said, "qsub": "echo pbs_version = 23.06.06"}
        environ = {**answering("slurm-plain", **programs), "XDG_CONFIG_HOME": str(tmp_path / "config")}
        answer = castoff("sites", "new", "lab", env=environ)
        assert (answer.returncode, answer.stdout) == (2, "")
        assert "Unable to contact slurm controller" in answer.stderr
        assert "this host also has pbs; to ask that: --scheduler pbs" in answer.stderr
        assert not users.exists()

    def test_pbs(self, castoff: Castoff, answering: Answers, tmp_path: Path, users: Path) -> None:
        programs = {"qsub": "echo pbs_version = 2025.2.1"}
        environ = {**answering("pbs", **programs), "XDG_CONFIG_HOME": str(tmp_path / "config")}
        answer = castoff("sites", "new", "lab", env=environ)
        assert answer.returncode == 0, answer.stderr
        assert "among: [home, eagle]" in (users / "lab.yaml").read_text()
        words = ("render", "--site", "lab", "--nodes", "10", "--walltime", "30m")
        right = castoff(*words, "--set", "directives={filesystems: home}", "--", "true", env=environ)
        assert "#PBS -l filesystems=home\n" in right.stdout
        wrong = castoff(*words, "--set", "directives={filesystems: flare}", "--", "true", env=environ)
        assert wrong.returncode == 2 and "qstat -Bf, valid_filesystems" in wrong.stderr


@pytest.mark.parametrize("words", [("aurora", "polaris"), ("check", "a", "b")])
def test_too_many_words(words: tuple[str, ...], castoff: Castoff) -> None:
    answer = castoff("sites", *words)
    assert (answer.returncode, answer.stdout) == (2, "")
    assert "(see castoff sites" in answer.stderr


def test_a_site_that_is_not_there(castoff: Castoff) -> None:
    answer = castoff("sites", "check", "polarsi")
    assert (answer.returncode, answer.stdout) == (2, "")
    assert "polarsi" in answer.stderr and "polaris" in answer.stderr


class TestList:
    def test_a_broken_profile_hides_no_other(self, castoff: Castoff, tmp_path: Path) -> None:
        profile(tmp_path, "good", "extends: local\ndescription: a good one\n")
        path = profile(tmp_path, "bad", "extends: slurm\nqueus: {}\n")
        answer = castoff("sites")
        rows = [line.split(maxsplit=2) for line in answer.stdout.splitlines()]
        assert ["good", "project", "a good one"] in rows
        assert ["bad", "project", "cannot be used, see below"] in rows
        assert rows[-1][:2] == ["without", "--site:"]
        assert answer.returncode == 2 and f"{path}:2: queus: " in answer.stderr
        reported = json.loads(castoff("sites", "--json").stdout)
        assert [bool(one["error"]) for one in reported["sites"] if one["from"] == "project"] == [True, False]
        assert castoff("sites", "good").returncode == 0

    def test_the_chosen_one_is_broken(self, castoff: Castoff, tmp_path: Path) -> None:
        """It is told of once, and the others are listed."""
        profile(tmp_path, "bad", "extends: slurm\nqueus: {}\n")
        answer = castoff("sites", env={"CASTOFF_SITE": "bad"})
        assert answer.returncode == 2 and answer.stderr.count("queus") == 1
        assert "\nlocal " in answer.stdout and "without --site" not in answer.stdout
        answer = castoff("sites", env={"CASTOFF_SITE": "nowhere"})
        assert answer.returncode == 2 and "site nowhere: there is no such profile" in answer.stderr
