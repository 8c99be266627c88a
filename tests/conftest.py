"""What every test stands on: an empty home, a clean environment, and the real `castoff` command."""

from __future__ import annotations

import gc
import os
import re
import shutil
import signal
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, Protocol

import hypothesis
import pytest

from tests import cases, grouping, threads
from tests.cluster.hosts import why_no_hosts
from tests.cluster.slurm import PACKAGES, SlurmCluster
from tests.command_line import Castoff as Castoff
from tests.command_line import call, start, starting_in
from tests.pbs.cluster import PACKAGES as PBS_PACKAGES
from tests.pbs.cluster import PbsCluster

NO_SKIPS = "CASTOFF_TESTS_NO_SKIPS"
NO_SYSTEM_PACKAGES = "CASTOFF_TESTS_NO_SYSTEM_PACKAGES"

# Read once, before any test can see or change them.
SKIPS_FAIL = os.environ.get(NO_SKIPS, "") not in ("", "0")
SYSTEM_PACKAGES_DECLINED = os.environ.get(NO_SYSTEM_PACKAGES, "") not in ("", "0")

# Reasons that lie in the machine and that no installation could mend.
IMPOSSIBLE_HERE = re.compile(
    "no /dev/full|no IPv6 here|abstract sockets|Linux alone|only root can|no control groups"
    "|Intel MPI is for Linux on x86-64 alone"
)

# Whatever a scheduler, a launcher, torchrun or a site would have left in the environment of a test run.
FOREIGN = re.compile(
    r"(CASTOFF|SLURM|SBATCH|SALLOC|SRUN|PBS|PMI|PMIX|PALS|HYDRA|HYDI|MPI|MPIEXEC|OMPI|PRTE|I_MPI|MPIR|MV2|FLUX"
    r"|TORCHELASTIC|TORCH_NCCL|NCCL|CCL|GLOO|ZE|ROCR|HIP|CUDA|OMP|GOMP|KMP|MKL|PYTHON|XDG|VIRTUAL_ENV)(_.*)?"
    r"|PYTHON[A-Z]+|RANK|LOCAL_RANK|WORLD_SIZE|LOCAL_WORLD_SIZE|NODE_RANK|GROUP_RANK|GROUP_WORLD_SIZE"
    r"|ROLE_RANK|ROLE_WORLD_SIZE|ROLE_NAME|MASTER_ADDR|MASTER_PORT|PMI[0-9]_.*|PMIX[0-9]_.*|COLUMNS|LINES"
    r"|NO_COLOR|FORCE_COLOR|CLICOLOR.*|MAKEFLAGS|MAKELEVEL|MFLAGS"
)


os.environ.update(threads.OF_A_TEST_PROCESS)

# No example is refused because the machine is busy.
hypothesis.settings.register_profile(
    "patient", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("patient")

# nohup and `&` have a test run ignore some of these, and every program that it starts with it.
for _number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
    if signal.getsignal(_number) is signal.SIG_IGN:
        _heard = signal.default_int_handler if _number == signal.SIGINT else signal.SIG_DFL
        signal.signal(_number, _heard)


class SystemProgram(Protocol):
    """Finds a program that a Debian package brings, or ends the test the way the user asked for."""

    def __call__(self, name: str, package: str) -> Path:
        """Skips where system packages were declined, fails where they should have been there."""
        ...


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        default=False,
        help="rewrite tests/launcher/golden from what is rendered now; read the difference",
    )
    parser.addoption(
        "--no-torch",
        action="store_true",
        default=False,
        help="fail if collecting the tests loads torch, as those of WITH_TORCH in the Makefile may",
    )


@pytest.fixture(autouse=True)
def fresh_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home, no variable of any scheduler or launcher, our own python first on PATH."""
    for name in list(os.environ):
        if FOREIGN.fullmatch(name):
            monkeypatch.delenv(name)
    for name, value in threads.OF_PROGRAMS.items():
        monkeypatch.setenv(name, value)
    home = tmp_path_factory.mktemp("home")
    _let_in(home)
    for name, folder in (
        ("HOME", home),
        ("XDG_CONFIG_HOME", home / ".config"),
        ("XDG_STATE_HOME", home / ".local" / "state"),
        ("XDG_CACHE_HOME", home / ".cache"),
        ("XDG_DATA_HOME", home / ".local" / "share"),
    ):
        monkeypatch.setenv(name, str(folder))
    monkeypatch.setenv(
        "PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    )
    return home


def _let_in(path: Path) -> None:
    """Let everybody into pytest's folders: below one that only its user enters, nobody's mode counts."""
    for folder in (path, *path.parents):
        if folder.name.startswith(("pytest-", "popen-")) or folder == path:
            folder.chmod(folder.stat().st_mode | 0o055)


@pytest.fixture
def tmp_path(tmp_path: Path) -> Path:
    """pytest's own, which others may enter."""
    _let_in(tmp_path)
    return tmp_path


