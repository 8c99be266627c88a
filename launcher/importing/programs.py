"""Programs that start other programs: torchrun and its like, containers, `bash -c`. Pure.

Each takes the words of a command line, as they are written, and leaves those of the program inside.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from launcher.importing.shell import statements
from launcher.importing.words import Substitute, assignment, literal, value
from launcher.launchers.foreign.asked import Asked
from launcher.launchers.foreign.lines import LOGS
from launcher.launchers.foreign.options import Option, Table

_RENDEZVOUS = "castoff chooses where ranks meet, and which rank is where"


class Inside(NamedTuple):
    """A program without the one that starts it."""

    words: list[str]
    asked: Asked
    """`ranks_per_node`: how many it starts on each node; `nodes`, where it says how many there are."""
    torch: bool = False
    """Whether what was taken away starts ranks of torch.distributed."""


class Reader(NamedTuple):
    """How words are understood."""

    known: Mapping[str, str]
    constants: Mapping[str, str]
    output_of: Substitute

    def plain(self, word: str) -> str:
        """What a word means, as far as options are concerned; as it is written where nobody knows."""
        found = value(word, self.known, self.output_of)
        return word if found is None else found

    def constant(self, word: str) -> str | None:
        """What a word means whatever the job is given; None: it depends on that."""
        return value(word, self.constants)


def name_of(word: str) -> str:
    """What a program is called, without its folder."""
    return PurePosixPath(literal(word) or word.strip("'\"")).name


def is_python(word: str) -> bool:
    """Whether a word names a Python interpreter."""
    return bool(re.fullmatch(r"python[0-9.]*", name_of(word))) or word.strip("\"'") in (
        "$PYTHON",
        "${PYTHON}",
    )


def distributed(words: list[str], reader: Reader) -> Inside | None:
    """The program of torchrun, accelerate, deepspeed or their like; None: it is none of them."""
    if not words:
        return None
    name = name_of(words[0])
    if name == "torchrun":
        return _torchrun(words[1:], reader)
    if name == "accelerate" and words[1:2] == ["launch"]:
        return _accelerate(words[2:], reader)
    if name == "deepspeed":
        return _deepspeed(words[1:], reader)
    if is_python(words[0]):
        at = next((n for n, word in enumerate(words[1:], 1) if not word.startswith("-") or word == "-m"), 0)
        module = words[at + 1] if at and words[at] == "-m" and at + 1 < len(words) else ""
        if module in ("torch.distributed.run", "torch.distributed.launch"):
            found = _torchrun(words[at + 2 :], reader, python=words[:at])
            return _with_local_rank(found, "--local-rank") if module.endswith("launch") and found else found
        if module in ("accelerate.commands.launch", "accelerate"):
            return _accelerate([word for word in words[at + 2 :] if word != "launch"], reader)
        if module.startswith("deepspeed"):
            return _deepspeed(words[at + 2 :], reader)
    return None


_TORCHRUN = Table(
    values="nnodes nproc-per-node rdzv-backend rdzv-endpoint rdzv-id rdzv-conf max-restarts monitor-interval "
    "start-method role log-dir redirects,r tee,t local-ranks-filter node-rank master-addr master-port local-addr "
    "logs-specs numa-binding event-log-handler signals-to-handle duplicate-stdout-filters duplicate-stderr-filters "
    "virtual-local-rank-size",
    flags="standalone module,m no-python run-path use-env use-agent-store virtual-local-rank",
)


def _dashed(words: list[str]) -> list[str]:
    """Options with dashes where they have underscores, down to the program."""
    return [
        re.sub("^--[^=]+", lambda found: found.group().replace("_", "-"), word)
        if word.startswith("--")
        else word
        for word in words
    ]


def _options(table: Table, words: list[str], reader: Reader) -> tuple[list[Option], list[str]]:
    """What a table's program is given, and the words behind, as they are written."""
    plain = [reader.plain(word) for word in words]
    options, left = table.read(_dashed(plain))
    return options, words[len(words) - len(left) :]


