"""The JSON schema of job files for editors, made from the types of their fields."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from castoff.launcher.config.job import JobSpec


def job_schema(schedulers: Iterable[str]) -> dict[str, Any]:
    """The JSON schema of job files; `schedulers`: names under which `directives` may have sections.

    Fields of text also allow numbers and true or false: castoff reads `1e-3` without quotes as the text 1e-3.
    """
    schema = msgspec.json.schema(JobSpec)
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    job = schema["$defs"]["JobSpec"]
    job["description"] = job["description"].partition("\n")[0]  # the fields have their own descriptions
    _widen(schema)
    _divide(job["properties"]["directives"], schedulers)
    return schema


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
