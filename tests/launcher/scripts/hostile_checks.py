"""What became of a hostile job: whatever is not exactly as it was written is an AssertionError."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from castoff import JobSpec, plan, render
from castoff.launcher.errors import InvalidInput
from castoff.launcher.runs.script import head_of
from castoff.launcher.schedulers.registry import NAMES, queued_of
from castoff.launcher.schedulers.submit_request import SubmitRequest
from castoff.launcher.schedulers.table import Row, never

from . import pals
from .hostile_cluster import MARK
from .hostile_nodes import check_container, check_copies
from .hostile_runs import RUN_DIR, Trial
from .hostile_surroundings import activated
from .readers import Read, pbs_chunks, read_flux, read_pbs, read_slurm

_OURS = re.compile(
    rb"(CASTOFF|SLURM|PBS|FLUX|PMI|MPI|PALS|OMPI_COMM_WORLD)_[A-Z_]+|PATH|HOME|LANG|PWD|OLDPWD|SHLVL|_"
    rb"|RANK|LOCAL_RANK|WORLD_SIZE|LOCAL_WORLD_SIZE|NODE_RANK|MASTER_ADDR|MASTER_PORT|OMP_NUM_THREADS"
    rb"|PYTHONUNBUFFERED|TMPDIR|NVIDIA_(VISIBLE_DEVICES|DRIVER_CAPABILITIES)"
)
"""The variables of a rank that no job asks for."""

_STAGED = re.compile(
    rb"^castoff: staging \d\.\d MiB to each node\ncastoff: staged in \d+ s on [^\n]*\n", re.S
)
"""What a job that copies something says of it."""

_IN_A_RUN_DIRECTORY = {
    *("job.sh", "attempts", "logs", "secrets.sh", "job.yaml", "plan.json", "submission.json", "use.py"),
    *("local.lock", "code.json", "code.diff", ".gitignore", "notify"),
}


HOSTFILE_FLAGS = {"hydra": "-f", "intelmpi": "-machinefile", "openmpi": "--hostfile"}
"""How launchers are told the hosts that do not know them."""

READERS: dict[str, Callable[[str], Read]] = {"slurm": read_slurm, "pbs": read_pbs, "flux": read_flux}

_NO_CHAIN = b"castoff: not requeued: no chain follows: castoff submit sends one\n"


class _Rank(NamedTuple):
    """What the program saw."""

    program: bytes
    words: list[bytes]
    environ: dict[bytes, bytes]
    folder: bytes


def check(trial: Trial) -> bool:
    """Whether the job ran; False if castoff refused it, as it had to."""
    if trial.case.blamed is not None:
        _is_refused(trial, trial.case.blamed)
        return False
    assert trial.refusal is None, f"refused, but nothing is wrong with it: {trial.refusal}"
    trial.finish()
    _has_not_escaped(trial)
    outputs = (
        [_STAGED.sub(b"", output) for output in trial.outputs] if trial.fields["stage"] else trial.outputs
    )
    reported, code = (b"", 0)
    if trial.case.again and trial.case.chain:
        reported, code = (b"" if trial.case.submitted else _NO_CHAIN, 75)
    elif trial.case.again and _copied_beforehand(trial):
        code = 75  # the copy waits for another code than 0
    assert outputs == [reported, *[b""] * (len(outputs) - 1)], outputs
    assert trial.codes == [code, *[0] * (len(outputs) - 1)], trial.codes
    _ended_well(trial)
    _started_as_asked(trial)
    ranks = _told_the_program(trial)
    stage_dir = os.fsdecode(ranks[0].environ.get(b"CASTOFF_STAGE_DIR", b""))
    check_container(trial, stage_dir)
    check_copies(trial)
    _reads_as_meant(trial)
    _submits_as_meant(trial)
    return True


def _copied_beforehand(trial: Trial) -> bool:
    """Whether the job that goes on after this one is submitted as this one begins."""
    alone = (trial.plan.array_count or 1) == 1
    return trial.case.kind == "pbs" and trial.plan.requeue_how == "copy" and alone


def _is_refused(trial: Trial, field: str) -> None:
    assert trial.refusal is not None, f"{field} cannot be so, but it was not refused"
    assert isinstance(trial.refusal, InvalidInput)
    problems = trial.refusal.problems
    named = {problem.path.partition(".")[0] for problem in problems}
    # What no YAML can hold has a line, and no field yet; a directive's value is blamed by the directive.
    unread = [problem for problem in problems if "YAML" in problem.message or "UTF-8" in problem.message]
    assert field in named or unread or f"{field}" in str(trial.refusal), trial.refusal
    assert not (trial.here / "escaped").exists()


def _has_not_escaped(trial: Trial) -> None:
    assert not (trial.here / "escaped").exists(), "text was run as a program"
    expected = (f"{trial.run_directory}/", f"{trial.run_directory}", f"{trial.here}/seen/")
    extra = [path for path in trial.files() - trial.before if not path.startswith(expected)]
    assert not extra, f"files that nobody asked for: {extra}"
    assert {path.name for path in trial.run_directory.iterdir()} <= _IN_A_RUN_DIRECTORY


def _ended_well(trial: Trial) -> None:
    folder = trial.run_directory / "attempts" / f"{trial.case.member}.0"
    ending = (folder / "ending.json").read_text()
    alone = "walltime" if trial.case.chain and not trial.case.submitted else "resume"  # then none follows
    assert f'"{alone if trial.case.again else "done"}"' in ending, ending
    assert not (folder / "failure.json").exists()


def _encoded(words: list[str]) -> list[bytes]:
    return [word.encode() for word in words]


def _started_as_asked(trial: Trial) -> None:
    """One launcher was called, with its own words in their order and then the program's."""
    (words,) = trial.seen("launcher")
    start, program = _encoded(trial.plan.start), _encoded(trial.fields["command"])
    if trial.plan.torchrun:
        program = [word.replace(b"$", b"$$") for word in program]
    if trial.case.kind == "local":
        assert words[: len(start)] == start
        assert words[-len(program) :] == program
        return
    own = start[1:]
    site_args = trial.profile.get("launcher_args", []) if trial.plan.launcher == trial.site.launcher else []
    asked = _encoded([*site_args, *trial.fields.get("launcher", {}).get("args", [])])
    assert words[: len(own)] == own
    assert own[len(own) - len(asked) :] == asked
    if trial.plan.launcher == "pals":
        pals.parse([word.decode() for word in own[: len(own) - len(asked)]] + ["rank.sh"])
    rank = f"{trial.run_directory}/attempts/{trial.case.member}.0/rank.sh"
    at = words.index(os.fsencode(rank))
    flag = HOSTFILE_FLAGS.get(trial.plan.launcher)
    assert words[at - 3 : at - 1] == [b"/bin/sh", b"-c"]
    first = words[len(own) : at - 3][:1]
    if trial.fields.get("container", {}).get("runtime") == "pyxis":
        assert flag is None and first[0].startswith(b"--container-image=")
    else:
        assert first == ([flag.encode()] if flag else [])
    passed = words[at + 1 :]
    special = [b":", b"{{"] if trial.plan.launcher == "flux" else [b":"]
    assert passed == program or any(_holds(program, sign) and not _holds(passed, sign) for sign in special)


