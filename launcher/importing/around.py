"""The lines before and after the one that starts the ranks: what they become in a job file. Pure."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import NamedTuple

from launcher.config.job import variable_problem
from launcher.importing.account import Account, Fate
from launcher.importing.knowledge import Knowledge, exports, plain_assignments, used
from launcher.importing.programs import OF_RANKS
from launcher.importing.shell import Statement
from launcher.importing.teardown import Teardown, action_of, if_done, if_failed, is_at_exit
from launcher.importing.words import NAME, value, variables, without_single_quotes
from launcher.schedulers.reading import ScriptReader

_RENDEZVOUS = re.compile(
    r"hostname\s+(?:-[fIi]|--ip|--all-ip|--fqdn)|\bRANDOM\b|getent\s+hosts|\bshuf\b|free_port|\bss\s+-|netstat|"
    r"MASTER_ADDR|MASTER_PORT|OMPI_COMM_WORLD|\bWORLD_SIZE\b|\bNODE_RANK\b|uuidgen"
)
_HABITUAL = re.compile(
    r"(?i)(?:n?nodes?(?:_?array|list|file)?|num_?nodes|nodes_per_job|head_?node(?:_?(?:ip|addr|address))?|"
    r"master_?(?:addr(?:ess)?|port|node|ip|host|hostname)|main_?process_?(?:ip|port)|host_?(?:list|file|node_addr)|"
    r"hosts?|n(?:tot)?_?ranks(?:_?per_?node)?|num_?(?:processes|gpus|tasks|procs)|n_?procs?(?:_?per_?node)?|"
    r"n?gpus?(?:_?per_?node)?|rdzv_?\w+|world_?size|node_?(?:rank|id)|local_?rank|rank|port|ip(?:_?head|_?addr)?|"
    r"slurm_gpus\w*|head_?ip|job_?id|rank0_?\w*|nworkers|ntasks|ntotranks|ndepth|nthreads)"
)
"""Names under which people work out where ranks are."""

OWN_PLACE = "castoff sets RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT in each rank"
_NOBODY = "nothing else needs it: the fields hold its value, or castoff works it out"
_OPTIONS = {
    "e": "castoff ends the job at the first setup line that fails",
    "u": "variables that are not set are empty in castoff's setup lines",
    "x": "it would show castoff's own lines, too",
    "pipefail": "castoff ends the job at the first setup line that fails",
}
_LIKE_MODULES = re.compile(
    r"(?:module|ml|conda|mamba|micromamba|spack|echo|date|hostname|nvidia-smi|rocm-smi|which|pwd|ulimit|mkdir|"
    r"source|\.|deactivate|printenv|env|ls|eval \"?\$\()(?:\s|$)"
)
"""Commands to which a variable of the program's is no matter, as far as anybody can see."""

_FOR_MODULES = re.compile(
    r"MODULEPATH|CONDA|MAMBA|LMOD|SPACK|PATH$|_HOME$|_ROOT$|_DIR$|PYTHON|proxy", re.IGNORECASE
)

_ON_OTHER_NODES = re.compile(r"(?:ssh|pdsh|pbsdsh)\s.*(?:python|torchrun|mpi|\.sh\b)", re.DOTALL)

_SUBMITS = re.compile(r"(?:sbatch|qsub|qresub|flux\s+batch|scontrol\s+requeue)(?:\s|$)")

_SAVES_AT_SIGNAL = re.compile(r"trap\s.*\b(?:cp|mv|rsync|tar|scp)\s", re.DOTALL)
_IN_ENVIRONMENT = re.compile(r"\w*PATH|HOME|TMPDIR|TMP|TEMP|LANG|LC_\w+|IFS|TERM|SHELL")
"""Variables that a job's environment has in any case, so that assigning one is enough; or the shell has."""

_SOMEWHERE = "$?"
"""A folder that nobody knows."""


class Kept(NamedTuple):
    """A statement that becomes lines of a job file."""

    statement: Statement
    text: str


