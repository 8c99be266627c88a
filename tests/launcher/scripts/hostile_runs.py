"""A hostile job on its way: written, read back, planned, rendered, and run."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import Any
from unittest import mock

import yaml

from castoff import JobSpec, Plan, Site
from castoff.launcher.config.site import Search
from castoff.launcher.errors import CastoffError
from castoff.launcher.process import files
from castoff.launcher.runs.drafts import new_run
from castoff.launcher.runs.run import RunDirectory
from castoff.launcher.runs.secrets import secrets
from castoff.launcher.schedulers.local import control as local
from castoff.launcher.submission import submit as submission
from tests import patience
from tests.hostile import HERE

from .hostile_cluster import write_launcher, write_stand_ins, write_the_program, write_torchrun
from .hostile_jobs import FLAGS, LAUNCHERS, WRITERS, Case, Fields
from .hostile_surroundings import write_source
from .machine import FOLDER

RUN_DIR = "/runs/it's $(canary)"
"""The run directory in what `castoff submit --dry-run` shows, once somebody fills it in."""

_HEAD = '{% extends "castoff/head.sh.j2" %}{% block about %}{{ super() }}# {{ plan.ranks }}\n{% endblock %}'

_BUILT_IN = {kind: Site.load(kind, search=Search({}, None)) for kind in LAUNCHERS}


def placed(value: Any, here: Path) -> Any:
    """With the case's own folder where `HERE` stands."""
    if isinstance(value, str):
        return value.replace(HERE, str(here))
    if isinstance(value, list):
        return [placed(item, here) for item in value]
    if isinstance(value, dict):
        return {key: placed(item, here) for key, item in value.items()}
    return value