def _holds(words: list[bytes], sign: bytes) -> bool:
    return sign in words if sign == b":" else any(sign in word for word in words)


def _told_the_program(trial: Trial) -> list[_Rank]:
    ranks = [_rank(path) for path in (trial.here / "seen").glob("rank.*")]
    torchrun = trial.fields.get("launcher", {}).get("torchrun", False)
    assert len(ranks) == len(trial.layout)
    assert len(trial.seen("python")) == (len(ranks) if torchrun else 0)
    stage_dirs = {os.fsdecode(rank.environ.get(b"CASTOFF_STAGE_DIR", b"")) for rank in ranks}
    expected = _expected_environment(trial, *stage_dirs)
    for rank in ranks:
        called = Path(os.fsdecode(rank.folder)) / os.fsdecode(rank.program)
        assert called.samefile(trial.program)
        assert rank.words == _encoded(trial.fields["command"][1:])
        assert rank.folder == os.fsencode(trial.rank_folder.resolve())
        for name, value in expected.items():
            assert rank.environ.get(name) == value, (name, rank.environ.get(name), value)
        strange = [name for name in rank.environ if name not in expected and not _OURS.fullmatch(name)]
        assert not strange, f"variables that nobody asked for: {strange}"
    for line in trial.fields.get("teardown", []):
        assert (trial.here / "seen" / "torn").read_bytes() == shlex.split(line)[2].encode()
    if not torchrun:
        assert sorted(int(rank.environ[b"RANK"]) for rank in ranks) == list(range(len(ranks)))
    return ranks


def _rank(path: Path) -> _Rank:
    words, environ, folder = path.read_bytes().split(MARK)
    _shell, program, *arguments = words.split(b"\0")[:-1]
    variables = dict(line.split(b"=", 1) for line in environ.split(b"\0") if line)
    return _Rank(program, arguments, variables, folder[:-1])


