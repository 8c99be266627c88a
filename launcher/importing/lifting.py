"""Turn a script into a job whose ranks castoff starts, if this provably changes nothing. Pure functions.

The script's last line must start the ranks; the lines before it must only prepare for them, and become
`setup` unchanged. The words of the last line must mean the same in a rank as in the script.
"""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from castoff.launcher.config.variable_names import variable_problem
from castoff.launcher.importing.bash import NAME, Case, Statement, Unparsed, Word, statements
from castoff.launcher.importing.by_index import ByIndex
from castoff.launcher.importing.head import Head
from castoff.launcher.importing.sizes import Unproven, of_ranks
from castoff.launcher.importing.torchrun import read_torchrun
from castoff.launcher.launchers.foreign import lines
from castoff.launcher.launchers.foreign.asked import Asked
from castoff.launcher.launchers.foreign.line import Launch
from castoff.launcher.planning import mpi_modules
from castoff.launcher.schedulers.registry import scheduler_of
from castoff.launcher.schedulers.script_reader import ScriptReader
from castoff.launcher.schedulers.variables import job_prefixes

WITHOUT_PARSER = "tree-sitter, which reads bash, is not installed (pip install 'castoff[import]')"

_PREPARES = {
    *("module", "ml", "source", ".", "export", "unset", "echo", "printf", "date", "hostname", "pwd", "which"),
    *("nvidia-smi", "rocm-smi", "mkdir", "ulimit", "set", "conda", "mamba", "micromamba", "deactivate"),
    *("true", ":", "lscpu", "free", "nproc", "uname", "whoami"),
}
"""Commands that only prepare the program's environment or print something, so that they can run in
`setup`.
"""

_ENVIRONMENTS = {"conda", "mamba", "micromamba"}

_OPTIONS = re.compile(r"[-+][eu]*o?|pipefail|errexit|nounset")

_BY_CASTOFF = re.compile(
    r"RANK|LOCAL_RANK|NODE_RANK|GROUP_RANK|WORLD_SIZE|LOCAL_WORLD_SIZE|(?:CUDA|HIP|ROCR)_VISIBLE_DEVICES"
    r"|ZE_AFFINITY_MASK|SLURM_(?!CPU_BIND)\w+|PMI\w*|PMIX\w*|OMPI_COMM\w*|CASTOFF_\w+"
    r"|SRUN_(?!CPUS_PER_TASK)\w+"
)
"""Variables that castoff or the launcher sets for each rank, which would overwrite the script's values."""

_OTHERS_IN_RANKS = re.compile(
    rf"{_BY_CASTOFF.pattern}|MASTER_\w+|(?:{'|'.join(job_prefixes())}|PALS|MPI)\w*|HOSTNAME|HOST|PWD|OLDPWD"
    r"|S?RANDOM|SECONDS|EPOCH\w+|BASH\w*|LINENO|PPID|SHLVL|IFS|_"
)
"""Variables that have other values in a rank than in the script."""

_SETS_OTHERS = {"module", "ml", "source", ".", "deactivate", *_ENVIRONMENTS}
"""Commands that may set any variable."""

_SETS = re.compile(rf"\$\{{{NAME}:?=|\$\(\(.*(?:=|\+\+|--)")
"""Words whose expansion sets a variable."""

_OF_THE_FILE = re.compile(r"\$\{?(?:[0-9@*#]|BASH_(?:SOURCE|ARG)|LINENO)")
"""Shell expansions of the script's file name and arguments, which differ in castoff's job."""

_ENVIRONMENT = re.compile(r"HOME|USER|LOGNAME|PATH|LANG|SCRATCH|WORK|PROJECT|TMPDIR")
"""Variables that are exported even if a sourced file sets them."""

_HARMLESS = re.compile(
    r"--(?:kill-on-bad-exit|wait|label|unbuffered|quiet|verbose|v|line-buffer|tag-output|prepend-rank|genvall|envall)"
    r"[: ]|the variable "
)
"""Remarks about launcher options that castoff does not need."""

_STARTS_WORKERS = {
    *("accelerate", "deepspeed", "torchrun", "lightning", "horovodrun", "ray", "composer", "colossalai"),
    *("bash", "sh", "apptainer", "singularity", "torch"),
}


class Lifted(NamedTuple):
    """A job whose ranks castoff starts."""

    fields: dict[str, Any]
    remarks: dict[str, str]
    streams: frozenset[str]
    """Names of directives about the script's output, which the ranks' logs replace."""


