"""Every field of a job at once, full of hostile text, on every scheduler: what a program gets is what
was written, byte for byte, or castoff refuses the job and says which field is to blame.

And the proof of the proof: without any one of the functions that quote, these tests fail.
"""

from __future__ import annotations

import dis
import importlib
import inspect
import os
import random
import shutil
import subprocess
import sys
import types
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jinja2
import msgspec
import pytest
import yaml
from click.testing import CliRunner
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from castoff import JobSpec, Site, plan, render
from castoff.launcher.cli import init
from castoff.launcher.config.site_fields import Queue, Required
from castoff.launcher.errors import CastoffError, InvalidInput
from castoff.launcher.planning.render import example_job, filters_for
from castoff.launcher.schedulers.registry import HAVE_DIRECTIVES, NAMES, scheduler_of
from castoff.launcher.submission.submit import _job_file
from castoff.launcher.text import quoting
from castoff.launcher.trust.decision import fixes
from castoff.launcher.trust.granted import granted
from castoff.launcher.trust.paths import weaknesses
from castoff.launcher.typed.document import Document
from tests.hostile import LINES, TEXTS
from tests.launcher.fields_of_jobs import leaves

from .hostile_checks import check
from .hostile_cluster import make_tools
from .hostile_jobs import EXEMPT, FIELDS, LAUNCHERS, Case, cases, strategies
from .hostile_runs import Trial, placed

pytestmark = pytest.mark.costly

TOGETHER = st.tuples(cases("slurm"), cases("pbs"), cases("flux"), cases("local"))
"""Scripts mostly wait, so some run at the same time."""

AT_A_TIME = 10
"""Examples of one search. Hypothesis would make later examples by copying parts of earlier ones; many
short searches find more that is new."""

quiet = settings(max_examples=AT_A_TIME, database=None, suppress_health_check=list(HealthCheck))

AGAIN = "CASTOFF_TESTS_SEARCH"
"""The search that the long test begins with; one at random where it is not set. Continuous integration sets
it, so that a failure there is the change's own."""
FIRST = int(os.environ.get(AGAIN) or random.SystemRandom().randrange(10**6, 10**12))

MANY = int(os.environ.get("CASTOFF_TESTS_MANY") or 250)
"""Jobs of each of its parts."""

_MANY_ENOUGH = 200
"""Jobs of which each scheduler has enough, so that its share of refusals is not an accident. Hypothesis draws
other ones wherever other modules are loaded, for it also draws what is in them."""


class Trials:
    """Runs cases, several at a time, and keeps what became of them."""

    def __init__(self, folder: Path):
        folder.mkdir()
        self.folder = folder
        self.tools = make_tools(folder / "tools")
        self.outcomes: dict[int, tuple[str, bool]] = {}
        """Of each distinct case: its scheduler, and whether it ran."""

    def run(self, together: list[Case]) -> None:
        """The folders of those that failed last are left for a look at them."""
        trials = [Trial(case, self.folder / f"case-{at}", self.tools) for at, case in enumerate(together)]
        for trial in trials:
            shutil.rmtree(trial.here, ignore_errors=True)
        try:
            for trial in trials:
                trial.begin()
            for trial in trials:
                self.outcomes[hash(repr(tuple(trial.case)))] = (trial.case.kind, check(trial))
        finally:
            for trial in trials:
                trial.abandon()


def try_many(trials: Trials, wanted: int, first: int) -> None:
    """Searches from the number `first` on, until so many distinct cases were tried."""
    number = first
    while len(trials.outcomes) < wanted:

        @seed(number)
        @quiet
        @given(TOGETHER)
        def run(together: tuple[Case, ...]) -> None:
            trials.run(list(together))

        try:
            run()
        except BaseException:
            print(f"search {number} failed; its last cases are in {trials.folder}. To see it again:")
            print(f"{AGAIN}={number} pytest {__file__} -m long -k 'many_jobs and 0'")
            raise
        number += 1
    counted = Counter(trials.outcomes.values())
    print(f"{len(trials.outcomes)} jobs, from search {first} on: {dict(counted)}")
    for kinds in [[kind] for kind in LAUNCHERS] if wanted >= _MANY_ENOUGH else [list(LAUNCHERS)]:
        ran, refused = (sum(counted[kind, outcome] for kind in kinds) for outcome in (True, False))
        assert ran > 0.6 * (ran + refused) > 0.1 * wanted, "so many refusals would prove little"
    refused = sum(counted[kind, False] for kind in LAUNCHERS)  # of all: locally little is refused
    assert refused > 0.05 * len(trials.outcomes), "and so few, too"