class Around:
    """Sorts statements; what is to be dropped is known only when all are seen, as others may use it."""

    def __init__(self, reader: ScriptReader | None, account: Account):
        self.reader = reader
        self.account = account
        self.consumed: frozenset[str] = frozenset()
        self.in_folder = False
        self.ends_at_failure = False
        """Whether the script ends at a launch line that fails (set -e)."""
        self.starts_ranks = ""
        """The function in which the ranks are started."""
        self._exported: set[str] = set()
        self._exports_all = False
        self.setup: list[Kept] = []
        self.teardown = Teardown()
        self.env: dict[str, str] = {}
        self.env_lines: dict[str, Statement] = {}
        self.folders: list[tuple[Statement, str]] = []
        self._maybe: list[tuple[Statement, str]] = []
        self._before: dict[int, dict[str, str]] = {}

    def before(self, statement: Statement, knowledge: Knowledge) -> None:
        """A statement in front of the launch line."""
        self._before[statement.first] = {**knowledge.constants}
        why = self._impossible(statement)
        if why:
            self._fate(statement, "not expressed", why)
        elif (pairs := plain_assignments(statement)) is not None:
            self._assigns(statement, pairs, knowledge)
        elif dropped := self._done_already(statement):
            self._fate(statement, "dropped", dropped)
        elif self._changes_folder(statement, knowledge):
            pass
        else:
            if _moves(statement):
                self.in_folder = True
                self.folders.append((statement, _SOMEWHERE))
            self.setup.append(Kept(statement, statement.text))
        self._note_options(statement)

    def _note_options(self, statement: Statement) -> None:
        """What a statement says of those that follow."""
        for command in statement.commands:
            if command.words[:1] == ["set"]:
                for option, word in pairwise([*command.words[1:], ""]):
                    letters = option[1:] if re.match(r"[-+][a-zA-Z]+$", option) else ""
                    if "e" in letters or (letters.endswith("o") and word == "errexit"):
                        self.ends_at_failure = option.startswith("-")
                    if "a" in letters or (letters.endswith("o") and word == "allexport"):
                        self._exports_all = option.startswith("-")
            if exports(statement):
                self._exported |= {word.partition("=")[0] for word in command.words[1:]}

    def after(self, statement: Statement) -> None:
        """A statement behind the launch line."""
        why = self._impossible(statement)
        first = statement.commands[0].words[:1] if statement.commands else []
        text = self.teardown.with_exit_code(statement)
        if why:
            self._fate(statement, "not expressed", why)
        elif not statement.compound and first in (["exit"], ["wait"], ["return"]):
            self._fate(
                statement, "dropped", "castoff waits for the ranks and ends the job with their exit code"
            )
        elif dropped := self._done_already(statement):
            self._fate(statement, "dropped", dropped)
        else:
            self.end(statement, if_done(text) if self.ends_at_failure else text)

    def end(self, statement: Statement, text: str) -> None:
        """Lines that run when the ranks are over."""
        self.teardown.lines.append(text)
        self._fate(statement, "teardown", "")

    def after_success(self, statement: Statement, operator: str, text: str) -> None:
        """What stands behind the launch with && or ||."""
        self.end(statement, if_done(text) if operator == "&&" else if_failed(text))

    def settle(self, wanted: list[str]) -> None:
        """Decide what only matters if something else uses it; `wanted`: text of the command."""
        while True:
            lines = [kept.text for kept in self.setup if not _talks(kept.statement)]
            needed = (used(wanted) - OF_RANKS) | used([*lines, *self.teardown.texts()])
            found = [one for one in self._maybe if _names(one[0]) & needed]
            if not found:
                break
            for one in found:
                self._maybe.remove(one)
                self.setup.append(Kept(one[0], one[0].text))
            self.setup.sort(key=lambda kept: kept.statement.first)
        gone = set().union(*(_names(one) for one, _ in self._maybe)) if self._maybe else set()
        gone -= {name for kept in self.setup for name in _names(kept.statement)} | {*self.env}
        for statement, why in self._maybe:
            self._fate(statement, "dropped", why)
        for kept in [*self.setup]:
            if _talks(kept.statement) and variables(kept.text) & (gone | OF_RANKS):
                self.setup.remove(kept)
                self._fate(kept.statement, "dropped", "it shows what castoff works out itself")
        self._env_to_setup()
        for kept in self.setup:
            self._fate(kept.statement, "setup", "")
        for name, statement in self.env_lines.items():
            if name in self.env:
                self._fate(statement, "env", "")

    def _env_to_setup(self) -> None:
        """Variables that some line of setup may read are set there: those of `env` come later."""
        for name, statement in [*self.env_lines.items()]:
            later = [kept for kept in self.setup if kept.statement.first > statement.first]
            reads = any(name in variables(kept.text) or name in _names(kept.statement) for kept in later)
            opaque = any(
                not _LIKE_MODULES.match(kept.text) and plain_assignments(kept.statement) is None
                for kept in later
            )
            loads = (
                bool(later)
                and bool(_FOR_MODULES.search(name))
                and any(
                    plain_assignments(kept.statement) is None and not kept.text.startswith("echo")
                    for kept in later
                )
            )
            if reads or opaque or loads:
                del self.env[name]
                del self.env_lines[name]
                if all(kept.statement is not statement for kept in self.setup):
                    self.setup.append(Kept(statement, statement.text))
        whole = {kept.statement.first for kept in self.setup if plain_assignments(kept.statement) is not None}
        for name, statement in [*self.env_lines.items()]:
            if statement.first in whole and any(kept.statement is statement for kept in self.setup):
                self.env.pop(name, None)  # of a line with several, which stands in setup as a whole
        self.setup.sort(key=lambda kept: kept.statement.first)

    def _fate(self, statement: Statement, fate: Fate, why: str) -> None:
        self.account.add(statement.first, statement.last, fate, statement.text, why)

    def _impossible(self, statement: Statement) -> str:
        """Why no job file can say it; empty: one can."""
        if statement.broken:
            return f"bash finds no end of {statement.broken}"
        if "\r" in statement.text:
            return "it holds a carriage return"
        first = statement.commands[0].words if statement.commands else []
        if self.starts_ranks and first[:1] == [self.starts_ranks]:
            return "it calls the function that starts the ranks: castoff starts them, and nothing else of it"
        if first[:1] == ["trap"] and is_at_exit(first) and action_of(first) is None:
            return "it works out what is to run at the end: write that in `teardown`"
        bare = without_single_quotes(statement.text)
        if re.search(r"\$\{?(?:[1-9]|[@*#])(?![:\w-])", bare) and statement.compound != "function":
            return "it uses the script's own arguments, and a job has none: write their values"
        if re.search(r"\$\{?0(?![:\w-])|BASH_SOURCE", bare) and statement.compound != "function":
            return "it asks for the script's own file, which in a job is another: write the folder"
        if _SAVES_AT_SIGNAL.match(statement.text) and not re.search(
            r"\s(?:EXIT|SIGEXIT|0)(?:\s|$)", statement.text
        ):
            return "it saves something when the job is ended: write those lines into `teardown`"
        for command in statement.commands:
            if _ON_OTHER_NODES.match(command.text):
                return "it starts programs on other nodes by itself: castoff starts ranks on all of the job"
            if _SUBMITS.match(command.text):
                return (
                    "it submits a job: castoff starts a run again itself (requeue.max), and one job waits "
                    "for another with `after` (castoff submit next.yaml --set 'after.afterok=[NAME]')"
                )
        return ""

    def _done_already(self, statement: Statement) -> str:
        """Why castoff needs no such line; empty: it does."""
        if statement.compound or len(statement.commands) != 1:
            return ""
        words = statement.commands[0].words
        first = words[:1]
        if first == ["set"]:
            letters = "".join(word[1:] for word in words[1:] if re.match(r"[-+][a-zA-Z]+$", word))
            if any(word.startswith("+") for word in words[1:]) and "e" in letters:
                return "castoff ends the job at a setup line that fails; append || true to one that may"
            found = [why for option, why in _OPTIONS.items() if option in letters or option in words[1:]]
            plain = all(word == "pipefail" or not word[1:].strip("euxvo") for word in words[1:])
            return found[0] if found and plain else ""
        if first in (["clear"], ["reset"], ["tput"]):
            return "a job has no terminal"
        if first == ["trap"]:
            return self._trap(statement, words)
        if first in (["wait"], ["exit"]) and len(words) < 3:
            return "castoff waits for the ranks and ends the job with their exit code"
        if first == ["unset"] and {*words[1:]} & OF_RANKS:
            return OWN_PLACE
        return ""

    def _trap(self, statement: Statement, words: list[str]) -> str:
        action = action_of(words)
        if is_at_exit(words) and action is not None:
            self.teardown.at_exit(action)
            if action not in ("", "-"):
                self._fate(statement, "teardown", "")
            return "castoff's script has a trap for EXIT of its own; `teardown` runs whatever the ending"
        return (
            "castoff has its own handlers: it asks the program to stop before the walltime (grace) and "
            "starts the run again (requeue.max)"
        )

    def _changes_folder(self, statement: Statement, knowledge: Knowledge) -> bool:
        if (
            statement.compound
            or not statement.commands
            or statement.commands[0].words[:1] not in (["cd"], ["pushd"])
            or not (len(statement.commands) == 1 or _or_ends(statement))
        ):
            return False
        words = [word for word in statement.commands[0].words[1:] if word != "--"]
        target = words[0] if words else "~"
        bare = target.strip('"').replace("{", "").replace("}", "").rstrip("/")
        here = self.reader.submit_dir if self.reader else ()
        if not self.folders and (bare in (".", "$PWD") or bare in {f"${name}" for name in here}):
            self._fate(statement, "dropped", "castoff's jobs start in the folder of the submission")
            self.in_folder = True
            return True
        self.in_folder = True
        self.folders.append((statement, target))
        self.setup.append(Kept(statement, statement.text))
        return True

    def _assigns(
        self, statement: Statement, pairs: list[tuple[str, str, bool]], knowledge: Knowledge
    ) -> None:
        names = {name for name, _, _ in pairs}
        text = " ".join(word for _, word, _ in pairs)
        handed_on = exports(statement) or self._exports_all or bool(names & self._exported)
        if not pairs:
            self._exports_names(statement)
            return
        if names <= OF_RANKS:
            self._maybe.append((statement, OWN_PLACE))  # setup comes before castoff sets them
            return
        if names == {"OMP_NUM_THREADS"}:
            self._threads(statement, pairs[0][1], knowledge)
            return
        if (
            names <= {"SRUN_CPUS_PER_TASK", "SLURM_CPU_BIND", "SLURM_EXPORT_ENV", "SLURM_HOSTFILE"}
            and "HOSTFILE" not in text
        ):
            self._fate(statement, "dropped", "castoff passes the launcher its flags itself")
            return
        if names == {"CUDA_VISIBLE_DEVICES"} and re.fullmatch(r"\"?0(?:,\d+)*\"?", pairs[0][1]):
            self._fate(statement, "dropped", "castoff gives each rank its own devices (devices_per_rank)")
            return
        if not handed_on and any(map(_IN_ENVIRONMENT.fullmatch, names)):
            self.setup.append(Kept(statement, statement.text))  # programs see it, as it is exported already
            return
        placed = bool((self.reader and self.reader.places.search(text)) or _RENDEZVOUS.search(text))
        placed = placed or bool(variables(text) & self._placed())
        habitual = all(_HABITUAL.fullmatch(name) for name in names)
        if not handed_on or (placed and habitual) or names <= self.consumed:
            self._maybe.append((statement, OWN_PLACE if placed else _NOBODY))
            return
        self._export(statement, pairs, knowledge)

    def _placed(self) -> set[str]:
        return {name for statement, why in self._maybe if why == OWN_PLACE for name in _names(statement)}

    def _exports_names(self, statement: Statement) -> None:
        """`export NAME` alone: it matters if the variable is kept."""
        names = set(re.findall(NAME, " ".join(statement.commands[0].words[1:])))
        if names <= OF_RANKS:
            self._fate(statement, "dropped", OWN_PLACE)
        elif names and names <= set().union(*(_names(one) for one, _ in self._maybe), OF_RANKS):
            self._maybe.append((statement, OWN_PLACE))
        else:
            self.setup.append(Kept(statement, statement.text))

    def _export(self, statement: Statement, pairs: list[tuple[str, str, bool]], knowledge: Knowledge) -> None:
        values = {name: value(word, knowledge.constants) for name, word, adds in pairs if not adds}
        plain = len(values) == len(pairs) and all(
            text is not None and "\n" not in text and not variable_problem(name)
            for name, text in values.items()
        )
        if plain and not any(name in self.env for name in values):
            for name, text in values.items():
                self.env[name] = text or ""
                self.env_lines[name] = statement
        else:
            for name in values:
                if name in self.env_lines:  # set twice: both in setup, in their order
                    earlier = self.env_lines.pop(name)
                    del self.env[name]
                    if all(kept.statement is not earlier for kept in self.setup):
                        self.setup.append(Kept(earlier, earlier.text))
            self.setup.append(Kept(statement, statement.text))

    def _threads(self, statement: Statement, word: str, knowledge: Knowledge) -> None:
        constant = value(word, knowledge.constants)
        if constant is not None and constant.isdecimal():
            self.env["OMP_NUM_THREADS"] = constant
            self.env_lines["OMP_NUM_THREADS"] = statement
        else:
            why = "castoff sets OMP_NUM_THREADS to a rank's cores, or to 1 where nobody says how many it has"
            self._fate(statement, "dropped", why)


def _or_ends(statement: Statement) -> bool:
    """Whether what follows its first command only ends the job where that fails, as castoff does."""
    first, *others = statement.commands
    says = all(one.words[:1] in (["echo"], ["printf"], ["exit"]) for one in others)
    return first.after == "||" and others[-1].words[:1] == ["exit"] and says


def _moves(statement: Statement) -> bool:
    """Whether it may change the script's folder; a function may once it is called."""
    changes = any(command.words[:1] in (["cd"], ["pushd"], ["popd"]) for command in statement.commands)
    return changes and statement.compound not in ("(", "function")


def _talks(statement: Statement) -> bool:
    """Whether it only shows something."""
    commands = statement.commands
    return (
        not statement.compound
        and all(one.words[:1] in (["echo"], ["printf"]) for one in commands)
        and not any(one.redirections for one in commands)
    )


def _names(statement: Statement) -> set[str]:
    pairs = plain_assignments(statement)
    if pairs is None:
        return set()
    exported = statement.commands[0].words[1:] if exports(statement) else []
    return {name for name, _, _ in pairs} | {word for word in exported if re.fullmatch(NAME, word)}
