"""How much of an accelerator's memory this process may take."""

from __future__ import annotations

import logging

import torch

logger = logging.getLogger(__name__)


def limit_memory(device: torch.device, share: float) -> None:
    """Have torch refuse what is beyond a share of a device's memory, as it does beyond all of it.

    On a device for which it has no such limit the log says so.
    """
    limit = getattr(getattr(torch, device.type), "set_per_process_memory_fraction", None)
    if limit is None:
        logger.info("memory.max_memory_per_gpu: has no effect; torch limits no memory of a %s", device.type)
    elif device.type == "mps":  # of which a host has one
        limit(share)
    else:
        limit(share, device)
