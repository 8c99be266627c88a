"""Site profiles: the built-in ones, those that extend them, and which one is chosen."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from castoff.launcher.config.quantities import cpus
from castoff.launcher.config.site import Search, Site
from castoff.launcher.config.site_fields import Fact
from castoff.launcher.errors import CastoffError, InvalidInput
from castoff.launcher.schedulers.choice import choose_site
from castoff.launcher.schedulers.registry import scheduler_of

if TYPE_CHECKING:
    from tests.conftest import Castoff

BUILT_IN = [
    "aurora",
    "crux",
    "flux",
    "frontier",
    "local",
    "lsf",
    "pbs",
    "perlmutter",
    "polaris",
    "slurm",
    "sophia",
    "tuolumne",
]


class Folders:
    """A user's and a project's profiles, and programs on a PATH of their own."""

    def __init__(self, root: Path):
        self.project = root / "project"
        self.user = root / "config" / "castoff" / "sites"
        self.programs = root / "bin"
        for folder in (self.project / ".castoff" / "sites", self.user, self.programs):
            folder.mkdir(parents=True)
        self.environ = {
            "HOME": str(root),
            "XDG_CONFIG_HOME": str(root / "config"),
            "PATH": str(self.programs),
        }

    def write(self, kind: str, name: str, text: str) -> Path:
        folder = self.user if kind == "user" else self.project / ".castoff" / "sites"
        path = folder / f"{name}.yaml"
        path.write_text(text)
        return path

    def program(self, name: str, script: str) -> None:
        path = self.programs / name
        path.write_text("#!/bin/sh\n" + script)
        path.chmod(0o755)

    def search(self, **environ: str) -> Search:
        return Search({**self.environ, **environ}, self.project)

    def load(self, name: str) -> Site:
        return Site.load(name, search=self.search())

    def refusal(self, name: str, text: str) -> str:
        self.write("user", name, text)
        with pytest.raises(CastoffError) as caught:
            self.load(name)
        return str(caught.value)


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    return Folders(tmp_path)


def facts(part: Any) -> list[Fact]:
    """Every limit in a site, however deep."""
    inner: list[Any] = []
    if isinstance(part, msgspec.Struct):
        inner = [getattr(part, field.name) for field in msgspec.structs.fields(part)]
    elif isinstance(part, (list, dict)):
        inner = list(part.values() if isinstance(part, dict) else part)
    return [*([part] if isinstance(part, Fact) else []), *(fact for item in inner for fact in facts(item))]


class TestBuiltIn:
    @pytest.mark.parametrize("name", BUILT_IN)
    def test_loads_under_its_name(self, name: str, folders: Folders) -> None:
        site = folders.load(name)
        assert site.name == name
        assert site.launcher in scheduler_of(site.scheduler).launchers
        assert site.description

    def test_these_are_all(self, folders: Folders) -> None:
        assert list(folders.search().profiles()) == BUILT_IN

    @pytest.mark.parametrize("name", BUILT_IN)
    def test_every_limit_has_a_source_and_a_date(self, name: str, folders: Folders) -> None:
        for fact in facts(folders.load(name)):
            assert fact.source
            time.strptime(fact.date, "%Y-%m-%d")

    def test_what_aurora_is(self, folders: Folders) -> None:
        site = folders.load("aurora")
        assert site.node is not None
        assert site.node.device_count == 12
        assert [len(socket) for socket in site.node.usable_cores()] == [51, 51]
        assert cpus(site.node.reserved_cores or "") == [0, 52]
        assert site.master_suffix == ".hsn.cm.aurora.alcf.anl.gov"
        assert site.directives == {"place": "scatter", "k": "doe"}
        assert [required.field for required in site.required] == [
            "account",
            "walltime",
            "directives.filesystems",
        ]
        assert {
            name: queue.submit_to for name, queue in site.queues.items() if queue.submit_to
        } == dict.fromkeys(
            ("small", "medium", "large", "backfill-small", "backfill-medium", "backfill-large"), "prod"
        )

    def test_what_polaris_is(self, folders: Folders) -> None:
        site = folders.load("polaris")
        assert site.node is not None
        assert (site.node.device_count, [len(cores) for cores in site.node.usable_cores()]) == (4, [32])
        assert site.directives == {"place": "scatter", "k": "doe"}
        assert {required.field for required in site.required} == {
            *("account", "walltime", "directives.filesystems")
        }
        assert site.env == {"TMPDIR": "/tmp"}, "NCCL's plugin is for those who ask for it"

    def test_what_perlmutter_is(self, folders: Folders) -> None:
        site = folders.load("perlmutter")
        assert site.node is not None
        assert (site.node.device_count, site.cpus_of(16)) == (4, 32)
        assert (site.queues, site.other_queues, site.default_qos) == ({}, False, "debug")
        assert {name: qos.listed_as for name, qos in site.qos.items() if qos.listed_as} == {
            name: f"gpu_{name}"
            for name in ("debug", "interactive", "regular", "shared", "preempt", "premium")
        }
        assert site.defaults.constraint == "gpu"

    def test_what_frontier_is(self, folders: Folders) -> None:
        site = folders.load("frontier")
        assert site.node is not None
        assert cpus(site.node.reserved_cores or "") == list(range(0, 64, 8))
        assert (len(site.node.usable_cores()[0]), site.cpus_of(7)) == (56, 7)

    @pytest.mark.parametrize("name", BUILT_IN)
    def test_a_site_reads_back(self, name: str, folders: Folders) -> None:
        site = folders.load(name)
        assert msgspec.convert(msgspec.to_builtins(site), Site) == site


class TestExtends:
    def test_a_user_changes_a_built_in_one(self, folders: Folders) -> None:
        folders.write(
            "user",
            "mine",
            "extends: aurora\n"
            "queues: {debug: {max_jobs: 3}, visualization: null}\n"
            "env: {TMPDIR: null, MY_VAR: 1}\n"
            "directives: {filesystems: 'home:flare', k: null}\n",
        )
        site, aurora = folders.load("mine"), folders.load("aurora")
        assert site.name == "mine"
        assert site.queues["debug"].max_jobs == 3
        assert site.queues["debug"].ranges == aurora.queues["debug"].ranges, "the rest is still there"
        assert set(aurora.queues) - set(site.queues) == {"visualization"}
        assert site.env == {
            **{key: value for key, value in aurora.env.items() if key != "TMPDIR"},
            "MY_VAR": "1",
        }
        assert site.directives == {"place": "scatter", "k": None, "filesystems": "home:flare"}
        assert site.node == aurora.node

    def test_the_project_wins_over_the_user_over_castoff(self, folders: Folders) -> None:
        folders.write("user", "aurora", "extends: aurora\ndescription: user\nmpiexec: from-user\n")
        folders.write("project", "aurora", "extends: aurora\ndescription: project\n")
        site = folders.load("aurora")
        assert (site.description, site.mpiexec, site.launcher) == ("project", "from-user", "pals")
        kinds = [kind for kind, _ in folders.search().profiles()["aurora"]]
        assert kinds == ["project", "user", "built-in"]

    def test_a_profile_of_the_same_name_that_extends_nothing_replaces(self, folders: Folders) -> None:
        folders.write("user", "aurora", "description: x\nscheduler: slurm\nlauncher: srun\n")
        assert folders.load("aurora").queues == {}

    def test_a_project_changes_one_limit_of_perlmutter(self, folders: Folders) -> None:
        folders.write(
            "project",
            "perlmutter",
            "extends: perlmutter\n"
            "qos:\n"
            "  debug: {ranges: [{max_nodes: 2, max_walltime: 15m}], source: our group, date: 2026-11-20}\n"
            "  overrun: null\n"
            "defaults: {account: m1234, constraint: gpu&hbm80g}\n",
        )
        site = folders.load("perlmutter")
        built_in = Site.load("perlmutter", search=Search({}, None))
        assert (site.qos["debug"].ranges[0].max_nodes, site.qos["debug"].source) == (2, "our group")
        assert site.qos["debug"].max_jobs == built_in.qos["debug"].max_jobs, "the rest is still there"
        assert set(built_in.qos) - set(site.qos) == {"overrun"}
        assert (site.node, site.env, site.array) == (built_in.node, built_in.env, built_in.array)
        assert (site.defaults.account, site.defaults.constraint) == ("m1234", "gpu&hbm80g")

    def test_a_users_profile_lies_under_the_projects(self, folders: Folders) -> None:
        folders.write("user", "perlmutter", "extends: perlmutter\ndefaults: {account: mine, qos: regular}\n")
        folders.write("project", "perlmutter", "extends: perlmutter\ndefaults: {account: ours}\n")
        site = folders.load("perlmutter")
        assert (site.defaults.account, site.defaults.qos, site.defaults.constraint) == (
            *("ours", "regular", "gpu"),
        )

    def test_two_steps(self, folders: Folders) -> None:
        folders.write("user", "a", "extends: slurm\ngpu_request: gres\nsetup: [one]\n")
        folders.write("project", "b", "extends: a\nsetup: [two]\n")
        site = folders.load("b")
        assert (site.gpu_request, site.setup, site.launcher) == ("gres", ["two"], "srun")

    @pytest.mark.parametrize(
        "texts",
        [
            {"a": "extends: a"},
            {"a": "extends: b", "b": "extends: a"},
            {"a": "extends: slurm", "slurm": "extends: a"},
        ],
    )
    def test_a_circle(self, folders: Folders, texts: dict[str, str]) -> None:
        for name, text in texts.items():
            folders.write("user", name, text)
        if "slurm" in texts:  # the user's slurm, then the user's a, then the built-in slurm: no circle
            assert folders.load("slurm").scheduler == "slurm"
        with pytest.raises(CastoffError, match="site a: extends itself in a circle"):
            folders.load("a")

    def test_a_parent_that_is_not_there(self, folders: Folders) -> None:
        message = folders.refusal("a", "extends: aurorra")
        assert "site aurorra: there is no such profile; did you mean aurora?" in message
        assert (
            "there are: a, aurora, crux, flux, frontier, local, lsf, pbs, perlmutter, polaris, slurm, "
            "sophia, tuolumne" in message
        )
        assert "a.yaml:1: extends: " in message
        assert "did you mean" not in folders.refusal("mine", "extends: minee")

    @pytest.mark.parametrize("given", ["A=b", "a=b/mpiexec", "mpiexec -l", "$(x)", "./mpiexec", "~/mpiexec"])
    def test_an_mpiexec_that_is_one_program(self, folders: Folders, given: str) -> None:
        """`A=b -n 2 …` would set a variable and run -n."""
        message = folders.refusal("a", f"extends: pbs\nmpiexec: {given}\n")
        assert f":2: mpiexec: is '{given}', but takes a program: its name, or its path from /" in message
        folders.write("user", "b", "extends: pbs\nmpiexec: /opt/a=b c/mpiexec\n")
        assert folders.load("b").mpiexec == "/opt/a=b c/mpiexec"

    def test_null_restores_castoffs_own_default(self, folders: Folders) -> None:
        folders.write(
            "user", "a", "extends: aurora\nshell: null\nnode: null\nqueues: null\nlauncher_args: null\n"
        )
        site = folders.load("a")
        assert (site.shell, site.node, site.queues, site.launcher_args) == ("/bin/bash", None, {}, [])


class TestRefusals:
    def test_everything_at_once_with_its_line(self, folders: Folders) -> None:
        path = folders.write(
            "user",
            "a",
            "extends: slurm\n"
            "schedular: pbs\n"
            "array: {max_count: 5}\n"
            "queues:\n"
            "  debug:\n"
            "    ranges: [{max_nodes: x}]\n"
            "    source: s\n"
            "    date: yesterday\n"
            "env: {A B: 1}\n"
            "defaults: {nods: 2}\n",
        )
        with pytest.raises(InvalidInput) as caught:
            folders.load("a")
        assert {(problem.where, problem.path) for problem in caught.value.problems} == {
            (f"{path}:2", "schedular"),
            (f"{path}:6", "queues.debug.ranges.0.max_nodes"),
            (f"{path}:8", "queues.debug.date"),
            (f"{path}:9", "env.A B"),
            (f"{path}:10", "defaults.nods"),
        }
        assert "did you mean scheduler?" in str(caught.value)

    def test_a_limit_without_a_source(self, folders: Folders) -> None:
        """Users' own profiles need neither."""
        text = "extends: slurm\nqueues: {q: {max_jobs: 1}}\nnode: {sockets: [0-3]}\n"
        folders.write("user", "a", text)
        site = folders.load("a")
        assert site.queues["q"].max_jobs == 1 and site.queues["q"].cited == "(its profile)"
        dated = msgspec.structs.replace(site.queues["q"], date="2026-01-01")
        assert dated.cited == "(2026-01-01)"

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("node: {devices: [4], source: s, date: 2026-01-01}", "node.device_variable: is missing"),
            (
                "node: {sockets: ['0,5-2'], source: s, date: 2026-01-01}",
                "node.sockets.0: is 0,5-2, but 5-2 descends: write the smaller number first",
            ),
            (
                "node: {sockets: [0-9], devices: [1], device_variable: X, device_cores: ['8-5'], "
                "source: s, date: 2026-01-01}",
                "node.device_cores.0: is 8-5, but 8-5 descends",
            ),
            (
                "node: {sockets: [0-9], reserved_cores: '8-5', source: s, date: 2026-01-01}",
                "node.reserved_cores: is 8-5, but 8-5 descends",
            ),
            (
                "options: {o: {description: d, reserved_cores: '8-5', source: s, date: 2026-01-01}}",
                "options.o.reserved_cores: is 8-5, but 8-5 descends",
            ),
            (
                "node: {sockets: [0-9], source: s, date: 2026-01-01}\n"
                "options: {o: {description: d, reserved_cores: '8-12', source: s, date: 2026-01-01}}",
                "options.o.reserved_cores: is 8-12, which no socket has",
            ),
            (
                "node: {sockets: ['0-99999999999'], source: s, date: 2026-01-01}",
                "node.sockets.0: is '0-99999999999', but takes a CPU list, as in 0-51 or 0,52, with numbers",
            ),
            ("node: {sockets: [0-3, 3-5], source: s, date: 2026-01-01}", "node.sockets.1: is 3-5"),
            (
                "node: {sockets: [0-3], reserved_cores: 0-4, source: s, date: 2026-01-01}",
                "which no socket has",
            ),
            ("queues: {q: {submit_to: r, source: s, date: 2026-01-01}}", "is r, which is not a queue"),
            (
                "queues: {q: {ranges: [{min_nodes: 4, max_nodes: 2}], source: s, date: 2026-01-01}}",
                "more nodes",
            ),
            (
                "queues: {q: {ranges: [{min_walltime: 2h, max_walltime: 1h}], source: s, date: 2026-01-01}}",
                "longer minimum",
            ),
            (
                "required: [{field: acount, because: b, example: e, source: s, date: 2026-01-01}]",
                "did you mean account?",
            ),
            (
                "node: {sockets: [0-3], devices: [2], device_variable: X, device_cores: [0-1], "
                "source: s, date: 2026-01-01}",
                "node.device_cores: has 1 CPU lists, but there are 2 devices",
            ),
            (
                "node: {sockets: [0-1, 2-3], devices: [1, 1], device_variable: X, device_cores: [0-1, 1-2], "
                "source: s, date: 2026-01-01}",
                "node.device_cores.1: is 1-2, but must be on one socket",
            ),
            (
                "node: {sockets: [0-1, 2-3], devices: [1, 1], device_variable: X, device_cores: ['0', '1'], "
                "source: s, date: 2026-01-01}",
                "node.device_cores: puts other numbers of devices on the sockets than node.devices",
            ),
            (
                "node: {sockets: [0-1, 2-3], devices: [1], device_variable: X, source: s, date: 2026-01-01}",
                "node.devices: has 1 numbers, but there are 2 sockets: write one for each, 0 for a socket",
            ),
            (
                "defaults: {device_type: 'gpu:a100'}",
                "defaults.device_type: is 'gpu:a100', but takes a type of device as the scheduler lists it",
            ),
            ("default_qos: q\nother_qos: false", "default_qos: is q, which is not a QOS of this site"),
            (
                "default_queue: q\nother_queues: false",
                "default_queue: is q, which is not a queue of this site",
            ),
            ('description: "a\\nb\\0"', "description"),
        ],
    )
    def test_what_cannot_be(self, folders: Folders, text: str, words: str) -> None:
        message = folders.refusal("a", f"extends: slurm\n{text}\n")
        assert words in message
        assert re.search(r"a\.yaml(:\d)?: ", message)

    @pytest.mark.parametrize("text", ["", "# nothing", "- a", "aurora"])
    def test_a_profile_without_fields(self, folders: Folders, text: str) -> None:
        assert "holds no fields, so it is not a site profile" in folders.refusal("a", text)

    def test_a_name_that_is_none(self, folders: Folders) -> None:
        for name in ("summit", "../aurora", "", "aurora.yaml"):
            with pytest.raises(
                CastoffError, match=r"there is no such profile[^/]*there are: aurora, crux, flux"
            ):
                folders.load(name)


