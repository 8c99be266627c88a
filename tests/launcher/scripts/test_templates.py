"""Templates as an interface: one's own folder, mistakes in it, and the document that describes it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import jinja2
import pytest
from jinja2 import meta, nodes

from castoff import CastoffError, JobSpec, Plan, Site, plan, render
from castoff.launcher.planning import render as rendering
from castoff.launcher.planning.machinery import FEATURES, machinery
from castoff.launcher.planning.render import filters_for, template_folder
from castoff.launcher.runs.script import head_of
from castoff.launcher.schedulers.registry import NAMES, scheduler_of
from docs.generate.script_parts import PARTS

from .examples import EXAMPLES
from .machine import known_parts, part

FILTERS = filters_for(*map(scheduler_of, NAMES))

DOCUMENT = Path(__file__).parents[3] / "docs" / "reference" / "templates.md"


def planned(folder: Path | None, site: str = "slurm", **fields: Any) -> Plan:
    return plan(
        JobSpec.of({"name": "j", "command": ["true"], "templates": folder and str(folder), **fields}),
        Site.load(site),
    )


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return folder


HEAD = '{{% extends "castoff/head.sh.j2" %}}{{% block {} %}}{}{{% endblock %}}'
"""A head of one's own, with one block that differs."""


def test_one_block_of_the_head_replaces_castoffs(tmp_path: Path) -> None:
    own = write(tmp_path, "head.sh.j2", HEAD.format("setup", "echo {{ plan.name | sh }}\n"))
    before, after = render(planned(None, setup=["true"])), render(planned(own, setup=["true"]))
    start, end = before.index("\n# --- Setup"), before.index("\n# --- Environment")
    assert after == before[:start] + "echo j\n" + before[end:]


@pytest.mark.parametrize("site", ["slurm", "pbs", "local"])
def test_castoffs_own_block_is_within_reach(site: str, tmp_path: Path) -> None:
    own = write(tmp_path, "head.sh.j2", HEAD.format("about", "{{ super() }}# of our group\n"))
    (tmp_path / "none").mkdir()
    before, after = render(planned(tmp_path / "none", site)), render(planned(own, site))
    assert after.replace("# of our group\n", "") == before != after


def test_a_whole_head_may_be_replaced(tmp_path: Path) -> None:
    own = write(tmp_path, "slurm.sh.j2", "#!/bin/sh\nexec {{ program }}")
    written = render(planned(own, command=["echo", "a b"]))
    assert written.startswith("#!/bin/sh\nexec echo 'a b'\n# === castoff for slurm")
    assert len(head_of(written).splitlines()) == 3
    (tmp_path / "none").mkdir()
    assert render(planned(own, "local")) == render(planned(tmp_path / "none", "local"))


def test_a_part_of_the_machinery_replaces_castoffs(tmp_path: Path) -> None:
    """And the marker says so, of those that this job has."""
    own = write(tmp_path, "blocks/rendezvous.sh", "castoff_rendezvous() { :; }")
    write(tmp_path, "blocks/program.sh", "# ours\n#if torchrun\n# with torchrun\n#endif\n")
    write(tmp_path, "blocks/stage.sh", "# of no use here\n")
    before, after = render(planned(None, setup=["true"])), render(planned(own, setup=["true"]))
    expected = before.replace(part("rendezvous"), "castoff_rendezvous() { :; }\n")
    expected = expected.replace(part("program"), "# ours\n")
    features = next(line for line in before.splitlines() if line.startswith("# Features: "))
    assert after == expected.replace(features, f"{features}\n# Your own: program, rendezvous")


def test_what_a_part_defines_is_called(tmp_path: Path) -> None:
    """A function that a part may define, and castoff's own does not."""
    text = (template_folder() / "machinery" / "launchers" / "srun.sh").read_text()
    own = write(tmp_path, "blocks/launchers/srun.sh", f"{text}castoff_launcher_export() {{ :; }}\n")
    assert "\n  castoff_launcher_export\n" not in render(planned(None))
    assert "\n  castoff_launcher_export\n" in render(planned(own))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "#if torchrn\n",
            "2: #if torchrn: there is no feature 'torchrn'; docs/reference/templates.md has all of them",
        ),
        ("#if\n#endif\n", "2: #if: it names no feature"),
        ("#if node\n", "2: this #if has no #endif"),
        ("#endif\n", "2: #endif: there is no #if above"),
        ("#include nothing\n", "2: #include nothing: there is no such file to include"),
    ],
)
def test_a_condition_that_is_wrong(text: str, said: str, tmp_path: Path) -> None:
    own = write(tmp_path, "blocks/stopping.sh", f"# ours\n{text}")
    with pytest.raises(CastoffError) as caught:
        render(planned(own))
    assert str(caught.value).endswith(f"blocks/stopping.sh:{said}")


