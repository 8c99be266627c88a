"""What `castoff doctor --nodes` runs in each rank: can these hosts reach each other, add up, and how fast?

It needs torch and the standard library, and nothing of castoff. Each rank appends what it has come to, a JSON
object a line, to a file of its own in the attempt's folder: so what hangs is known by who wrote what last.
A rank that comes no further within a stage's time says so and ends, which ends the job.
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
"""Seconds that each stage may take; an import from a busy file system takes longest."""
PATIENCE["pairs"] = 60.0

REDUCED = (4 << 10, 256 << 10, 4 << 20, 32 << 20)  # bytes
EXCHANGED = (1 << 20, 4 << 20, 16 << 20)
REPEATS = 5

ROUNDS = 8
"""In how many rounds hosts are paired: each host is then measured with so many others."""

BUDGET = 1.0
"""Seconds after which no larger size is measured: that would take eight times as long."""

MOST_REACHED = 32
"""Hosts that one host tries to reach."""


class Report:
    """This rank's file, and the watch over its stages."""

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
        """Add a line."""
        known = {"rank": self.rank, "host": self.host, "node": self.node, "stage": stage, "time": time.time()}
        with self._lock, (self.folder / f"rank-{self.rank}.jsonl").open("a") as file:
            file.write(json.dumps({**known, **facts}) + "\n")

    def begin(self, stage: str) -> None:
        """Have the watch wait for another stage."""
        self._stage, self._deadline = stage, time.monotonic() + PATIENCE[stage]

    def fail(self, error: BaseException) -> None:
        """Say why this rank ends."""
        self.say("failed", at=self._stage, error=f"{type(error).__name__}: {error}"[:1000])

    def _watch(self) -> None:
        while time.monotonic() < self._deadline:
            time.sleep(0.25)
        self.say("stuck", at=self._stage, seconds=PATIENCE[self._stage])
        time.sleep(3)  # so that all that still can have said so before the job ends
        os._exit(3)


# Addresses


def interfaces() -> dict[str, str]:
    """Each interface that has an address, with it: SIOCGIFADDR knows those of IPv4."""
    found = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):
                answer = fcntl.ioctl(asking, 0x8915, struct.pack("256s", name.encode()[:15]))
                found[name] = socket.inet_ntoa(answer[20:24])
    return found


def addresses_of(name: str) -> list[str]:
    """What a name stands for on this host."""
    try:
        return sorted({str(one[4][0]) for one in socket.getaddrinfo(name, None, socket.AF_INET)})
    except OSError:
        return []


def way_to(address: str) -> str | None:
    """The interface by which this host reaches an address; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        try:
            asking.connect((address, 9))
        except OSError:
            return None
        own = asking.getsockname()[0]
    return next((name for name, one in interfaces().items() if one == own), None)


def open_door() -> int:
    """A port of this host on which every other one is answered."""
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
    """Try to reach the other hosts by their names; of many, some by chance."""
    own = sorted(interfaces().values())
    report.say("door", port=open_door(), addresses=own, own_name=addresses_of(report.host))
    hosts = report.attempt / "hosts"  # the script writes it where there are several
    nodes = len(hosts.read_text().split()) if hosts.exists() else 1
    others: list[dict[str, Any]] = []
    give_up = time.monotonic() + PATIENCE["reach"] / 2
    while len(others) < nodes - 1 and time.monotonic() < give_up:
        time.sleep(0.1)
        others = [one for one in seen(report.folder, "door") if one["node"] != report.node]
    chosen = random.sample(others, min(len(others), MOST_REACHED))
    report.say("reach", hosts={other["host"]: knock(other) for other in chosen})


def knock(other: dict[str, Any]) -> dict[str, Any]:
    """How another host is reached: what its name stands for here, and why it does not answer."""
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
    """What ranks have written of a stage."""
    found = []
    for path in folder.iterdir():
        with contextlib.suppress(OSError):
            for line in path.read_text().splitlines():
                with contextlib.suppress(ValueError):  # the end of what is just being written
                    one = json.loads(line)
                    found += [one] if one["stage"] == stage else []
    return found


# torch


def device_of(torch: Any, report: Report) -> tuple[str, Any, str | None]:
    """The backend and the device that this rank has, and how that is called."""
    for kind, backend in (("cuda", "nccl"), ("xpu", "xccl")):
        module = getattr(torch, kind, None)
        if module is not None and module.is_available():
            index = int(os.environ.get("CASTOFF_DEVICE", report.local_rank)) % module.device_count()
            module.set_device(index)
            return backend, torch.device(kind, index), module.get_device_name(index)
    return "gloo", torch.device("cpu"), None


class Fabric:
    """What the ranks have between them: a process group, and this rank's device."""

    def __init__(self, torch: Any, report: Report, device: Any):
        self.torch, self.report, self.device = torch, report, device
        self.dist = torch.distributed

    def wait(self) -> None:
        """Until what was begun on the device is over."""
        if self.device.type != "cpu":
            getattr(self.torch, self.device.type).synchronize(self.device)

    def check_sum(self) -> dict[str, Any]:
        """Whether an all-reduce gives exactly what it should: whole numbers, which float32 holds below 2**24.

        That is with up to 160,000 ranks, each of which adds 102 at most.
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
        """The median seconds of an all-reduce of each size, and of none larger once one took long."""
        found: dict[int, float] = {}
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
            found[size] = statistics.median(took[1:])  # the first makes connections and buffers
            late = self.torch.tensor([float(time.monotonic() - begun > BUDGET)], device=self.device)
            self.dist.all_reduce(late)  # so that all stop, or none
            if float(late) > 0:
                break
        return found

    def exchange(self, partner: int, *, leads: bool) -> dict[str, float]:
        """Latency and bandwidth between this rank and another one, which does the same at the same time."""

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
        latency = min(timed(small, 20)) / 2  # what else a host does makes it no shorter
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
        """What this host comes to with each of its partners, by their ranks."""
        found = {}
        for one, other in (pair for pairs in pairings(leaders) for pair in pairs):
            if self.report.rank in (one, other):
                partner = other if self.report.rank == one else one
                found[partner] = self.exchange(partner, leads=self.report.rank == one)
        return found


def pairings(ranks: list[int]) -> Iterator[list[tuple[int, int]]]:
    """Rounds in which each has one partner at most, and another one each time (the circle method)."""
    places: list[int | None] = [*ranks, *([None] if len(ranks) % 2 else [])]
    half = len(places) // 2
    for _ in range(min(len(places) - 1, ROUNDS)):
        pairs = zip(places[:half], places[half:][::-1])  # noqa: B905
        yield [(one, other) for one, other in pairs if one is not None and other is not None]
        places = [places[0], places[-1], *places[1:-1]]


def run(report: Report) -> None:
    """Go through the stages."""
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
    if len({one for one, _ in known}) > 1:  # some hosts do not see their devices
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
    if report.rank == 0:  # which has the store, and leaves last
        store.wait([f"over-{rank}" for rank in range(report.world)])


def main() -> None:
    """Run, and say what fails."""
    report = Report(Path(os.environ["CASTOFF_ATTEMPT_DIR"]))
    report.say("start", python=sys.version.split()[0], executable=sys.executable)
    try:
        run(report)
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is what the user asked for
        traceback.print_exc()
        report.fail(error)
        sys.stderr.flush()
        os._exit(1)  # whatever threads of a backend still wait
    os._exit(0)


if __name__ == "__main__":
    main()
