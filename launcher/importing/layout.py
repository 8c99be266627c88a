"""How many nodes, ranks, cores and devices a job has, by its directives and its launch line. Pure."""

from __future__ import annotations

from typing import Any

from launcher.launchers.foreign.asked import Asked


def fields_of_layout(
    job: Asked, line: Asked | None, torch: Asked | None, *, one_per_node: bool, notes: Asked
) -> dict[str, Any]:
    """`nodes`, `ranks_per_node` or `ranks`, `cores_per_rank` and `devices_per_rank`.

    `job`: by directives; `line`: by the launcher's options, None where nothing starts ranks; `torch`: by
    torchrun's. `one_per_node`: whether the launcher starts one process per node where nothing says how
    many. `notes` gets what is to be said of it.
    """
    if isinstance(kinds := job.fields.get("select"), list):
        return _of_kinds(kinds, line, torch, notes)
    outer = line or Asked()
    nodes = outer.nodes or job.nodes
    ranks = outer.ranks or (None if outer.ranks_per_node else job.ranks)
    per_node = outer.ranks_per_node or (None if outer.ranks else job.ranks_per_node)
    if nodes is None and ranks and (outer.ranks_per_node or job.ranks_per_node):
        nodes = -(-ranks // (outer.ranks_per_node or job.ranks_per_node or 1))
    if nodes is None and torch is not None and torch.nodes:
        nodes = torch.nodes
    if nodes is None and (ranks or 0) > 1:
        notes.refuse(
            "the script leaves the number of nodes to the scheduler, and castoff asks for 1: set nodes"
        )
    if outer.nodes and job.nodes and outer.nodes != job.nodes:
        notes.note(f"the launch line uses {outer.nodes} of {job.nodes} nodes: castoff asks for those")
    if (
        outer.ranks
        and outer.ranks_per_node
        and (needed := -(-outer.ranks // outer.ranks_per_node)) < (nodes or 1)
    ):
        notes.note(f"the launch line fills {needed} of {nodes} nodes: castoff asks for those")
        nodes = needed
    found: dict[str, Any] = {"nodes": nodes or 1}
    count = nodes or 1
    outer_per_node = per_node or (-(-ranks // count) if ranks else 1)
    if torch is not None:
        mine = torch.ranks_per_node or (
            torch.ranks // count if torch.ranks and torch.ranks % count == 0 else None
        )
        mine = mine or _devices_of_node(job, outer, outer_per_node, count)
        if mine is None:
            notes.note("one rank per device of the site's nodes, which is the default of ranks_per_node")
        if line is None and (job.nodes or 1) > 1 and (torch.nodes or 1) == 1 and not torch.ranks:
            notes.refuse(
                f"it starts ranks on the first node alone, and the job asks for {job.nodes}: lower nodes to 1"
            )
        per_rank = mine
    elif line is None:
        per_rank = _without_launcher(job, count, found, notes)
    else:
        per_rank = _of_launcher(ranks, per_node, count, found, one_per_node)
    if per_rank is not None:
        found.setdefault("ranks_per_node", per_rank)
    if "ranks" in found or "launcher.driver" in found:
        found.pop("ranks_per_node", None)
    if "ranks" in found:
        per_rank = -(-found["ranks"] // count)
    _cores(job, outer, torch, outer_per_node, per_rank, found, notes)
    _devices(job, outer, outer_per_node, per_rank, count, found, notes)
    return found


def _of_kinds(
    kinds: list[dict[str, Any]], line: Asked | None, torch: Asked | None, notes: Asked
) -> dict[str, Any]:
    """Nodes of several kinds say how many ranks they have: look whether the script starts those."""
    if line is None and torch is None:
        return {"launcher.driver": True}
    here = sum(kind.get("nodes", 1) * kind["ranks_per_node"] for kind in kinds)
    asked = line or Asked()
    if torch is not None or asked.ranks_per_node or asked.ranks != here:
        notes.refuse(
            f"the chunks' ranks_per_node make {here} ranks, and the script says otherwise or nothing: set "
            "ranks_per_node in each kind of `select`"
        )
    return {}


def _without_launcher(job: Asked, nodes: int, found: dict[str, Any], notes: Asked) -> int:
    if nodes > 1:
        found["launcher.driver"] = True
    elif (job.ranks or 1) > 1 or (job.ranks_per_node or 1) > 1:
        notes.note("nothing starts ranks, so there is one, whatever the directives' tasks are")
    return 1


def _of_launcher(
    ranks: int | None, per_node: int | None, nodes: int, found: dict[str, Any], one_per_node: bool
) -> int | None:
    if ranks is None:
        return per_node or (1 if one_per_node or nodes else None)
    if ranks < nodes:
        found["nodes"] = ranks
        return 1
    if ranks % nodes == 0:
        return ranks // nodes
    found["ranks"] = ranks
    return None


def _cores(
    job: Asked,
    outer: Asked,
    torch: Asked | None,
    outer_per_node: int,
    per_rank: int | None,
    found: dict[str, Any],
    notes: Asked,
) -> None:
    """A rank's share of the cores that the script asks for."""
    each = outer.cpus_per_rank or job.cpus_per_rank
    tasks = (
        outer_per_node if torch is not None or outer.cpus_per_rank else (job.ranks_per_node or outer_per_node)
    )
    if torch is None and not outer.cpus_per_rank and job.ranks and job.ranks % found["nodes"] == 0:
        tasks = job.ranks // found["nodes"]
    total = each * tasks if each else job.node_cpus
    of_device = outer.device_cpus or job.device_cpus
    if total is None and of_device:
        devices = _devices_of_node(job, outer, outer_per_node, found["nodes"])
        total = of_device * devices if devices else None
    if total is None or per_rank is None:
        return
    share, rest = divmod(total, per_rank)
    if share and (share > 1 or each or job.node_cpus):
        found["cores_per_rank"] = share
    if rest:
        notes.note(f"{total} CPUs of a node for {per_rank} ranks: {rest} of them are left out")


def _devices_of_node(job: Asked, outer: Asked, outer_per_node: int, nodes: int) -> int | None:
    if outer.node_devices or job.node_devices:
        return job.node_devices or outer.node_devices
    each = outer.rank_devices or job.rank_devices
    if each:
        return each * (job.ranks_per_node or outer_per_node)
    total = job.devices or outer.devices
    return total // nodes if total and total % nodes == 0 else total


def _devices(
    job: Asked,
    outer: Asked,
    outer_per_node: int,
    per_rank: int | None,
    nodes: int,
    found: dict[str, Any],
    notes: Asked,
) -> None:
    node = _devices_of_node(job, outer, outer_per_node, nodes)
    if per_rank is None:
        return
    if node is None:
        notes.note(
            "the script asks for no GPUs; where a site's nodes have some, castoff asks for one for each "
            "rank: devices_per_rank: 0 asks for none"
        )
        return
    share, rest = divmod(node, per_rank)
    if share == 0:
        notes.refuse(
            f"{per_rank} ranks of a node share {node} GPUs: castoff gives each rank devices of its own; "
            "where several may share one, a site's profile says so (node.ranks_per_device)"
        )
        return
    found["devices_per_rank"] = share
    if rest:
        notes.refuse(f"{node} GPUs of a node for {per_rank} ranks: {rest} of them are left out")