def _torchrun(words: list[str], reader: Reader, python: list[str] | None = None) -> Inside | None:
    asked = Asked()
    options, program = _options(_TORCHRUN, words, reader)
    given = {option.name: option.value or "" for option in options}
    for option in options:
        name, text = option.name, option.value or ""
        if name == "nproc-per-node":
            if text not in ("gpu", "auto", "cpu"):
                asked.count("ranks_per_node", text, "--nproc-per-node")
        elif name == "nnodes":
            most = text.rpartition(":")[2]
            if most.isdecimal():
                asked.nodes = int(most)
                if ":" in text:
                    asked.note(
                        f"--nnodes={text}: castoff starts {most} nodes, and torchrun waits for all of them"
                    )
        elif name in ("rdzv-backend", "rdzv-endpoint", "rdzv-id", "node-rank", "master-addr", "master-port"):
            asked.drop(f"torchrun's --{name}: {_RENDEZVOUS}")
        elif name in ("standalone", "local-addr"):
            asked.drop(f"torchrun's --{name}: {_RENDEZVOUS}")
        elif name in ("log-dir", "redirects", "tee", "local-ranks-filter"):
            asked.drop(f"torchrun's --{name}: {LOGS}")
        elif name in ("module", "no-python", "use-env"):
            pass
        elif "$" in text or not option.known:
            asked.refuse(
                f"torchrun's --{name}{'=' + text if text else ''}: it is not known before the job runs"
            )
        else:
            asked.env[f"PET_{name.replace('-', '_').upper()}"] = text or "1"
    if not any(option.name == "nproc-per-node" for option in options):
        asked.ranks_per_node = 1
    if not program:
        return None
    interpreter = python or ["python"]
    if "module" in given:
        program = [*interpreter, "-m", *program]
    elif "no-python" not in given:
        program = [*interpreter, *program]
    asked.fields["launcher.torchrun"] = True
    return Inside(program, asked, torch=True)


def _with_local_rank(found: Inside, flag: str) -> Inside:
    """The program with the argument that torch.distributed.launch and deepspeed hand it."""
    at = next((n + 1 for n, word in enumerate(found.words) if word.endswith((".py", ".py'", '.py"'))), None)
    if at is None:
        at = found.words.index("-m") + 2 if "-m" in found.words else len(found.words)
    found.asked.note(f'{flag}="$LOCAL_RANK" is what the script\'s launcher hands the program')
    return found._replace(words=[*found.words[:at], f'{flag}="$LOCAL_RANK"', *found.words[at:]])


_ACCELERATE = Table(
    values="num-processes num-machines machine-rank main-process-ip main-process-port mixed-precision config-file "
    "num-cpu-threads-per-process rdzv-backend rdzv-conf max-restarts monitor-interval gpu-ids dynamo-backend "
    "dynamo-mode zero-stage deepspeed-config-file deepspeed-hostfile deepspeed-multinode-launcher tee role log-dir "
    "gradient-accumulation-steps gradient-clipping offload-optimizer-device offload-param-device same-network "
    "zero3-init-flag zero3-save-16bit-model fsdp-sharding-strategy fsdp-auto-wrap-policy "
    "fsdp-transformer-layer-cls-to-wrap fsdp-state-dict-type fsdp-backward-prefetch fsdp-offload-params "
    "fsdp-min-num-params fsdp-version fsdp-use-orig-params fsdp-cpu-ram-efficient-loading",
    flags="multi-gpu module,m no-python use-deepspeed use-fsdp cpu use-megatron-lm debug enable-cpu-affinity quiet,q "
    "use-cpu mps use-xpu ipex tpu dynamo-use-fullgraph dynamo-use-dynamic",
)


def _accelerate(words: list[str], reader: Reader) -> Inside | None:
    asked = Asked()
    options, program = _options(_ACCELERATE, words, reader)
    given = {option.name: option.value or "" for option in options}
    for name, text in given.items():
        if name == "num-processes":
            asked.count("ranks", text, "--num_processes")
        elif name == "num-machines":
            asked.count("nodes", text, "--num_machines")
        elif name in ("machine-rank", "main-process-ip", "main-process-port", "rdzv-backend", "same-network"):
            asked.drop(f"accelerate's --{name}: {_RENDEZVOUS}")
        elif name == "mixed-precision":
            asked.env["ACCELERATE_MIXED_PRECISION"] = text
        elif name == "dynamo-backend":
            asked.env["ACCELERATE_DYNAMO_BACKEND"] = text.upper()
        elif name == "gradient-accumulation-steps":
            asked.env["ACCELERATE_GRADIENT_ACCUMULATION_STEPS"] = text
        elif name == "num-cpu-threads-per-process":
            asked.env["OMP_NUM_THREADS"] = text
        elif name in ("multi-gpu", "module", "no-python", "quiet", "debug", "deepspeed-hostfile"):
            pass
        elif name in (
            "deepspeed-multinode-launcher",
            "tee",
            "role",
            "log-dir",
            "gpu-ids",
            "monitor-interval",
        ):
            asked.drop(f"accelerate's --{name}: castoff starts the ranks itself")
        else:
            asked.refuse(
                f"accelerate's --{name.replace('-', '_')}{'=' + text if text else ''}: castoff starts the ranks and "
                "reads none of accelerate's settings; make the program set it, or name `accelerate launch` in command"
            )
    if not program:
        return None
    asked.note(
        "accelerate launch: castoff starts the ranks itself, and Accelerator() finds them by RANK and the rest"
    )
    program = (
        program if "no-python" in given else ["python", *(["-m"] if "module" in given else []), *program]
    )
    return Inside(program, asked, torch=True)


