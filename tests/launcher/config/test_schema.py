"""The JSON schema of job files says what the reader says; a job's plain data reads back."""

from __future__ import annotations

import json
import re
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match

from castoff.launcher.config.job import JobSpec
from castoff.launcher.config.job_group import JobGroup, load
from castoff.launcher.config.schema import job_schema
from castoff.launcher.config.variable_names import variable_problem
from castoff.launcher.errors import InvalidInput
from castoff.launcher.typed.document import Document
from tests.hostile import any_text

EXAMPLES = Path(__file__).parents[3] / "examples"
JOB = """\
command: [python, train.py, --lr, 1e-3, --seed, 010, --amp, true, '']
nodes: 2
qos: 007
walltime: "1:30:00"
memory: 64G
binding: 0:1
exclusive: false
mail: {to: me@example.org, on: [begin, fail]}
setup: [module load x, 5]
env: {OMP_NUM_THREADS: 1, LR: 1e-3}
inherit: [HOME]
directives: {comment: null, hold: true, n: 5, pbs: {filesystems: home, k: null}, slurm: null}
launcher: {name: pals, args: [--label]}
container: {runtime: shifter, image: 5, binds: [/a], env: {A: 1}}
stage: [{from: 007, unpack: true}]
array: {count: 8}
after: {afterok: [preprocess, 123]}
requeue: {max: 3}
"""

names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True).filter(
    lambda name: variable_problem(name) is None
)
words = any_text(min_size=1, max_size=8, without="\0\n\r")
texts = any_text(max_size=8)
counts = st.integers(1, 1000)
durations = st.sampled_from(["90s", "1h", "00:30:00", "1-00:00:00", "1d12h"])

jobs = st.fixed_dictionaries(
    {
        "command": st.tuples(words.filter(lambda word: not word.startswith("-")))
        .map(list)
        .flatmap(lambda first: st.lists(texts).map(lambda more: first + more))
    },
    optional={
        "name": words,
        "nodes": counts,
        "ranks_per_node": counts,
        "cores_per_rank": st.none() | counts,
        "devices_per_rank": st.integers(0, 8),
        "memory": st.sampled_from(["1G", "512M"]),
        "walltime": durations,
        "exclusive": st.booleans(),
        "mail": st.fixed_dictionaries({"to": words}, optional={"on": st.just(["begin"])}),
        "setup": st.lists(texts.filter(lambda line: "\r" not in line), max_size=3),
        "env": st.dictionaries(names, texts, max_size=3),
        "inherit": st.sampled_from(["none", "all", None]) | st.lists(names, max_size=3),
        "directives": st.dictionaries(
            st.from_regex(r"[A-Za-z][A-Za-z0-9_-]{0,6}", fullmatch=True),
            words | st.booleans() | st.none(),
            max_size=3,
        ),
        "launcher": st.fixed_dictionaries({}, optional={"torchrun": st.booleans(), "args": st.lists(words)}),
        "container": st.fixed_dictionaries(
            {},
            optional={
                "image": words,
                "runtime": st.sampled_from(["apptainer", "pyxis"]),
                "binds": st.lists(words),
                "env": st.dictionaries(names, texts, max_size=3),
                "gpus": st.sampled_from(["intel", "none"]),
            },
        ),
        "stage": st.lists(
            st.fixed_dictionaries(
                {"from": words},
                optional={"to": words, "unpack": st.booleans(), "activate": st.booleans()},
            ),
            max_size=2,
        ),
        "array": st.fixed_dictionaries({"count": counts}, optional={"max_concurrent": counts}),
        "after": st.dictionaries(st.sampled_from(["afterok", "afterany"]), st.lists(words, min_size=1)),
        "requeue": st.fixed_dictionaries({}, optional={"max": st.integers(0, 9)}),
    },
)


@given(jobs)
@settings(max_examples=60)
def test_of_and_to_builtins_are_each_others_inverse(fields: dict[str, Any]) -> None:
    spec = JobSpec.of(fields)
    plain = msgspec.to_builtins(spec)
    assert JobSpec.of(plain) == spec
    assert msgspec.to_builtins(JobSpec.of(plain)) == plain
    assert schema_refuses(job_schema(["slurm", "pbs"]), fields) is None


