"""Stands in for every program of the sandbox: notes how it was started, and does little else.

Its name is that of the file that was called, which holds nothing but `#!/stand-ins/program`, and that imports
this. A launcher starts its program as many times as the real one would; torchrun does, too. The others print
their words, write them to what follows -o, and end with N where a word is `code=N`.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import stat
import sys
import time

CALLED, NAME = "", ""
WORDS: list[str] = []
LOG = "/log/starts"
SIGN = "#!/stand-ins/program\n"
"""What a file holds that is started as one of these."""
MOST_RANKS = 6
"""Of a launcher that are started in fact: the first ones and the last."""


def hosts() -> list[str]:
    """Those of the job."""
    return content("/spool/hosts").split()


def content(path: str) -> str:
    """Of a file."""
    with open(path) as file:
        return file.read()


def given() -> str | None:
    """The text of standard input, where it is a file's or a pipe's."""
    try:
        kind = os.fstat(0).st_mode
    except OSError:
        return None
    if not (stat.S_ISREG(kind) or stat.S_ISFIFO(kind)):
        return None
    found = b""
    while piece := os.read(0, 1 << 16):
        found += piece
    return found.decode(errors="surrogateescape")


def leads_to(number: int) -> str:
    """Where an open file is."""
    try:
        return re.sub(r":\[[0-9]+\]", "", os.readlink(f"/proc/self/fd/{number}"))
    except OSError:
        return "closed"


def note(kind: str, text: str | None, **more: object) -> None:
    """Write down this start."""
    called = NAME if CALLED.startswith("/stand-ins/") else CALLED
    script = WORDS and os.path.basename(WORDS[0]) == "slurm_script"
    record = {
        "kind": kind,
        "argv": [called, *WORDS],
        "cwd": os.getcwd(),
        "env": dict(os.environ),
        "stdin": text,
        "out": leads_to(1),
        "err": leads_to(2),
        **({"script": content(WORDS[0])} if script else {}),
        **more,
    }
    file = os.open(LOG, os.O_WRONLY | os.O_APPEND)
    os.write(file, (json.dumps(record) + "\n").encode())
    os.close(file)


def options(words: list[str], flags: set[str], short_joined: str) -> tuple[dict[str, str], list[str]]:
    """The options of a launcher by their names, and what stands behind them; `flags` take no value."""
    found: dict[str, str] = {}
    rest = list(words)
    while rest and rest[0].startswith("-") and rest[0] != "--":
        word = rest.pop(0)
        name, joined, value = word.partition("=")
        if not word.startswith("--") and len(word) > 2 and word[1] in short_joined and word[2] not in "-=":
            name, joined, value = word[:2], "=", word[2:]
        if joined or name in flags or not rest:
            found[name] = value
        else:
            found[name] = rest.pop(0)
            if name in ("-genv", "-env"):
                os.environ[found[name]] = rest.pop(0)
            if name == "-x" and "=" in found[name]:
                os.environ.update(dict([found[name].split("=", 1)]))
    return found, rest[1:] if rest[:1] == ["--"] else rest


def first(found: dict[str, str], *names: str) -> str:
    """The value of the first of these that is there."""
    return next((found[name] for name in names if found.get(name)), "")


def start_ranks(
    program: list[str], environments: list[dict[str, str]], text: str | None, files: list[str]
) -> int:
    """Start a launcher's program, one rank after the other; the greatest code."""
    count = len(environments)
    of_castoff = any(word.endswith("/rank.sh") for word in program)  # which waits for all of them
    chosen = [at for at in range(count) if of_castoff or at < MOST_RANKS - 1 or at == count - 1]
    serving = any("service" in word for word in program)
    together = of_castoff or serving
    code, left = 0, []
    for at in chosen:
        child = os.fork()
        if not child:
            _become_rank(program, environments[at], text, files[at] if files else "")
        if together:
            left.append(child)
        else:
            code = max(code, _code(child))
    if serving:
        with open("/proc/self/comm", "w") as own:
            own.write("a-service")  # as idle as what it waits for
    return max([code, *(_code(child) for child in left)])


def _code(child: int) -> int:
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return 128 - code if code < 0 else code


