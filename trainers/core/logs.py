"""Log lines that say which rank they come from."""

from __future__ import annotations

import logging


def setup_logging(rank: int, level: str = "INFO") -> None:
    """`[RANK r] time LEVEL name: message` on standard error; other ranks than 0 from WARNING on."""
    logging.basicConfig(
        level=level if rank == 0 else max(logging.getLevelName(level), logging.WARNING),
        format=f"[RANK {rank}] %(asctime)s %(levelname)s %(name)s: %(message)s",
        datefmt="%Y-%m-%d %H:%M:%S",
        force=True,
    )