def schema_refuses(root: dict[str, Any], value: Any) -> str | None:
    """What of a value a JSON schema refuses: the keywords that msgspec writes, each by its definition."""
    kinds = {
        "object": dict,
        "array": list,
        "string": str,
        "boolean": bool,
        "null": type(None),
    }
    known = {"type", "properties", "additionalProperties", "items", "anyOf", "enum", "required", "$ref"}
    known |= {"pattern", "minimum", "maximum", "propertyNames", "title", "description", "default"}

    def is_a(kind: str, part: Any) -> bool:
        if kind in ("number", "integer"):
            whole = isinstance(part, int) or (kind == "number" and isinstance(part, float))
            return whole and not isinstance(part, bool)
        return isinstance(part, kinds[kind])

    def refuses(schema: dict[str, Any], part: Any, at: str) -> str | None:
        assert set(schema) <= known, f"this checker does not know {set(schema) - known}"
        if "$ref" in schema:
            return refuses(root["$defs"][schema["$ref"].removeprefix("#/$defs/")], part, at)
        if "anyOf" in schema:
            answers = [refuses(choice, part, at) for choice in schema["anyOf"]]
            return None if None in answers else f"{at}: {answers}"
        allowed = schema.get("type", [])
        if allowed and not any(
            is_a(kind, part) for kind in ([allowed] if isinstance(allowed, str) else allowed)
        ):
            return f"{at}: {part!r} is no {allowed}"
        if "enum" in schema and part not in schema["enum"]:
            return f"{at}: {part!r} is none of {schema['enum']}"
        if isinstance(part, str) and "pattern" in schema and not re.search(schema["pattern"], part):
            return f"{at}: {part!r} does not match {schema['pattern']}"
        if is_a("number", part) and not schema.get("minimum", part) <= part <= schema.get("maximum", part):
            return f"{at}: {part!r} is out of range"
        if isinstance(part, list):
            inner = (refuses(schema["items"], item, f"{at}[]") for item in part)
            return next((answer for answer in inner if answer), None)
        if isinstance(part, dict):
            return refuses_object(schema, part, at)
        return None

    def refuses_object(schema: dict[str, Any], part: dict[str, Any], at: str) -> str | None:
        fields = schema.get("properties", {})
        for name in schema.get("required", []):
            if name not in part:
                return f"{at}: lacks {name}"
        for name, item in part.items():
            other = schema.get("additionalProperties", True)
            if name not in fields and other is False:
                return f"{at}: has no {name}"
            answer = refuses(schema.get("propertyNames", {}), name, f"{at} name") or refuses(
                fields.get(name, other if isinstance(other, dict) else {}), item, f"{at}.{name}"
            )
            if answer:
                return answer
        return None

    top = {key: part for key, part in root.items() if key not in ("$defs", "$schema")}
    return refuses(top, value, "")


def documents(text: str) -> list[Any]:
    """The documents of a file as an editor reads them; a key that is a number is a text to a JSON schema."""
    return [json.loads(json.dumps(document)) for document in yaml.safe_load_all(text)]


def mistakes(document: Any) -> list[tuple[str, str]]:
    """What editors and checkers mark in a document: the places, and the likeliest reasons."""
    validator = Draft202012Validator(job_schema(["slurm", "pbs"]))
    likeliest = (best_match([error]) for error in validator.iter_errors(document))
    return [(".".join(map(str, error.absolute_path)), error.message) for error in likeliest]