def _expected_environment(trial: Trial, stage_dir: str) -> dict[bytes, bytes]:
    case, fields, profile = trial.case, trial.fields, trial.profile
    container = fields.get("container", {})
    expected = {name.encode(): value for name, value in case.secrets.items()}
    inherit = fields.get("inherit", "all" if case.kind == "local" else "none")
    for name, value in case.inherited.items():
        if case.kind != "local" or inherit == "all" or name in inherit:  # else the scheduler's to drop
            expected[name.encode()] = value
    for line in (*profile.get("setup", []), *fields.get("setup", [])):
        if line.startswith("export "):
            name, _, text = shlex.split(line)[1].partition("=")
            expected[name.encode()] = text.encode()
    defaults = profile.get("defaults", {}).get("env", {})
    for name, text in {**profile.get("env", {}), **defaults, **fields.get("env", {})}.items():
        expected[name.encode()] = text.encode()
    expected |= {name.encode(): text.encode() for name, text in container.get("env", {}).items()}
    if container.get("runtime") == "apptainer" and b"LD_LIBRARY_PATH" in expected:
        expected[b"LD_LIBRARY_PATH"] += b":/.singularity.d/libs"
    path = f"{Path(fields['python']).parent}:{trial.path}" if "python" in fields else trial.path
    copied = [f"{stage_dir}/{place}:" for place in activated(fields["stage"])]
    expected[b"PATH"] = os.fsencode("".join(copied) + path)
    expected[b"CASTOFF_ARRAY_INDEX"] = str(case.member).encode()
    expected[b"CASTOFF_ARRAY_COUNT"] = str(fields.get("array", {}).get("count", 1)).encode()
    if case.kind != "local":
        several = f"localhost{profile.get('master_suffix', '')}".encode()
        expected[b"MASTER_ADDR"] = several if trial.plan.nodes > 1 else b"127.0.0.1"
    return expected


def _reads_as_meant(trial: Trial) -> None:
    """The directives as the scheduler reads them, the comments as people see them, the job as it is kept."""
    comments, loader, _ = trial.script.partition("\n{ POSIXLY_CORRECT=1;")
    assert loader, "where the loader begins is not known"
    above = comments.split("\n")
    assert all(line.isprintable() for line in above if not line.startswith(("#SBATCH ", "#PBS "))), above
    if trial.case.kind == "local":
        if trial.run is not None:
            kept = JobSpec.load(trial.run.path / "job.yaml")
            assert render(plan(kept, trial.site)) == trial.script
            assert trial.run.script.read_bytes() == trial.script.encode()
        return
    read = READERS[trial.case.kind](trial.script)
    assert read == [
        (name, _flux_dependency(value) if trial.case.kind == "flux" and name == "dependency" else value)
        for name, value in trial.plan.directives
    ]
    if trial.case.kind == "pbs":
        asked = trial.fields.get("select", {})
        meant = {name: one if isinstance(one, str) else str(one).lower() for name, one in asked.items()}
        for chunk in pbs_chunks(str(dict(read)["select"])):
            assert {name: chunk.get(name) for name in meant} == meant, (chunk, meant)
    for name, value in _expected_directives(trial).items():
        assert dict(read).get(name) == value, (name, dict(read).get(name), value)


def _flux_dependency(words: str | bool) -> str:
    """`after:1:2,afterok:3` as Flux takes it: a condition for each job, and `after` under another name."""
    assert isinstance(words, str)
    by_condition = (one.split(":") for one in words.split(","))
    return ",".join(
        f"{'afterstart' if condition == 'after' else condition}:{job}"
        for condition, *jobs in by_condition
        for job in jobs
    )


def _is_plain(row: Row, given: dict[str, Any]) -> bool:
    """Whether a directive holds a field's text, and nothing beside it."""
    is_written = row.whole is None or (row.value is str and row.whole is not never)
    return is_written and row.value is not None and given.get(row.field) is not None


def _expected_directives(trial: Trial) -> dict[str, Any]:
    """Those that the job's words go into; None: it is not there."""
    fields = trial.fields
    dialect = queued_of(trial.case.kind).dialect
    assert dialect is not None
    given = {**trial.profile.get("defaults", {}), **fields}
    given |= {f"mail.{name}": value for name, value in fields.get("mail", {}).items()}
    expected = {row.directive: row.text(given[row.field]) for row in dialect.fields if _is_plain(row, given)}
    asked = {**expected, **trial.profile.get("directives", {}), **fields.get("directives", {})}
    asked |= asked.pop(trial.case.kind, {})
    asked = {name: value for name, value in asked.items() if name not in NAMES}
    return {name: None if value is False else value for name, value in asked.items()}


def _submits_as_meant(trial: Trial) -> None:
    """What a dry run shows is the command of a submission to a shell, and mere text to a terminal."""
    lines = trial.command.split("\n")
    assert all(line.isprintable() for line in lines)
    assert len(lines) == (1 + trial.plan.requeue_max if trial.plan.requeue_how == "chain" else 1)
    copied = trial.case.again or _copied_beforehand(trial)
    assert len(trial.seen("requeue")) == (copied and not trial.case.chain)
    if trial.case.kind == "local":
        assert not trial.seen("call")
        return
    after = trial.fields.get("after", {})
    words = ",".join(":".join([condition, *names]) for condition, names in after.items())
    in_script = any(name in ("dependency", "W") for name, _ in trial.plan.directives)
    waits = words if words and not in_script else None
    request = SubmitRequest.of(trial.plan, head_of(render(trial.plan)), RUN_DIR, waits)
    found = queued_of(trial.case.kind).submit_commands(request, None)
    called = [_encoded(one.argv("JOB" if number else None)) for number, one in enumerate(found)]
    assert sorted(trial.seen("call")) == sorted(called)
    if trial.plan.requeue_how == "chain":
        assert all(any(word.endswith(b"=afternotok:JOB") for word in one) for one in called[1:])
