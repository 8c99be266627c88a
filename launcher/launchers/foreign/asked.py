"""What a script asks for, gathered from its directives and from the line that starts its ranks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias

Fate: TypeAlias = "Literal['dropped', 'not expressed', 'note']"


class Remark(NamedTuple):
    """What became of something that no field of a job file holds, or a word about one that does."""

    fate: Fate
    text: str


@dataclass
class Asked:
    """Numbers as the script has them, and fields of a job file. None: it says nothing."""

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
    """Whether the field `memory` is that of all nodes together so far."""
    fields: dict[str, Any] = field(default_factory=dict)
    """By their paths: `launcher.args`."""
    of_ranks: dict[str, Any] = field(default_factory=dict)
    """Those of a job whose ranks castoff starts, and not of one that keeps its script."""
    env: dict[str, str] = field(default_factory=dict)
    exports: dict[str, str] = field(default_factory=dict)
    """Variables whose values only the shell knows, as they are written."""
    directives: dict[str, str | bool] = field(default_factory=dict)
    """What no field says."""
    raw: dict[str, str | bool] = field(default_factory=dict)
    """The same and all that is said of sizes and output, as it is written."""
    shell: str = ""
    """Which shell a directive names for a script without one in its first line."""
    unclear: str = ""
    """Why castoff cannot ask for the same itself; empty: it can."""
    remarks: list[Remark] = field(default_factory=list)

    def drop(self, why: str) -> None:
        """castoff does the same itself, or it has no meaning there."""
        self.remarks.append(Remark("dropped", why))

    def refuse(self, why: str) -> None:
        """No job file can say it."""
        self.remarks.append(Remark("not expressed", why))

    def note(self, words: str) -> None:
        """It is expressed, and the reader should know this of it."""
        self.remarks.append(Remark("note", words))

    def count(self, name: str, text: str | None, what: str) -> bool:
        """Set a number; one that is not plain is not expressed."""
        plain = (text or "").strip()
        if plain.isascii() and plain.isdecimal() and 0 < int(plain) < 10_000_000:
            setattr(self, name, int(plain))
            return True
        self.refuse(f"{what} is {plain or 'empty'}, which is not a number that is known before the job runs")
        return False

    def is_unclear(self, why: str) -> None:
        """Castoff cannot ask for the same by fields alone; the first reason counts."""
        self.unclear = self.unclear or why
