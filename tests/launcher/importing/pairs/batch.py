"""How a scheduler starts a batch script: its environment, folder and output files, as its directives say."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from tests.launcher.importing.pairs import stand_ins
from tests.launcher.importing.pairs.heads import READERS, Head, Resources
from tests.launcher.importing.pairs.sandbox import HOME, RUN_DIR, SUBMIT, Execution

JOB = "4711"

LOGIN = {"HOME": HOME, "USER": "u", "LOGNAME": "u", "SHELL": "/bin/bash", "PATH": stand_ins.PATH}

SUBMITTER = {
    **LOGIN,
    "LANG": "C.UTF-8",
    "PROJECT_ROOT": "/data/run",
    "BASH_FUNC_module%%": stand_ins.MODULE,
}
"""The environment of whoever submits."""

_AS_LOGIN_SHELL = {**LOGIN, "LOGIN_PROFILE": "yes", "BASH_FUNC_module%%": stand_ins.MODULE}


def execution(scheduler: str, text: str, name: str, index: int | None = None, services: int = 0) -> Execution:
    """A script as its scheduler would run it; `name`: of its file."""
    head = READERS[scheduler](text)
    made = {"slurm": _slurm, "pbs": _pbs, "flux": _flux}[scheduler](head, text, name, index)
    hosts = [f"n{at + 1}" for at in range(_hosts(head.resources))]
    files = {**made.files, "/spool/hosts": "\n".join(hosts) + "\n"}
    env = {**made.env, **({"SERVICES": str(services)} if services else {})}
    if "\n# === castoff for " in text:
        files[f"{RUN_DIR}/job.sh"] = text
        env["CASTOFF_RUN_DIR"] = RUN_DIR
    return made._replace(files=files, env=env)


def _hosts(resources: Resources) -> int:
    return resources.nodes or 1


def _interpreter(text: str) -> list[str]:
    """What the first line names."""
    found = re.match(r"#!\s*(\S+)(?:[ \t]+(.*\S))?", text)
    assert found, "sbatch: This does not look like a batch script"
    return [word for word in (found[1], found[2]) if word]


def _filled(pattern: str, values: dict[str, str]) -> str:
    """A file's name with what stands for % and a letter."""
    return re.sub(r"%([0-9]*)([a-zA-Z])", lambda found: values.get(found[2], found[0]), pattern)


def _below(folder: str, name: str) -> str:
    return str(PurePosixPath(folder) / name)


def _exported(options: dict[str, str], scheduler: dict[str, str]) -> dict[str, str]:
    """What sbatch --export hands on, with what Slurm itself says."""
    words = options.get("export", "ALL").split(",")
    if words[0] == "NIL":
        return {**_AS_LOGIN_SHELL, **scheduler} if "get-user-env" in options else scheduler
    found = {**SUBMITTER} if "ALL" in words else {**_AS_LOGIN_SHELL}
    for word in words:
        name, equals, value = word.partition("=")
        if equals:
            found[name] = value
        elif name in SUBMITTER:
            found[name] = SUBMITTER[name]
    return {**found, **scheduler}