@pytest.fixture
def castoff(tmp_path: Path) -> Castoff:
    """The command line, called in this process where its verb can be; it starts in `tmp_path`."""
    return starting_in(tmp_path, call)


@pytest.fixture
def castoff_command(tmp_path: Path) -> Castoff:
    """The installed command, in a process of its own; it starts in `tmp_path`."""
    return starting_in(tmp_path, start)


@pytest.fixture(scope="session")
def for_real() -> None:
    """Requested, also with `usefixtures`, by what starts ranks, containers or a cluster, or installs castoff.

    Whoever uses it, however indirectly, is marked `real`, and `make test-fast` leaves it out.
    """


@pytest.fixture(scope="session")
def system_program() -> SystemProgram:
    """`system_program("mpiexec.mpich", "mpich")` gives its path."""

    def find(name: str, package: str) -> Path:
        found = shutil.which(name)
        if found is not None:
            return Path(found)
        if SYSTEM_PACKAGES_DECLINED:
            pytest.skip(
                f"{name} (Debian package {package}) is not installed, and {NO_SYSTEM_PACKAGES} is set"
            )
        pytest.fail(
            f"{name} is not installed: apt-get install {package}, "
            f"or set {NO_SYSTEM_PACKAGES}=1 to skip what needs it",
            pytrace=False,
        )

    return find


@pytest.fixture(scope="session")
def slurm(
    tmp_path_factory: pytest.TempPathFactory, system_program: SystemProgram, for_real: None
) -> Iterator[SlurmCluster]:
    """A real Slurm, one for the whole test run, from the first test that asks for it.

    It takes jobs; what a test leaves on it ends with the test run.
    """
    if why := why_no_hosts():
        pytest.skip(why)
    for program, package in PACKAGES.items():
        system_program(program, package)
    cluster = SlurmCluster(tmp_path_factory.mktemp("slurm"))
    yield cluster
    cluster.close()


@pytest.fixture(scope="session")
def pbs(
    tmp_path_factory: pytest.TempPathFactory, system_program: SystemProgram, for_real: None
) -> Iterator[PbsCluster]:
    """A PBS, one for the whole test run, from the first test that asks for it: OpenPBS or its double.

    It takes jobs; what a test leaves on it ends with the test run.
    """
    if why := why_no_hosts():
        pytest.skip(why)
    for program, package in PBS_PACKAGES.items():
        system_program(program, package)
    cluster = PbsCluster(tmp_path_factory.mktemp("pbs"))
    yield cluster
    cluster.close()


@pytest.hookimpl(tryfirst=True)  # before pytest chooses by marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what is for real, and group what should share a test process: see `tests.grouping`."""
    clusters: dict[str, str] = {}
    for item in items:
        fixtures = item.fixturenames if isinstance(item, pytest.Function) else []
        if "for_real" in fixtures:
            item.add_marker("real")
            for name in {*grouping.CLUSTERS} & {*fixtures}:
                clusters[item.nodeid] = name
    cases.mark_long(items)
    grouping.arrange(config, items, clusters)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect no garbage among the tests, now or later: what is imported for them stays."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a worker of xdist where to leave the groups."""
    node.workerinput["groups"] = str(grouping.groups_file(node.config))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> grouping.ByGroup | None:
    """Deal out by these groups where `--dist loadgroup` asks for groups."""
    return grouping.ByGroup(config, log) if config.getvalue("dist") == "loadgroup" else None


def _skip_fails(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Where nothing may be skipped, a skip is a failure that keeps its reason.

    Except one that follows from declined system packages, or from what this machine is.
    """
    if SKIPS_FAIL and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        declined = SYSTEM_PACKAGES_DECLINED and NO_SYSTEM_PACKAGES in reason
        if declined or IMPOSSIBLE_HERE.search(reason):
            return
        report.outcome = "failed"
        report.longrepr = f"{reason}\n{NO_SKIPS} is set: a skipped test counts as failed"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """See `_skip_fails`."""
    report = yield
    _skip_fails(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """See `_skip_fails`: a whole module that skips itself. With --no-torch, one that loads torch fails."""
    had_torch = "torch" in sys.modules
    report = yield
    _skip_fails(report)
    if collector.config.getoption("no_torch") and "torch" in sys.modules and not had_torch:
        report.outcome = "failed"
        report.longrepr = (
            "loads torch: import it inside the tests, or add this file to WITH_TORCH in the Makefile"
        )
    return report
