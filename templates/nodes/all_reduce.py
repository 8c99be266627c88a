"""Run by `castoff doctor --nodes` in each rank: checks that hosts reach each other, and measures all-reduces.

It needs only torch and the standard library, not castoff. Each rank appends its results, a JSON object per
line, to its file in the attempt's folder: the last lines show which rank hangs and where. A rank that exceeds
a stage's time reports this and exits, which ends the job.
"""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import json
import os
import random
import socket
import statistics
import struct
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PATIENCE = {"start": 60.0, "reach": 20.0, "torch": 90.0, "rendezvous": 45.0, "group": 45.0, "sum": 45.0}
"""The most seconds of each stage; an import from a busy file system takes longest."""
PATIENCE["pairs"] = 60.0

REDUCED = (4 << 10, 256 << 10, 4 << 20, 32 << 20)  # bytes
EXCHANGED = (1 << 20, 4 << 20, 16 << 20)
REPEATS = 5

ROUNDS = 8
"""Rounds in which hosts are paired: each host is measured with this many others."""

BUDGET = 1.0
"""Seconds after which no larger size is measured, since it would take eight times as long."""

MOST_REACHED = 32
"""The most hosts that a host tries to reach."""


class Report:
    """Writes this rank's file, and ends the rank if a stage takes too long."""

    def __init__(self, attempt: Path):
        self.attempt, self.folder = attempt, attempt / "doctor"
        self.folder.mkdir(exist_ok=True)
        self.host = socket.gethostname()
        self.rank, self.world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.local_rank, self.node = int(os.environ["LOCAL_RANK"]), int(os.environ["NODE_RANK"])
        self._lock = threading.Lock()
        self.begin("start")
        threading.Thread(target=self._watch, daemon=True).start()

    def say(self, stage: str, **facts: Any) -> None:
        """Append a line."""
        known = {"rank": self.rank, "host": self.host, "node": self.node, "stage": stage, "time": time.time()}
        with self._lock, (self.folder / f"rank-{self.rank}.jsonl").open("a") as file:
            file.write(json.dumps({**known, **facts}) + "\n")

    def begin(self, stage: str) -> None:
        """Begin a stage, and its time limit."""
        self._stage, self._deadline = stage, time.monotonic() + PATIENCE[stage]

    def fail(self, error: BaseException) -> None:
        """Report why this rank ends."""
        self.say("failed", at=self._stage, error=f"{type(error).__name__}: {error}"[:1000])

    def _watch(self) -> None:
        while time.monotonic() < self._deadline:
            time.sleep(0.25)
        self.say("stuck", at=self._stage, seconds=PATIENCE[self._stage])
        time.sleep(3)  # so that other ranks can report before the job ends
        os._exit(3)


# Addresses


def interfaces() -> dict[str, str]:
    """The IPv4 address of each interface that has one, from SIOCGIFADDR."""
    addresses = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):
                answer = fcntl.ioctl(asking, 0x8915, struct.pack("256s", name.encode()[:15]))
                addresses[name] = socket.inet_ntoa(answer[20:24])
    return addresses


def addresses_of(name: str) -> list[str]:
    """The IPv4 addresses of a host name, as this host resolves it."""
    try:
        return sorted({str(info[4][0]) for info in socket.getaddrinfo(name, None, socket.AF_INET)})
    except OSError:
        return []


