"""A script's directives and statements put together: one job, with an entry for each line. Pure."""

from __future__ import annotations

import re

from launcher.config.job import program_name, variable_problem
from launcher.importing.account import Account
from launcher.importing.around import Around, Kept
from launcher.importing.available import settle_fields
from launcher.importing.command import FOLDER, Command, command_of
from launcher.importing.head import Head
from launcher.importing.imported import PLACEHOLDER, Imported
from launcher.importing.knowledge import Knowledge, exported_names, plain_assignments
from launcher.importing.launch import Candidate, Line, candidates, chosen, read_line
from launcher.importing.layout import fields_of_layout
from launcher.importing.programs import name_of
from launcher.importing.shell import Command as ShellCommand
from launcher.importing.shell import Statement, statements
from launcher.importing.words import NAME, literal, value, without_single_quotes
from launcher.launchers.foreign.asked import Asked, Remark

_LOGS = "castoff keeps each rank's log itself; castoff logs shows them"


class Reading:
    """One script while it is read."""

    def __init__(self, head: Head, body: list[Statement], account: Account):
        self.head, self.body, self.account = head, body, account
        name = head.reader.name if head.reader else None
        self.result = Imported({}, account, name, profile=dict(head.asked.profile))
        self.exports: dict[str, str] = {}
        self._ended = ""
        """Why the script never comes to what follows; empty: it does."""
        self.around = Around(head.reader, account)

    def imported(self) -> Imported:
        """Read all of it."""
        reader = self.head.reader
        asked = self.head.asked
        of_scheduler = reader.variables(asked) if reader else {}
        knowledge = Knowledge(
            of_scheduler, lambda text: reader.output_of(text, asked) if reader else None, self.body
        )
        before: list[Knowledge] = []
        for statement in self.body:
            before.append(knowledge.copy())
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
        self._finish(command, line)
        settle_fields(self.result)
        return self.result

    def _layout(self, launch: Candidate | None, line: Line | None) -> None:
        """Numbers of nodes, ranks, cores and devices, and what directives and launch line say as they are."""
        job = self.head.asked
        notes = Asked()
        if line is not None:
            self.around.consumed = line.consumed
            for one in (line.launcher, line.torch, line.container, line.shell):
                if one is not None:
                    self._take(one, launch)
        layout = fields_of_layout(
            job,
            line.launcher if line else None,
            line.torch if line else None,
            one_per_node=bool(line and line.one_per_node),
            notes=notes,
        )
        for number, text in self.head.notes:
            self.result.note("", f"line {number}: {text}" if number else text)
        if line is not None:
            self._remarks(notes.remarks, launch)
        self.result.fields = {**job.fields, **self.result.fields, **layout}
        if job.directives and self.head.reader:
            self.result.fields["directives"] = {self.head.reader.name: dict(job.directives)}
        self.around.env = {**job.env, **self.around.env}
        if job.cpus_per_rank or job.node_cpus:
            self.result.note(
                "cores_per_rank",
                "physical cores; the script counts CPUs, at some sites hardware threads: two of a core",
            )

    def _take(self, asked: Asked, launch: Candidate | None) -> None:
        for name, text in asked.fields.items():
            if isinstance(text, list) and isinstance(self.result.fields.get(name), list):
                self.result.fields[name] = [*self.result.fields[name], *text]
            else:
                self.result.fields[name] = text
        self.around.env |= asked.env
        self.exports |= asked.exports
        self.result.profile |= asked.profile
        self._remarks(asked.remarks, launch)
        job = self.head.asked
        job.directives = {**asked.directives, **job.directives}

    def _remarks(self, remarks: list[Remark], launch: Candidate | None) -> None:
        statement = self.body[launch.statement] if launch else None
        for remark in remarks:
            if remark.fate == "note":
                self.result.note("command", remark.text)
            elif statement is None:
                self.account.add(1, 1, remark.fate, "", remark.text)
            else:
                option, colon, why = remark.text.partition(": ")
                what, why = (option, why) if colon and "-" in option[:14] else ("", remark.text)
                self.account.add(statement.first, statement.last, remark.fate, what, why)

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
                f"it starts ranks, and so does line {self.body[launch.statement].first}, which was taken: a "
                "job file has one command; write another for it, and let one wait for the other (castoff "
                "submit next.yaml --set 'after.afterok=[NAME]')"
            )
            self.account.add(statement.first, statement.last, "not expressed", statement.text, why)
        elif self._ended:
            self.account.add(statement.first, statement.last, "dropped", statement.text, self._ended)
        elif launch is None or number < launch.statement:
            self.around.before(statement, knowledge)
        else:
            self.around.after(statement)

    def _launch(self, statement: Statement, launch: Candidate, line: Line, knowledge: Knowledge) -> None:
        """The statement with the launch line: what stands around that in it."""
        self.account.add(statement.first, statement.last, "launch", launch.command.text)
        if statement.compound:
            if statement.compound == "function" and (
                name := re.match(r"(?:function\s+)?([\w.-]+)", statement.text)
            ):
                self.around.starts_ranks = name[1]
            kind = {"(": "a subshell", "{": "a group", "function": "a function"}.get(
                statement.compound, f"a {statement.compound}"
            )
            why = f"the ranks are started in {kind}: castoff starts them once, and nothing else of it"
            self.account.add(statement.first, statement.last, "not expressed", statement.text, why)
            return
        if launch.around:
            why = "it stands around the launcher, which castoff starts itself (a time limit is walltime)"
            text = " ".join(launch.around)
            self.account.add(statement.first, statement.last, "not expressed", text, why)
        if "exec" in launch.command.words[: len(launch.command.words) - len(launch.words)]:
            self._ended = "the script ends with the line above, which it replaces itself by (exec)"
        if re.match(r"!\s", statement.text):
            why = "a launch line behind ! turns its exit code round: castoff reports the ranks' own"
            self.account.add(statement.first, statement.last, "not expressed", statement.text, why)
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
        following = statement.commands[place + 1 :]
        if operator not in ("", ";", "\n"):
            self.around.ends_at_failure = False
        if any(one.depth > launch.command.depth for one in following):
            self._group_behind(statement, launch, following)
            following = []
        for command in following:
            text = f"{operator} {command.text}"
            if operator in ("|", "|&"):
                kind = command.words[:1]
                if kind and kind[0] in ("tee", "ts", "cat", "head", "tail", "grep"):
                    self._output(statement, launch, text, command.words[1:] if kind[0] == "tee" else [])
                else:
                    self.account.add(statement.first, statement.last, "not expressed", text, _LOGS)
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
            files = [one.lstrip("0123456789&>|").strip() for one in outputs]
            self._output(statement, launch, " ".join(outputs), files)

    def _output(self, statement: Statement, launch: Candidate, text: str, files: list[str]) -> None:
        """Files that the ranks' output goes to: dropped, unless a later line names one."""
        for name in (literal(file) for file in files if not file.startswith("-")):
            for later in self.body[launch.statement + 1 :]:
                if name and re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", later.text):
                    why = (
                        f"line {later.first} needs {name}: let the program write it, or a shell in `command`"
                    )
                    self.account.add(statement.first, statement.last, "not expressed", text, why)
                    return
        self.account.add(statement.first, statement.last, "dropped", text, _LOGS)

    def _group_behind(self, statement: Statement, launch: Candidate, following: list[ShellCommand]) -> None:
        """A group, or a compound command, behind the launch line, as in `|| { echo failed; exit 1; }`."""
        operator = launch.command.after
        _, _, rest = statement.text.partition(launch.command.text)
        _, _, group = rest.partition(operator)
        ends = all(one.words[:1] in (["exit"], ["true"], ["echo"], [":"], ["printf"]) for one in following)
        if operator == "||" and ends:
            why = "castoff reports which rank failed first, and ends the job with its code"
            self.account.add(statement.first, statement.last, "dropped", f"|| {group}", why)
        elif operator in ("||", "&&") and following[0].depth > launch.command.depth:
            self.around.after_success(statement, operator, group.strip())
        else:
            why = (
                "it stands behind the launch line in a way that a job file cannot say: write it in `teardown`"
            )
            self.account.add(statement.first, statement.last, "not expressed", f"{operator} {group}", why)

    def _command(self, launch: Candidate | None, line: Line | None, before: list[Knowledge]) -> Command:
        if launch is None or line is None:
            self.around.settle([])
            last = max((one.last for one in self.body), default=1)
            self.account.add(
                last,
                last,
                "not expressed",
                "",
                "no line down to here starts a program that castoff knows of: name yours in `command`",
            )
            return Command(
                PLACEHOLDER, [], set(), "the script starts no program that castoff sees: name yours"
            )
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
            quoted=line.quoted,
            inside=line.inside,
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
        self.result.fields["workdir"] = found
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

    def _finish(self, command: Command, line: Line | None) -> None:
        """Put all of it into fields."""
        setup = [_exported(kept, command.uses, self.body) for kept in self.around.setup]
        setup += self._exports(command, setup)
        for kept in self.around.setup:
            if kept.statement.compound != "function" and any(
                one.words[:1] == ["exit"] and one.words[1:2] in ([], ["0"]) for one in kept.statement.commands
            ):
                place = f"line {kept.statement.first}"
                self.result.note("setup", f"{place}: `exit` in setup ends the job as failed")
        setup += [f"export {name}={word}" for name, word in self.exports.items()]
        setup += command.setup
        fields = {"setup": setup, "env": self.around.env, "teardown": self.around.teardown.in_order()}
        self.result.fields |= {
            "command": command.words,
            **{name: held for name, held in fields.items() if held},
        }
        if command.why:
            self.result.note("command", command.why)
        if "name" not in self.result.fields:
            words = line.words if line else ["job"]
            words = words[1:] if len(words) > 1 and name_of(words[0]) in ("bash", "sh") else words
            self.result.fields["name"] = program_name([literal(word) or word.strip("'\"") for word in words])
        reader = self.head.reader
        if (
            reader
            and reader.starts_at_home
            and "workdir" not in self.result.fields
            and not self.around.in_folder
        ):
            self.result.note(
                "",
                f"{reader.title} starts a script in your home folder; castoff, where it is submitted",
            )

    def _exports(self, command: Command, setup: list[str]) -> list[str]:
        """A line that exports what the ranks must see and what lines of setup set without exporting it."""
        ours: set[str] = set()
        for kept in self.around.setup:
            if plain_assignments(kept.statement) is None:
                ours |= _sets(kept.text, command.uses)
        missing = sorted((command.uses & ours) - exported_names(self.body) - {FOLDER})
        return [f"export {' '.join(missing)}"] if missing else []


