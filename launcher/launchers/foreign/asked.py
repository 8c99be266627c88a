"""What a script requests, gathered from its directives and from the line that starts its ranks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias

Fate: TypeAlias = "Literal['dropped', 'not expressed', 'note']"


class Remark(NamedTuple):
    """What became of something that no job field expresses, or a note about something that one does."""

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
    """Whether the field `memory` counts all nodes together."""
    fields: dict[str, Any] = field(default_factory=dict)
    """Fields by their paths, such as `launcher.args`."""
    of_ranks: dict[str, Any] = field(default_factory=dict)
    """Fields that count if castoff starts the job's ranks, but not if the job keeps its script."""
    env: dict[str, str] = field(default_factory=dict)
    exports: dict[str, str] = field(default_factory=dict)
    """Variables whose values only the shell knows, as written."""
    directives: dict[str, str | bool] = field(default_factory=dict)
    """Directives that no field covers."""
    raw: dict[str, str | bool] = field(default_factory=dict)
    """All directives about size and output, and those that no field covers, as written."""
    shell: str = ""
    """The shell that a directive names, for a script whose first line names none."""
    unclear: str = ""
    """Why castoff cannot request the same itself; empty: it can."""
    remarks: list[Remark] = field(default_factory=list)

    def drop(self, why: str) -> None:
        """Note an option that castoff replaces itself, or that has no meaning in a job file."""
        self.remarks.append(Remark("dropped", why))

    def refuse(self, why: str) -> None:
        """Note something that no job file can express."""
        self.remarks.append(Remark("not expressed", why))

    def note(self, words: str) -> None:
        """Note something that the reader should know about an expressed option."""
        self.remarks.append(Remark("note", words))

    def count(self, name: str, text: str | None, what: str) -> bool:
        """Set a number and return True; refuse a text that is not a plain number."""
        plain = (text or "").strip()
        if plain.isascii() and plain.isdecimal() and 0 < int(plain) < 10_000_000:
            setattr(self, name, int(plain))
            return True
        self.refuse(f"{what} is {plain or 'empty'}, which is not a number that is known before the job runs")
        return False

    def is_unclear(self, why: str) -> None:
        """Note that fields alone cannot request the same; only the first reason counts."""
        self.unclear = self.unclear or why