def way_to(address: str) -> str | None:
    """The interface through which this host would reach an address; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        try:
            asking.connect((address, 9))
        except OSError:
            return None
        source = asking.getsockname()[0]
    return next((name for name, one in interfaces().items() if one == source), None)


def open_door() -> int:
    """Open a port on this host that answers every connection; returns its number."""
    listening = socket.socket()
    listening.bind(("0.0.0.0", 0))
    listening.listen(128)

    def serve() -> None:
        while True:
            peer, _ = listening.accept()
            with peer, contextlib.suppress(OSError):
                peer.sendall(b"castoff")

    threading.Thread(target=serve, daemon=True).start()
    return int(listening.getsockname()[1])


def reach(report: Report) -> None:
    """Try to reach the other hosts by their names; of many, a random selection."""
    own = sorted(interfaces().values())
    report.say("door", port=open_door(), addresses=own, own_name=addresses_of(report.host))
    hosts = report.attempt / "hosts"  # the script writes it if there are several hosts
    nodes = len(hosts.read_text().split()) if hosts.exists() else 1
    others: list[dict[str, Any]] = []
    give_up = time.monotonic() + PATIENCE["reach"] / 2
    while len(others) < nodes - 1 and time.monotonic() < give_up:
        time.sleep(0.1)
        others = [one for one in seen(report.folder, "door") if one["node"] != report.node]
    chosen = random.sample(others, min(len(others), MOST_REACHED))
    report.say("reach", hosts={other["host"]: knock(other) for other in chosen})


def knock(other: dict[str, Any]) -> dict[str, Any]:
    """Try to reach another host: its addresses as resolved on this host, and why it does not answer."""
    name = str(other["host"])
    known = addresses_of(name) or addresses_of(name.partition(".")[0])
    usable = known or [one for one in other["addresses"] if not one.startswith("127.")]
    failure: str | None = "it has no address"
    for address in usable:
        try:
            with socket.create_connection((address, other["port"]), timeout=3) as peer:
                peer.settimeout(3)
                failure = None if peer.recv(7) == b"castoff" else "another program answers"
        except OSError as error:
            failure = f"{address}: {error}"
        if failure is None:
            break
    wrong = bool(known) and not {*known} & {*other["addresses"]}
    return {
        "addresses": known,
        "wrong": wrong,
        "by": way_to(usable[0]) if usable else None,
        "failure": failure,
    }


def seen(folder: Path, stage: str) -> list[dict[str, Any]]:
    """The lines that ranks have written about a stage."""
    lines = []
    for path in folder.iterdir():
        with contextlib.suppress(OSError):
            for line in path.read_text().splitlines():
                with contextlib.suppress(ValueError):  # the line is still being written
                    record = json.loads(line)
                    lines += [record] if record["stage"] == stage else []
    return lines


# torch


def device_of(torch: Any, report: Report) -> tuple[str, Any, str | None]:
    """This rank's backend, device and device name."""
    for kind, backend in (("cuda", "nccl"), ("xpu", "xccl")):
        module = getattr(torch, kind, None)
        if module is not None and module.is_available():
            index = int(os.environ.get("CASTOFF_DEVICE", report.local_rank)) % module.device_count()
            module.set_device(index)
            return backend, torch.device(kind, index), module.get_device_name(index)
    return "gloo", torch.device("cpu"), None