class TestSchema:
    def test_takes_what_we_take(self) -> None:
        # As an editor reads it: numbers and truth values stand where we take text as it is written.
        data = Document.parse(JOB, "f.yaml").data
        assert data["command"][3] == 0.001
        assert data["env"]["OMP_NUM_THREADS"] == 1
        assert schema_refuses(job_schema(["slurm", "pbs"]), data) is None
        assert JobSpec.of(data).command

    @pytest.mark.parametrize(
        "line",
        [
            *(
                "nodes: four",
                "nodes: 0",
                "nodes: true",
                "devices_per_rank: -1",
                "memory: 64",
                "walltime: soon",
            ),
            *("walltme: 1h", "name: ''", "account: [a]", "exclusive: yes", "env: {A B: 1}", "env: {C: [1]}"),
            *(
                "env_from: [1A]",
                "inherit: al",
                "directives: {a b: x}",
                "directives: {c: [1]}",
                "grace: 5",
                "binding: list:0",
            ),
            "directives: {pbs: {a b: x}}",
            *("mail: {to: me, on: [ended]}", "mail: {to: me, cc: you}", "mail: {on: [end]}"),
            *(
                "launcher: {name: slurm}",
                "launcher: {torchrun: 'on'}",
                "array: {count: 0}",
                "setup: x",
            ),
            *("after: {afterOK: [a]}", "after: {afterok: a}", "requeue: {max: -1}", 'queue: "a\\n"'),
        ],
    )
    def test_refuses_what_we_refuse(self, line: str) -> None:
        data = {"command": ["x"], **Document.parse(line, "f.yaml").data}
        with pytest.raises(InvalidInput):
            JobSpec.of(data)
        names = ("env: {A B: 1}", "directives: {a b: x}", "directives: {pbs: {a b: x}}")
        if line in names and tuple(map(int, version("msgspec").split(".")[:2])) < (0, 22):
            return  # its schemas do not have what names a mapping may have
        assert schema_refuses(job_schema(["slurm", "pbs"]), data) is not None

    @pytest.mark.parametrize("name", ["slurm/pipeline", "slurm/sedd", "local/dpo_pipeline"])
    def test_takes_files_with_several_jobs(self, name: str) -> None:
        (document,) = documents((EXAMPLES / f"{name}.yaml").read_text())
        assert mistakes(document) == []

    @pytest.mark.parametrize(
        "text",
        [
            "jobs: {a: {command: [x]}}\ndefaults: {nodes: 2}\nname: both",
            "defaults: {command: [x]}\njobs: {a: , b: {after: {afterok: [a]}}}",
            "name: two\ndefaults: {nodes: 2}\n---\nname: a\ncommand: [x]\n"
            "---\nname: b\nafter: {afterok: [a]}\ncommand: ['{a.dir}']",
        ],
    )
    def test_takes_every_form_of_several_jobs(self, text: str, tmp_path: Path) -> None:
        (tmp_path / "several.yaml").write_text(text)
        assert isinstance(load(tmp_path / "several.yaml"), JobGroup)
        assert [mistakes(document) for document in documents(text)] == [[]] * (1 + text.count("---"))

    @pytest.mark.parametrize(
        ("text", "place", "message"),
        [
            ("jobs: {a: {comand: [x]}}", "jobs.a", "'comand' was unexpected"),
            ("jobs: {a: {command: [x], nodes: four}}", "jobs.a.nodes", ""),
            ("jobs: {a: {command: [x], name: b}}", "jobs.a", "'name' was unexpected"),
            ("jobs: {7: {command: [x]}}", "jobs", "'7' does not match"),
            ("jobs: {a: {command: [x]}}\nname: 7", "name", "is not of type 'string'"),
            ("jobs: [a]", "jobs", "is not of type 'object'"),
            ("jobs: {a: {command: [x]}}\nnodes: 2", "", ""),
            ("jobs: {a: {command: [x]}}\ndefaults: {nodez: 2}", "defaults", "'nodez' was unexpected"),
            ("jobs: {a: {command: [x]}}\ndefaults: {name: a}", "defaults", "'name' was unexpected"),
        ],
    )
    def test_refuses_wrong_files_with_several_jobs(
        self, text: str, place: str, message: str, tmp_path: Path
    ) -> None:
        (tmp_path / "several.yaml").write_text(text)
        with pytest.raises(InvalidInput):
            load(tmp_path / "several.yaml")
        (document,) = documents(text)
        ((where, said),) = mistakes(document)
        assert where == place and message in said

    def test_every_form_has_a_title_of_its_own(self) -> None:
        schema = job_schema(["slurm", "pbs"])
        forms = [schema["$defs"][form["$ref"].removeprefix("#/$defs/")] for form in schema["anyOf"]]
        assert [form["title"] for form in forms] == ["Job", "Several jobs"]

    def test_every_field_has_a_description(self) -> None:
        schema = job_schema(["slurm", "pbs"])
        assert schema["$schema"].startswith("https://json-schema.org/")
        for name, definition in schema["$defs"].items():
            assert definition["additionalProperties"] is False, name
            for field, of_field in definition["properties"].items():
                assert of_field.get("description"), f"{name}.{field}"
        assert "x-scalar" not in json.dumps(schema)
