"""A script for a scheduler, read as a job: what a job file says of it, and what became of each of its lines. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from launcher.config.job import JobSpec, program_name, variable_problem
from launcher.config.job_fields import Array, LauncherOptions
from launcher.errors import CastoffError, InvalidInput, Problem
from launcher.importing.account import Account
from launcher.importing.around import Around, Kept
from launcher.importing.command import FOLDER, Command, command_of
from launcher.importing.head import Head, read_head
from launcher.importing.knowledge import Knowledge, exported_names, plain_assignments
from launcher.importing.launch import Candidate, Line, candidates, chosen, read_line
from launcher.importing.layout import fields_of_layout
from launcher.importing.shell import Statement, statements
from launcher.importing.words import NAME, value, without_single_quotes
from launcher.launchers.foreign.asked import Asked, Remark
from launcher.schedulers.registry import readers
from launcher.schedulers.reading import ScriptReader
from launcher.typed.structure import fields_of

PLACEHOLDER = ["name-your-program"]
"""The command of a script that starts nothing."""


@dataclass
class Imported:
    """A script as a job."""

    fields: dict[str, Any]
    """Of the job file."""
    account: Account
    scheduler: str | None
    notes: dict[str, list[str]] = field(default_factory=dict)
    """What a reader of the job file should know of a field."""
    profile: dict[str, str] = field(default_factory=dict)
    """Lines for the site's profile, each with where it is from."""


class NotAScript(CastoffError):
    """What was to be read is no script of a shell's."""

    exit_code = 2


def read_script(text: str) -> Imported:
    """Read a script. It is never run, and nothing else is read.

    Raises:
        NotAScript: it holds no shell script.
    """
    shell = _shell_of(text)
    account = Account()
    body = statements(text.replace("\r\n", "\n"))
    lines = text.replace("\r\n", "\n").split("\n")
    head = read_head(lines, body, readers(), account)
    result = _Reading(head, body, account).imported()
    if "\r\n" in text:
        _note(
            result.notes, "", "the script's lines end as on Windows (CRLF), which the scheduler would refuse"
        )
    if shell:
        why = f"the script is for {shell}, and a job file's setup lines are for bash"
        for one in body:
            account.add(one.first, one.last, "not expressed", one.text, why)
        result.fields.pop("setup", None)
    return result


def _shell_of(text: str) -> str:
    """The shell of a script, if it is none that is read as bash is.

    Raises:
        NotAScript: it is a program of another language, or no text.
    """
    first = text.split("\n", 1)[0]
    if not text.strip():
        raise NotAScript("is empty: name the script that you give to sbatch, qsub or flux batch")
    if "\x00" in text:
        raise NotAScript("is no text: name the script that you give to sbatch, qsub or flux batch")
    found = re.match(
        r"#!\s*\S*?/?(?:env\s+(?:-S\s+)?)?([\w.+-]+)(?:\s|$)",
        first.replace("/usr/bin/", "").replace("/bin/", ""),
    )
    name = found[1] if found else ""
    if re.match(r"python|perl|ruby|julia|Rscript|node", name) or (not name and _reads_like_python(text)):
        hint = "castoff submit --site SITE -- python FILE runs it as a job"
        raise NotAScript(
            f"is a program in {name or 'Python'}, no script for sbatch, qsub or flux batch; {hint}"
        )
    return name if name in ("csh", "tcsh", "fish") else ""


def _reads_like_python(text: str) -> bool:
    python = re.findall(r"^(?:import \w|from \w[\w.]* import |def \w+\(|class \w+)", text, re.MULTILINE)
    return len(python) >= 2 and not re.search(r"^#(?:SBATCH|PBS| ?flux:)", text, re.MULTILINE)


