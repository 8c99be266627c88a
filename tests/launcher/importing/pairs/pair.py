"""A script and its conversion: what each does, and what differs."""

from __future__ import annotations

import os
import re
from collections import Counter
from typing import Any, NamedTuple

import yaml

from castoff import JobSpec, Site, plan, render
from castoff.launcher.errors import CastoffError
from castoff.launcher.importing.script import read_script
from castoff.launcher.importing.writing import job_file
from tests.launcher.importing.pairs.batch import SUBMITTER, execution
from tests.launcher.importing.pairs.heads import READERS
from tests.launcher.importing.pairs.sandbox import Ran, run


class Original(NamedTuple):
    """A batch script, and how it is tried."""

    name: str
    text: str
    scheduler: str = "slurm"
    member: int | None = None
    """Of the array's member that runs."""
    services: int = 0
    """How many programs run until somebody ends them."""
    parallel: bool = False
    """Whether it starts programs at once: their order says nothing."""
    lifted: bool | None = None
    """Whether castoff has to start its ranks; None: either will do."""


class Converted(NamedTuple):
    """What castoff import made of one."""

    text: str
    """The script of the job that castoff submits."""
    job: dict[str, Any]
    left: list[str]
    """What is not expressed, each with its line: the exit code is 3."""

    @property
    def lifted(self) -> bool:
        """Whether castoff starts the ranks."""
        return "script" not in self.job


def convert(one: Original) -> Converted:
    """As `castoff import` and `castoff render`."""
    read = read_script(one.text, one.name)
    job = yaml.safe_load(job_file(read, one.name, one.scheduler))
    left = [f"{entry.line}: {entry.text}: {entry.why}" for entry in read.refused]
    spec = JobSpec.of(job)
    return Converted(render(plan(spec, Site.load(one.scheduler))), job, left)


def differences(originals: list[Original]) -> tuple[dict[str, list[str]], dict[str, Converted]]:
    """What differs for each script by its name, and what became of each; all run in one sandbox."""
    found: dict[str, list[str]] = {one.name: [] for one in originals}
    made: dict[str, Converted] = {}
    for one in originals:
        try:
            made[one.name] = convert(one)
        except CastoffError as error:
            found[one.name].append(f"castoff refuses its own job: {error}")
    pairs = [one for one in originals if one.name in made and not made[one.name].left]
    executions = []
    for one in pairs:
        for text in (one.text, made[one.name].text):
            executions.append(execution(one.scheduler, text, one.name, one.member, one.services))
    ran = run(executions)
    for at, one in enumerate(pairs):
        original, conversion = ran[2 * at], ran[2 * at + 1]
        streams = {path for one in executions[2 * at : 2 * at + 2] for path in (one.output, one.error)}
        found[one.name] += _resources(one, made[one.name]) + _behaviour(
            one, made[one.name].lifted, original, conversion, streams
        )
    for one in originals:
        if one.name in made and one.lifted is not None and one.lifted != made[one.name].lifted:
            found[one.name].append("is kept whole" if one.lifted else "is lifted")
        if one.name in made:
            found[one.name] += [
                f"no line is named: {why}" for why in made[one.name].left if why.startswith("0:")
            ]
    return {name: those for name, those in found.items() if those}, made


def _resources(one: Original, made: Converted) -> list[str]:
    before, after = (READERS[one.scheduler](text).resources for text in (one.text, made.text))
    found = []
    for name in before._fields:
        was, now = getattr(before, name), getattr(after, name)
        if made.lifted and name in ("tasks", "tasks_per_node"):
            continue  # of the launch line, and compared there
        if was != now:
            found.append(f"{name}: {was!r} became {now!r}")
    return found


_NEVER = re.compile(r"CASTOFF_\w+|_|SHLVL|OLDPWD|SLURM_EXPORT_ENV|LC_CTYPE|PBS_JOBID_OF_PARENT")
"""Variables that say nothing, or are castoff's own."""

_OF_RANKS = re.compile(
    r"RANK|WORLD_SIZE|NODE_RANK|(LOCAL|GROUP|ROLE)_(RANK|WORLD_SIZE)|MASTER_(ADDR|PORT)|PYTHONUNBUFFERED"
    r"|(SLURM|PBS|PMI|PALS|OMPI|MPI|FLUX|TORCHELASTIC|SLURMD)_\w+|OMP_NUM_THREADS|(CUDA|ROCR|ZE)_\w+|NCPUS|TMPDIR"
)
"""Likewise, of what launchers and castoff tell ranks, and what the job's size decides."""


_SCRIPT = re.compile(
    r"\S*/(?:slurm_script|4711\S*\.head\.SC|flux-4711/script|attempts/0\.0/script)"
    r"(?:(?::|\[[0-9]+\]:) (?:line )?(?:[0-9]+: )?)?"
)
"""A script's own file, and its lines in a shell's messages: without directives they have other numbers."""


def _environment(record: dict[str, Any], lifted: bool) -> dict[str, str]:
    given: dict[str, str] = record["env"]
    dropped = re.compile(f"(?:{_NEVER.pattern}|{_OF_RANKS.pattern})" if lifted else _NEVER.pattern)
    found = {name: text for name, text in given.items() if not dropped.fullmatch(name)}
    found.pop("PWD", None)  # the folder is compared itself
    if lifted:  # dash, which is sh here, hands no function on
        return {name: text for name, text in found.items() if not name.startswith("BASH_FUNC_")}
    return {name: "a function" if name.startswith("BASH_FUNC_") else text for name, text in found.items()}


