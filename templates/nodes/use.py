"""Records what a job uses on a node: `python3 -ISB use.py ATTEMPT_DIR NODE NODES PARENT [shared]`.

It appends a line of JSON to ATTEMPT_DIR/use/node-NNNNN.jsonl every few seconds, less often the longer the job
runs; docs/how-to/use.md lists the keys. It needs only the standard library of Python 3.6 or
newer, so annotations that older ones cannot evaluate are texts. It ends with the process PARENT, never writes
to the job's output, and rests for a thousand times as long as each sample took.
"""

import ctypes
import json
import os
import re
import signal
import sys
import time

TYPE_CHECKING = False  # typing, collections.abc and socket would take a third of the time to start
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

FIRST, PAUSE, LONGEST = 1.0, 5.0, 15.0
"""Seconds before the first sample, between samples, and at most between samples."""

LINES_EACH = 200
"""Number of lines after which they come half as often: 2,000 lines last a week."""

NODES_A_SECOND = 20
"""The most lines that all nodes together write in a second, for the file system's sake."""

REST = 1000
"""How many times as long as a sample took it rests afterwards, so that it takes less than 0.1 % of a core."""

GENTLE = 19

MASKS = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ZE_AFFINITY_MASK")
"""Variables that name the devices which a process may use."""

_PDEATHSIG = 1  # prctl(2)


def read(path: str) -> str:
    """The text of a file; empty if it cannot be read."""
    try:
        with open(path, errors="replace") as file:  # pathlib takes time to import
            return file.read()
    except (OSError, ValueError):
        return ""


def number(path: str) -> "int | None":
    """The number in a file, if it holds one."""
    text = read(path).strip()
    return int(text) if text.isdigit() else None


def table(text: str) -> "dict[str, int]":
    """The numbers in lines such as `anon 123` or `read_bytes: 123`."""
    pairs = (line.split() for line in text.splitlines())
    return {pair[0].rstrip(":"): int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}


class Group:
    """The job's control group on this node, whose counts include processes that have ended."""

    def __init__(self, job: str, cgroups: str, root: str):
        """`job`: the scheduler's number; `cgroups`: the text of /proc/self/cgroup; `root`: /sys/fs/cgroup."""
        self.cpu = self.memory = ""
        for line in cgroups.splitlines():
            _, kinds, path = line.split(":", 2)
            found = of_job(path, job)
            if not found:
                continue
            if not kinds and os.path.exists(root + found + "/memory.stat"):
                self.cpu = self.memory = root + found
                return
            if "cpuacct" in kinds.split(","):
                self.cpu = next(
                    filter(os.path.isdir, (root + "/" + kinds + found, root + "/cpuacct" + found)), ""
                )
            elif kinds == "memory":
                self.memory = root + "/memory" + found

    def seconds(self) -> "float | None":
        """The CPU time that the job has used; None if not known."""
        if not self.cpu:
            return None
        microseconds = table(read(self.cpu + "/cpu.stat")).get("usage_usec")
        if microseconds is not None:
            return microseconds / 1e6
        nanoseconds = number(self.cpu + "/cpuacct.usage")
        return None if nanoseconds is None else nanoseconds / 1e9

    def used(self) -> "int | None":
        """The bytes that the job's processes hold, without the kernel's cache of files; None if not known."""
        if not self.memory:
            return None
        held = table(read(self.memory + "/memory.stat"))
        if "anon" in held:
            return held["anon"] + held.get("shmem", 0)
        return held["total_rss"] + held.get("total_shmem", 0) if "total_rss" in held else None

    def limit(self) -> "int | None":
        """The bytes that the job may hold; None without a limit."""
        if not self.memory:
            return None
        limit = number(self.memory + "/memory.max") or number(self.memory + "/memory.limit_in_bytes")
        return limit if limit and limit < 1 << 60 else None

    def cpus(self) -> int:
        """How many CPUs the job may use; 0: not known."""
        listed = read(self.cpu + "/cpuset.cpus.effective").strip() if self.cpu else ""
        return sum(
            1 + int(part.split("-")[-1]) - int(part.split("-")[0]) for part in listed.split(",") if part
        )