@pytest.mark.timeout(900)  # hypothesis may look for five minutes for the smallest case that fails
@pytest.mark.usefixtures("for_real")
def test_some_jobs(tmp_path: Path) -> None:
    """The same ones every time, where the same modules are loaded."""
    try_many(Trials(tmp_path / "trials"), 20, first=0)


@pytest.mark.long
@pytest.mark.apart
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(4))
def test_many_jobs(part: int, tmp_path: Path) -> None:
    """Others every time."""
    try_many(Trials(tmp_path / "trials"), MANY, FIRST + part * 10_000)


def test_no_field_is_forgotten() -> None:
    """A new field is drawn by its type, or has a row in `FIELDS` or a reason in `EXEMPT`."""
    assert set(FIELDS).isdisjoint(EXEMPT)
    drawn = set().union(*(strategies(kind) for kind in LAUNCHERS))
    assert {*FIELDS, *EXEMPT} <= set(leaves(JobSpec)) == {*drawn, *EXEMPT}


# --- Beside the jobs ----------------------------------------------------------------------------------


def the_first_job_file_is_one(queue: str, because: str, name: str) -> None:
    """What `castoff init` writes for a site whose profile holds hostile text."""
    source, date, example = "here", "2026-11-20", "account: 'it''s'"
    needed = Required(field="account", because=because, example=example, source=source, date=date)
    site = msgspec.structs.replace(
        Site.load("slurm"), name=name, queues={queue: Queue(source=source, date=date)}, required=[needed]
    )
    text = example_job(site)
    spec = JobSpec.of(Document.parse(text, "job.yaml").data)
    assert (spec.command, spec.queue, spec.account) == (["python", "train.py"], queue, "it's")
    assert all(line.isprintable() for line in text.split("\n"))


@pytest.mark.long
@settings(max_examples=50)
@given(queue=LINES, because=TEXTS, name=LINES)
def test_the_first_job_file_is_one(queue: str, because: str, name: str) -> None:
    the_first_job_file_is_one(queue, because, name)


@settings(max_examples=25, suppress_health_check=list(HealthCheck))
@given(case=cases("slurm") | cases("pbs"))
def test_the_job_file_that_a_run_keeps_is_the_same_job(case: Case, tmp_path: Path) -> None:
    if case.blamed is None:
        spec = JobSpec.of({**placed(case.fields, Path("/here")), "templates": None})
        (tmp_path / "job.yaml").write_text(_job_file(spec))
        assert JobSpec.load(tmp_path / "job.yaml") == spec