class _Reading:
    """One script while it is read."""

    def __init__(self, head: Head, body: list[Statement], account: Account):
        self.head, self.body, self.account = head, body, account
        self.fields: dict[str, Any] = {}
        self.notes: dict[str, list[str]] = {}
        self.profile = dict(head.asked.profile)
        self.available = fields_of(JobSpec)
        self.has_driver = "driver" in fields_of(LauncherOptions)
        self.around = Around(head.reader, account, has_teardown="teardown" in self.available)

    def imported(self) -> Imported:
        reader = self.head.reader
        asked = self.head.asked
        of_scheduler = reader.variables(asked) if reader else {}
        knowledge = Knowledge(
            of_scheduler, lambda text: reader.output_of(text, asked) if reader else None, self.body
        )
        before: list[Knowledge] = []
        for statement in self.body:
            before.append(_copy(knowledge))
            knowledge.pass_over(statement)
        found = candidates(self.body, before)
        launch = chosen(found, self.body)
        line = read_line(launch, before[launch.statement]) if launch else None
        self._layout(launch, line)
        for number, statement in enumerate(self.body):
            if launch is None or number < launch.statement:
                self._other(statement, number, found, launch, before[number])
            elif number == launch.statement and line is not None:
                self._launch(statement, launch, line, before[number])
            else:
                self._other(statement, number, found, launch, before[number])
        command = self._command(launch, line, before)
        self._finish(command, launch)
        result = Imported(
            self.fields, self.account, reader.name if reader else None, self.notes, self.profile
        )
        _make_valid(result)
        return result

    def _layout(self, launch: Candidate | None, line: Line | None) -> None:
        """Numbers of nodes, ranks, cores and devices, and what directives and launch line say as they are."""
        job = self.head.asked
        notes = Asked()
        if line is not None:
            for one in (line.launcher, line.torch, line.container):
                if one is not None:
                    self._take(one, launch)
        layout = fields_of_layout(
            job,
            line.launcher if line else None,
            line.torch if line else None,
            one_per_node=bool(line and line.one_per_node),
            driver=self.has_driver,
            notes=notes,
        )
        for number, text in self.head.notes:
            _note(self.notes, "", f"line {number}: {text}" if number else text)
        self._remarks(notes.remarks, launch)
        of_job, self.fields = self.fields, {}
        self.fields |= layout
        self.fields |= {**job.fields, **{k: v for k, v in of_job.items() if k not in layout}}
        self._raw_directives(job)
        self.around.env |= {**job.env, **{k: v for k, v in self.around.env.items()}}
        if job.cpus_per_rank or job.node_cpus:
            _note(
                self.notes,
                "cores_per_rank",
                "physical cores; where the site's scheduler counts hardware threads, halve it",
            )

    def _take(self, asked: Asked, launch: Candidate | None) -> None:
        for name, text in asked.fields.items():
            if isinstance(text, list) and isinstance(self.fields.get(name), list):
                self.fields[name] = [*self.fields[name], *text]
            else:
                self.fields[name] = text
        self.around.env |= asked.env
        self.profile |= asked.profile
        self._remarks(asked.remarks, launch)
        raw = {name: text for name, text in asked.directives.items()}
        self.head.asked.directives.update(
            {name: text for name, text in raw.items() if name not in self.head.asked.directives}
        )

    def _remarks(self, remarks: list[Remark], launch: Candidate | None) -> None:
        statement = self.body[launch.statement] if launch else None
        for remark in remarks:
            if remark.fate == "note" or statement is None:
                _note(self.notes, "command", remark.text)
            else:
                self.account.add(
                    statement.first,
                    statement.last,
                    remark.fate,
                    launch.command.text if launch else "",
                    remark.text,
                )

    def _raw_directives(self, job: Asked) -> None:
        if job.directives and self.head.reader:
            self.fields["directives"] = {self.head.reader.name: dict(job.directives)}

    def _other(
        self,
        statement: Statement,
        number: int,
        found: list[Candidate],
        launch: Candidate | None,
        knowledge: Knowledge,
    ) -> None:
        """A statement without the launch line."""
        mine = [one for one in found if one.statement == number]
        strongest = max((one.strength for one in mine), default=0)
        if launch is not None and strongest >= 2:
            why = (
                f"it starts ranks, and so does line {self.body[launch.statement].first}, which was taken: a job file has "
                "one command; write another file for it, and let one wait for the other (castoff submit next.yaml --set "
                "'after.afterok=[NAME]')"
            )
            self.account.add(statement.first, statement.last, "not expressed", statement.text, why)
        elif launch is None or number < launch.statement:
            self.around.before(statement, knowledge)
        else:
            self.around.after(statement)

    def _launch(self, statement: Statement, launch: Candidate, line: Line, knowledge: Knowledge) -> None:
        """The statement with the launch line: what stands around that in it."""
        self.account.add(statement.first, statement.last, "launch", launch.command.text)
        if statement.compound:
            kind = {"(": "a subshell", "{": "a group", "function": "a function"}.get(
                statement.compound, f"a {statement.compound}"
            )
            why = f"the ranks are started in {kind}: castoff starts them once, and nothing else of it"
            self.account.add(statement.first, statement.last, "not expressed", statement.text, why)
            return
        place = statement.commands.index(launch.command)
        for at, command in enumerate(statement.commands):
            if at < place and command.after == "&&":
                for part in statements(command.text):
                    moved = part._replace(first=statement.first, last=statement.last)
                    self.around.before(moved, knowledge)
            elif at < place:
                why = f"it stands before the launch line with {command.after}, which a job file cannot say"
                self.account.add(statement.first, statement.last, "not expressed", command.text, why)
        self._behind(statement, launch, place)

    def _behind(self, statement: Statement, launch: Candidate, place: int) -> None:
        operator = launch.command.after
        for command in statement.commands[place + 1 :]:
            text = f"{operator} {command.text}"
            if operator in ("|", "|&"):
                kind = command.words[:1]
                why = "castoff keeps each rank's log itself; castoff logs shows them"
                fate = (
                    "dropped"
                    if kind and kind[0] in ("tee", "ts", "cat", "head", "tail", "grep")
                    else "not expressed"
                )
                self.account.add(statement.first, statement.last, fate, text, why)  # type: ignore[arg-type]
            elif operator == "||" and command.words[:1] in (["exit"], ["true"], ["echo"], [":"]):
                why = "castoff reports which rank failed first, and ends the job with its code"
                self.account.add(statement.first, statement.last, "dropped", text, why)
            else:
                end = statement.text.find(command.text)
                rest = (
                    statement.text[end:] if command is statement.commands[-1] and end >= 0 else command.text
                )
                self.around.after_success(statement, operator, rest)
            operator = command.after
        if launch.command.after == "&":
            why = "castoff waits for the ranks, and starts nothing beside them"
            self.account.add(statement.first, statement.last, "dropped", "& behind the launch line", why)
        outputs = [one for one in launch.command.redirections if ">" in one]
        if outputs:
            why = "castoff keeps each rank's log itself; castoff logs shows them"
            self.account.add(statement.first, statement.last, "dropped", " ".join(outputs), why)

    def _command(self, launch: Candidate | None, line: Line | None, before: list[Knowledge]) -> Command:
        if launch is None or line is None:
            return Command(PLACEHOLDER, [], set(), "the script starts no program: name yours")
        knowledge = before[launch.statement]
        behind = _input_of(launch)
        prefix = self._prefix(launch, knowledge)
        folder = self._workdir(launch, knowledge)
        command = command_of(
            line.words or PLACEHOLDER,
            lambda word: value(word, knowledge.constants),
            behind=behind,
            folder=folder,
            first=prefix,
        )
        whole = " ".join([*command.words, *command.setup])
        if re.search(r"\$\{?(?:[1-9]|[@*#])(?![:\w-])", without_single_quotes(" ".join(line.words))):
            statement = self.body[launch.statement]
            why = "it uses the script's own arguments, and a job has none: write their values into command"
            self.account.add(statement.first, statement.last, "not expressed", launch.command.text, why)
        self.around.settle([whole])
        return command

    def _prefix(self, launch: Candidate, knowledge: Knowledge) -> list[str]:
        """Variables for the program alone: those that are known are the ranks' env."""
        left = []
        for name, word in launch.prefix:
            found = value(word, knowledge.constants)
            if found is not None and not variable_problem(name):
                self.around.env[name] = found
            elif not variable_problem(name):
                left.append(f"{name}={word}")
        return left

    def _workdir(self, launch: Candidate, knowledge: Knowledge) -> bool:
        """Set `workdir` where the script's folder is known; whether it is where setup ends instead."""
        folders = self.around.folders
        if not folders:
            return False
        statement, target = folders[-1]
        found = value(target, knowledge.constants)
        reader = self.head.reader
        for name in reader.submit_dir if reader else ():
            inside = re.sub(rf'^"?\$\{{?{name}\}}?/', "", target)
            if found is None and inside != target:
                found = value(inside.rstrip('"'), knowledge.constants)
        if not found or (len(folders) > 1 and not found.startswith("/")) or found.startswith(("..", "-")):
            return True
        self.fields["workdir"] = found
        later = [
            kept
            for kept in self.around.setup
            if kept.statement.first > statement.first and plain_assignments(kept.statement) is None
        ]
        if not later:
            for one, _ in folders:
                self.around.setup = [kept for kept in self.around.setup if kept.statement is not one]
                self.account.add(one.first, one.last, "setup", one.text, "workdir")
        return False

    def _finish(self, command: Command, launch: Candidate | None) -> None:
        """Put all of it into fields."""
        setup = [_exported(kept, command.uses, self.body) for kept in self.around.setup]
        setup += self._exports(command, setup)
        setup += command.setup
        self.fields["command"] = command.words
        if command.why:
            _note(self.notes, "command", command.why)
        if setup:
            self.fields["setup"] = setup
        constants = {name: text for name, text in self._constants_used(command).items()}
        env = {**self.around.env, **constants}
        if env:
            self.fields["env"] = env
        if self.around.teardown:
            self.fields["teardown"] = self.around.teardown
        if "name" not in self.fields:
            self.fields["name"] = program_name(command.words if launch else ["job"])
        self._translated()

    def _constants_used(self, command: Command) -> dict[str, str]:
        return {}

    def _exports(self, command: Command, setup: list[str]) -> list[str]:
        """A line that exports what the ranks must see and what lines of setup set without exporting it."""
        ours: set[str] = set()
        for kept in self.around.setup:
            if plain_assignments(kept.statement) is None:
                pattern = rf"(?:^|[\s;(])({NAME})\+?=|\bfor\s+({NAME})|\bread\s+(?:-\w+\s+)*({NAME})"
                ours |= {one or two or three for one, two, three in re.findall(pattern, kept.text)}
        missing = sorted((command.uses & ours) - exported_names(self.body) - {FOLDER})
        return [f"export {' '.join(missing)}"] if missing else []

    def _translated(self) -> None:
        """Fields that only some versions of a job file have."""
        array = self.fields.get("array")
        if array and "indices" not in fields_of(Array):
            count = re.fullmatch(r"0-(\d+)", array["indices"]) or re.fullmatch(r"(0)", array["indices"])
            if count is None:
                self._cannot("array", f"members are numbered from 0, and not {array['indices']}")
                return
            self.fields["array"] = {
                "count": int(count[1]) + 1,
                **{k: v for k, v in array.items() if k != "indices"},
            }
        elif array and (count := re.fullmatch(r"0-(\d+)", array["indices"])):
            self.fields["array"] = {
                "count": int(count[1]) + 1,
                **{k: v for k, v in array.items() if k != "indices"},
            }
        if "select" in self.fields and "select" not in self.available:
            rest = ":".join(f"{name}={text}" for name, text in self.fields["select"].items())
            self._cannot(
                "select", f"{rest} in select: a job file of this version has no field for other resources"
            )

    def _cannot(self, field_name: str, why: str) -> None:
        """Take a field away that cannot stand, and say so at the directive that it is from."""
        self.fields.pop(field_name, None)
        words = {"array": r"array|-a\b|-J\b|-t\b", "select": "select"}[field_name]
        entries = [one for one in self.account.of("directive") if re.search(words, one.text)]
        for one in entries[:1]:
            self.account.add(one.first, one.last, "not expressed", one.text, why)