def of_job(path: str, job: str) -> str:
    """The part of a control group's path that ends at the job's own group; empty if none is the job's."""
    if not job:
        return ""
    parts = path.split("/")
    for index, part in enumerate(parts):
        if re.search(r"(?<!\d)" + job + r"(?!\d)", part) and not re.match("(uid|user|step|task)[-_]", part):
            return "/".join(parts[: index + 1])
    return ""


class Processes:
    """The processes of the attempt on this node, recognised by their environment."""

    def __init__(self, attempt: str, proc: str = "/proc"):
        self.mark = b"\0CASTOFF_ATTEMPT_DIR=" + os.fsencode(attempt) + b"\0"
        self.proc = proc
        self.ours: set[str] = set()
        self.others: set[str] = set()
        self.doubtful: set[str] = set()
        """Those seen once without the mark: a process has other variables once it runs a program."""
        self.shown: dict[str, list[str]] = {name: [] for name in MASKS}
        """The devices that any of ours has been shown, by variable."""
        self.tick = os.sysconf("SC_CLK_TCK")
        self.page = os.sysconf("SC_PAGE_SIZE")

    def look(self) -> "dict[str, Any]":
        """What they hold now, and have used until now. A process that its parent has waited for still counts,
        because the kernel adds what it used to its parent's numbers.
        """
        ticks = held = mapped = 0
        moved = {"read_bytes": 0, "write_bytes": 0}
        cpus: set[int] = set()
        for pid in self._find():
            stat = read(f"{self.proc}/{pid}/stat").rpartition(")")[2].split()
            memory = read(f"{self.proc}/{pid}/statm").split()
            if len(stat) < 15 or len(memory) < 3:
                continue
            ticks += sum(map(int, stat[11:15]))
            held += int(memory[1]) - int(memory[2])
            mapped = max(mapped, int(memory[2]))  # shared memory and files: the same pages in many processes
            for name, value in table(read(f"{self.proc}/{pid}/io")).items():
                if name in moved:
                    moved[name] += value
            try:
                cpus |= os.sched_getaffinity(int(pid))
            except OSError:
                pass
        found = {"cpu": ticks / self.tick, "mem": (held + mapped) * self.page, "cpus": len(cpus)}
        return dict(found, read=moved["read_bytes"], write=moved["write_bytes"])

    def _find(self) -> "set[str]":
        now = {name for name in os.listdir(self.proc) if name.isdigit()}
        self.ours &= now
        self.others &= now
        doubtful, self.doubtful = self.doubtful, set()
        for pid in now - self.ours - self.others:
            try:
                with open(f"{self.proc}/{pid}/environ", "rb") as file:
                    variables = file.read()
            except OSError:  # another user's
                self.others.add(pid)
                continue
            if self.mark in b"\0" + variables:
                self.ours.add(pid)
                self._add_masks(variables)
            else:
                (self.others if pid in doubtful else self.doubtful).add(pid)
        return self.ours

    def _add_masks(self, variables: bytes) -> None:
        for variable in variables.split(b"\0"):
            name, _, mask = variable.decode(errors="replace").partition("=")
            if name in self.shown:
                known = self.shown[name]
                known.extend(word for word in chosen(mask, 0) if word not in known)