OPENPBS = 'if [ "$1" = --version ]; then echo "pbs_version = 23.06.06"; fi'
WLM_TORQUE = 'echo "Unknown option: version" >&2; echo "Usage: qsub [-a start_time] pbs ..." >&2; exit 2'


class TestChoice:
    def choose(self, folders: Folders, **environ: str) -> tuple[str, str]:
        site, why = choose_site(search=folders.search(**environ))
        return site.name, why

    def test_nothing_there_is_this_machine(self, folders: Folders) -> None:
        assert self.choose(folders) == ("local", "no scheduler that castoff knows is on PATH")

    def test_an_allocation_counts_more_than_what_is_on_path(self, folders: Folders) -> None:
        folders.program("sbatch", "exit 1")
        site, why = choose_site(search=folders.search(), inside="pbs")
        assert (site.name, why) == ("pbs", "this shell is in an allocation of pbs")

    def test_an_empty_environment_finds_nothing_either(self, folders: Folders) -> None:
        site, _ = choose_site(search=Search({}, None))
        assert site.name == "local"

    def test_the_first_of_variable_project_sbatch_qsub(self, folders: Folders) -> None:
        folders.program("qsub", OPENPBS)
        assert self.choose(folders) == ("pbs", f"{folders.programs}/qsub is on PATH and is PBS's")
        folders.program("sbatch", "exit 1")
        assert self.choose(folders) == ("slurm", f"{folders.programs}/sbatch is on PATH")
        config = folders.project / ".castoff" / "config.yaml"
        config.write_text("site: local\n")
        assert self.choose(folders) == ("local", f"{config} names it")
        assert self.choose(folders, CASTOFF_SITE="aurora") == ("aurora", "CASTOFF_SITE is set")
        assert self.choose(folders, CASTOFF_SITE="")[0] == "local"
        assert choose_site(search=folders.search(), inside="slurm")[0].name == "local"

    @pytest.mark.parametrize(
        "script",
        [
            WLM_TORQUE,
            "echo 'Version: 6.1.2'",  # TORQUE, whose options are others
            "echo 'GE 6.2u5: qsub: Unknown option'; exit 7",
            "printf 'p\\377bs'",
            "echo pbs_version; exit 1",
            "kill -9 $$",
        ],
    )
    def test_a_qsub_that_is_not_pbss(self, folders: Folders, script: str) -> None:
        folders.program("qsub", script)
        assert self.choose(folders)[0] == "local"

    def test_a_qsub_that_cannot_even_start(self, folders: Folders) -> None:
        (folders.programs / "qsub").write_bytes(b"\x00\x01")
        (folders.programs / "qsub").chmod(0o755)
        assert self.choose(folders)[0] == "local"

    def test_a_qsub_that_never_answers(self, folders: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("castoff.launcher.schedulers.command.VERSION_PATIENCE", 0.3)
        folders.program("qsub", "exec /bin/sleep 86400")
        assert self.choose(folders)[0] == "local"

    def test_a_qsub_that_reads_a_job_gets_none(self, folders: Folders, castoff: Castoff) -> None:
        folders.program("qsub", f"/bin/cat >{folders.programs}/read; {OPENPBS}")
        answer = castoff("sites", env=folders.environ, input="a job")
        assert "without --site: pbs" in answer.stdout
        assert (folders.programs / "read").read_text() == ""

    def test_the_error_about_a_missing_site_names_who_chose_it(self, folders: Folders) -> None:
        with pytest.raises(CastoffError, match=r"site nowhere: .*\n.*\n.*because CASTOFF_SITE is set"):
            self.choose(folders, CASTOFF_SITE="nowhere")

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("", "is empty"),
            ("sites: aurora", "did you mean site?"),
            ("site: [a]", "is a list"),
            ("a: [", "YAML"),
        ],
    )
    def test_a_project_file_that_names_none(self, folders: Folders, text: str, words: str) -> None:
        (folders.project / ".castoff" / "config.yaml").write_text(text)
        with pytest.raises(InvalidInput, match=words):
            self.choose(folders)

    def test_the_project_is_looked_for_upwards(
        self, folders: Folders, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        deep = folders.project / "a" / "b"
        deep.mkdir(parents=True)
        monkeypatch.chdir(deep)
        assert Search.here().project == folders.project
        folders.write("project", "mine", "extends: local\n")
        assert Site.load("mine").scheduler == "local"
