"""castoff's own heads, compiled: what Jinja would make of the same templates, and never of older ones."""

from __future__ import annotations

import shutil
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
import msgspec
import pytest

from castoff import JobSpec, Site, plan, render
from castoff.launcher.config.job_fields import Snapshot, Stage
from castoff.launcher.planning import compilation, heads, templates
from castoff.launcher.planning import render as rendering
from castoff.launcher.planning.machinery import machinery
from castoff.launcher.runs.plan import ContainerPlan, Plan
from castoff.launcher.schedulers.registry import NAMES, scheduler_of

from ..scripts.examples import EXAMPLES
from ..scripts.machine import known_parts

FILTERS = rendering.filters_for(*map(scheduler_of, NAMES))

SOME: list[dict[str, Any]] = [
    {"walltime": 3600, "start_timeout": 60, "requeue_max": 3, "requeue_how": "copy", "array_count": 4},
    {"walltime": None, "start_timeout": None, "requeue_max": 0, "requeue_how": None, "array_count": None},
    {
        "setup": ["module load a", "b"],
        "teardown": ["c"],
        "site_teardown": ["d"],
        "notes": ["a note"],
        "function": True,
    },
    {"setup": [], "teardown": [], "site_teardown": [], "notes": [], "function": False},
    {"inherit": ["A"], "env": {"A": "it's"}, "env_from": ["KEY", "OTHER"], "requeue_how": "copy"},
    {"inherit": "none", "env": {}, "env_from": []},
    {"python": "/env/bin/python", "snapshot": Snapshot(), "workdir": "./a b", "master_suffix": ".hsn"},
    {"python": None, "snapshot": None, "workdir": None, "master_suffix": ""},
    {"local_storage": "/local", "stage": [Stage(source="./a b", to="data", unpack=True, sha256="0" * 64)]},
    {"local_storage": None, "stage": [Stage(source="/env.tar", to="env", activate=True)]},
]
"""Fields of a plan that the heads ask for, whatever the others say."""


@cache
def environment() -> jinja2.Environment:
    return templates.environment(rendering.template_folder(), None, FILTERS)


def check(decided: Plan, **given: Any) -> None:
    given = {**rendering._variables(decided, machinery(decided, scheduler_of(decided.scheduler))), **given}
    expected = templates.head(decided.scheduler, given, environment())
    assert getattr(heads, decided.scheduler)(FILTERS, **given) == expected


def test_they_are_of_the_templates_as_they_are() -> None:
    text = Path(heads.__file__).read_text(encoding="utf-8")
    assert text == compilation.compiled(), "run python -m castoff.launcher.planning.compilation"


def test_they_make_what_jinja_makes_of_the_examples() -> None:
    for example in EXAMPLES.values():
        check(example.plan())


@pytest.mark.parametrize("scheduler", NAMES)
def test_they_make_what_jinja_makes_of_anything_else(scheduler: str) -> None:
    decided = next(plan for one in EXAMPLES.values() if (plan := one.plan()).scheduler == scheduler)
    container = ContainerPlan(
        runtime="apptainer",
        image="a b.sif",
        staged=False,
        argv=["apptainer", "exec"],
        shared=["/a b"],
        mounts=["/c:/d e:ro"],
        gpus="none",
        env={"A": "it's"},
    )
    for fields in SOME:
        for of in (None, container):
            changed = msgspec.structs.replace(decided, **fields, container=of)
            for parts in (set(), known_parts()):
                check(changed, parts=parts)
                for part in ("visible", "masks") if parts else ():
                    check(changed, parts=parts - {"nodes/visible", f"nodes/{part}"})


def test_a_template_that_was_edited_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path(shutil.copytree(rendering.template_folder(), tmp_path / "templates"))
    monkeypatch.setattr(rendering, "template_folder", lambda: folder)
    decided = plan(JobSpec.of({"command": ["true"]}), Site.load("local"))
    for name in ("head.sh.j2", "local.sh.j2"):
        before = render(decided)
        with (folder / name).open("a") as file:
            file.write(
                "{% block about %}\n# as edited\n{% endblock %}\n" if name != "head.sh.j2" else "# below\n"
            )
        assert render(decided) != before


def test_what_is_not_known_is_refused() -> None:
    for text in (
        "{% set a = 1 %}",
        "{{ a[0] }}",
        "{{ a is defined }}",
        "{% for a in b %}{% else %}c{% endfor %}",
    ):
        with pytest.raises(ValueError, match=r"^line 1: \w+ is not known here"):
            list(compilation._statements(jinja2.Environment().parse(text).body, {}))
