"""Names of hosts: expand Slurm's short form `n[1-3,7]`, and read the nodefiles of PBS.

Imports as little as possible: `ranks.environment` reads host lists in every rank, where each millisecond of
start-up counts once per rank.
"""

from __future__ import annotations

from castoff.launcher.errors import CastoffError, shown

MAX_HOSTS = 1_000_000
"""Limit of a list's hosts, above that of any machine: a longer list is a typing error (`n[1-99999999]`)."""


class HostlistError(CastoffError):
    """A host list cannot be expanded; the message shows the invalid part."""


def expand(hostlist: str) -> list[str]:
    """Expand a Slurm host list: `n[08-10,3],login` gives n08, n09, n10, n3, login.

    Names may have several brackets, of which the first varies slowest; leading zeros and duplicates are kept.
    As in Slurm, names are separated by commas or white space, and empty names are skipped. Unlike in Slurm,
    text may follow the last bracket (`n[1-2]-ib0`).

    Raises HostlistError for brackets that do not match, for an invalid or descending range, and for more than
    a million hosts.
    Source: compared with `scontrol show hostnames` of Slurm 22.05.8. With three or more brackets in a name,
    scontrol varies the middle brackets slowest; no list that Slurm writes has three.
    """
    hosts: list[str] = []
    for name in _split_names(hostlist):
        head, *rest = name.split("[")
        brackets, total = [], 1
        for inside, _, text in (piece.partition("]") for piece in rest):
            ranges = [_parse_range(part, name, hostlist) for part in inside.split(",")]
            brackets.append((ranges, text))
            total *= sum(last - first + 1 for first, last, _ in ranges)
        total += len(hosts)
        if total > MAX_HOSTS:
            raise HostlistError(
                f"host list {shown(hostlist)}: with {shown(name)} it has {total} hosts, and"
                f" more than {MAX_HOSTS} cannot be meant. Check the ranges in the brackets."
            )
        expanded = [head]
        for ranges, text in brackets:
            numbers = [
                str(number).zfill(width) for first, last, width in ranges for number in range(first, last + 1)
            ]
            expanded = [host + number + text for host in expanded for number in numbers]
        hosts += expanded
    return hosts


def _split_names(hostlist: str) -> list[str]:
    """Split a host list at the commas and white space outside of brackets."""
    names = []
    start, inside = 0, False
    for position, character in enumerate(hostlist + ","):
        if character in "[]":
            if inside == (character == "["):
                problem = ("']' without '['", "'[' inside brackets")[inside]
                piece = shown(hostlist[start : position + 1])
                raise HostlistError(f"host list {shown(hostlist)}: {problem}, at {piece}. Remove it.")
            inside = not inside
        elif not inside and (character == "," or character.isspace()):
            if position > start:
                names.append(hostlist[start:position])
            start = position + 1
    if inside:
        raise HostlistError(
            f"host list {shown(hostlist)}: '[' without ']', at {shown(hostlist[start:])}."
            " Close the bracket; if your list is complete, something has cut it off."
        )
    return names


def _parse_range(part: str, name: str, hostlist: str) -> tuple[int, int, int]:
    """Read `7` or `08-11` as (first, last, width); the first number sets the width."""
    first, dash, last = part.partition("-")
    if not dash:
        last = first
    if not (_is_number(first) and _is_number(last)):
        raise HostlistError(
            f"host list {shown(hostlist)}: {shown(part)} in {shown(name)} is neither a number"
            " nor a range of two (such as 08-11)."
        )
    if int(last) < int(first):
        raise HostlistError(
            f"host list {shown(hostlist)}: the range {shown(part)} in {shown(name)} runs"
            f" backwards. Write {last}-{first}."
        )
    return int(first), int(last), len(first)


def _is_number(text: str) -> bool:
    # isascii(), since isdigit() is also true for '²'; a limit, since Python's int() refuses 4300 digits.
    return text.isascii() and text.isdigit() and len(text) <= 40


def read_nodefile(text: str) -> list[str]:
    """The hosts of a PBS nodefile, each once, in the order of their first lines.

    PBS writes a host once per requested process (`mpiprocs`), on some machines with its full name; names are
    kept as written (see `short_name`). A short name and a full name that begins with it are the same host.
    """
    hosts: dict[str, None] = {}
    shorter: set[str] = set()
    for line in text.splitlines():
        host = line.strip()
        names = _shorter_names(host)
        if host and host not in shorter and not any(name in hosts for name in (host, *names)):
            hosts[host] = None
            shorter.update(names)
    return list(hosts)


def _shorter_names(host: str) -> list[str]:
    """Shorter names for the same host: n1 and n1.rack for `n1.rack.site`; none for an IP address."""
    if short_name(host) == host:
        return []
    parts = host.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts))]


def short_name(host: str) -> str:
    """A host's name up to its first dot: `x4114c1s7b0n0.hostmgmt2…` gives x4114c1s7b0n0.

    An IP address such as 10.77.0.11 is returned unchanged.
    """
    parts = host.split(".")
    if ":" in host or (len(parts) == 4 and all(_is_number(part) for part in parts)):
        return host
    return parts[0]
