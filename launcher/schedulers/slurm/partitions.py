"""Reads what Slurm reports about its partitions, QOS and nodes, and about the user.

The formats were read from a real Slurm 22.05.8. Sources: https://slurm.schedmd.com/scontrol.html, sinfo.html,
sacctmgr.html.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from castoff.launcher.config.quantities import cpus, seconds
from castoff.launcher.schedulers.machine_info import (
    USER,
    AwayHost,
    Machine,
    MachineInfo,
    NodeKind,
    Question,
    QueueInfo,
    User,
    kinds,
)
from castoff.launcher.schedulers.slurm.queue import SlurmQueue

QUESTIONS = [
    Question("partitions", ["scontrol", "--all", "show", "partition", "--oneliner"]),
    Question("config", SlurmQueue.config_command),
    # sinfo prints a line for each kind of node; scontrol reports each node's partitions and reserved cores.
    Question("nodes", ["sinfo", "--noheader", "--exact", "--all", "--format=%D|%X|%Y|%c|%m|%G|%f"]),
    Question("hosts", ["scontrol", "--all", "show", "node", "--oneliner"], optional=True),
    Question(
        "qos",
        [
            *("sacctmgr", "--noheader", "--parsable2", "show", "qos"),
            "format=Name,MaxWall,MaxTRES,MinTRES,MaxSubmitPU",
        ],
        optional=True,
    ),
    Question(
        "user",
        [
            *("sacctmgr", "--noheader", "--parsable2", "show", "user", USER, "withassoc"),
            "format=DefaultAccount,Account,QOS,DefaultQOS",
        ],
        optional=True,
    ),
]

_SOURCES = {
    "queues": "scontrol show partition",
    "qos": "sacctmgr show qos",
    "nodes": "sinfo",
    "array": "scontrol show config, MaxArraySize",
}

_NO_LIMIT = {"", "UNLIMITED", "INFINITE", "NONE", "N/A", "NOT_SET", "(NULL)"}

_OF_KINDS = ("Sockets", "CoresPerSocket", "CPUTot", "RealMemory", "Gres", "AvailableFeatures")

_AWAY = {"DOWN", "DRAIN", "DRAINED", "DRAINING", "FAIL", "FAILING", "MAINT", "NOT_RESPONDING"}
"""States in which nodes get no jobs; a `*` means that a node does not respond (sinfo(1), NODE STATE
CODES).
"""

_ACCESS = {
    "AllowAccounts": "for the accounts {}",
    "DenyAccounts": "not for the accounts {}",
    "AllowGroups": "for the Unix groups {}",
    "AllowQos": "for the QOS {}",
    "DenyQos": "not for the QOS {}",
    "AllocNodes": "from the hosts {}",
}


def parse(answers: Mapping[str, str]) -> MachineInfo:
    """Parse the answers; see `Machine.parse`."""
    partitions = [dict(re.findall(r"(\w+)=(\S*)", line)) for line in answers["partitions"].splitlines()]
    config = dict(re.findall(r"^(\w+) *= *(.*?) *$", answers["config"], re.MULTILINE))
    of_partitions = {partition["QoS"] for partition in partitions if partition.get("QoS", "N/A") != "N/A"}
    qos = _qos(answers["qos"], of_partitions) if "qos" in answers else None
    exclusive = {item["PartitionName"] for item in partitions if item.get("OverSubscribe") == "EXCLUSIVE"}
    nodes = kinds([*_kinds(answers["nodes"]), *_hosts(answers.get("hosts", ""))])
    nodes = [
        item._replace(whole=bool(item.queues) and exclusive.issuperset(item.queues))
        for item in nodes
        if item.nodes
    ]
    user = _user(answers["user"]) if "user" in answers else None
    default = next((item["PartitionName"] for item in partitions if item.get("Default") == "YES"), None)
    return MachineInfo(
        queues={fields["PartitionName"]: _partition(fields, qos or {}) for fields in partitions},
        qos=qos,
        lists_all_queues=True,
        default_queue=default,
        array_count=SlurmQueue.read_configuration(answers["config"]).largest_array,
        nodes=nodes,
        away=tuple(_away(answers.get("hosts", ""))),
        name=config.get("ClusterName"),
        version=config.get("SLURM_VERSION"),
        user=user,
        enforces_accounts=_enforces_accounts(config),
        sources=_SOURCES,
        lacks=() if "slurmdbd" in config.get("AccountingStorageType", "slurmdbd") else ("qos", "user"),
        fields=_fields(config, nodes),
        questions=tuple(_questions(config, default, user)),
    )


def _kinds(lines: str) -> Iterator[NodeKind]:
    for line in lines.splitlines():
        count, sockets, cores, cpus_, memory, gres, features = line.split("|")
        yield _kind(sockets, cores, cpus_, memory, gres, features)._replace(nodes=int(count))


def _hosts(lines: str) -> Iterator[NodeKind]:
    """Yield what only the list of hosts reports: each node's partitions and reserved cores. Each entry counts
    as 0 nodes, since `_kinds` counts the nodes.
    """
    for line in lines.splitlines():
        fields = dict(re.findall(r"(\w+)=(\S*)", line))
        if not fields.keys() >= {*_OF_KINDS}:
            continue
        yield _kind(*(fields[name] for name in _OF_KINDS))._replace(
            nodes=0,
            reserved=int(fields.get("CoreSpecCount", 0)),
            queues=_partitions_of(fields),
        )


def _away(lines: str) -> Iterator[AwayHost]:
    """Yield the hosts that get no jobs. A reason may contain spaces, and ends with its author and time: `bad
    GPU [root@…]`.
    """
    for line in lines.splitlines():
        fields = dict(re.findall(r"(\w+)=(\S*)", line))
        state = fields.get("State", "")
        if _AWAY.isdisjoint(re.findall(r"[A-Z_]+", state)) and "*" not in state:
            continue
        reason = re.search(r" Reason=(.*?)(?: \[[^\s\]]+@[^\s\]]+\]|$)", line)
        yield AwayHost(
            fields["NodeName"], state.lower(), reason[1].strip() if reason else "", _partitions_of(fields)
        )


def _partitions_of(host: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(name for name in host.get("Partitions", "").split(",") if name)


def _kind(sockets: str, cores_per_socket: str, cpus_: str, memory: str, gres: str, features: str) -> NodeKind:
    cores = int(sockets) * int(cores_per_socket)
    devices = _devices(gres)
    types = {kind for kind, _, _ in devices if kind}
    return NodeKind(
        cores=cores,
        devices=sum(number for _, number, _ in devices),
        device_type=types.pop() if len(types) == 1 else None,
        memory=_least(memory) if _least(memory) > 1 else None,  # Slurm reports 1 if slurm.conf sets no memory
        # If slurm.conf sets only CPUs, Slurm counts each as a socket.
        sockets=None if cores_per_socket == "1" and sockets != "1" else int(sockets),
        cpus_per_core=max(_least(cpus_) // cores, 1) if cores else 1,
        device_sockets=tuple(sorted({socket for _, _, numbers in devices for socket in numbers})),
        features=() if features == "(null)" else tuple(features.split(",")),
    )


def _least(number: str) -> int:
    """Read the least value of several nodes: `64+` means at least 64."""
    return int(number.rstrip("+"))


def _fields(config: Mapping[str, str], nodes: list[NodeKind]) -> dict[str, Any]:
    """Return how jobs request devices: of Slurm's select plugins, only cons_tres supports
    `--gpus-per-node`.
    """
    if not any(node.devices for node in nodes):
        return {}
    knows = config.get("SelectType") == "select/cons_tres"
    return {"gpu_request": "gpus-per-node" if knows else "gres"}


def _questions(
    config: Mapping[str, str], default: str | None, user: User | None
) -> Iterator[tuple[str, tuple[str, ...]]]:
    filters = config.get("JobSubmitPlugins", "(null)")
    if filters.upper() not in _NO_LIMIT:
        yield (
            f"Which fields does this machine's submit filter ({filters}) demand or choose? `sbatch "
            "--test-only` "
            "says what it refuses. One line for each, as in",
            (
                "required:",
                '  - {field: account, because: "what sbatch says", example: "account: MyProject",',
                "     source: sbatch --test-only, date: DATE}",
            ),
        )
    if default is None:
        yield "Which partition do jobs take that name none? Slurm has no default.", ("default_queue: NAME",)
    if _enforces_accounts(config) and (user is None or not user.accounts):
        yield (
            "Which account are jobs charged to? Slurm demands one and does not say which are yours.",
            ("defaults: {account: NAME}",),
        )


def _enforces_accounts(config: Mapping[str, str]) -> bool:
    return "associations" in config.get("AccountingStorageEnforce", "")


def _partition(fields: Mapping[str, str], qos: Mapping[str, QueueInfo]) -> QueueInfo:
    """Describe a partition, including the limits of its QOS, which apply to every job in the partition. The
    partition's size is a limit, too: a larger job would wait for ever (PartitionNodeLimit).
    """
    most, longest = _number(fields["MaxNodes"]), _number(fields["MaxTime"], seconds)
    size = int(fields.get("TotalNodes", 0))
    extra = qos.get(fields.get("QoS", ""), QueueInfo())
    return extra._replace(
        min_nodes=max(int(fields["MinNodes"]), extra.min_nodes or 1),
        max_nodes=min(filter(None, (most, size, extra.max_nodes)), default=None),
        max_walltime=min(filter(None, (longest, extra.max_walltime)), default=None),
        offered=fields.get("Hidden") != "YES" and fields.get("RootOnly") != "YES",
        # slurm.conf(5), State: DOWN queues jobs and starts none, DRAIN only starts queued jobs, INACTIVE does
        # neither.
        accepts_jobs=fields.get("State", "UP") in ("UP", "DOWN"),
        starts_jobs=fields.get("State", "UP") in ("UP", "DRAIN"),
        accounts=_accounts(fields.get("AllowAccounts", "ALL")),
        notes=tuple(_notes(fields)),
    )


def _accounts(allowed: str) -> tuple[str, ...]:
    return () if allowed in ("ALL", "(null)", "") else tuple(allowed.split(","))


def _notes(fields: Mapping[str, str]) -> Iterator[str]:
    for name, words in _ACCESS.items():
        if fields.get(name, "ALL") not in ("ALL", "(null)", ""):
            yield words.format(fields[name].replace(",", ", ")) + " alone" * (not name.startswith("Deny"))
    if fields.get("State", "UP") != "UP":
        yield f"its state is {fields['State']}"
    if fields.get("DefaultTime", "NONE") != "NONE":
        yield f"a job without a walltime gets {fields['DefaultTime']}"


def _qos(answer: str, of_partitions: set[str]) -> dict[str, QueueInfo]:
    limits = {}
    for line in answer.splitlines():
        name, wall, most, least, submitted = line.split("|")
        most_of, least_of = _tres(most), _tres(least)
        limits[name] = QueueInfo(
            min_nodes=least_of.get("node", 1),
            max_nodes=most_of.get("node"),
            max_walltime=_number(wall, seconds),
            max_jobs=_number(submitted),
            max_devices=most_of.get("gres/gpu") if most_of.get("node") == 1 else None,
            offered=name not in of_partitions,
        )
    return limits


def _user(answer: str) -> User:
    """Read the associations of the user who asks, one on each line; none if accounting does not know the
    user.
    """
    rows = [line.split("|") for line in answer.splitlines() if line]
    qos = [name for _, _, names, _ in rows for name in names.split(",") if name]
    usual = {default for *_, default in rows}
    return User(
        accounts=tuple(dict.fromkeys(account for _, account, _, _ in rows if account)),
        default_account=next((account for account, *_ in rows if account), None),
        qos=tuple(dict.fromkeys(qos)),
        default_qos=(usual.pop() or None) if len(usual) == 1 else None,
    )


def _tres(text: str) -> dict[str, int]:
    """Read the numbers in a text such as `node=8,gres/gpu=2`; values with units are left out."""
    return {name: int(number) for name, number in re.findall(r"([^=,]+)=(\d+)(?=,|$)", text)}


def _devices(gres: str) -> list[tuple[str, int, list[int]]]:
    """Read the GPUs in a text such as `gpu:a100:4(S:0-1),nic:1`: for each type, the number and the
    sockets.
    """
    matches = re.findall(r"(?:^|,)gpu(?::([^:,(]+))??:(\d+)(?:\(S:([\d,-]+)\))?(?=[,(]|$)", gres)
    return [(kind, int(number), cpus(sockets) if sockets else []) for kind, number, sockets in matches]


def _number(text: str, read: Callable[[str], int] = int) -> int | None:
    """Read a limit; scontrol and sacctmgr write times like job files, as `D-HH:MM:SS`."""
    return None if text.upper() in _NO_LIMIT else read(text)


MACHINE = Machine(QUESTIONS, parse)
