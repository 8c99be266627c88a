"""A script for a scheduler, read as a job. Pure: it is never run, and nothing else is read."""

from __future__ import annotations

import re
from typing import Any, Literal, TypeAlias

from castoff.launcher.config.job import JobSpec, program_name
from castoff.launcher.importing.head import Head, read_head
from castoff.launcher.importing.imported import Entry, Imported, nested
from castoff.launcher.importing.lifting import lifted
from castoff.launcher.importing.refusals import NotAScript, check
from castoff.launcher.importing.sizes import Unproven, of_each_node
from castoff.launcher.importing.validity import check_lifted, make_valid
from castoff.launcher.schedulers.registry import readers, scheduler_of
from castoff.launcher.schedulers.script_reader import REQUEUE, ScriptReader

Wish: TypeAlias = Literal["ranks", "driver"]

_MOST_LISTED = 8


def read_script(text: str, name: str, wish: Wish | None = None) -> Imported:
    """Read a script. It is never run, and nothing else is read.

    `name`: of its file, which schedulers give the job. `wish`: what castoff is to start, its ranks or itself.

    Raises:
        NotAScript: it holds no script for a scheduler, or one that no job file can hold.
    """
    notes = []
    if text.startswith("\ufeff"):
        notes.append("The script begins with a byte order mark, with which the scheduler would refuse it.")
    if "\r\n" in text:
        notes.append("The script's lines end as on Windows (CRLF), which the scheduler would refuse.")
    script = text.removeprefix("\ufeff").replace("\r\n", "\n")
    check(script)
    head = read_head(script.split("\n"), readers())
    result = Imported({}, head.reader.name if head.reader else None, notes=[*notes, *head.notes])
    result.surprises += result.notes
    result.refused, result.left_out = [*head.refused], [*head.left_out]
    try:
        if wish == "driver":
            raise Unproven("--driver asks for it")
        _lift(result, head, script)
        _add_name(result, name)
        check_lifted(result)
    except Unproven as error:
        result.kept, result.left_out, result.remarks = str(error), [*head.left_out], {}
        _keep(result, head, script)
        _add_name(result, name)
        make_valid(result)
    return result


def _lift(result: Imported, head: Head, script: str) -> None:
    """A job whose ranks castoff starts."""
    found = lifted(head, script)
    env = {**head.asked.env, **found.fields.get("env", {})}
    fields = {**_of_both(head, head.asked.directives), **head.asked.of_ranks, **found.fields}
    fields["shell"] = "/bin/bash -l" if re.match(r"#!.*\s-\w*l", script) else "/bin/bash"
    result.fields = {**fields, "env": env} if env else fields
    result.remarks |= found.remarks
    for directive, value in head.asked.raw.items():
        if directive in found.streams:
            why = "castoff logs shows what each rank writes"
            result.left_out.append(Entry(0, f"{directive}: {value}", why))


def _of_both(head: Head, directives: dict[str, str | bool]) -> dict[str, Any]:
    """Fields of a job, whoever starts its ranks."""
    fields = {**head.asked.fields}
    if directives and head.reader:
        fields["directives"] = {head.reader.name: dict(directives)}
    return fields


def _add_name(result: Imported, file: str) -> None:
    """The job's name where no directive says one: that of the script's file, if castoff can give it."""
    if "name" in result.fields:
        return
    name = file
    if result.scheduler and scheduler_of(result.scheduler).name_problem(file):
        name = program_name([file])
        note = f"The job's name, by which files may be called, is {name} in place of {file}."
        result.notes = [*(one for one in result.notes if one != note), note]
    result.fields = {"name": name} | result.fields


def _keep(result: Imported, head: Head, script: str) -> None:
    """A job that holds the script."""
    asked, reader = head.asked, head.reader
    lines = [line for number, line in enumerate(script.split("\n"), 1) if number not in head.directives]
    if asked.shell and not lines[0].startswith("#!"):
        lines.insert(0, f"#!{asked.shell}")
        result.notes.append(f"-S {asked.shell} names the script's shell: it is in its first line now.")
    elif reader and reader.needs_shebang and not lines[0].startswith("#!"):
        no_shell = f"{reader.title} would refuse the script, whose first line does not begin with #!."
        result.notes.append(no_shell)
        result.surprises.append(no_shell)
    if not "".join(lines).strip():
        raise NotAScript("holds directives alone, and starts nothing")
    result.fields = _of_both(head, asked.raw)
    if reader and reader.requeues and reader.requeues.search(script):
        result.fields.setdefault("requeue", dict(REQUEUE))
    if asked.env:
        result.fields["env"] = dict(asked.env)
    if reader:
        result.fields |= of_each_node(asked)
        if reader.starts_at_home and "workdir" not in asked.fields and not _enters(reader.submit_dir, lines):
            result.fields["workdir"] = "~"
        result.notes += _of_its_scheduler(reader, lines)
        if asked.unclear and "number of nodes" in asked.unclear:
            result.remarks["nodes"] = f"{asked.unclear}; other schedulers get this number"
    result.fields["script"] = "\n".join(lines)


def _of_its_scheduler(reader: ScriptReader, lines: list[str]) -> list[str]:
    """A note on the commands and variables that a script has under no other scheduler."""
    code = (line for line in lines if not line.lstrip().startswith("#"))
    found = [*dict.fromkeys(match.group() for line in code for match in reader.own.finditer(line))]
    listed = ", ".join(found[:_MOST_LISTED]) + (" …" if len(found) > _MOST_LISTED else "")
    return [f"On another scheduler than {reader.scheduler} the script lacks: {listed}."] if found else []


def _enters(folder: str, lines: list[str]) -> bool:
    """Whether the first command enters a folder that a variable names, or ends the script."""
    first = next((line for line in lines if line.strip() and not line.lstrip().startswith("#")), "")
    return bool(re.match(rf"""\s*cd\s+"?\$\{{?{folder}\}}?"?\s*(?:$|;|#|\|\||&&)""", first))


def job_of(result: Imported) -> JobSpec:
    """The job that a script was read as."""
    return JobSpec.of(nested(result.fields))


__all__ = ["NotAScript", "Wish", "job_of", "read_script"]