def network(proc: str = "/proc", sys_folder: str = "/sys") -> "tuple[int, int]":
    """The bytes that this node has received and sent by its network devices, whichever job they were for."""
    received = sent = 0
    for line in read(proc + "/net/dev").splitlines()[2:]:
        name, _, rest = line.partition(":")
        numbers = rest.split()
        if len(numbers) >= 9 and os.path.exists(f"{sys_folder}/class/net/{name.strip()}/device"):
            received += int(numbers[0])
            sent += int(numbers[8])
    fabric = sys_folder + "/class/infiniband"
    for device in names(fabric):
        for port in names(f"{fabric}/{device}/ports"):
            counters = f"{fabric}/{device}/ports/{port}/counters/port_"
            received += 4 * (number(counters + "rcv_data") or 0)  # in words of four bytes
            sent += 4 * (number(counters + "xmit_data") or 0)
    return received, sent


def names(folder: str) -> "list[str]":
    """The names in a folder, in order; none if it cannot be read."""
    try:
        return sorted(os.listdir(folder), key=lambda name: [int(one) for one in re.findall(r"\d+", name)])
    except OSError:
        return []


# Devices: each kind has `key`, `name`, `total` bytes, and `look()`, which returns the fraction of the time in
# which the device computed, or None if that is not known, and the bytes in use.


class Nvidia:
    """A device of NVIDIA's management library, or a part of one (MIG), whose use is not known."""

    def __init__(self, library: "Any", handle: "Any"):
        self.library, self.handle, self.key = library, handle, handle.value
        text = ctypes.create_string_buffer(96)
        self.name = text.value.decode() if not library.nvmlDeviceGetName(handle, text, 96) else "NVIDIA"
        self.total = self._memory()[0]

    def _memory(self) -> "tuple[int, int | None]":
        numbers = (ctypes.c_ulonglong * 3)()  # total, free, used
        if self.library.nvmlDeviceGetMemoryInfo(self.handle, numbers):
            return 0, None
        return int(numbers[0]), int(numbers[2])

    def look(self) -> "tuple[float | None, int | None]":
        """See above."""
        rates = (ctypes.c_uint * 2)()  # percent of the last sampling period: computing, memory
        failed = self.library.nvmlDeviceGetUtilizationRates(self.handle, rates)
        return None if failed else rates[0] / 100, self._memory()[1]

    @classmethod
    def all(cls, mask: "str | None") -> "Iterator[Nvidia]":
        """The devices that `mask` (CUDA_VISIBLE_DEVICES) shows; those of the node that the job may open."""
        library = ctypes.CDLL("libnvidia-ml.so.1")
        if library.nvmlInit_v2():
            return
        count = ctypes.c_uint()
        library.nvmlDeviceGetCount_v2(ctypes.byref(count))
        for word in chosen(mask, count.value):
            handle = ctypes.c_void_p()
            if word.isdigit():
                failed = library.nvmlDeviceGetHandleByIndex_v2(int(word), ctypes.byref(handle))
            else:
                failed = library.nvmlDeviceGetHandleByUUID(word.encode(), ctypes.byref(handle))
            if not failed:
                yield cls(library, handle)


class Amd:
    """A device of the driver amdgpu, by its files."""

    def __init__(self, folder: str):
        self.folder = self.key = folder
        self.name = read(folder + "/product_name").strip() or "AMD"
        self.total = number(folder + "/mem_info_vram_total") or 0

    def look(self) -> "tuple[float | None, int | None]":
        """See above."""
        busy = number(self.folder + "/gpu_busy_percent")
        return None if busy is None else busy / 100, number(self.folder + "/mem_info_vram_used")

    @classmethod
    def all(cls, mask: "str | None", sys_folder: str = "/sys") -> "Iterator[Amd]":
        """The devices that `mask` (ROCR_VISIBLE_DEVICES and the like) shows, in the order of their buses."""
        drm = sys_folder + "/class/drm"
        folders = [f"{drm}/{name}/device" for name in names(drm) if re.match(r"card\d+$", name)]
        ours = [folder for folder in folders if read(folder + "/vendor").strip() == "0x1002"]
        ours.sort(key=os.path.realpath)
        unique = ["GPU-" + read(folder + "/unique_id").strip() for folder in ours]
        for word in chosen(mask, len(ours)):
            if word.isdigit() and int(word) < len(ours):
                yield cls(ours[int(word)])
            elif word in unique:
                yield cls(ours[unique.index(word)])