def _slurm(head: Head, text: str, name: str, index: int | None) -> Execution:
    options, resources = head
    nodes = _hosts(resources)
    listed = "n1" if nodes == 1 else f"n[1-{nodes}]"
    job_name = options.get("job-name", name)
    per_node = max(1, resources.cpus // nodes)
    said = {
        **{"JOB_ID": JOB, "JOBID": JOB, "JOB_NAME": job_name, "SUBMIT_DIR": SUBMIT, "SUBMIT_HOST": "login"},
        **{"NNODES": str(nodes), "JOB_NUM_NODES": str(nodes), "JOB_NODELIST": listed, "NODELIST": listed},
        **{"TASKS_PER_NODE": f"{-(-resources.tasks // nodes)}(x{nodes})", "CPUS_ON_NODE": str(per_node)},
        **{"JOB_CPUS_PER_NODE": f"{per_node}(x{nodes})", "PROCID": "0", "LOCALID": "0", "NODEID": "0"},
        **{"GTIDS": "0", "JOB_PARTITION": options.get("partition", "main"), "CLUSTER_NAME": "castoff"},
        **{"JOB_USER": "u", "JOB_ACCOUNT": options.get("account", "default"), "TASK_PID": "77"},
    }
    if "ntasks" in options or "ntasks-per-node" in options:
        said |= {"NTASKS": str(resources.tasks), "NPROCS": str(resources.tasks)}
    for option in (
        "ntasks-per-node",
        "cpus-per-task",
        "gpus",
        "gpus-per-node",
        "gpus-per-task",
        "cpus-per-gpu",
    ):
        if option in options:
            said[option.upper().replace("-", "_")] = options[option]
    if "mem" in options:
        said["MEM_PER_NODE"] = resources.memory
    if "mem-per-cpu" in options:
        said["MEM_PER_CPU"] = options["mem-per-cpu"]
    if resources.gpus:
        said["GPUS_ON_NODE"] = str(resources.gpus // nodes)
    values = {"j": JOB, "x": job_name, "A": JOB, "u": "u", "N": "n1", "n": "0", "t": "0", "s": "batch"}
    if index is not None:
        said |= {"ARRAY_JOB_ID": JOB, "ARRAY_TASK_ID": str(index), "JOB_ID": "4713", "JOBID": "4713"}
        values |= {"j": "4713", "a": str(index)}
    env = {f"SLURM_{key}": value for key, value in said.items()}
    env |= {"SLURMD_NODENAME": "n1", "TMPDIR": "/tmp"}
    if "export" in options:
        env["SLURM_EXPORT_ENV"] = options["export"]
    if resources.gpus:
        devices = ",".join(str(at) for at in range(max(1, resources.gpus // nodes)))
        env["CUDA_VISIBLE_DEVICES"] = devices
    folder = _below(SUBMIT, options.get("chdir", SUBMIT))
    output = options.get("output") or ("slurm-%A_%a.out" if index is not None else "slurm-%j.out")
    output = _below(folder, _filled(output, values))
    error = _below(folder, _filled(options["error"], values)) if options.get("error") else output
    script = f"/spool/job{JOB}/slurm_script"
    shell = _interpreter(text)
    return Execution(
        shell[0], [*shell, script], _exported(options, env), folder, output, error, {script: text}
    )


def _pbs(head: Head, text: str, name: str, index: int | None) -> Execution:
    options, resources = head
    job_name = options.get("N", name)
    own = JOB if index is None else f"{JOB}[{index}]"
    env = {f"PBS_O_{key}": LOGIN[key] for key in ("HOME", "LOGNAME", "PATH", "SHELL")}
    nodefile = f"/spool/aux/{own}.head"
    env |= {
        "PBS_JOBID": f"{own}.head",
        "PBS_JOBNAME": job_name,
        "PBS_O_WORKDIR": SUBMIT,
        "PBS_NODEFILE": nodefile,
    }
    env |= {"PBS_QUEUE": options.get("q", "workq"), "PBS_ENVIRONMENT": "PBS_BATCH", "PBS_O_HOST": "login"}
    env |= {"NCPUS": str(resources.cpus // _hosts(resources)), "PBS_NODENUM": "0", "PBS_TASKNUM": "1"}
    env |= {"TMPDIR": "/tmp", "PBS_JOBDIR": HOME}
    if index is not None:
        env |= {"PBS_ARRAY_INDEX": str(index), "PBS_ARRAY_ID": f"{JOB}[].head"}
    around = {**SUBMITTER} if "V" in options else {**LOGIN}
    for word in options.get("v", "").split(","):
        key, equals, value = word.partition("=")
        if equals or key in SUBMITTER:
            around[key] = value if equals else SUBMITTER[key]
    each = int(resources.tasks_per_node)
    files = {nodefile: "".join(f"n{at + 1}\n" * each for at in range(_hosts(resources)))}
    script = f"/spool/jobs/{own}.head.SC"
    files[script] = text
    suffix = "" if index is None else f".{index}"

    def stream(letter: str) -> str:
        path = options.get(letter, "").rpartition(":")[2].replace("^array_index^", str(index))
        path = _below(SUBMIT, path) if path else _below(SUBMIT, f"{job_name}.{letter}{JOB}{suffix}")
        return (
            f"{path.rstrip('/')}/{own}.head.{'OU' if letter == 'o' else 'ER'}" if path.endswith("/") else path
        )

    output = stream("o")
    error = output if options.get("j") == "oe" else stream("e")
    if options.get("j") == "eo":
        output = error
    shell = options.get("S", "/bin/bash")
    # A login shell, which is given the script's name as a command.
    return Execution(
        shell, [f"-{shell.rpartition('/')[2]}", "-c", script], {**around, **env}, HOME, output, error, files
    )


def _flux(head: Head, text: str, name: str, index: int | None) -> Execution:
    options = head.options
    job_name = options.get("job-name", name)
    env = {"FLUX_ENCLOSING_ID": "f4711", "FLUX_URI": "local:///spool/flux", "FLUX_JOB_TMPDIR": "/tmp"}
    around = {**SUBMITTER}
    if options.get("env-remove") == "*":
        around = {}
    for word in options.get("env", "").split(","):
        key, equals, value = word.partition("=")
        if word.startswith("-"):
            around = {} if word == "-*" else {one: text for one, text in around.items() if one != word[1:]}
        elif equals or key in SUBMITTER:
            around[key] = value if equals else SUBMITTER[key]
    output = options.get("output", f"flux-{JOB}.out")
    for mark, value in {
        "{{name}}": job_name,
        "{{id.dec}}": JOB,
        "{{id}}": "f4711",
        "{{jobid}}": "f4711",
    }.items():
        output = output.replace(mark, value)
    folder = _below(SUBMIT, options.get("cwd", SUBMIT))
    output = _below(folder, output)
    error = _below(folder, options["error"]) if "error" in options else output
    script = "/spool/flux-4711/script"
    shell = _interpreter(text)
    return Execution(shell[0], [*shell, script], {**around, **env}, folder, output, error, {script: text})
