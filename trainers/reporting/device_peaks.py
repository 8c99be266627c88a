"""The peak floating-point operations per second of accelerators, by the names that torch gives them."""

from __future__ import annotations

import re
from collections.abc import Mapping

_PEAKS: tuple[tuple[str, Mapping[str, float]], ...] = (
    # NVIDIA's data sheets, without structured sparsity, which doubles their numbers: DGX/HGX Blackwell
    # (2025), H200 and H100 (2024), A100 (2021), V100 (2020).
    (r"NVIDIA GB200", {"bf16": 2500, "fp16": 2500, "tf32": 1250, "fp32": 80}),
    (r"NVIDIA B200", {"bf16": 2250, "fp16": 2250, "tf32": 1125, "fp32": 75}),
    (r"NVIDIA H200 NVL", {"bf16": 835.5, "fp16": 835.5, "tf32": 417.5, "fp32": 60}),
    (r"NVIDIA (H200|GH200|H100 80GB HBM3)", {"bf16": 989.5, "fp16": 989.5, "tf32": 494.5, "fp32": 67}),
    (r"NVIDIA H100 NVL", {"bf16": 835.5, "fp16": 835.5, "tf32": 417.5, "fp32": 60}),
    (r"NVIDIA H100 PCIe", {"bf16": 756, "fp16": 756, "tf32": 378, "fp32": 51}),
    (r"NVIDIA A100", {"bf16": 312, "fp16": 312, "tf32": 156, "fp32": 19.5}),
    (r"Tesla V100-SXM2", {"fp16": 125, "fp32": 15.7}),
    # AMD's data sheets of the Instinct MI300X (2023), MI250X (2021) and MI250 (2021), the latter for one of
    # their two dies, which each are a device. fp32 is that of matrices.
    (r"AMD Instinct MI300X", {"bf16": 1307.4, "fp16": 1307.4, "tf32": 653.7, "fp32": 163.4}),
    (r"AMD Instinct MI250X", {"bf16": 191.5, "fp16": 191.5, "fp32": 47.9}),
    (r"AMD Instinct MI250\b", {"bf16": 181.05, "fp16": 181.05, "fp32": 45.3}),
    # Intel's data sheet of the Data Center GPU Max 1550 (2023), for one of its two tiles, which each are a
    # device unless ZE_FLAT_DEVICE_HIERARCHY is COMPOSITE.
    (r"Intel.* Data Center GPU Max 1550", {"bf16": 419.4, "fp16": 419.4, "tf32": 209.7, "fp32": 26.2}),
)
"""Patterns of names, and 10^12 operations per second of dense matrix products."""


def peak_of(device: str, precision: str, *, tf32: bool, environ: Mapping[str, str]) -> float | None:
    """The peak of a device in operations per second; None if it is not known.

    `precision`: `training.precision`; `tf32`: whether fp32 products are computed in tf32.
    """
    if "MIG" in device:  # a part of a device
        return None
    for pattern, peaks in _PEAKS:
        if re.search(pattern, device):
            whole = "Intel" in device and environ.get("ZE_FLAT_DEVICE_HIERARCHY", "").upper() == "COMPOSITE"
            peak = peaks.get("tf32" if precision == "fp32" and tf32 else precision) or peaks.get(precision)
            return None if peak is None else peak * 1e12 * (2 if whole else 1)
    return None