_DEEPSPEED = Table(
    values="hostfile,H include,i exclude,e num-nodes num-gpus,num-accelerators master-port master-addr node-rank "
    "launcher launcher-args module-name save-pid min-elastic-nodes max-elastic-nodes autotuning bind-core-list "
    "ssh-port elastic-training",
    flags="module,m no-python no-local-rank force-multi no-ssh-check enable-each-rank-log bind-cores-to-rank no-ssh",
)


def _deepspeed(words: list[str], reader: Reader) -> Inside | None:
    asked = Asked()
    options, program = _options(_DEEPSPEED, words, reader)
    given = {option.name: option.value or "" for option in options}
    for name, text in given.items():
        if name == "num-gpus":
            asked.count("ranks_per_node", text, "--num_gpus")
        elif name == "num-nodes":
            asked.count("nodes", text, "--num_nodes")
        elif name in ("include", "exclude"):
            asked.refuse(f"deepspeed's --{name}={text}: castoff gives each rank its device")
        else:
            asked.drop(f"deepspeed's --{name}: castoff starts the ranks itself")
    if not program:
        return None
    program = (
        program if "no-python" in given else ["python", *(["-m"] if "module" in given else []), *program]
    )
    found = Inside(program, asked, torch=True)
    return found if "no-local-rank" in given else _with_local_rank(found, "--local_rank")


def shell(words: list[str], reader: Reader) -> Inside | None:
    """The one program that a `bash -c` starts; None: it is no such shell, or does more."""
    if len(words) < 3 or name_of(words[0]) not in ("bash", "sh", "zsh"):
        return None
    flags, rest = words[1], words[2:]
    if flags not in ("-c", "-lc", "-cl") or len(rest) != 1:
        return None
    text = _as_text(rest[0], reader)
    if text is None:
        return None
    found = statements(text)
    asked = Asked()
    program: list[str] = []
    for statement in found:
        if statement.broken or statement.compound or len(statement.commands) != 1 or program:
            return None
        command = statement.commands[0]
        if command.heredocs or command.redirections or command.after == "&":
            return None
        words = command.words[1:] if command.words[:1] == ["export"] else command.words
        pairs = [assignment(word) for word in words]
        if words and all(pairs):
            for pair in pairs:
                if pair and pair[0] not in OF_RANKS:
                    return None
                asked.drop(f"{pair[0] if pair else ''}: castoff sets it in each rank")
            continue
        program = command.words[1:] if command.words[:1] == ["exec"] else command.words
    if not program or assignment(program[0]):
        return None
    return Inside(program, asked)


OF_RANKS = frozenset(
    {
        "RANK",
        "LOCAL_RANK",
        "WORLD_SIZE",
        "LOCAL_WORLD_SIZE",
        "NODE_RANK",
        "MASTER_ADDR",
        "MASTER_PORT",
        "GROUP_RANK",
    }
)
"""Variables that castoff sets in each rank."""


def _as_text(word: str, reader: Reader) -> str | None:
    """What a shell is given to read; None: it depends on what the outer one puts into it."""
    found = literal(word)
    if found is not None:
        return found
    if word.startswith('"') and word.endswith('"') and len(word) > 1 and "`" not in word and "$(" not in word:
        # What the outer shell replaces the inner one would as well, if both know the variables.
        inner = word[1:-1]
        if '\\"' not in inner.replace("\\\\", "") and "\\$" not in inner:
            return inner
        return re.sub(r'\\([$"\\`])', r"\1", inner)
    whole = re.fullmatch(r'"?\$\{?(\w+)\}?"?', word)
    return reader.constants.get(whole[1]) if whole else None