class Trial:
    """A case in a folder of its own."""

    plan: Plan
    script: str
    command: str
    """What a dry run says it would run."""
    program: Path
    """The program of the job."""
    rank_folder: Path
    """Where the ranks have to run."""
    run: RunDirectory | None = None
    """The run directory that a submission made; None where the script stands alone."""
    before: set[str]
    """Every file and folder before the script began."""

    def __init__(self, case: Case, here: Path, tools: Path):
        self.case = case
        self.here = here
        self.path = f"{here}/bin:{tools}"
        self.fields: Fields = placed(case.fields, here)
        self.profile: Fields = placed(case.profile or {}, here)
        self.submit_folder = here / "submit" / case.folder
        self.refusal: CastoffError | None = None
        self.layout = self._layout()
        self.outputs: list[bytes] = []
        self._processes: list[subprocess.Popen[bytes]] = []

    @property
    def disk(self) -> Path:
        """Where the job's copies lie while it runs."""
        return Path(self.profile.get("local_storage", self.here / "tmp"))

    @property
    def codes(self) -> list[int]:
        return [process.returncode for process in self._processes]

    @property
    def run_directory(self) -> Path:
        if self.run is not None:
            return self.run.path
        made = [path for path in self.submit_folder.iterdir() if str(path) not in self.before]
        assert len(made) == 1 and made[0].name.startswith("castoff-"), made
        return made[0]

    def seen(self, kind: str) -> list[list[bytes]]:
        """The words of each call of a stand-in."""
        paths = sorted((self.here / "seen").glob(f"{kind}.*"))
        return [path.read_bytes().split(b"\0")[:-1] for path in paths]

    def begin(self) -> None:
        """As far as it goes: until castoff refuses it, or until its script runs."""
        for folder in (self.submit_folder, self.here / "job", self.here / "home", self.here / "seen"):
            folder.mkdir(parents=True)
        if self.case.blamed != "templates" and "templates" in self.fields:
            templates = self.here / "job" / self.fields["templates"]
            (templates / "blocks").mkdir(parents=True)
            (templates / "head.sh.j2").write_text(_HEAD)
            (templates / "blocks" / "stopping.sh").write_bytes((FOLDER / "stopping.sh").read_bytes())
        try:
            self.spec = self._load()
            self.site = self._site()
            would = submission.dry_run(self.spec, self.site)
            self.plan, self.script, self.command = would.plan, would.script, would.command
        except CastoffError as error:
            self.refusal = error
            return
        if self.case.blamed is None:
            self._prepare()
            self._start()

    def finish(self) -> None:
        """Wait for what runs."""
        self.outputs = [process.communicate(timeout=patience.SECONDS)[0] for process in self._processes]

    def abandon(self) -> None:
        """End what still runs."""
        for process in self._processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            if process.stdout is not None:
                process.stdout.close()

    def files(self) -> set[str]:
        """Every file and folder of the case."""
        return {
            f"{folder}/{name}" for folder, folders, files in os.walk(self.here) for name in (*folders, *files)
        }

    def _load(self) -> JobSpec:
        in_file, flags, overrides = dict(self.fields), {}, []
        if self.case.on_the_command_line:
            for name in list(in_file)[1::2]:
                value = in_file.pop(name)
                if name in FLAGS:
                    flags[name] = value
                else:
                    overrides.append(f"{name}={WRITERS['json'](value)}")
        path = self.here / "job" / "job.yaml"
        path.write_text(WRITERS[self.case.writing](in_file), encoding="utf-8")
        return JobSpec.load(path, overrides=overrides, flags=flags)

    def _site(self) -> Site:
        if self.case.profile is None:
            return _BUILT_IN[self.case.kind]
        path = self.here / ".castoff" / "sites" / f"{self.case.site}.yaml"
        path.parent.mkdir(parents=True)
        profile = {"extends": self.case.kind, "description": "mine", **self.profile}
        path.write_text(yaml.safe_dump(profile), encoding="utf-8")
        return Site.load(self.case.site, search=Search({}, self.here))

    def _layout(self) -> list[tuple[int, int, int]]:
        """(node, local rank, how many there) of each process that the launcher starts."""
        nodes = self.fields.get("nodes", 1)
        if self.case.blamed is not None:
            return []
        count = self.fields.get("ranks", self.fields.get("ranks_per_node", 1) * nodes)
        if self.fields.get("launcher", {}).get("torchrun"):
            count = 1 if self.case.kind == "local" else nodes
        few, fuller = divmod(count, nodes)
        sizes = [few + (node < fuller) for node in range(nodes)]
        return [(node, at, size) for node, size in enumerate(sizes) for at in range(size)]

    def _prepare(self) -> None:
        """The cluster, the folders and the program that the job names."""
        ranks = [self._rank(number) for number in range(len(self.layout))]
        write_stand_ins(self.here, ranks, self.plan.nodes, self._image())
        self._fill_the_disks()
        if "mpiexec" in self.profile:
            write_launcher(self.here, Path(self.profile["mpiexec"]), ranks)
        if "python" in self.fields:
            write_torchrun(self.here, Path(self.fields["python"]).with_name("python"))
        # Put together as text: to pathlib, ./- is -.
        self.rank_folder = Path(f"{self.submit_folder}/{self.fields.get('workdir', '.')}")
        if self.fields.get("workdir", "").startswith("/"):
            self.rank_folder = Path(self.fields["workdir"])
        self.rank_folder.mkdir(parents=True, exist_ok=True)
        name: str = self.fields["command"][0]
        if name.startswith("/"):
            self.program = Path(name)
        else:
            self.program = (self.rank_folder if "/" in name else self.here / "bin") / name
        write_the_program(self.here, self.program)
        if self.case.again:
            (self.here / "again").touch()

    def _fill_the_disks(self) -> None:
        """What the job wants copied, where to, and its container's image."""
        self.disk.mkdir(parents=True, exist_ok=True)
        for item in self.fields["stage"]:
            write_source(
                Path(f"{self.submit_folder}/{item['from']}" if item["from"][0] != "/" else item["from"])
            )
        image = self.fields.get("container", {}).get("image", "")
        if image.startswith("/"):
            Path(image).parent.mkdir(exist_ok=True)
            Path(image).touch()

    def _image(self) -> str:
        """The line of shell that sets what an image does: most of what it must not decide, and PATH."""
        fields = self.fields
        asked = [*fields.get("env", {}), *fields.get("container", {}).get("env", {}), *fields["env_from"]]
        others = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "OMP_NUM_THREADS")
        return f"export PATH='{self.path}' " + " ".join(f"{name}=image" for name in (*others, *asked))

    def _rank(self, number: int) -> str:
        """The line of shell that starts a process and tells it what a real launcher would."""
        (node, at, size), count = self.layout[number], len(self.layout)
        reported = {
            **{"SLURM_PROCID": number, "SLURM_LOCALID": at, "SLURM_NODEID": node},
            **{"SLURM_STEP_NUM_TASKS": count, "PMI_RANK": number, "PMI_SIZE": count},
            **{"MPI_LOCALRANKID": at, "MPI_LOCALNRANKS": size, "PALS_RANKID": number},
            **{"PALS_LOCAL_RANKID": at, "PALS_NODEID": node, "PALS_LOCAL_SIZE": size},
            **{"OMPI_COMM_WORLD_RANK": number, "OMPI_COMM_WORLD_LOCAL_RANK": at},
            **{"OMPI_COMM_WORLD_SIZE": count, "OMPI_COMM_WORLD_LOCAL_SIZE": size},
            **{"FLUX_TASK_RANK": number, "FLUX_TASK_LOCAL_ID": at, "FLUX_JOB_SIZE": count},
            "FLUX_JOB_NNODES": self.fields.get("nodes", 1),
        }
        shell = f"{self.here}/as/sh " if self.case.rank_shell else ""
        if self.case.kind == "local":
            reported, shell = {"RANK": number, "LOCAL_RANK": at, "WORLD_SIZE": count, "NODE_RANK": node}, ""
        exports = " ".join(f"{name}={value}" for name, value in reported.items())
        if self.fields.get("container", {}).get("runtime") == "pyxis":
            exports += f"; {self._image()}"
        return f'(export {exports}; exec {shell}"$@") &\npids="$pids $!"'

    def _start(self) -> None:
        secrets = _bytes(self.case.secrets)
        environ = {
            **{b"PATH": os.fsencode(self.path), b"HOME": os.fsencode(self.here / "home")},
            **_bytes(self.case.inherited),
        }
        if self.case.language:
            environ[b"LANG"] = self.case.language.encode()
        script, words, folder = self.here / "job.sh", list[str](), self.submit_folder
        self.run = self._submitted({**environ, **secrets})
        if self.run is not None:
            script = self.run.script
            environ[b"CASTOFF_RUN_DIR"] = os.fsencode(self.run.path)
            if self.case.chain:
                environ[b"CASTOFF_CHAIN"] = b"0"
            if self.case.kind == "flux":
                folder = self.run.path
                environ[b"CASTOFF_SUBMITTED_FROM"] = os.fsencode(self.submit_folder)
        else:
            files.replace(script, self.script)
            environ |= secrets
            words = [str(self.case.member)] if self.case.kind == "local" and "array" in self.fields else []
        environ |= {os.fsencode(name): os.fsencode(value) for name, value in self._told().items()}
        if self.fields["stage"]:
            environ[b"TMPDIR"] = os.fsencode(self.disk)
        self.before = self.files()
        self._popen(["/bin/bash", str(script), *words], environ, folder)
        if self.case.kind != "local":
            environ[b"CASTOFF_RUN_DIR"] = os.fsencode(RUN_DIR)
            self._popen(["/bin/bash", "-c", self.command], environ, self.submit_folder)

    def _popen(self, words: list[str], environ: dict[bytes, bytes], folder: Path) -> None:
        process = subprocess.Popen(
            words,
            cwd=folder,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._processes.append(process)

    def _told(self) -> dict[str, str]:
        """What the scheduler tells the script."""
        folder, member = str(self.submit_folder), str(self.case.member)
        if self.case.kind == "slurm":
            reported = {"SLURM_JOB_ID": "12", "SLURM_SUBMIT_DIR": folder, "SLURM_JOB_NODELIST": "n[1-2]"}
            if "array" in self.fields:
                reported |= {"SLURM_ARRAY_JOB_ID": "12", "SLURM_ARRAY_TASK_ID": member}
            return reported
        if self.case.kind == "flux":
            return {"FLUX_ENCLOSING_ID": "f7"}
        if self.case.kind == "pbs":
            reported = {"PBS_JOBID": "7.head", "PBS_O_WORKDIR": folder, "PBS_NODEFILE": f"{self.here}/hosts"}
            if self.fields.get("array", {}).get("count", 1) > 1:
                reported |= {"PBS_JOBID": f"7[{member}].head", "PBS_ARRAY_INDEX": member}
            return reported
        return {
            **{"CASTOFF_JOB_ID": "local-7", "CASTOFF_SUBMIT_DIR": folder, "CASTOFF_LOCAL_INDEX": member},
            "CASTOFF_COMMAND": f"{self.here}/bin/castoff",
        }

    def _submitted(self, environ: dict[bytes, bytes]) -> RunDirectory | None:
        """The run directory of a submission that asks no scheduler."""
        if not self.case.submitted:
            return None
        reported = {os.fsdecode(name): os.fsdecode(value) for name, value in environ.items()}
        runs = self.here / "runs"
        if self.case.kind == "local":
            if "after" in self.fields:
                return None  # there are no runs of such names
            with (
                mock.patch.object(local, "submit_command", return_value=["/bin/echo", "local-7"]),
                mock.patch(
                    "castoff.launcher.submission.submit.check_present"
                ),  # programs that it names are not there
            ):
                return submission.submit(self.spec, self.site, runs_dir=runs, environ=reported)
        with new_run(self.plan.name, runs) as draft:
            files.replace(draft.run.script, self.script, 0o700)
            files.replace(draft.run.path / "secrets.sh", secrets(self.plan.env_from, reported))
            return draft.publish()


def _bytes(variables: dict[str, bytes]) -> dict[bytes, bytes]:
    return {os.fsencode(name): value for name, value in variables.items()}