class _IntelMemory(ctypes.Structure):
    _fields_ = [
        ("stype", ctypes.c_int),
        ("next", ctypes.c_void_p),
        ("health", ctypes.c_int),
        ("free", ctypes.c_uint64),
        ("size", ctypes.c_uint64),
    ]


class _IntelEngine(ctypes.Structure):
    _fields_ = [
        ("stype", ctypes.c_int),
        ("next", ctypes.c_void_p),
        ("type", ctypes.c_int),
        ("on_subdevice", ctypes.c_uint8),
        ("subdevice", ctypes.c_uint32),
    ]


class Intel:
    """A device of Level Zero's Sysman; its engines' activity is the mean over its tiles."""

    _ENGINE, _MEMORY = 0x5, 0x1E  # zes_structure_type_t
    _ALL_ENGINES = 0  # zes_engine_group_t

    name = "Intel"

    def __init__(self, library: "Any", device: "Any"):
        self.library, self.key = library, device.value
        self.modules = _handles(library.zesDeviceEnumMemoryModules, device)
        self.engines = [
            engine
            for engine in _handles(library.zesDeviceEnumEngineGroups, device)
            if self._type(engine) == self._ALL_ENGINES
        ]
        self.before = [self._activity(engine) for engine in self.engines]
        self.total = self._memory()[0]

    def _type(self, engine: "Any") -> int:
        facts = _IntelEngine(stype=self._ENGINE)
        return -1 if self.library.zesEngineGetProperties(engine, ctypes.byref(facts)) else int(facts.type)

    def _activity(self, engine: "Any") -> "tuple[int, int]":
        numbers = (ctypes.c_uint64 * 2)()  # microseconds: active, and when
        failed = self.library.zesEngineGetActivity(engine, numbers)
        return (0, 0) if failed else (int(numbers[0]), int(numbers[1]))

    def _memory(self) -> "tuple[int, int | None]":
        total = 0
        used: int | None = None
        for module in self.modules:
            state = _IntelMemory(stype=self._MEMORY)
            if not self.library.zesMemoryGetState(module, ctypes.byref(state)):
                total += state.size
                used = (used or 0) + state.size - state.free
        return total, used

    def look(self) -> "tuple[float | None, int | None]":
        """See above."""
        now = [self._activity(engine) for engine in self.engines]
        spent = [(new[0] - old[0], new[1] - old[1]) for new, old in zip(now, self.before) if new[1] > old[1]]
        self.before = now
        busy = [min(max(active / took, 0.0), 1.0) for active, took in spent]
        return sum(busy) / len(busy) if busy else None, self._memory()[1]

    @classmethod
    def all(cls, mask: "str | None") -> "Iterator[Intel]":
        """The devices of which `mask` (ZE_AFFINITY_MASK) shows a tile; without dots, it may count tiles."""
        library = ctypes.CDLL("libze_loader.so.1")
        if library.zesInit(0):
            return
        drivers = _handles(lambda *words: library.zesDriverGet(*words[1:]), None)
        found = [cls(library, one) for driver in drivers for one in _handles(library.zesDeviceGet, driver)]
        by_device = "." in (mask or "") or os.environ.get("ZE_FLAT_DEVICE_HIERARCHY") == "COMPOSITE"
        if mask is not None and not by_device:
            found = [one for one in found for _ in range(max(len(one.engines), 1))]
        shown = [word.partition(".")[0] for word in chosen(mask, len(found))]
        ours = [found[int(word)] for word in shown if word.isdigit() and int(word) < len(found)]
        yield from sorted(set(ours), key=ours.index)