def lifted(head: Head, script: str) -> Lifted:
    """Make the job.

    Raises:
        Unproven: the job might differ from the script's.
    """
    reader = head.reader
    if reader is None:
        raise Unproven("it has no directives")
    shell = re.match(
        r"#!\s*(?:/usr)?/bin/(?:env\s+)?bash(?:\s+-([el]+|-login))?\s*$", script.split("\n", 1)[0]
    )
    if shell is None:
        raise Unproven("its first line is not that of a script for bash")
    if head.refused:
        raise Unproven("a directive is not expressed")
    if head.asked.unclear:
        raise Unproven(head.asked.unclear)
    if "workdir" in head.asked.fields:
        raise Unproven("a directive names its folder")
    try:
        parsed = statements(script)
    except Unparsed as error:
        raise Unproven(str(error)) from None
    except ImportError:
        raise Unproven(WITHOUT_PARSER) from None
    if not parsed:
        raise Unproven("it starts nothing")
    return _Lifting(head, reader, parsed, script, ends_at_failure="e" in (shell[1] or "")).job()


class _Lifting:
    """Analyses one script; its last line becomes the job's command."""

    def __init__(
        self, head: Head, reader: ScriptReader, parsed: list[Statement], script: str, *, ends_at_failure: bool
    ):
        self.head, self.reader, self.asked = head, reader, head.asked
        self.ends_at_failure = ends_at_failure
        *self.before, self.last = parsed
        self.script = script
        self.plain: dict[str, Statement] = {}
        """Variables that are set but not exported, with the statements that set them."""
        self.values: dict[str, Word] = {}
        self.exported: set[str] = set()
        self.world: Statement | None = None
        """The statement that sets WORLD_SIZE, which castoff sets, too."""
        self.set_last: dict[str, int] = {}
        """For each variable, the byte offset of the last statement that sets it."""
        self.remarks: dict[str, str] = {}
        """Comments on fields, by their names."""
        self.sourced = 0
        """Line number of the last `source`, whose file may set variables without exporting them."""
        self.changed = 0
        """Byte offset of the last command that may have set any variable."""
        self.by_index = ByIndex(reader.array_index, head.asked.fields.get("array"))
        self.only_set = False
        """Whether unset variables are errors (`set -u`)."""

    def job(self) -> Lifted:
        for number, statement in enumerate(self.before):
            self._prepares(statement, is_first=number == 0)
        if self.reader.starts_at_home and not (self.before and self._enters_folder(self.before[0])):
            raise Unproven("it runs in the home folder")
        if self.last.problem:
            raise Unproven(f"line {self.last.line}, its last, {self.last.problem}")
        if self.last.words and self.last.sets:
            raise Unproven(f"line {self.last.line} sets variables for one command")
        fields, words = self._launch()
        fields |= self._setup()
        if self.world and self._product("WORLD_SIZE") != fields["nodes"] * fields["ranks_per_node"]:
            raise Unproven(f"line {self.world.line} sets WORLD_SIZE, which castoff sets itself")
        self._check_sizes(fields)
        remarks = {**self.remarks, **self._threads(fields)}
        dialect = scheduler_of(self.reader.name).dialect
        streams = dialect.streams if dialect else frozenset()
        if by_index := self.by_index.command(words, self._certain()):
            command, fields["array"] = by_index
            return Lifted({"command": command, **fields}, remarks, streams)
        return Lifted({"command": self._command(words), **fields}, remarks, streams)

    # The lines before the launch line.

    def _prepares(self, statement: Statement, *, is_first: bool) -> None:
        where = f"line {statement.line}"
        if statement.problem:
            raise Unproven(f"{where} {statement.problem}")
        if statement.case is not None:
            self._chooses(statement, statement.case)
            return
        words = [word.literal for word in statement.words]
        name = words[0] if words else None
        if any(_SETS.search(word.source) for word in statement.words) or words[:2] == ["printf", "-v"]:
            raise Unproven(f"{where} sets a variable on the way")
        sources = [word.source for word in (*statement.words, *(word for _, word in statement.sets))]
        if any(map(_OF_THE_FILE.search, sources)):
            raise Unproven(f"{where} uses the script's own file or arguments")
        if not words:
            self._sets(statement)
        elif name == "cd" and (is_first or not self.reader.starts_at_home) and self._enters_folder(statement):
            pass
        elif name not in _PREPARES:
            command = statement.words[0].source
            raise Unproven(
                f"{where} changes the folder"
                if command == "cd"
                else f"{where} runs {command}, and more follows"
            )
        elif name == "set" and not all(word and _OPTIONS.fullmatch(word) for word in words[1:]):
            raise Unproven(f"{where} sets options of the shell")
        elif name in _ENVIRONMENTS and words[1:2] not in (["activate"], ["deactivate"]):
            raise Unproven(f"{where} runs {' '.join(word.source for word in statement.words[:2])}")
        elif name == "export":
            self._exports(statement)
        elif name == "unset":
            self._unsets(statement)
        elif name in ("source", "."):
            self.sourced = statement.line
        elif name == "set" and any(re.match("-[a-z]*u|nounset", word or "") for word in words):
            self.only_set = True
        if name in _SETS_OTHERS:
            self.changed = statement.start
        if words and name != "export" and statement.sets:
            raise Unproven(f"{where} sets variables for one command")

    def _check_sizes(self, fields: dict[str, Any]) -> None:
        """Check that the lines before the launch line use no variable about sizes that differs in castoff's
        job.
        """
        per_node, cores = fields["ranks_per_node"], fields.get("cores_per_rank")
        by_torch = "launcher.torchrun" in fields  # then castoff starts one torchrun per node
        after = Asked(nodes=fields["nodes"], ranks_per_node=1 if by_torch else per_node)
        after.cpus_per_rank = cores and cores * (per_node if by_torch else 1)
        old, new = self.reader.variables(self.asked), self.reader.variables(after)
        for statement in self.before:
            sources = [word.source for word in (*statement.words, *(word for _, word in statement.sets))]
            for name in self.reader.sizes.findall(" ".join(sources)):
                if name not in old or old[name] != new[name]:
                    raise Unproven(f"line {statement.line} uses {name}, which differs in castoff's job")

    def _sets(self, statement: Statement) -> None:
        for name, value in statement.sets:
            if not name:
                raise Unproven(f"line {statement.line} sets more than a variable")
            self._check_set(name, statement)
            self._value(name, value, statement)
            self.plain[name] = statement

    def _value(self, name: str, value: Word, statement: Statement) -> None:
        """Record a variable's value. A variable that is set more than once has no certain value."""
        self.values[name] = Word(value.source, None) if name in self.values else value
        self.by_index.sets(name, value.source)
        self.set_last[name] = statement.start

    def _chooses(self, statement: Statement, case: Case) -> None:
        names = self.by_index.cases(case)
        if names is None:
            raise Unproven(f"line {statement.line} is a condition")
        for name in names:
            self._check_set(name, statement)
            self.values[name] = Word("", None)
            self.set_last[name] = statement.start
            self.plain[name] = statement

    def _certain(self) -> set[str]:
        """The variables that nothing may have changed since the script set them."""
        return {name for name, start in self.set_last.items() if start > self.changed}

    def _exports(self, statement: Statement) -> None:
        for variable, value in statement.sets:
            self._value(variable, value, statement)
        for name in [*(word.literal for word in statement.words[1:]), *(name for name, _ in statement.sets)]:
            if name is None or not re.fullmatch(NAME, name):
                raise Unproven(f"line {statement.line} exports more than variables")
            self._check_set(name, statement)
            self.exported.add(name)

    def _unsets(self, statement: Statement) -> None:
        for word in statement.words[1:]:
            if word.literal is None or not re.fullmatch(NAME, word.literal):
                raise Unproven(f"line {statement.line} unsets more than variables")
            self._check_set(word.literal, statement)
            self.values.pop(word.literal, None)
            self.by_index.forgets(word.literal)
            self.plain.pop(word.literal, None)
            self.exported.discard(word.literal)
            self.set_last[word.literal] = statement.start

    def _check_set(self, name: str, statement: Statement) -> None:
        if name == "WORLD_SIZE":
            self.world = statement
        elif _BY_CASTOFF.fullmatch(name) or (variable_problem(name) and not name.startswith("MASTER_")):
            raise Unproven(f"line {statement.line} sets {name}, which castoff sets itself")

    def _product(self, name: str) -> int | None:
        """The number that a variable certainly has, also if it is set to a product such as `$((SLURM_NNODES *
        4))`; else None.
        """
        known = self._known()
        text = self.values[name].source.strip('"') if name in self.values else ""
        inner = re.fullmatch(r"\$\(\((.*)\)\)", text)
        product = 1
        for factor in (inner[1] if inner else text).split("*"):
            plain = factor.strip().lstrip("$").strip("{}")
            number = known.get(plain, plain)
            if not number.isdecimal():
                return None
            product *= int(number)
        return product

    def _enters_folder(self, statement: Statement) -> bool:
        """Whether a statement only changes to the folder of submission, where castoff's jobs start anyway."""
        words = [word.source.strip('"') for word in statement.words]
        target = self.reader.submit_dir
        return bool(target) and words in ([["cd", f"${target}"], ["cd", f"${{{target}}}"]])

    # The launch line.

    def _launch(self) -> tuple[dict[str, Any], list[Word]]:
        """The fields that follow from the launch line, and the words of its program."""
        words, where = self.last.words, f"line {self.last.line}"
        known = self._known()
        plain = [word.source if (text := word.valued(known)) is None else text for word in words]
        if not plain:
            raise Unproven(f"{where}, its last, starts no ranks")
        launch = lines.read(plain)
        program = launch.program if launch else plain
        torch = read_torchrun(program)
        if launch is None and torch is None:
            raise Unproven(f"{where}, its last, starts no ranks")
        if "/" in plain[0] and not (torch and torch.before == plain[:1]):
            raise Unproven(f"{where} names its launcher by a path")
        rest = words[len(words) - (torch.program if torch else len(program)) :]
        if not rest:
            raise Unproven(f"{where} names no program")
        fields = of_ranks(
            self.asked,
            launch.asked if launch else None,
            torch.asked if torch else None,
            per_device=bool(torch and torch.per_device),
            by_tasks=bool(launch and launch.own),
        )
        if launch:
            fields |= self._of_launcher(launch, plain)
        if torch:
            for remark in torch.asked.remarks:
                raise Unproven(f"{where}: {remark.text}")
            fields["launcher.torchrun"] = True
            if torch.asked.env:
                fields["env"] = {**fields.get("env", {}), **torch.asked.env}
            return fields, [*(Word(text, [(text, "")]) for text in torch.before), *rest]
        if launch and launch.goes_on:
            fields["launcher.args"] = [*fields.get("launcher.args", []), launch.goes_on]
            self.remarks["launcher"] = "as in the script, the other ranks continue when one fails"
        first = rest[0].literal
        if not first or first.startswith("-"):
            raise Unproven(f"{where} does not name its program plainly")
        starts = {PurePosixPath(first).name, *self._modules(rest)} & _STARTS_WORKERS
        if starts or first.endswith(".sh"):
            raise Unproven(f"{where} starts {first}, which may start workers of its own")
        return fields, rest

    def _modules(self, words: list[Word]) -> list[str]:
        """Top-level names of the modules that Python runs: `torch` for `-m torch.distributed.launch`."""
        pairs = pairwise(word.literal or "" for word in words)
        return [module.split(".")[0] for flag, module in pairs if flag == "-m"]

    def _known(self) -> dict[str, str]:
        """The variables, from the directives or the script, that certainly have a value of one plain word."""
        certain = {name: word for name, word in self.values.items() if self.set_last[name] > self.changed}
        values = {name: word.literal for name, word in certain.items()}
        plain = {n: text for n, text in values.items() if text and re.fullmatch(r"[\w./:=,@%+-]+", text)}
        of_scheduler = self.reader.variables(self.asked).items()
        return {**{name: text for name, text in of_scheduler if text is not None}, **plain}

    def _of_launcher(self, launch: Launch, plain: list[str]) -> dict[str, Any]:
        where, asked = f"line {self.last.line}", launch.asked
        launchers = scheduler_of(self.reader.name).launchers
        if launch.own and launch.own not in launchers:
            raise Unproven(
                f"{where} runs {launch.launcher}, and the directives are {self.reader.scheduler}'s"
            )
        for remark in asked.remarks:
            if remark.fate == "not expressed":
                raise Unproven(f"{where}: {remark.text}")
            hosts_of_job = remark.text.startswith("--hostfile") and "$PBS_NODEFILE" in plain
            if remark.fate == "dropped" and not _HARMLESS.match(remark.text) and not hosts_of_job:
                raise Unproven(f"{where} has {remark.text.partition(':')[0]}")
            if remark.fate == "note" and remark.text.startswith("--export"):
                raise Unproven(f"{where} has --export")
        others = {*asked.fields} - {"launcher.name", "launcher.args", "device_type"}
        if asked.unclear:
            raise Unproven(f"{where}: {asked.unclear}")
        if asked.exports or asked.directives or others:
            raise Unproven(f"{where} has options that castoff has no field for")
        if any("$" in word for word in asked.fields.get("launcher.args", [])):
            raise Unproven(f"{where} has options that are not known before the job runs")
        fields = dict(asked.fields)
        if fields.pop("device_type", None) not in (None, self.asked.fields.get("device_type")):
            raise Unproven(f"{where} asks for GPUs of another type than the directives")
        if not launch.own and "launcher.name" not in fields:
            loaded = mpi_modules.loaded(self._setup().get("setup", []))
            mpi = loaded and loaded.launcher(launchers)
            if mpi is None:
                raise Unproven(f"{where}: the script does not show whose {launch.launcher} it is")
            fields["launcher.name"] = mpi
        if asked.env:
            fields["env"] = self._env(asked.env)
        return fields

    def _env(self, env: dict[str, str]) -> dict[str, str]:
        for name in env:
            if _BY_CASTOFF.fullmatch(name) or variable_problem(name):
                raise Unproven(f"line {self.last.line} sets {name}, which castoff sets itself")
        return dict(env)

    def _command(self, words: list[Word]) -> list[str]:
        """The program's command; if its words contain variables, a shell in each rank expands them."""
        if all(word.literal is not None for word in words):
            return [word.literal or "" for word in words]
        where = f"line {self.last.line}"
        needed: dict[str, Statement] = {}
        for word in words:
            if word.parts is None:
                raise Unproven(f"{where} has {word.source}, which the shell expands")
            for name in word.variables:
                self._needs(name, needed)
        sets = [f"{name}={self.values[name].source}; " for name in self.plain if name in needed]
        return ["bash", "-c", "".join(sets) + "exec " + " ".join(word.source for word in words)]

    def _needs(self, name: str, needed: dict[str, Statement]) -> None:
        """Check that a variable in the program's words has the same value in a rank."""
        where = f"line {self.last.line} uses ${name}, which"
        if _OTHERS_IN_RANKS.fullmatch(name) and not self.reader.same_in_ranks.fullmatch(name):
            raise Unproven(f"{where} differs in a rank")
        if name in self.exported:
            return
        if name not in self.plain:
            if self.only_set and not self.reader.same_in_ranks.fullmatch(name) and name != "HOME":
                raise Unproven(f"{where} may not be set")
            if (
                self.sourced
                and not _ENVIRONMENT.fullmatch(name)
                and not self.reader.same_in_ranks.fullmatch(name)
            ):
                raise Unproven(f"{where} line {self.sourced} may have set without exporting it")
            return
        set_by = self.plain[name]
        if self.values[name].parts is None or self.sourced > set_by.line:
            raise Unproven(f"{where} line {set_by.line} sets but does not export")
        needed[name] = set_by
        for other in self.values[name].variables:
            if max(self.set_last.get(other, 0), self.changed) > set_by.start:
                raise Unproven(f"{where} line {set_by.line} sets from variables that may change below it")
            self._needs(other, needed)

    # The fields around the command.

    def _setup(self) -> dict[str, Any]:
        """The lines before the launch line as one unchanged block."""
        if not self.before:
            return {}
        source = self.script.encode()
        text = source[self.before[0].start : self.last.start].decode()
        first = self.script[: len(source[: self.before[0].start].decode())].count("\n") + 1
        kept = [
            line for number, line in enumerate(text.split("\n"), first) if number not in self.head.directives
        ]
        block = "\n".join(kept).rstrip(" \t\n;")
        words = [word.literal or "" for word in self.before[0].words]
        ends = self.ends_at_failure or (
            words[:1] == ["set"] and re.match(r"-\w*e", " ".join(words[1:])) is not None
        )
        return {"setup": [block + "\n" if ends else f"set +e\n{block}\n"]}

    def _threads(self, fields: dict[str, Any]) -> dict[str, str]:
        """Keep OMP_NUM_THREADS as in the script's ranks: castoff would set it to the cores of a rank."""
        name = "OMP_NUM_THREADS"
        env = fields.get("env", {})
        if name in env or name in self.asked.env:
            return {}
        if name in self.values or name in self.exported:
            word = self.values.get(name) if self.set_last.get(name, 0) > self.changed else None
            text = word.valued(self._known()) if word else None
            if text is None or name not in self.exported:
                raise Unproven(f"it computes {name}")
            fields["env"] = {**env, name: text}
            return {}
        if any(name in line for line in self.script.split("\n") if not line.startswith("#")):
            raise Unproven(f"it computes {name}")
        if of_scheduler := self.reader.variables(self.asked).get(name):
            fields["env"] = {**env, name: of_scheduler}
            return {"env": f"{self.reader.scheduler} sets {name}, and castoff would set it to a rank's cores"}
        if "cores_per_rank" in fields and "launcher.torchrun" not in fields and self.asked.cpus_per_rank:
            return {}
        why = f"the script does not set {name}, and castoff would set it to a rank's cores"
        # A module or a sourced file may set the variable, and `env` would undo that.
        if self.changed and "setup" in fields:
            fields["setup"] = [f"unset -v {name}\n", *fields["setup"]]
            return {"setup": why}
        fields["env"] = {**env, name: None}
        return {"env": why}