_SUBMITTER = {**SUBMITTER, "BASH_FUNC_module%%": "a function"}


def _start(record: dict[str, Any], lifted: bool) -> str:
    """What is compared of a start, as text."""
    words = [
        re.sub(r"\S*/(slurm_script|4711\S*\.head\.SC|flux-4711/script)", r"\1", word)
        for word in record["argv"]
    ]
    if "/" in words[0] and words[0].startswith("."):  # srun makes it absolute, too
        words[0] = os.path.normpath(f"{record['cwd']}/{words[0]}")
    env = _environment(record, lifted)
    added = {name: text for name, text in env.items() if _SUBMITTER.get(name) != text}
    missing = [
        name for name in SUBMITTER if name not in env and not (lifted and name.startswith("BASH_FUNC_"))
    ]
    parts = [repr(words), f"in {record['cwd']}", f"with {sorted(added.items())}", f"without {missing}"]
    if not lifted:
        parts += [
            f"{name} {record[name]}" for name in ("out", "err") if not record[name].startswith("/runs/")
        ]
        parts += [f"count {record.get('count')}", f"script {_without_directives(record.get('script'))!r}"]
    parts.append(f"stdin {record['stdin']!r}")
    return " ".join(parts)


def _without_directives(script: str | None) -> str | None:
    """A script without the lines that a job file's fields stand for."""
    return script and re.sub(r"(?m)^#(?:SBATCH|PBS|\s?flux:).*\n", "", script)


def _starts(ran: Ran, one: Original, lifted: bool) -> list[str]:
    """What is compared of all starts; of a lifted job's ranks each once, as stand-ins start only some."""
    records = [record for record in ran.starts if not (lifted and record["kind"] == "launch")]
    found = [(_start(record, lifted), lifted and _of_a_rank(record)) for record in records]
    once = [text for text, is_rank in found if not is_rank] + sorted(
        {text for text, is_rank in found if is_rank}
    )
    return sorted(once) if one.parallel else once


def _of_a_rank(record: dict[str, Any]) -> bool:
    names = ("SLURM_STEP_ID", "PMI_RANK", "FLUX_TASK_RANK", "RANK", "CASTOFF_RANK")
    return any(name in record["env"] for name in names)


def _behaviour(one: Original, lifted: bool, before: Ran, after: Ran, streams: set[str]) -> list[str]:
    found = [
        f"the {which}: {ran.error}"
        for which, ran in (("original", before), ("conversion", after))
        if ran.error
    ]
    if before.code != after.code:
        found.append(f"exit code: {before.code} became {after.code}")
    starts = [_starts(ran, one, lifted) for ran in (before, after)]
    if starts[0] != starts[1]:
        found += _of_sequences(*starts)
    if lifted and (count := _launched(before)) != (other := _launched(after)):
        found.append(f"processes: {count} became {other}")
    trees = [
        {
            path: _SCRIPT.sub("the script", text)
            for path, text in ran.tree.items()
            if not (lifted and path in streams)
        }
        for ran in (before, after)
    ]
    for path in sorted(trees[0].keys() | trees[1].keys()):
        was, now = (tree.get(path) for tree in trees)
        if one.parallel and path in streams and was and now:
            was, now = ("".join(sorted(text.splitlines(True))) for text in (was, now))
        if was != now:
            found.append(f"{path}: {_short(was)} became {_short(now)}")
    return found


def _launched(ran: Ran) -> int:
    """How many processes the launch lines start in all."""
    inner = [record["count"] for record in ran.starts if record["kind"] == "launch" and _is_torchrun(record)]
    outer = [
        record["count"] for record in ran.starts if record["kind"] == "launch" and not _is_torchrun(record)
    ]
    return max(outer, default=1) * max(inner, default=1)


def _is_torchrun(record: dict[str, Any]) -> bool:
    return "torchrun" in record["argv"][0] or "torch.distributed.run" in record["argv"]


def _of_sequences(before: list[str], after: list[str]) -> list[str]:
    was, now = Counter(before), Counter(after)
    missing, added = list((was - now).elements()), list((now - was).elements())
    if not missing and not added:
        return [f"the order: {[text[:60] for text in before]} became {[text[:60] for text in after]}"]
    if len(missing) == len(added):
        return list(dict.fromkeys(f"started: {_apart(*pair)}" for pair in zip(missing, added, strict=True)))
    kinds = {"not started": missing, "started besides": added}
    return [f"{kind}: {text}" for kind, those in kinds.items() for text in dict.fromkeys(those)]


def _apart(was: str, now: str) -> str:
    """Two long texts from where they differ."""
    at = next(
        (at for at, (one, other) in enumerate(zip(was, now, strict=False)) if one != other),
        min(len(was), len(now)),
    )
    start = max(0, at - 40)
    return f"{was[:60]} … {was[start : at + 200]!r} became {now[start : at + 200]!r}"


def _short(text: str | None) -> str:
    return "nothing" if text is None else repr(text if len(text) < 400 else f"{text[:200]} … {text[-200:]}")