def _become_rank(program: list[str], environment: dict[str, str], text: str | None, file: str) -> None:
    try:
        reader, writer = os.pipe()
        if text is None:
            os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
        else:
            os.write(writer, text.encode(errors="surrogateescape"))
            os.dup2(reader, 0)
        os.close(reader)
        os.close(writer)
        if file:
            os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644), 1)
        os.environ.update(environment)
        if found := _stand_in(program[0]):
            main([found, *program[1:]])  # as an interpreter that is started again, but sooner
        os.execvp(program[0], program)
    except OSError as error:
        print(f"{NAME}: {program[0]}: {error.strerror}", file=sys.stderr, flush=True)
    finally:
        os._exit(127)


def _stand_in(name: str) -> str | None:
    """The file of a program, if it is one of these."""
    path = name if "/" in name else shutil.which(name)
    try:
        with open(path or "") as file:
            return path if file.read(100) == SIGN else None
    except (OSError, UnicodeDecodeError):
        return None


def placed(count: int, nodes: int) -> list[tuple[int, int, int]]:
    """(node, place on it, beside it) of each rank, in blocks."""
    each = [count // nodes + (at < count % nodes) for at in range(nodes)]
    return [(node, local, each[node]) for node in range(nodes) for local in range(each[node])]


_SRUN_FLAGS = set(
    re.findall(
        r"\S+",
        """
    --label -l --unbuffered -u --kill-on-bad-exit -K --overlap --exact --multi-prog --no-kill -k
    --overcommit -O --pty --quiet -Q --verbose -v --propagate --disable-status -X --spread-job
    --preserve-env -E --exclusive --oversubscribe -s --help --use-min-nodes --contiguous
    --no-allocate -Z --cpu-bind-help
    """,
    )
)


def srun() -> int:
    """Start its tasks."""
    if "--help" in WORDS:
        print("--nodes --cpu-bind --distribution --hint --mem --mem-per-cpu")
        return 0
    found, program = options(WORDS, _SRUN_FLAGS, "nNcptAJoeGwxDmCqWBTr")
    around = os.environ
    text = given()
    nodes = int(first(found, "-N", "--nodes").split("-")[0] or around.get("SLURM_NNODES", "1"))
    each = first(found, "--ntasks-per-node") or around.get("SLURM_NTASKS_PER_NODE")
    count = int(first(found, "-n", "--ntasks") or 0)
    if not count and around.get("SLURM_HOSTFILE"):
        count = len(content(around["SLURM_HOSTFILE"]).split())
    if not count and each and first(found, "-N", "--nodes", "--ntasks-per-node"):
        count = nodes * int(each)
    count = count or int(around.get("SLURM_NTASKS", "0")) or nodes
    nodes = min(nodes, count)
    note("launch", text, count=count, nodes=nodes, cpus=first(found, "-c", "--cpus-per-task"))
    if "--multi-prog" in found or not program:
        return 0
    for one in first(found, "--export").split(","):
        if "=" in one:
            around.update(dict([one.split("=", 1)]))
    if folder := first(found, "-D", "--chdir"):
        os.chdir(folder)
    environments, files = [], []
    output = first(found, "-o", "--output")
    for rank, (node, local, beside) in enumerate(placed(count, nodes)):
        own = {"PROCID": rank, "LOCALID": local, "NODEID": node, "STEP_NUM_TASKS": count, "STEP_ID": 0}
        own |= {
            "STEPID": 0,
            "STEP_NUM_NODES": nodes,
            "NTASKS": count,
            "NPROCS": count,
            "STEP_TASKS_PER_NODE": beside,
        }
        named = {f"SLURM_{name}": str(value) for name, value in own.items()}
        environments.append({**named, "SLURMD_NODENAME": hosts()[node % len(hosts())]})
        name = output.replace("%t", str(rank)).replace("%j", around.get("SLURM_JOB_ID", ""))
        files.append(name.replace("%x", around.get("SLURM_JOB_NAME", "")))
    return start_ranks(program, environments, text, files if output else [])


_MPI_FLAGS = set(
    re.findall(
        r"\S+",
        """
    --oversubscribe -oversubscribe --allow-run-as-root --report-bindings -report-bindings
    --tag-output --use-hwthread-cpus -nolocal --nolocal --verbose -v -q --display-map
    -prepend-rank -l --line-buffer --envall -envall -genvall -bynode -byslot --bynode --quiet
    -print-rank-map --no-vni
    """,
    )
)


def mpiexec() -> int:
    """Start its processes; those of several programs where `:` divides them."""
    if "--help" in WORDS or "--version" in WORDS:
        print("mpiexec")
        return 0
    text = given()
    parts: list[list[str]] = [[]]
    for word in WORDS:
        if word == ":":
            parts.append([])
        else:
            parts[-1].append(word)
    code = 0
    for number, part in enumerate(parts):
        found, program = options(part, _MPI_FLAGS, "")
        slots = os.environ.get("SLURM_NTASKS") or len(hosts())
        if os.environ.get("PBS_NODEFILE"):
            slots = len(content(os.environ["PBS_NODEFILE"]).split())
        each = first(found, "-ppn", "--ppn", "-perhost", "-npernode", "--npernode", "-N")
        count = int(first(found, "-n", "-np", "--np", "-c", "--n") or slots)
        nodes = min(len(hosts()), -(-count // int(each)) if each else len(hosts()), count)
        if not number:
            note("launch", text, count=count, nodes=nodes)
        if folder := first(found, "-wdir", "--wdir", "-wd"):
            os.chdir(folder)
        environments = []
        for rank, (node, local, beside) in enumerate(placed(count, nodes)):
            names = {"PMI_RANK": rank, "PMI_SIZE": count, "MPI_LOCALRANKID": local, "MPI_LOCALNRANKS": beside}
            names |= {"OMPI_COMM_WORLD_RANK": rank, "OMPI_COMM_WORLD_SIZE": count, "OMPI_NODE": node}
            names |= {"OMPI_COMM_WORLD_LOCAL_RANK": local, "OMPI_COMM_WORLD_LOCAL_SIZE": beside}
            names |= {"PALS_RANKID": rank, "PALS_NODEID": node, "PALS_LOCAL_RANKID": local}
            names |= {"PALS_LOCAL_SIZE": beside}
            environments.append({name: str(value) for name, value in names.items()})
        if program:
            code = max(code, start_ranks(program, environments, text, []))
    return code


def flux() -> int:
    """flux run and submit, and what castoff asks an instance."""
    words = [word for word in WORDS if word != "--parent"]
    if words[0] in ("run", "submit"):
        flags = {"--exclusive", "-x", "--label-io", "-l", "--unbuffered", "-u", "-v", "--dry-run", "--wait"}
        found, program = options(words[1:], flags, "nNcgt")
        text = given()
        nodes = int(first(found, "-N", "--nodes") or 1)
        each = first(found, "--tasks-per-node")
        count = int(first(found, "-n", "--ntasks") or (nodes * int(each) if each else nodes))
        note("launch", text, count=count, nodes=nodes)
        environments = [
            {
                **{
                    "FLUX_TASK_RANK": str(rank),
                    "FLUX_TASK_LOCAL_ID": str(local),
                    "FLUX_JOB_SIZE": str(count),
                },
                "FLUX_JOB_NNODES": str(nodes),
            }
            for rank, (_, local, _beside) in enumerate(placed(count, min(nodes, count)))
        ]
        return start_ranks(program, environments, text, [])
    if words[:2] == ["job", "id"]:
        print(4711)
    elif words[:2] == ["job", "timeleft"]:
        print(3600)
    elif words[0] == "getattr":
        print({"jobid-path": "/f1", "size": len(hosts())}.get(words[1], "0"))
    elif words[0] == "hostlist":
        print(*hosts(), sep="\n")
    elif words[0] in ("batch", "alloc"):
        note("start", given())
        print("f8")
    else:
        note("start", given())
    return 0


def torchrun(words: list[str]) -> int:
    """Start its workers."""
    found, program = options(words, {"--standalone", "--no-python", "--no_python", "-m", "--module"}, "")
    found = {name.replace("_", "-"): value for name, value in found.items()}
    text = given()
    nodes = int(first(found, "--nnodes").split(":")[-1] or 1)
    each = first(found, "--nproc-per-node") or "1"
    count = int(each) if each.isdigit() else int(os.environ.get("SLURM_GPUS_ON_NODE", "1"))
    node = int(first(found, "--node-rank") or os.environ.get("SLURM_NODEID", "0")) if nodes > 1 else 0
    note("launch", text, count=count, nodes=nodes)
    environments = []
    for local in range(count):
        own = {"RANK": node * count + local, "WORLD_SIZE": nodes * count, "LOCAL_RANK": local}
        own |= {"LOCAL_WORLD_SIZE": count, "GROUP_RANK": node, "MASTER_PORT": 29500}
        environments.append({**{name: str(one) for name, one in own.items()}, "TORCHELASTIC_RUN_ID": "none"})
    if not {"--no-python"} & found.keys():
        python = "/stand-ins/bin/python"
        program = [python, *(["-m"] if {"-m", "--module"} & found.keys() else []), *program]
    return start_ranks(program, environments, text, [])


def python() -> int:
    """Python itself, which is no real one."""
    words = [word for word in WORDS if word != "-u"]
    if words[:1] == ["-m"] and words[1] in ("torch.distributed.run", "torch.distributed.launch"):
        return torchrun(words[2:])
    WORDS[:] = words
    if words[:1] == ["-c"]:
        note("start", given())
        print(12345)
        return 0
    return program()


def program() -> int:
    """Any other program."""
    text = given()
    note("start", text)
    words = " ".join([NAME, *WORDS])
    said = f"{words}\n" + (f"read: {text}\n" if text else "")
    for before, word in itertools.pairwise(WORDS):
        if before in ("-o", "--out", "--output"):
            with open(word, "a") as file:
                file.write(said)
    sys.stdout.write(said)
    code = re.search(r"\bcode=([0-9]+)", words)
    return int(code[1]) if code else int("fail" in words)


def scontrol() -> int:
    """What it knows of hosts is nothing that a script does."""
    if WORDS[:2] == ["show", "hostnames"]:
        listed = WORDS[2] if len(WORDS) > 2 else os.environ["SLURM_JOB_NODELIST"]
        ranges = re.fullmatch(r"n\[([0-9]+)-([0-9]+)\]", listed)
        names = (
            [f"n{at}" for at in range(int(ranges[1]), int(ranges[2]) + 1)] if ranges else listed.split(",")
        )
        print(*names, sep="\n")
        return 0
    return program()


def squeue() -> int:
    """castoff's own questions are none of the script's."""
    return 0 if "--noheader" in WORDS else program()


def submitted() -> int:
    """sbatch and qsub."""
    note("start", given())
    print("Submitted batch job 4712" if NAME == "sbatch" and "--parsable" not in WORDS else "4712")
    return 0


def service() -> int:
    """Runs until somebody ends it."""
    note("start", None)
    os.execv("/bin/sleep", ["a-service", "infinity"])
    return 1


def services_to_begin() -> int:
    """Wait for them."""
    awaited = int(os.environ.get("SERVICES", "0"))
    while True:
        with open(LOG) as file:
            begun = sum(json.loads(line)["argv"][0] == "service" for line in file)
        if begun >= awaited:
            return 0
        time.sleep(0.005)


def conda() -> int:
    """Its hook, or a start."""
    if WORDS[:2] == ["shell.bash", "hook"]:
        print(". /opt/conda/etc/profile.d/conda.sh")
        return 0
    return program()


def numactl() -> int:
    """What stands round a program."""
    note("start", None)
    _, inner = options(WORDS, {"-l", "--localalloc"}, "mNC")
    os.execvp(inner[0], inner)
    return 127


KINDS = {
    "srun": srun,
    **dict.fromkeys(("mpirun", "mpiexec", "mpiexec.hydra"), mpiexec),
    "flux": flux,
    "torchrun": lambda: torchrun(WORDS),
    **dict.fromkeys(("python", "python3"), python),
    "scontrol": scontrol,
    "squeue": squeue,
    **dict.fromkeys(("sbatch", "qsub"), submitted),
    "service": service,
    "services-to-begin": services_to_begin,
    "conda": conda,
    "numactl": numactl,
}


def main(words: list[str]) -> None:
    """Do what the program of that name does, and end."""
    global CALLED, NAME
    CALLED, NAME = words[0], os.path.basename(words[0])
    WORDS[:] = words[1:]
    try:
        code = KINDS.get(NAME, program)()
        sys.stdout.flush()
    except BrokenPipeError:
        code = 141
    os._exit(code)