def _handles(function: "Any", owner: "Any") -> "list[ctypes.c_void_p]":
    """What a function of Level Zero lists: it is asked for their number, then for themselves."""
    count = ctypes.c_uint32()
    if function(owner, ctypes.byref(count), None) or not count.value:
        return []
    found = (ctypes.c_void_p * count.value)()
    return [] if function(owner, ctypes.byref(count), found) else [ctypes.c_void_p(one) for one in found]


def chosen(mask: "str | None", count: int) -> "list[str]":
    """The devices that a mask shows, in its order; all if there is no mask."""
    if mask is None:
        return [str(index) for index in range(count)]
    words: list[str] = []
    for word in mask.split(","):
        if not word.strip() or word.strip().startswith("-") or word.strip() == "NoDevFiles":
            break
        words.append(word.strip())
    return words


def devices(masks: "dict[str, str]") -> "list[Any]":
    """The devices of this job, of the first kind of which there are any."""
    rocm = masks.get("ROCR_VISIBLE_DEVICES", masks.get("HIP_VISIBLE_DEVICES"))
    kinds: tuple[Any, ...] = (
        lambda: Nvidia.all(masks.get("CUDA_VISIBLE_DEVICES")),
        lambda: Amd.all(rocm),
        lambda: Intel.all(masks.get("ZE_AFFINITY_MASK")),
    )
    for kind in kinds:
        try:
            found = list(kind())
        except (OSError, AttributeError):  # no such library, or one without these functions
            continue
        if found:
            return found
    return []


class Sampler:
    """Samples until the line is due, then gives its keys."""

    def __init__(self, attempt: str, job: str):
        self.group = Group(job, read("/proc/self/cgroup"), "/sys/fs/cgroup")
        self.processes = Processes(attempt)
        self.devices: list[Any] = []
        self.masks: dict[str, str] = {}
        self.before = self._counts(self.processes.look())
        self._begin()
        self.add_devices(first=True)

    def add_devices(self, first: bool = False) -> bool:
        """Whether there are more devices than before: the launcher may show each rank its own."""
        given = {name: os.environ[name] for name in MASKS if name in os.environ}
        masks = {
            name: ",".join(
                chosen(mask, 0) + [word for word in self.processes.shown[name] if word not in mask.split(",")]
            )
            for name, mask in given.items()
        }
        if masks == self.masks and not first:
            return False
        self.masks = masks
        known = {one.key for one in self.devices}
        more = [one for one in devices(masks) if one.key not in known]
        self.devices += more
        self.busy += [[] for _ in more]
        self.held += [None for _ in more]
        return bool(more)

    def facts(self) -> "dict[str, Any]":
        """The file's first line, which follows again when there are more devices."""
        gpus = [{"name": one.name, "mem": one.total} for one in self.devices]
        total = table(read("/proc/meminfo").replace(" kB", "")).get("MemTotal", 0) * 1024
        by = "processes" if self.group.seconds() is None else "cgroup"
        facts = {"host": os.uname().nodename, "by": by, "node_cpus": os.cpu_count(), "node_mem": total}
        return dict(facts, limit=self.group.limit(), gpus=gpus)

    def _begin(self) -> None:
        self.memory = 0
        self.busy: list[list[float]] = [[] for _ in self.devices]
        self.held: list[int | None] = [None for _ in self.devices]

    def _counts(self, seen: "dict[str, Any]") -> "dict[str, float]":
        received, sent = network()
        seconds = self.group.seconds()
        cpu = seen["cpu"] if seconds is None else seconds
        return {
            "at": time.monotonic(),
            "cpu": cpu,
            "read": seen["read"],
            "write": seen["write"],
            "rx": received,
            "tx": sent,
        }

    def look(self) -> "dict[str, Any]":
        """Take a sample."""
        seen = self.processes.look()
        used = self.group.used()
        self.memory = max(self.memory, seen["mem"] if used is None else used)
        for index, device in enumerate(self.devices):
            busy, held = device.look()
            if busy is not None:
                self.busy[index].append(busy)
            if held is not None:
                self.held[index] = max(held, self.held[index] or 0)
        return seen

    def line(self, seen: "dict[str, Any]") -> "dict[str, Any]":
        """The line of the samples since the last, of which `seen` is the newest."""
        now, before = self._counts(seen), self.before
        took = max(now["at"] - before["at"], 1e-3)
        rates = {
            name: max(now[name] - before[name], 0) / took for name in ("cpu", "read", "write", "rx", "tx")
        }
        line: dict[str, Any] = {
            "t": round(time.time(), 1),
            "dt": round(took, 1),
            "cpu": round(rates.pop("cpu"), 3),
        }
        line.update(mem=self.memory, cpus=self.group.cpus() or seen["cpus"])
        line.update((name, int(rate)) for name, rate in rates.items())
        if self.devices:
            line["gpu"] = [round(sum(one) / len(one), 3) if one else None for one in self.busy]
            line["gpu_mem"] = self.held
        self.before = now
        self._begin()
        return line


