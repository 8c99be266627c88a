"""What Flux says about its queues and nodes (flux-queue(1), flux-resource(1) of flux-core 0.88)."""

from __future__ import annotations

from collections.abc import Mapping

from launcher.schedulers.machine import Bounds, NodeKind, Question, Told, ToldQueue, kinds

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


def parse(answers: Mapping[str, str]) -> Told:
    """What the answers say; it raises what `machine.ask` takes for an answer that cannot be read."""
    lines = [line.split("|") for line in answers["queues"].splitlines()]
    bounds = {
        name: Bounds(int(least) or None, _number(most), None, _number(time))
        for name, time, least, most in lines
        if name
    }
    return Told(
        queues={
            name.removesuffix("*"): ToldQueue(one, f"flux queue list --queue={name.removesuffix('*')}")
            for name, one in bounds.items()
        },
        default_queue=next((name.removesuffix("*") for name in bounds if name.endswith("*")), None),
        array_source="Flux has no arrays",
        nodes=_nodes(answers["nodes"]),
    )


def _number(text: str) -> int | None:
    return None if text == "inf" else int(float(text))


def _nodes(answer: str) -> list[NodeKind]:
    """Nodes of the same properties are told together; of unlike ones, no node's own cores are known."""
    told = [map(int, line.split("|")) for line in answer.splitlines()]
    return kinds(
        (nodes, cores // nodes if cores % nodes == 0 else None, None, devices // nodes)
        for nodes, cores, devices in told
        if nodes
    )