def _copy(knowledge: Knowledge) -> Knowledge:
    """Knowledge as it is now."""
    other = Knowledge(knowledge.known, knowledge.output_of, [])
    other.constants, other.lists = dict(knowledge.constants), dict(knowledge.lists)
    other._times = knowledge._times
    return other


def _note(notes: dict[str, list[str]], field_name: str, text: str) -> None:
    found = notes.setdefault(field_name, [])
    if text not in found:
        found.append(text)


def _input_of(launch: Candidate) -> str:
    """What the program reads, as it stands behind its words."""
    command = launch.command
    found = [one for one in command.redirections if one.startswith("<")]
    documents = [*command.heredocs]
    text = "".join(f" {one}" for one in found)
    for document in documents:
        text += f"\n{document}".rstrip("\n")
    return text


def _exported(kept: Kept, uses: set[str], body: list[Statement]) -> str:
    """A line of setup, with `export` in front where the ranks must see what it sets."""
    pairs = plain_assignments(kept.statement)
    first = kept.statement.commands[0].words[:1] if kept.statement.commands else []
    if not pairs or first == ["export"] or not {name for name, _, _ in pairs} & uses:
        return kept.text
    if any(word.startswith("(") for _, word, _ in pairs):
        return kept.text
    return f"export {re.sub(r'^(?:declare|typeset|readonly|local)(?:[ ]+-[A-Za-z]+)*[ ]+', '', kept.text)}"


