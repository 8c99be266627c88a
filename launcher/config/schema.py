"""The JSON schema of job files for editors, made from the types of their fields."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from castoff.launcher.config.earlier_runs import NAME
from castoff.launcher.config.job import JobSpec

FILE = ".castoff.schema.json"
"""What `castoff init` calls it beside a job file, whose first line leads editors there."""

_JOB, _JOBS, _OF_SEVERAL = "JobSpec", "JobGroup", "JobOfGroup"
"""The definitions of a job, of several jobs, and of one of them."""


def job_schema(schedulers: Iterable[str]) -> dict[str, Any]:
    """The JSON schema of job files; `schedulers`: names under which `directives` may have sections.

    A document is a job, or holds several jobs by name. Fields of text also allow numbers and true or false:
    castoff reads `1e-3` without quotes as the text 1e-3.
    """
    schema = msgspec.json.schema(JobSpec)
    definitions = schema["$defs"]
    job = definitions[_JOB]
    job["title"] = "Job"
    job["description"] = job["description"].partition("\n")[0]  # the fields have their own descriptions
    _widen(schema)
    _divide(job["properties"]["directives"], schedulers)
    fields = {name: field for name, field in job["properties"].items() if name != "name"}
    about = "A job as a file with several describes it; its key is its name."
    definitions[_OF_SEVERAL] = {**job, "title": "Job of several", "description": about, "properties": fields}
    definitions[_JOBS] = _several()
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "castoff job file",
        "anyOf": [_reference(_JOB), _reference(_JOBS)],
        "$defs": definitions,
    }


def _several() -> dict[str, Any]:
    """The schema of several jobs by name, or of the document before jobs that `---` separates."""
    pattern = f"^{NAME.pattern}$(?!\\n)"
    a_job = {"anyOf": [_reference(_OF_SEVERAL), {"type": "null"}]}
    jobs = {
        "description": "The jobs by name.",
        "type": "object",
        "propertyNames": {"pattern": pattern},
        "additionalProperties": a_job,
    }
    name = {"description": "The group's name; default: the file's.", "type": "string", "pattern": pattern}
    return {
        "title": "Several jobs",
        "description": "Several jobs that may wait for one another, and what they share.",
        "type": "object",
        "properties": {
            "name": name,
            "defaults": {"description": "Fields that all jobs share.", **a_job},
            "jobs": jobs,
        },
        "additionalProperties": False,
        "anyOf": [{"required": ["jobs"]}, {"required": ["defaults"]}],
    }


def _reference(definition: str) -> dict[str, str]:
    return {"$ref": f"#/$defs/{definition}"}


def _widen(schema: Any) -> None:
    for part in schema.values() if isinstance(schema, dict) else schema:
        if isinstance(part, (dict, list)):
            _widen(part)
    if isinstance(schema, dict) and schema.pop("x-scalar", False) and "type" in schema:
        schema["type"] = ["string", "number", "boolean"]


def _divide(directives: dict[str, Any], schedulers: Iterable[str]) -> None:
    """Allow nested directives only as the sections of schedulers."""
    choices = directives["additionalProperties"]["anyOf"]
    (section,) = [choice for choice in choices if choice["type"] == "object"]
    choices.remove(section)
    directives["properties"] = {name: {"anyOf": [section, {"type": "null"}]} for name in schedulers}
