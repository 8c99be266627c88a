"""Hosts that Flux has given to this shell, which runs under `flux alloc` or is a script of flux batch.

A Flux job is a Flux instance itself. castoff asks the instance for its hosts, since no variable lists them.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import msgspec

from castoff.launcher.config.quantities import cpus
from castoff.launcher.config.site_fields import Node
from castoff.launcher.errors import CastoffError
from castoff.launcher.process import files
from castoff.launcher.ranks.hostlist import expand
from castoff.launcher.schedulers.base_allocation import Allocation, no_hosts
from castoff.launcher.schedulers.command import PATIENCE, SchedulerUnreachable, answer_of
from castoff.launcher.schedulers.flux import JOB_VARIABLES, NAME, TITLE
from castoff.launcher.schedulers.flux.jobs import decimal

(_JOB,) = JOB_VARIABLES

_RESOURCES = ["flux", "resource", "R"]
_UNLIMITED = 2**32 - 1


class _Answer(msgspec.Struct):
    """The parts of R, Flux's description of resources (RFC 20), that castoff reads."""

    execution: _Execution


class _Execution(msgspec.Struct):
    R_lite: list[_Ranks]
    nodelist: list[str]


class _Ranks(msgspec.Struct):
    """Brokers, one per host, that have the same resources."""

    rank: str
    children: dict[str, str]


@dataclass(frozen=True)
class FluxAllocation(Allocation):
    """An allocation of Flux. The broker removes variables that enclosing jobs have set for their ranks."""

    scheduler: ClassVar[str] = NAME
    title: ClassVar[str] = TITLE
    reports_end_time: ClassVar[bool] = True

    def devices(self, environ: Mapping[str, str], node: Node) -> int | None:
        """See `Allocation.devices`; the counts are those of the Flux instance."""
        return min(self.device_counts, default=None)

    def larger(self, nodes: int, ranks: int, cores: int, devices: int) -> str:
        """See `Allocation.larger`; here a slot is what the job gets of a host."""
        gpus = f" --gpus-per-slot={ranks * devices}" if devices else ""
        return f"flux alloc --nodes={nodes} --nslots={nodes} --cores-per-slot={ranks * cores}{gpus}"

    def end(self, environ: Mapping[str, str]) -> float | None:
        """See `Allocation.end`. Flux reports the remaining seconds; 4294967295 means no limit."""
        try:
            left = answer_of(["flux", "job", "timeleft"], PATIENCE, environ).strip()
        except SchedulerUnreachable:
            return None
        return time.time() + int(left) if left.isdecimal() and int(left) < _UNLIMITED else None

    def narrowed(self, nodes: int, environ: Mapping[str, str], run: Path, directory: str) -> dict[str, str]:
        """Return `environ` unchanged, since no variable names hosts; if the job leaves hosts unused, a file
        lists the hosts in use.
        """
        if nodes < len(self.hosts):
            files.replace(run / f"hosts-{self.job}", "".join(f"{host}\n" for host in self.hosts[:nodes]))
        return {**environ}


def find(environ: Mapping[str, str]) -> FluxAllocation | None:
    """Return the allocation that the environment describes; None: there is none.

    A shell on a login node, under the machine's own instance, is not in a job; neither is a shell under `flux
    start`.
    """
    job = environ.get(_JOB)
    if not job:
        return None
    if environ.get("FLUX_JOB_SIZE") == "1" and "FLUX_TASK_RANK" in environ:
        raise CastoffError(
            f"this process was itself started by flux run in Flux job {job}, and holds cores for which ranks "
            "would wait: start them in the shell of flux alloc, or in the script of flux batch.\n"
            "On this host alone: castoff launch --here"
        )
    try:
        instance = answer_of(["flux", "getattr", "jobid-path"], PATIENCE, environ).strip()
        if decimal(instance.rpartition("/")[2]) != (number := decimal(job)) or number is None:
            raise _unknown(job, f"flux on this host reaches the instance {instance}, which is not that job's")
        resources = msgspec.json.decode(answer_of(_RESOURCES, PATIENCE, environ), type=_Answer).execution
        hosts = [host for part in resources.nodelist for host in expand(part)]
        cores, devices = (_counts(resources.R_lite, kind, len(hosts)) for kind in ("core", "gpu"))
    except SchedulerUnreachable as error:
        raise _unknown(job, f"{error}") from None
    except (msgspec.DecodeError, ValueError):
        raise _unknown(job, f"the answer of {' '.join(_RESOURCES)} cannot be read") from None
    return FluxAllocation(number, hosts, cores, device_counts=devices)


def _counts(parts: list[_Ranks], kind: str, hosts: int) -> tuple[int, ...]:
    """Count each host's cores or GPUs; empty if a host is missing in the answer. In Flux, a rank is a host's
    number.
    """
    counts = {
        rank: len(_numbers(part.children.get(kind, ""))) for part in parts for rank in _numbers(part.rank)
    }
    return tuple(counts[rank] for rank in sorted(counts)) if len(counts) == hosts else ()


def _numbers(idset: str) -> list[int]:
    return cpus(idset) if idset else []


def _unknown(job: str, why: str) -> CastoffError:
    return no_hosts(
        f"{_JOB}={job} is set, but its hosts are not known: {why}",
        f'export FLUX_URI="$(env -u FLUX_URI flux uri --local {job})", with flux on PATH',
        _JOB,
    )