def the_list_that_a_text_should_be_is_proposed(text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        JobSpec.of({"command": ["true"], "setup": text})
    (problem,) = caught.value.problems
    _, _, proposal = problem.message.partition("; use `")
    # A text that could not be a line of setup either is not proposed.
    lines = [line for line in text.splitlines() if line.strip()]
    assert yaml.safe_load(proposal[:-1]) == {"setup": lines or [text]} or problem.message.endswith("[a, b]")


@settings(max_examples=50)
@given(TEXTS)
def test_the_list_that_a_text_should_be_is_proposed(text: str) -> None:
    the_list_that_a_text_should_be_is_proposed(text)


def what_init_says_next_is_for_a_shell(folder: Path) -> None:
    path = folder / "it's $(canary)\x1b \\.yaml"
    path.unlink(missing_ok=True)
    reported = CliRunner().invoke(init.command, [str(path), "--site", "slurm"]).output
    assert reported.strip().isprintable()
    words = ["bash", "-c", f"printf '%s|' {reported.partition('; next: ')[2]}"]
    assert subprocess.check_output(words, text=True) == f"castoff|render|{path}|--site|slurm|"


def test_what_init_says_next_is_for_a_shell(tmp_path: Path) -> None:
    what_init_says_next_is_for_a_shell(tmp_path)


def what_mends_a_folder_is_for_a_shell(folder: Path) -> None:
    """One that others may change, and the list of those that are trusted all the same."""
    path = folder / "it's $(canary)\x1b \\"
    (path / "castoff").mkdir(parents=True, exist_ok=True)
    (path / "castoff" / "trusted").touch()
    path.chmod(0o777)
    reported = [line.partition(": ")[2] for line in fixes(weaknesses(path))]
    with pytest.raises(CastoffError) as refusal:
        granted({"XDG_CONFIG_HOME": str(path)})
    reported.append(str(refusal.value).rpartition("; ")[2])
    assert [line.split()[0] for line in reported] == ["castoff", "chmod", "chmod"]
    for line in reported:
        assert line.isprintable()
        seen = subprocess.check_output(["bash", "-c", f"printf '%s|' {line}"], text=True)
        assert seen.endswith(f"|{path}|")


def test_what_mends_a_folder_is_for_a_shell(tmp_path: Path) -> None:
    what_mends_a_folder_is_for_a_shell(tmp_path)


def what_no_profile_says_is_refused_too() -> None:
    """A site that was made in Python, and that nobody has checked."""
    job = JobSpec.of({"command": ["true"], "name": "j"})
    for kind, directive in (("slurm", "comment"), ("pbs", "P"), ("pbs", "other")):
        site = Site.load(kind)
        for changes in ({"directives": {directive: "x\ntouch CANARY"}}, {"shell": "/bin/sh\ntouch CANARY"}):
            with pytest.raises(InvalidInput, match=rf"{kind}: (directives\.{directive}|shell): is "):
                render(plan(job, msgspec.structs.replace(site, **changes)))
        named = render(plan(job, msgspec.structs.replace(site, name="x\ntouch CANARY")))
        assert "touch CANARY" not in named.split("\n")


def test_what_no_profile_says_is_refused_too() -> None:
    what_no_profile_says_is_refused_too()


# --- Without one of the functions that quote ----------------------------------------------------------


FILTERS = filters_for(*map(scheduler_of, NAMES))

QUOTING: dict[str, Callable[..., Any]] = {
    name: function
    for name, function in vars(quoting).items()
    if inspect.isfunction(function)
    and function.__module__ == quoting.__name__
    # For profiles and entries of machines (tests/launcher/siting, remote), and for what to write instead.
    and name not in ("yaml_value", "_inner", "is_shell_line")
}
QUOTING |= {
    f"{name}_directive": dialect.line
    for name in HAVE_DIRECTIVES
    if name != "lsf" and (dialect := scheduler_of(name).dialect)
}
"""Each function of the module, its inner steps too, and how each scheduler's directives are written."""

NOT_QUOTING = {
    "folder": "cuts a path, which `sh` then quotes",
    "wrapped": "takes castoff's own names",
    "layout_words": "makes words of numbers",
    "delimiter": "is for a job's `script`, of which test_batch_script has hostile ones",
    "lsf_directive": "is tested in tests/launcher/schedulers/lsf",
}
"""Filters without which nothing could be proven."""

ELSEWHERE = {
    **dict.fromkeys(
        (
            f"castoff.launcher.cli.{verb}"
            for verb in (
                *("corrections", "elsewhere", "flags", "import_", "on", "program", "report"),
                *("shorthands", "sites", "sites_new", "submit_elsewhere", "translation"),
            )
        ),
        "tests/launcher/cli: words that a message shows",
    ),
    "castoff.launcher.submission.group": "tests/launcher/submission: a command that a message shows",
    **dict.fromkeys(
        (
            f"castoff.launcher.remote.{name}"
            for name in ("entries", "group_submission", "login_shell", "machine", "ssh")
        ),
        "tests/launcher/remote and tests/remote: what a login shell reads, and words that a message shows",
    ),
    **dict.fromkeys(
        (
            f"castoff.launcher.diagnosis.{name}"
            for name in (*("finding", "interpreter", "quotas", "scheduling", "storage"),)
        ),
        "tests/launcher/diagnosis: words that a remedy shows",
    ),
    **dict.fromkeys(
        (
            "castoff.launcher.siting.draft",
            "castoff.launcher.siting.entries",
            "castoff.launcher.typed.editing",
        ),
        "tests/launcher/siting: profiles that castoff writes",
    ),
    **dict.fromkeys(
        ("castoff.launcher.agents.question", "castoff.launcher.agents.server"),
        "tests/launcher/agents: words that a person confirms or may run",
    ),
    "castoff.launcher.preflight.shell_words": "tests/launcher/preflight: what to write instead",
    "castoff.launcher.typed.structure": "tests/launcher/config/test_synonyms.py: what to write instead",
    "castoff.launcher.notify.webhooks": "tests/launcher/notify/test_webhooks.py: a path in a message",
    "castoff.launcher.interactive.alloc": "tests/launcher/cli/test_alloc.py",
    "castoff.launcher.schedulers.lsf.bsub_directives": "tests/launcher/schedulers/lsf: no case is for LSF",
}
"""Modules that quote nothing of a job's script, and where their quoting is tested."""


def _modules_that_quote() -> Iterator[str]:
    package = Path(quoting.__file__).parents[1]
    for path in package.rglob("*.py"):
        if quoting.__name__ in path.read_text():
            yield ".".join(["castoff", "launcher", *path.relative_to(package).with_suffix("").parts])


QUOTE = {*_modules_that_quote()}
HERE = sorted(QUOTE - ELSEWHERE.keys())
"""Modules that quote and whose calls are taken away here."""

for _module in HERE:
    importlib.import_module(_module)

UNQUOTED: dict[str, Callable[..., str]] = {
    "words": " ".join,
    "slurm_directive": lambda name, value: f"--{name}" if value is True else f"--{name}={value}",
    "pbs_directive": lambda name, value: (
        f"-{name} {value}" if len(name) == 1 else f"-l {name}" if value is True else f"-l {name}={value}"
    ),
}
"""What is left of a function that shapes its text, and does not only quote it."""


def as_given(*words: str) -> str:
    return words[-1]


class Place(NamedTuple):
    """Where a quoting function is called from."""

    module: str
    """`FILTERS`, a module's name, or `*` for all of these and the quoting module itself."""
    name: str

    def replace(self, patch: pytest.MonkeyPatch) -> None:
        identity = UNQUOTED.get(self.name, as_given)
        original = QUOTING.get(self.name) or FILTERS[self.name]
        for module, name in _callers(original):
            if self.module in ("*", module):
                patch.setattr(sys.modules[module], name, identity)
        for name, function in FILTERS.items():
            if function is original and self.module in ("*", "FILTERS"):
                patch.setitem(FILTERS, name, identity)


def _callers(function: Callable[..., Any]) -> Iterator[tuple[str, str]]:
    """(module, name) of each place that holds the function, among the modules that are loaded."""
    for module, holder in list(sys.modules.items()):
        if module.startswith("castoff.launcher."):
            yield from ((module, name) for name, held in vars(holder).items() if held is function)


def _uses(code: types.CodeType, name: str) -> bool:
    inner = (constant for constant in code.co_consts if isinstance(constant, types.CodeType))
    loads = (step for step in dis.get_instructions(code) if step.opname == "LOAD_GLOBAL")
    return any(step.argval == name for step in loads) or any(_uses(part, name) for part in inner)


def _calls(module: str, name: str) -> bool:
    """Whether a function of the module calls it: some modules only put it into `FILTERS`."""
    functions = [held for held in vars(sys.modules[module]).values() if inspect.isfunction(held)]
    return any(_uses(function.__code__, name) for function in functions if function.__module__ == module)


PLACES = [
    *(Place("*", name) for name in QUOTING),
    *(Place("FILTERS", name) for name in FILTERS if name not in NOT_QUOTING),
    *(
        Place(module, name)
        for name, function in QUOTING.items()
        for module, known_as in _callers(function)
        if module in HERE and _calls(module, known_as)
    ),
]
"""Each function by itself, and each place by itself that calls one."""


@pytest.fixture(scope="module")
def few() -> list[Case]:
    """Jobs that have to run: enough to notice what is missing."""
    found: list[Case] = []

    @seed(1)
    @settings(quiet, phases=[Phase.generate])
    @given(TOGETHER)
    def collect(together: tuple[Case, ...]) -> None:
        found.extend(case for case in together if case.blamed is None)

    collect()
    return found[::-1]  # the first of a search is the simplest


def a_reference_becomes_a_variable() -> None:
    """The values themselves are in test_parameters.py."""
    job = {"command": ["x", "--a={a} b"], "array": {"parameters": {"a": ["1"]}}}
    script = render(plan(JobSpec.of(job), Site.load("slurm")))
    assert """x --a="${castoff_parameter[a]}"' b'\n""" in script


def everything(trials: Trials, few: list[Case]) -> None:
    """What the tests above prove, on few jobs."""
    what_no_profile_says_is_refused_too()
    what_init_says_next_is_for_a_shell(trials.folder)
    what_mends_a_folder_is_for_a_shell(trials.folder)
    the_list_that_a_text_should_be_is_proposed("a: b")
    the_first_job_file_is_one("null", "two\nlines", "it's")
    the_first_job_file_is_one('"\\', "x", "a\x1bb")
    a_reference_becomes_a_variable()
    for at in range(0, len(few), 4):
        trials.run(few[at : at + 4])


def test_what_is_tested_elsewhere_quotes() -> None:
    assert ELSEWHERE.keys() <= QUOTE


@pytest.mark.long
def test_few_jobs_are_right_as_things_are(few: list[Case], tmp_path: Path) -> None:
    everything(Trials(tmp_path / "trials"), few)


@pytest.mark.long
@pytest.mark.parametrize("place", PLACES, ids=lambda place: f"{place.module}-{place.name}")
def test_each_quoting_function_is_needed(
    place: Place, few: list[Case], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.replace(monkeypatch)
    # A value that is left as it is need not even be text.
    wrong = (
        AssertionError,
        pytest.fail.Exception,
        CastoffError,
        ValueError,
        LookupError,
        AttributeError,
        TypeError,
    )
    with pytest.raises((*wrong, OSError, jinja2.TemplateError)):
        everything(Trials(tmp_path / "trials"), few)