class Lines:
    """The file, to which whole lines are appended; on a full disk, fewer."""

    def __init__(self, folder: str, node: int):
        try:
            os.mkdir(folder, 0o700)
        except FileExistsError:  # of another node
            pass
        path = f"{folder}/node-{node:05d}.jsonl"
        self.file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
        self.torn = False

    def write(self, line: "dict[str, Any]") -> None:
        """Append a line, if there is room."""
        text = ("\n" if self.torn else "") + json.dumps(line, separators=(",", ":")) + "\n"
        try:
            self.torn = os.write(self.file, text.encode()) < len(text)
        except OSError:
            pass

    @property
    def is_there(self) -> bool:
        """Whether the run directory still exists."""
        return os.fstat(self.file).st_nlink > 0


def pauses(nodes: int) -> "Iterator[float]":
    """Seconds between the lines of one of so many nodes."""
    pause = max(PAUSE, nodes / NODES_A_SECOND)
    yield min(FIRST, pause)
    while True:
        for _ in range(LINES_EACH):
            yield pause
        pause *= 2


def job_of(attempt: str) -> str:
    """The scheduler's number of the job; empty if it is not known."""
    try:
        job = str(json.loads(read(attempt + "/start.json") or "{}").get("job", ""))
    except (ValueError, AttributeError):
        return ""
    found = re.match(r"\d+", job)
    return found.group() if found else ""


def follow(parent: int) -> None:
    """End when `parent` ends, and disturb nobody until then."""
    ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before
        sys.exit()
    for each in ("INT", "HUP", "QUIT", "TERM", "USR1", "USR2"):  # the shell would report that one ended it
        signal.signal(getattr(signal, "SIG" + each), signal.SIG_IGN)
    os.nice(GENTLE)
    os.chdir("/")
    for name in os.listdir("/proc/self/fd"):  # launchers wait for the end of what has their files
        if int(name) > 2:
            try:
                os.close(int(name))
            except OSError:
                pass


def main(attempt: str, node: int, nodes: int, parent: int, shared: bool) -> None:
    """Sample until the end of `parent`. `shared`: the job's control group holds more than this attempt."""
    follow(parent)
    lines = Lines(attempt + "/use", node)
    sampler = Sampler(attempt, "" if shared else job_of(attempt))
    lines.write(sampler.facts())
    rest = 0.0
    for pause in pauses(nodes):
        due = time.monotonic() + pause
        left = pause
        while left > 0:
            time.sleep(max(min(left, LONGEST), rest))
            if os.getppid() != parent or not lines.is_there:
                return
            began = time.process_time()
            seen = sampler.look()
            left = due - time.monotonic()
            if left <= 0:
                lines.write(sampler.line(seen))
                if sampler.add_devices():
                    lines.write(sampler.facts())
            rest = (time.process_time() - began) * REST


if __name__ == "__main__":
    try:
        main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), len(sys.argv) > 5)
    except Exception:  # noqa: BLE001 - whatever happens here, it is not the job's
        sys.exit(0)