def test_parts_may_lie_behind_a_link(tmp_path: Path) -> None:
    """As those that a group shares; what an editor leaves beside them is none."""
    write(tmp_path, "group/program.sh", "# ours\n")
    own = write(tmp_path, "blocks/._stopping.sh", "\0")
    (own / "blocks" / "program.sh").symlink_to("../group/program.sh")
    assert "# Your own: program\n" in render(planned(own))


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (
            "blocks/setup.j2",
            "castoff's scripts have no part setup.j2; docs/reference/templates.md has all of them",
        ),
        (
            "blocks/nope.sh",
            "castoff's scripts have no part nope; docs/reference/templates.md has all of them",
        ),
        ("blocks/schedulers/srun.sh", "have no part schedulers/srun"),
    ],
)
def test_a_block_that_is_none(name: str, reason: str, tmp_path: Path) -> None:
    own = write(tmp_path, name, '{% include "castoff/blocks/setup.j2" %}\n')
    with pytest.raises(CastoffError) as caught:
        render(planned(own))
    assert str(caught.value).startswith(f"{own / 'blocks'}: ") and reason in str(caught.value)


def test_the_folder_lies_beside_the_job_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "deep" / "ours", "head.sh.j2", HEAD.format("about", "# ours\n"))
    job = tmp_path / "deep" / "job.yaml"
    job.write_text("command: ['true']\ntemplates: ours\n")
    monkeypatch.chdir(tmp_path)
    assert "\n# ours\n" in render(plan(JobSpec.load("deep/job.yaml"), Site.load("local")))


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("one\n{{ plan.nonsense }}\n", 2, "has no attribute 'nonsense'"),
        ("one\n\n{{ nonsense }}\n", 3, "'nonsense' is undefined"),
        ("{% if %}\n", 1, "Expected an expression"),
        ("one\n{{ 1 / 0 }}\n", 2, "division by zero"),
        ("one\n{{ plan.name.nodes() }}\n", 2, "has no attribute 'nodes'"),
        ("{{ plan.nodes | sh }}\n", 1, ""),
        ("{{ plan | upsidedown }}\n", 1, "No filter named 'upsidedown'"),
        ('one\n{% include "nope.j2" %}\n', 2, "template nope.j2 does not exist"),
        ('{% extends "head.sh.j2" %}\n', 1, "it extends itself; castoff's template is castoff/…"),
    ],
)
def test_mistakes_name_file_and_line(text: str, line: int, reason: str, tmp_path: Path) -> None:
    own = write(tmp_path, "head.sh.j2", text)
    with pytest.raises(CastoffError) as caught:
        render(planned(own))
    assert str(caught.value).startswith(f"{own / 'head.sh.j2'}:{line}: "), caught.value
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "{{ cycler.__init__.__globals__.os.system(COMMAND) }}",
        "{{ plan.__class__.__mro__[-1].__subclasses__() }}",
        "{{ ''|attr('__class__') }}",
        "{{ lipsum.__globals__['os'].popen(COMMAND).read() }}",
        "{{ '{0.__class__.__init__.__globals__}'.format(plan) }}",
        "{% set run = self.__init__.__globals__.__builtins__.__import__('os').system(COMMAND) %}",
        "{{ plan.command.append('other') }}",
        "{{ plan.env.update(X='1') }}",
    ],
)
@pytest.mark.parametrize("words", [("render",), ("submit", "--dry-run")])
def test_a_strangers_template_runs_nothing(
    text: str, words: tuple[str, ...], tmp_path: Path, castoff: Any
) -> None:
    """Whoever reads what he has downloaded has not said that it may run."""
    mark = tmp_path / "ran"
    write(tmp_path / "own", "head.sh.j2", text.replace("COMMAND", f"'touch {mark}'"))
    job = tmp_path / "job.yaml"
    job.write_text("command: [true]\ntemplates: own\n")
    answer = castoff(*words, "--site", "local", job)
    assert answer.returncode == 1 and "own/head.sh.j2:1: " in answer.stderr, answer.stderr
    assert re.search("is unsafe|not safely callable", answer.stderr), answer.stderr
    assert not mark.exists()


