"""torchrun, accelerate, deepspeed and their like, which start ranks on each node. Pure."""

from __future__ import annotations

import re

from launcher.importing.programs import Inside, Reader, is_python, name_of
from launcher.launchers.foreign.asked import Asked
from launcher.launchers.foreign.line import LOGS
from launcher.launchers.foreign.options import Option, Table

_RENDEZVOUS = "castoff chooses where ranks meet, and which rank is where"


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
    values="""
        nnodes nproc-per-node rdzv-backend rdzv-endpoint rdzv-id rdzv-conf max-restarts
        monitor-interval start-method role log-dir redirects,r tee,t local-ranks-filter
        node-rank master-addr master-port local-addr logs-specs numa-binding event-log-handler
        signals-to-handle duplicate-stdout-filters duplicate-stderr-filters
        virtual-local-rank-size
    """,
    flags="""
        standalone module,m no-python run-path use-env use-agent-store virtual-local-rank
    """,
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
        elif name in (
            "rdzv-backend",
            "rdzv-endpoint",
            "rdzv-id",
            "node-rank",
            "master-addr",
            "master-port",
        ) or name in ("standalone", "local-addr"):
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
    return Inside(program, asked)


def _with_local_rank(found: Inside, flag: str) -> Inside:
    """The program with the argument that torch.distributed.launch and deepspeed hand it."""
    at = next((n + 1 for n, word in enumerate(found.words) if word.endswith((".py", ".py'", '.py"'))), None)
    if at is None:
        at = found.words.index("-m") + 2 if "-m" in found.words else len(found.words)
    found.asked.note(f'{flag}="$LOCAL_RANK" is what the script\'s launcher hands the program')
    return found._replace(words=[*found.words[:at], f'{flag}="$LOCAL_RANK"', *found.words[at:]])


_ACCELERATE = Table(
    values="""
        num-processes num-machines machine-rank main-process-ip main-process-port
        mixed-precision config-file num-cpu-threads-per-process rdzv-backend rdzv-conf
        max-restarts monitor-interval gpu-ids dynamo-backend dynamo-mode zero-stage
        deepspeed-config-file deepspeed-hostfile deepspeed-multinode-launcher tee role log-dir
        gradient-accumulation-steps gradient-clipping offload-optimizer-device
        offload-param-device same-network zero3-init-flag zero3-save-16bit-model
        fsdp-sharding-strategy fsdp-auto-wrap-policy fsdp-transformer-layer-cls-to-wrap
        fsdp-state-dict-type fsdp-backward-prefetch fsdp-offload-params fsdp-min-num-params
        fsdp-version fsdp-use-orig-params fsdp-cpu-ram-efficient-loading
    """,
    flags="""
        multi-gpu module,m no-python use-deepspeed use-fsdp cpu use-megatron-lm debug
        enable-cpu-affinity quiet,q use-cpu mps use-xpu ipex tpu dynamo-use-fullgraph
        dynamo-use-dynamic
    """,
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
                f"accelerate's --{name.replace('-', '_')}{'=' + text if text else ''}: castoff starts the "
                "ranks and reads none of accelerate's settings; let the program set it, or keep `accelerate "
                "launch` in command"
            )
    if not program:
        return None
    asked.note(
        "accelerate launch: castoff starts the ranks itself; Accelerator() finds them by RANK and the rest"
    )
    program = (
        program if "no-python" in given else ["python", *(["-m"] if "module" in given else []), *program]
    )
    return Inside(program, asked)


_DEEPSPEED = Table(
    values="""
        hostfile,H include,i exclude,e num-nodes num-gpus,num-accelerators master-port
        master-addr node-rank launcher launcher-args module-name save-pid min-elastic-nodes
        max-elastic-nodes autotuning bind-core-list ssh-port elastic-training
    """,
    flags="""
        module,m no-python no-local-rank force-multi no-ssh-check enable-each-rank-log
        bind-cores-to-rank no-ssh
    """,
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
    found = Inside(program, asked)
    return found if "no-local-rank" in given else _with_local_rank(found, "--local_rank")
