"""What a script requests, gathered from its directives and from the line that starts its ranks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias

Fate: TypeAlias = "Literal['dropped', 'not expressed', 'note']"


class Remark(NamedTuple):
    """A remark on an option: it was dropped, or no job field expresses it; or a note on an option that a
    field expresses.
    """

    fate: Fate
    text: str


@dataclass
class Asked:
    """Numbers as the script has them, and fields of a job file. None: the script does not say."""

    nodes: int | None = None
    ranks: int | None = None
    ranks_per_node: int | None = None
    cpus_per_rank: int | None = None
    node_cpus: int | None = None
    devices: int | None = None
    node_devices: int | None = None
    rank_devices: int | None = None
    device_cpus: int | None = None
    memory_is_total: bool = False
    """Whether the field `memory` is the total of all nodes."""
    fields: dict[str, Any] = field(default_factory=dict)
    """Fields by their paths, such as `launcher.args`."""
    of_ranks: dict[str, Any] = field(default_factory=dict)
    """Fields that are used if castoff starts the job's ranks, but not if the job keeps its script."""
    env: dict[str, str] = field(default_factory=dict)
    exports: dict[str, str] = field(default_factory=dict)
    """Variables whose values only the shell knows, as written."""
    directives: dict[str, str | bool] = field(default_factory=dict)
    """Directives that no field covers."""
    raw: dict[str, str | bool] = field(default_factory=dict)
    """All directives about size and output, and all that no field covers, as written."""
    shell: str = ""
    """The shell that a directive names, for a script whose first line names none."""
    unclear: str = ""
    """Why castoff's fields cannot request the same; empty: they can."""
    remarks: list[Remark] = field(default_factory=list)

    def drop(self, why: str) -> None:
        """Note an option that castoff replaces, or that has no meaning in a job file."""
        self.remarks.append(Remark("dropped", why))

    def refuse(self, why: str) -> None:
        """Note an option that no job file can express."""
        self.remarks.append(Remark("not expressed", why))

    def note(self, words: str) -> None:
        """Note what the user should know about an option that a field expresses."""
        self.remarks.append(Remark("note", words))

    def count(self, name: str, text: str | None, what: str) -> bool:
        """Set a number and return True; if the text is not a plain number, note why and return False."""
        plain = (text or "").strip()
        if plain.isascii() and plain.isdecimal() and 0 < int(plain) < 10_000_000:
            setattr(self, name, int(plain))
            return True
        self.refuse(f"{what} is {plain or 'empty'}, which is not a number that is known before the job runs")
        return False

    def is_unclear(self, why: str) -> None:
        """Note why fields alone cannot request the same; only the first reason is kept."""
        self.unclear = self.unclear or why
