"""Options of other tools in castoff's words: what to type in place of an option that a verb does not have."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, get_origin

import click

from castoff.launcher.cli.flags import flag_words, flags_of
from castoff.launcher.cli.script_files import JOB_FILES
from castoff.launcher.config.job import JobSpec
from castoff.launcher.config.synonyms import instead, of_verb, reader_names
from castoff.launcher.text.quoting import visible_word, yaml_value, yaml_word
from castoff.launcher.typed.structure import bare, fields_of, members
from castoff.launcher.typed.suggestion import did_you_mean

if TYPE_CHECKING:
    from castoff.launcher.launchers.foreign.asked import Asked
    from castoff.launcher.schedulers.script_reader import ScriptReader

MISSING = "…"
"""Stands for a value that the user did not give."""


class Typed(NamedTuple):
    """A command line that cannot be parsed."""

    command: click.Command
    path: str
    """The command's name, such as `castoff sites new`."""
    words: list[str]
    """The words after the command's name, and before `--`."""
    program: list[str] | None

    @property
    def verb(self) -> str:
        """The command's name without `castoff`, such as `sites new`."""
        return self.path.removeprefix("castoff ")

    @property
    def flags(self) -> list[str]:
        """The command's options."""
        return [flag for parameter in self.command.params for flag in parameter.opts if flag[:1] == "-"]

    @property
    def takes_a_job(self) -> bool:
        """Whether the command takes a job's fields."""
        return "--set" in self.flags

    def value(self, option: str) -> str:
        """The option's value among the words; `MISSING` if it has none."""
        for word, after in zip(self.words, [*self.words[1:], "-"], strict=True):
            if word == option and not after.startswith("-"):
                return after
            if word.startswith(f"{option}=") or (
                len(option) == 2 and word.startswith(option) and word != option
            ):
                return word[len(option) :].removeprefix("=")
        return MISSING

    def without(self, option: str, value: str | None = None) -> list[str]:
        """The words without an option, and without its value."""
        words: list[str] = []
        for word in self.words:
            is_value = word == value and bool(words) and words[-1] == option
            if is_value:
                words.pop()
            elif word == option or not (
                word.startswith(f"{option}=") or (len(option) == 2 and word[:2] == option)
            ):
                words.append(word)
        return [word for word in words if word != option]

    def line(self, words: list[str], program: list[str] | None = None) -> str:
        """The command line with other words, quoted for a shell."""
        program = self.program if program is None else program
        more = [] if program is None else ["--", *program]
        return " ".join([self.path, *map(visible_word, [*words, *more])])


def translated(typed: Typed, option: str) -> str:
    """The end of the message about an option that a command does not have: what the user probably meant."""
    name, value = option.lstrip("-").replace("-", "_"), typed.value(option)
    if option == "--on":  # an option of castoff itself, before every verb
        rest = typed.line(typed.without(option, value)).removeprefix("castoff ")
        return f" behind a verb; here: castoff --on {visible_word(value)} {rest}"
    if option == "-m" and typed.takes_a_job and (line := _module(typed, value)):
        return f"; a program follows --; here: {line}"
    if typed.takes_a_job and (words := _of_scripts(typed, option, name, value)):
        return words
    template = of_verb(typed.verb, name)
    if template is None and typed.takes_a_job:
        template = of_verb("a job", name)
        if template and template[:2] == "--" and template.split(" ")[0] not in typed.flags:
            template = None  # launch has fewer flags
    if template is None and (words := _of_a_field(typed, option, name, value)):
        return words
    near = did_you_mean(option, [flag for flag in typed.flags if flag.startswith("--")])
    if template is None and not near:
        template = of_verb("a verb", name)
    return near if template is None else _filled(template, typed, option, value)


def _module(typed: Typed, name: str) -> str:
    """The command line that runs a module, of which -m is Python's; empty if the name is that of none."""
    if not re.fullmatch(r"[A-Za-z_]\w*(\.\w+)*", name) or _EVENTS.fullmatch(name):
        return ""
    at = typed.words.index("-m")
    return typed.line(typed.words[:at], ["python", *typed.words[at:], *(typed.program or [])])