def nested(fields: dict[str, Any]) -> dict[str, Any]:
    """Fields by their paths as a job file has them: `launcher.args` within `launcher`."""
    found: dict[str, Any] = {}
    for path, text in fields.items():
        *outer, last = path.split(".")
        place = found
        for name in outer:
            place = place.setdefault(name, {})
        place[last] = text
    return found


def _make_valid(result: Imported) -> None:
    """Take away what castoff's own loader refuses, and say so."""
    for _ in range(len(result.fields) + 40):
        try:
            JobSpec.of(nested(result.fields))
        except InvalidInput as error:
            if not any([_take_away(problem, result) for problem in error.problems]):
                raise
        else:
            return
    raise InvalidInput([Problem("", "", "no job file could be made of it")])


def _take_away(problem: Problem, result: Imported) -> bool:
    path = problem.path.split(".")
    for length in range(len(path), 0, -1):
        name = ".".join(path[:length])
        if name in result.fields:
            held = result.fields[name]
            key: Any = path[length] if length < len(path) else None
            if isinstance(held, list) and key is not None and key.isdecimal() and name != "command":
                gone: Any = held.pop(int(key))
            elif isinstance(held, dict) and key in held:
                gone = held.pop(key)
            else:
                gone = result.fields.pop(name)
            if name == "command":
                result.fields["command"] = PLACEHOLDER
            entries = _said_by(str(gone), result.account)
            for first, last, text in entries:
                result.account.add(first, last, "not expressed", text, f"{problem.path} {problem.message}")
            return True
    outer = path[0]
    held_by = [name for name in result.fields if name.startswith(f"{outer}.")]
    for name in held_by:
        result.fields.pop(name)
        for first, last, text in _said_by("", result.account):
            result.account.add(first, last, "not expressed", text, f"{problem.path} {problem.message}")
    return bool(held_by)


def _said_by(text: str, account: Account) -> Iterator[tuple[int, int, str]]:
    """The line from which a value is."""
    words = " ".join(text.split())[:30]
    entries = [one for one in account.entries if words and words in one.text]
    for one in entries[:1]:
        yield one.first, one.last, one.text
    if not entries:
        yield 1, 1, text or "the script"


def reader_named(name: str | None) -> ScriptReader | None:
    """How scripts of a scheduler are read."""
    return next((one for one in readers() if one.name == name), None)


def job_of(result: Imported) -> JobSpec:
    """The job that a script was read as."""
    return JobSpec.of(nested(result.fields))


def as_data(job: JobSpec) -> dict[str, Any]:
    """A job as plain data."""
    return dict(msgspec.to_builtins(job))