class Fabric:
    """Communication of this rank in the process group, from its device."""

    def __init__(self, torch: Any, report: Report, device: Any):
        self.torch, self.report, self.device = torch, report, device
        self.dist = torch.distributed

    def wait(self) -> None:
        """Wait until the device has finished."""
        if self.device.type != "cpu":
            getattr(self.torch, self.device.type).synchronize(self.device)

    def check_sum(self) -> dict[str, Any]:
        """Check that an all-reduce of whole numbers is exact: float32 represents them exactly below 2**24.

        Each rank adds at most 102, so this holds for up to 160,000 ranks.
        """
        place = self.torch.arange(100_003, dtype=self.torch.float32, device=self.device) % 97
        world = self.report.world
        held = place + self.report.rank % 7
        self.dist.all_reduce(held)
        right = place * world + sum(rank % 7 for rank in range(world))
        wrong = (held != right).nonzero()
        if not len(wrong):
            return {"exact": True}
        at = int(wrong[0])
        return {"exact": False, "wrong": len(wrong), "got": float(held[at]), "right": float(right[at])}

    def time_sums(self) -> dict[int, float]:
        """Median seconds of an all-reduce by size in bytes; larger sizes are skipped after `BUDGET`."""
        medians: dict[int, float] = {}
        begun = time.monotonic()
        for size in REDUCED:
            held = self.torch.ones(size // 4, device=self.device)
            took = []
            for _ in range(REPEATS + 1):
                self.wait()
                before = time.perf_counter()
                self.dist.all_reduce(held)
                self.wait()
                took.append(time.perf_counter() - before)
            medians[size] = statistics.median(took[1:])  # the first one sets up connections and buffers
            late = self.torch.tensor([float(time.monotonic() - begun > BUDGET)], device=self.device)
            self.dist.all_reduce(late)  # so that all ranks stop, or none
            if float(late) > 0:
                break
        return medians

    def exchange(self, partner: int, *, leads: bool) -> dict[str, float]:
        """Measure latency (s) and bandwidth (B/s) with another rank, which calls this at the same time."""

        def timed(held: Any, times: int) -> list[float]:
            took = []
            for _ in range(times):
                before = time.perf_counter()
                for sends in (leads, not leads):
                    (self.dist.send if sends else self.dist.recv)(held, partner)
                self.wait()
                took.append(time.perf_counter() - before)
            return took

        small = self.torch.zeros(2, device=self.device)
        timed(small, 3)
        latency = min(timed(small, 20)) / 2  # other load only makes it longer
        rates, begun = [], time.monotonic()
        for size in EXCHANGED:
            late = self.torch.tensor([float(time.monotonic() - begun > BUDGET)], device=self.device)
            (self.dist.send if leads else self.dist.recv)(late, partner)
            if float(late):
                break
            held = self.torch.zeros(size // 4, device=self.device)
            timed(held, 1)
            rates.append(2 * size / statistics.median(timed(held, 3)))
        return {"latency": latency, "rate": statistics.median(rates)}

    def measure_pairs(self, leaders: list[int]) -> dict[int, dict[str, float]]:
        """The results of `exchange` with each partner, by the partner's rank."""
        results = {}
        for one, other in (pair for pairs in pairings(leaders) for pair in pairs):
            if self.report.rank in (one, other):
                partner = other if self.report.rank == one else one
                results[partner] = self.exchange(partner, leads=self.report.rank == one)
        return results


def pairings(ranks: list[int]) -> Iterator[list[tuple[int, int]]]:
    """Rounds of pairs in which each rank has at most one partner, a new one each time (circle method)."""
    places: list[int | None] = [*ranks, *([None] if len(ranks) % 2 else [])]
    half = len(places) // 2
    for _ in range(min(len(places) - 1, ROUNDS)):
        pairs = zip(places[:half], places[half:][::-1])  # noqa: B905
        yield [(one, other) for one, other in pairs if one is not None and other is not None]
        places = [places[0], places[-1], *places[1:-1]]


def run(report: Report) -> None:
    """Run all stages."""
    leads = report.local_rank == 0
    if leads:
        report.begin("reach")
        reach(report)
    report.begin("torch")
    begun = time.monotonic()
    import torch
    import torch.distributed

    dist: Any = torch.distributed
    backend, device, name = device_of(torch, report)
    took = time.monotonic() - begun
    report.say("torch", version=torch.__version__, seconds=took, backend=backend, device=name)
    report.begin("rendezvous")
    begun = time.monotonic()
    place, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    limit = datetime.timedelta(seconds=PATIENCE["rendezvous"] - 5)
    store = dist.TCPStore(place, port, None, report.rank == 0, timeout=limit, wait_for_workers=False)
    store.set(f"rank-{report.rank}", f"{backend} {int(leads)}")
    known = [store.get(f"rank-{rank}").decode().split() for rank in range(report.world)]
    report.say("rendezvous", seconds=time.monotonic() - begun)
    if len({one for one, _ in known}) > 1:  # some hosts see no devices
        backend, device = "gloo", torch.device("cpu")
    report.begin("group")
    limit = datetime.timedelta(seconds=PATIENCE["pairs"])
    inner = dist.PrefixStore("castoff", store)
    dist.init_process_group(backend, store=inner, rank=report.rank, world_size=report.world, timeout=limit)
    report.say("group", backend=backend)
    report.begin("sum")
    fabric = Fabric(torch, report, device)
    report.say("sum", **fabric.check_sum(), seconds=fabric.time_sums())
    report.begin("pairs")
    leaders = [rank for rank, (_, one) in enumerate(known) if one == "1"]
    report.say("pairs", partners=fabric.measure_pairs(leaders) if leads else {})
    dist.barrier()
    report.say("done")
    store.set(f"over-{report.rank}", "1")
    if report.rank == 0:  # it serves the store, so it exits last
        store.wait([f"over-{rank}" for rank in range(report.world)])


def main() -> None:
    """Run all stages, and report an error."""
    report = Report(Path(os.environ["CASTOFF_ATTEMPT_DIR"]))
    report.say("start", python=sys.version.split()[0], executable=sys.executable)
    try:
        run(report)
    except BaseException as error:  # noqa: BLE001 - any error is a result
        traceback.print_exc()
        report.fail(error)
        sys.stderr.flush()
        os._exit(1)  # a backend's threads may still wait
    os._exit(0)


if __name__ == "__main__":
    main()