def _filled(template: str, typed: Typed, option: str, value: str) -> str:
    """A row of the table, with the user's words."""
    rest = typed.without(option, value if "VALUE" in template else None)
    if template.startswith("-- "):
        template = f"castoff VERB REST {template}"
    takes_program = template.startswith("castoff VERB") and " -- " not in template
    program = ["--", *(typed.program or [])] if takes_program and typed.program is not None else []
    parts = {
        "VERB": typed.verb,
        "REST": " ".join(map(visible_word, rest)),
        "~VALUE": "",
        "VALUE+1": str(int(value) + 1) if value.isdecimal() else "6",
        "VALUE": value if value == MISSING or re.search("'[^']*VALUE", template) else visible_word(value),
    }
    text = re.sub(r"VERB|REST|~VALUE|VALUE\+1|VALUE", lambda match: parts[match[0]], template)
    text = " ".join([*re.sub(" {2,}", " ", text).strip().split(" "), *map(visible_word, program)])
    return f"; {text}" if ": " in text else f"; here: {text}"


def _of_scripts(typed: Typed, option: str, name: str, value: str) -> str:
    """What sets the same fields as an option of sbatch or qsub; empty if it is none, or a flag sets its
    field.
    """
    if name == "mail_type":
        return f"; here: {_mail(typed, value.lower().split(','))}"
    if option == "-m" and _EVENTS.fullmatch(value):
        return f"; here: {_mail(typed, [_LETTERS.get(letter, '') for letter in value])}"
    resource, _, amount = value.partition("=")
    words = "" if name == "requeue" and value.isdecimal() else _read(typed, option, name, value)
    if option == "-l" and amount and "here: " not in words and "," not in amount:
        return _of_a_field(typed, option, resource, amount) or words
    return words


def _read(typed: Typed, option: str, name: str, value: str) -> str:
    """What sets the fields that a scheduler's reader of scripts finds in an option; empty if none does."""
    reader = _reader(typed, name, value)
    if reader is None:
        return ""
    given = "" if value == MISSING or value.endswith(JOB_FILES) else value
    asked = _asked(reader, option, given)
    if given and len(option) == 2 and _refused(asked):  # a flag, before a word that is not its value
        asked, value = _asked(reader, option, ""), MISSING
    if refused := _refused(asked):
        return f"; {refused}"
    if words := _words_of(asked, typed, reader.name):
        return f"; here: {words}"
    if name == "W" and "block" in value:
        return "; here: -f"
    return f"; here: {typed.line(typed.without(option, value if len(option) == 2 else None))}"


def _asked(reader: ScriptReader, option: str, value: str) -> Asked:
    """What an option asks for, as a scheduler reads it in a script."""
    from castoff.launcher.launchers.foreign.asked import Asked

    asked, quoted = Asked(), value.replace('"', "'")
    between = "=" if option.startswith("--") else " "
    reader.read(f'{option}{between}"{quoted}"' if value else option, asked)
    return asked


def _refused(asked: Asked) -> str:
    return next((remark.text for remark in asked.remarks if remark.fate == "not expressed"), "")


def _reader(typed: Typed, name: str, value: str) -> ScriptReader | None:
    """The reader of scripts that knows an option: that of the site, else the first."""
    from castoff.launcher.config.site import Search
    from castoff.launcher.schedulers.choice import site_named
    from castoff.launcher.schedulers.registry import readers

    names = reader_names(name)
    if not names or (name in ("l", "v", "W") and "=" not in value) or (name in "rPukS" and value == MISSING):
        return None
    known = [reader for reader in readers() if reader.name in names]
    site = typed.value("--site")
    scheduler = site_named(site).scheduler if site in Search.here().profiles() else ""
    return next((reader for reader in known if reader.name == scheduler), known[0])


_EVENTS = re.compile("[abe]{1,3}|n")
"""The value of qsub's -m: letters of events."""

_LETTERS = {"b": "begin", "e": "end", "a": "fail"}


def _mail(typed: Typed, events: list[str]) -> str:
    """What asks for mail about events, with the address, unless an option names that one, too."""
    kept = [event for event in ("begin", "end", "fail") if event in events or "all" in events]
    has_address = any(typed.value(option) != MISSING for option in ("--mail-user", "-M"))
    to = "" if has_address else " --set mail.to=ADDRESS"
    wanted = yaml_value(kept or ["end", "fail"])
    return f"--set {visible_word(f'mail.on={wanted}')}{to}"