def test_a_template_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    for name, said in (
        ("head.sh.j2", "a template is not UTF-8"),
        ("blocks/stopping.sh", "cannot be read as UTF-8"),
    ):
        own = write(tmp_path / "of" / name, name, "")
        (own / name).write_bytes(b"\xff\xfe")
        with pytest.raises(CastoffError, match=said):
            render(planned(own))


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(CastoffError, match=r"templates: folder .*gone does not exist"):
        render(planned(tmp_path / "gone"))


def test_no_traceback_on_the_command_line(tmp_path: Path, castoff: Any) -> None:
    own = write(tmp_path / "own", "head.sh.j2", "{{ nonsense }}\n")
    answer = castoff("render", "--site", "local", "--set", f"templates={own}", "--", "true")
    assert answer.returncode == 1
    assert answer.stderr.startswith(f"castoff: {own}/head.sh.j2:1: 'nonsense' is undefined")
    assert answer.stdout == "" and "Traceback" not in answer.stderr


def named_in(section: str) -> set[str]:
    """The first column of a section's tables."""
    text = DOCUMENT.read_text().partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row)}


def heads() -> dict[str, str]:
    return {path.name: path.read_text() for path in template_folder().glob("*.j2")}


def test_every_file_is_documented() -> None:
    assert named_in("Files") == set(heads())
    assert named_in("The machinery") == known_parts()


def test_parts_are_documented_in_their_order() -> None:
    order = [name for names in PARTS for name in names.split(", ")]
    for example in EXAMPLES.values():
        decided = example.plan()
        parts = machinery(decided, scheduler_of(decided.scheduler)).parts
        assert parts == sorted(parts, key=order.index)


def test_every_feature_is_used() -> None:
    parts = [path.read_text() for path in (template_folder() / "machinery").rglob("*.sh")]
    conditions = [text for part in parts for text in re.findall(r"^#(?:el)?if (.*)", part, re.MULTILINE)]
    in_heads = [name for text in heads().values() for name in re.findall(r'"(\w+)" in features', text)]
    assert {name for text in conditions for name in re.findall(r"\w+", text)} | set(in_heads) == set(FEATURES)


def test_every_block_is_documented() -> None:
    blocks = {name for text in heads().values() for name in re.findall(r"{% block (\w+) %}", text)}
    assert named_in("Blocks of a head") == blocks


def test_every_variable_is_documented_and_used() -> None:
    decided = planned(None)
    given = set(rendering._variables(decided, machinery(decided, scheduler_of(decided.scheduler))))
    assert named_in("Variables") == given
    environment = jinja2.Environment()
    environment.filters.update(FILTERS)
    used: set[str] = set()
    for name, text in heads().items():
        if name != "job.yaml.j2":
            used |= meta.find_undeclared_variables(environment.parse(text))
    assert used == given


def test_every_filter_is_documented_and_used() -> None:
    assert named_in("Filters") == set(FILTERS)
    environment = jinja2.Environment()
    environment.filters.update(FILTERS)
    trees = [environment.parse(text) for text in heads().values()]
    used = {found.name for tree in trees for found in tree.find_all(nodes.Filter)}
    assert set(FILTERS) <= used


def test_every_variable_of_the_job_is_documented() -> None:
    parts = (template_folder() / "machinery").rglob("*.sh")
    text = "\n".join([*heads().values(), *(path.read_text() for path in parts)])
    exported = set(re.findall(r"(?<![\w\"$!{])(CASTOFF_[A-Z_]+)=", text)) - {"CASTOFF_RANK"}
    ours = {name for name in named_in("Variables of the job") if name.startswith("CASTOFF_")}
    assert exported - {"CASTOFF_GIVEN_"} == ours
