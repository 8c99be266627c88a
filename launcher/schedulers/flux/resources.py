"""Reads what Flux reports about its queues and nodes (flux-queue(1), flux-resource(1) of flux-core 0.88)."""

from __future__ import annotations

from collections.abc import Mapping

from castoff.launcher.schedulers.machine_info import (
    Machine,
    MachineInfo,
    NodeKind,
    Question,
    QueueInfo,
    kinds,
)

QUESTIONS = [
    Question(
        "queues",
        [
            *("flux", "queue", "list", "--no-header", "--format"),
            "{queuem}|{limits.timelimit}|{limits.min.nnodes}|{limits.max.nnodes}",
        ],
    ),
    Question(
        "nodes",
        ["flux", "resource", "list", "--states=all", "--no-header", "--format={nnodes}|{ncores}|{ngpus}"],
    ),
]


def parse(answers: Mapping[str, str]) -> MachineInfo:
    """Parse the answers; see `Machine.parse`."""
    lines = [line.split("|") for line in answers["queues"].splitlines()]
    nodes = [map(int, line.split("|")) for line in answers["nodes"].splitlines()]
    return MachineInfo(
        queues={
            name.removesuffix("*"): QueueInfo(max(int(least), 1), _number(most), None, _number(time))
            for name, time, least, most in lines
            if name
        },
        default_queue=next((name.removesuffix("*") for name, *_ in lines if name.endswith("*")), None),
        # Flux reports the total of nodes with the same properties; if nodes differ in size, the sizes of a
        # node are unknown.
        nodes=kinds(
            NodeKind(cores // number, devices // number, nodes=number)
            for number, cores, devices in nodes
            if number and cores % number == 0
        ),
        sources={"queues": "flux queue list", "nodes": "flux resource list"},
        questions=(
            (
                "Which bank are jobs charged to, if any? Flux's own commands do not say.",
                ("defaults: {account: NAME}",),
            ),
        ),
    )


def _number(text: str) -> int | None:
    return None if text == "inf" else int(float(text))


MACHINE = Machine(QUESTIONS, parse)