def _words_of(asked: Asked, typed: Typed, scheduler: str) -> str:
    """What sets the fields that a reader has found."""
    fields: dict[str, Any] = {
        "nodes": asked.nodes,
        "ranks": asked.ranks,
        "ranks_per_node": asked.ranks_per_node,
        "cores_per_rank": asked.cpus_per_rank,
        "devices_per_rank": asked.rank_devices,
    }
    ranks = asked.ranks_per_node or 1
    if asked.node_devices and asked.ranks_per_node is None:
        fields |= {"ranks_per_node": asked.node_devices, "devices_per_rank": 1}
    elif asked.node_devices:
        fields["devices_per_rank"] = max(asked.node_devices // ranks, 1)
    if asked.node_cpus:
        fields["cores_per_rank"] = max(asked.node_cpus // ranks, 1)
    fields |= {**asked.fields, **asked.of_ranks}
    fields |= {f"env.{name}": value for name, value in asked.env.items()}
    fields |= {f"directives.{scheduler}.{name}": value for name, value in asked.directives.items()}
    flags = flags_of(typed.command)
    return " ".join(
        _assigned(path, value, flags, typed.flags)
        for path, value in fields.items()
        if value not in (None, "", {})
    )


def _assigned(path: str, value: Any, flags: Mapping[str, str], every: list[str]) -> str:
    """The words that set a field."""
    if path.startswith("env.") and "--env" in every:
        return f"--env {visible_word(f'{path[4:]}={value}')}"
    if path == "after" and "--dependency" in every:
        after = ",".join(":".join([condition, *jobs]) for condition, jobs in value.items())
        return f"--dependency {visible_word(after)}"
    if isinstance(value, dict):
        return " ".join(_assigned(f"{path}.{name}", inner, flags, every) for name, inner in value.items())
    if path in flags:
        return flag_words(f"{path}: {yaml_value(value)}", flags)
    return f"--set {visible_word(f'{path}={yaml_value(value)}')}"


_FIRST = {"launcher": "name", "requeue": "max", "restart": "max", "mail": "to", "container": "image"}
"""The field of a section that a single value sets."""

_MAPPINGS = ("select", "directives")


def _of_a_field(typed: Typed, option: str, name: str, value: str) -> str:
    """What sets a job's field that has the option's name, or that of a term of other launchers."""
    meant = name if name in fields_of(JobSpec) else instead("JobSpec", name)
    if meant is None or not typed.takes_a_job:
        return ""
    flags = flags_of(typed.command)
    outer = meant.partition(".")[0]
    if outer not in fields_of(JobSpec):
        if meant.partition(",")[0] in flags:  # several fields
            meant = re.sub(r"\w+", lambda word: flags.get(word[0], word[0]), meant)
        return f"; here: {meant}"
    meant = f"{meant}.{_FIRST[meant]}" if meant in _FIRST else meant
    if meant == "container.image":
        return f"; here: {_container(value)}"
    if meant == "command" and value != MISSING:
        line = typed.line(typed.without(option, value), _split(value))
        return f"; a program follows --; here: {line}"
    kind = bare(fields_of(JobSpec)[outer].type)
    value = MISSING if value.endswith(JOB_FILES) else value
    if meant == "ranks_per_node" and value in ("gpu", "auto", "cpu"):  # torchrun's words
        return f"; one for each device is the default; here: {typed.line(typed.without(option, value))}"
    if meant in _MAPPINGS and "=" in value:
        meant, _, value = f"{meant}.{value}".partition("=")
    else:
        value = _field_value(meant, kind, value)
    flag = f"--{meant.replace('_', '-')}"
    if flag in typed.flags:
        return f"; here: {flag} {value if value == MISSING else visible_word(value)}"
    return f"; here: --set {visible_word(f'{meant}={value}') if value != MISSING else f'{meant}={value}'}"


def _split(command: str) -> list[str]:
    """A command line's words; one word if its quotes do not match."""
    try:
        return shlex.split(command)
    except ValueError:
        return [command]


def _field_value(field: str, kind: Any, value: str) -> str:
    """A field's value as --set and its flag take it. `kind`: the field's type, or that of its section."""
    if get_origin(kind) in (dict, list) and "." not in field:
        item = f"{{from: {yaml_word(value)}}}" if field == "stage" else yaml_word(value)
        return f"[{item}]" if get_origin(kind) is list and value != MISSING else MISSING
    if bool in members(kind) or field in ("launcher.torchrun", "launcher.driver"):
        return value if value in ("true", "false", "null") else "true"
    if field == "nice" and value == MISSING:
        return "100"  # Slurm's default
    return f"{value}m" if field == "walltime" and value.isdecimal() else value


def _container(image: str) -> str:
    """What sets a container's image: a file by its whole path, with the runtime that its name shows."""
    path = str(Path.cwd() / image) if image.endswith((".sif", ".img")) or Path(image).exists() else image
    runtime = " --set container.runtime=apptainer" if image.endswith(".sif") else ""
    return f"--set {visible_word(f'container.image={path}')}{runtime}"