_ASSIGNS = re.compile(
    rf"(?:^|[\s;(])({NAME})\+?=|\bfor\s+({NAME})|\$\{{({NAME}):?=|\bprintf\s+-v\s+({NAME})"
    rf"|\(\(\s*({NAME})\s*[-+*/%]?=(?!=)|\blet\s+[\"']?({NAME})"
)
_READS = re.compile(r"\b(?:read|mapfile|readarray|getopts)\b([^\n;<|&]*)")
_OPAQUE = re.compile(r"(?:^|[\s;&|({])(?:source|\.|eval)\s")
_OF_THE_SYSTEM = re.compile(r"(?:SLURM|PBS|FLUX|CASTOFF|LC)_\w+|HOME|USER|LOGNAME|PATH|PWD|SHELL|LANG|TMPDIR")


def _sets(text: str, uses: set[str]) -> set[str]:
    """The variables that a line of shell may set, of those that the command uses."""
    if _OPAQUE.search(text):
        return {name for name in uses if re.fullmatch(NAME, name) and not _OF_THE_SYSTEM.fullmatch(name)}
    found = {name for names in _ASSIGNS.findall(text) for name in names}
    for words in _READS.findall(text):
        found |= {word for word in words.split() if re.fullmatch(NAME, word)}
    return found & uses


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
