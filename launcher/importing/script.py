"""Convert a script for a scheduler to a job. Pure functions: the script is never run."""

from __future__ import annotations

import re
from typing import Any, Literal, TypeAlias

from castoff.launcher.config.job import JobSpec
from castoff.launcher.config.program_name import program_name
from castoff.launcher.importing.by_index import lines_by_index
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
    """Convert a script to a job. The script is never run, and no other file is read.

    `name`: the script's file name, which schedulers use as the job's name. `wish`: whether castoff must start
    the job's ranks, or must keep the script; None: it keeps the script unless starting the ranks is safe.

    Raises:
        NotAScript: the text is not a script for a scheduler, or no job file can contain it.
    """
    notes = []
    if text.startswith("\ufeff"):
        notes.append("The script begins with a byte order mark, with which the scheduler would refuse it.")
    if "\r\n" in text:
        notes.append("The script's lines end as on Windows (CRLF), which the scheduler would refuse.")
    script = text.removeprefix("\ufeff").replace("\r\n", "\n")
    schedulers = readers()
    check(script, (one.mark for one in schedulers))
    head = read_head(script.split("\n"), schedulers)
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
    """Let castoff start the job's ranks."""
    job = lifted(head, script)
    env = {**head.asked.env, **job.fields.get("env", {})}
    fields = {**_of_both(head, head.asked.directives), **head.asked.of_ranks, **job.fields}
    fields["shell"] = "/bin/bash -l" if re.match(r"#!.*\s-\w*l", script) else "/bin/bash"
    result.fields = {**fields, "env": env} if env else fields
    result.remarks |= job.remarks
    for directive, value in head.asked.raw.items():
        if directive in job.streams:
            why = "castoff logs shows what each rank writes"
            result.left_out.append(Entry(0, f"{directive}: {value}", why))


def _of_both(head: Head, directives: dict[str, str | bool]) -> dict[str, Any]:
    """The fields that a job has whether castoff or its own script starts the ranks."""
    fields = {**head.asked.fields}
    if directives and head.reader:
        fields["directives"] = {head.reader.name: dict(directives)}
    return fields


def _add_name(result: Imported, file: str) -> None:
    """Name the job after the script's file if no directive names it and castoff can use this name."""
    if "name" in result.fields:
        return
    name = file
    if result.scheduler and scheduler_of(result.scheduler).name_problem(file):
        name = program_name([file])
        note = f"The job's name, which file names may contain, is {name} in place of {file}."
        result.notes = [*(other for other in result.notes if other != note), note]
    result.fields = {"name": name} | result.fields


def _keep(result: Imported, head: Head, script: str) -> None:
    """Keep the script as a whole in the job."""
    asked, reader = head.asked, head.reader
    lines = [line for number, line in enumerate(script.split("\n"), 1) if number not in head.directives]
    if not "".join(lines).strip():
        raise NotAScript("contains only directives, and starts nothing")
    if asked.shell and not lines[0].startswith("#!"):
        lines.insert(0, f"#!{asked.shell}")
        result.notes.append(f"-S {asked.shell} names the script's shell: it is in its first line now.")
    elif reader and reader.needs_shebang and not lines[0].startswith("#!"):
        no_shell = f"{reader.title} would refuse the script, whose first line does not begin with #!."
        result.notes.append(no_shell)
        result.surprises.append(no_shell)
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
        if uses := lines_by_index(reader.array_index, script, {*head.directives}):
            listed = ", ".join(map(str, uses[:_MOST_LISTED])) + (" …" if len(uses) > _MOST_LISTED else "")
            left = f"Line {listed}, which uses {reader.array_index}, is left as it is"
            if len(uses) > 1:
                left = f"Lines {listed}, which use {reader.array_index}, are left as they are"
            result.notes.append(f"{left}: array.parameters or array.commands may say the same.")
    result.fields["script"] = "\n".join(lines)


def _of_its_scheduler(reader: ScriptReader, lines: list[str]) -> list[str]:
    """A note about commands and variables of the script that only its own scheduler provides."""
    code = (line for line in lines if not line.lstrip().startswith("#"))
    names = [*dict.fromkeys(match.group() for line in code for match in reader.own.finditer(line))]
    listed = ", ".join(names[:_MOST_LISTED]) + (" …" if len(names) > _MOST_LISTED else "")
    return [f"On a scheduler other than {reader.scheduler}, the script lacks: {listed}."] if names else []


def _enters(folder: str, lines: list[str]) -> bool:
    """Whether the first command enters the folder that the variable named `folder` holds."""
    first = next((line for line in lines if line.strip() and not line.lstrip().startswith("#")), "")
    return bool(re.match(rf"""\s*cd\s+"?\$\{{?{folder}\}}?"?\s*(?:$|;|#|\|\||&&)""", first))


def job_of(result: Imported) -> JobSpec:
    """The job that a script was converted to."""
    return JobSpec.of(nested(result.fields))


__all__ = ["NotAScript", "Wish", "job_of", "read_script"]