def container(words: list[str], reader: Reader) -> Inside | None:
    """The program inside a container, whose settings are in `asked.fields`; None: it is none that castoff knows."""
    name = name_of(words[0]) if words else ""
    read = _CONTAINERS.get(name)
    return read(words, reader) if read else None


def _apptainer(words: list[str], reader: Reader) -> Inside | None:
    if words[1:2] != ["exec"]:
        return None
    return _contained(
        words[2:],
        reader,
        "apptainer",
        {"nv": "nvidia", "rocm": "amd"},
        Table(
            values="bind,B env env-file pwd,cwd home,H overlay,o scratch,S workdir,W security add-caps fusemount "
            "network hostname dns mount app pem-path",
            flags="nv rocm contain,c containall,C cleanenv,e writable,w writable-tmpfs no-home nvccl fakeroot,f "
            "no-init userns,u net,n ipc,i pid,p unsquash no-umask disable-cache compat nvccli sharens no-eval",
        ),
    )


def _shifter(words: list[str], reader: Reader) -> Inside | None:
    table = Table(values="image,i volume,V module,m workdir,w env,e entrypoint", flags="clearenv verbose,v")
    return _contained(words[1:], reader, "shifter", {}, table)


def _podman(words: list[str], reader: Reader) -> Inside | None:
    if words[1:2] != ["run"]:
        return None
    table = Table(
        values="volume,v env,e workdir,w network,net ipc pid device shm-size user,u name entrypoint ulimit mount",
        flags="gpu rm nccl cuda-mpi mpi openmpi-pmi2 cvmfs privileged tty,t interactive,i env-host "
        "openmpi-pmix openmpi-pmi cuda-compat",
    )
    return _contained(words[2:], reader, "podman-hpc", {"gpu": "nvidia"}, table)


_CONTAINERS: dict[str, Callable[[list[str], Reader], Inside | None]] = {
    "apptainer": _apptainer,
    "singularity": _apptainer,
    "shifter": _shifter,
    "podman-hpc": _podman,
}


def _contained(
    words: list[str], reader: Reader, runtime: str, gpus: dict[str, str], table: Table
) -> Inside | None:
    plain = [word if (found := reader.constant(word)) is None else found for word in words]
    options, left = table.read(plain)
    program = words[len(words) - len(left) :]
    asked = Asked()
    fields: dict[str, Any] = {"container.runtime": runtime}
    args: list[str] = []
    binds: list[str] = []
    inside: dict[str, str] = {}
    for option in options:
        text = option.value or ""
        if option.name in gpus:
            fields["container.gpus"] = gpus[option.name]
        elif option.name in ("bind", "volume") and _bindable(text):
            binds += [_bind(one) for one in re.split("[,;]", text)]
        elif option.name == "env" and "=" in text and "$" not in text:
            inside |= dict([text.split("=", 1)])  # type: ignore[arg-type]
        elif option.name == "image":
            fields["container.image"] = text
        elif option.name in ("rm", "tty", "interactive", "env-host", "mpi", "cuda-mpi", "verbose", "env"):
            asked.drop(f"{runtime}'s --{option.name}: castoff's own flags for {runtime} see to it")
        elif not option.known or "$" in text or text.startswith("~"):
            return None
        else:
            dashes = "-" if len(option.name) == 1 else "--"
            args.append(f"{dashes}{option.name}" + ("" if option.value is None else f"={text}"))
    if runtime != "shifter":
        if not left or "$" in left[0] or (runtime == "apptainer" and not left[0].startswith("/")):
            return None
        fields["container.image"] = left[0]
        program = program[1:]
    if not program:
        return None
    fields |= {
        f"container.{name}": held
        for name, held in (("binds", binds), ("args", args), ("env", inside))
        if held
    }
    asked.fields |= fields
    return Inside(program, asked)


def _bindable(text: str) -> bool:
    return all(re.fullmatch(r"/[^:$~`]*(?::/[^:$~`]*(?::r[ow])?)?", one) for one in re.split("[,;]", text))


def _bind(text: str) -> str:
    source, _, target = text.removesuffix(":rw").partition(":")
    return source if source == target or not target else text.removesuffix(":rw")
