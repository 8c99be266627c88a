"""The program that records on each node what a job uses, and the jobs that start it."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

from castoff.launcher.history.use import parse
from castoff.launcher.planning.render import template_folder
from tests import patience
from tests.conftest import Castoff, SystemProgram

PROGRAM = template_folder() / "nodes" / "use.py"


@pytest.fixture(scope="module")
def sampler() -> Any:
    spec = importlib.util.spec_from_file_location("castoff_use", PROGRAM)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def written(folder: Path, files: Mapping[str, object]) -> str:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    return str(folder)


def test_it_runs_with_the_oldest_python_of_a_node() -> None:
    text = PROGRAM.read_text()
    ast.parse(text, feature_version=(3, 6))
    for found in ast.walk(ast.parse(text)):
        if isinstance(found, ast.FunctionDef):  # whose annotations are evaluated there
            given = [one.annotation for one in found.args.args]
            for annotation in filter(None, [*given, found.returns]):
                assert not isinstance(annotation, ast.Subscript | ast.BinOp), (found.name, found.lineno)


@pytest.mark.parametrize(
    ("path", "job", "wanted"),
    [
        (
            "/system.slice/slurmstepd.scope/job_12/step_0/user/task_0",
            "12",
            "/system.slice/slurmstepd.scope/job_12",
        ),
        ("/slurm/uid_12/job_12/step_12", "12", "/slurm/uid_12/job_12"),
        ("/pbs_jobs.service/jobid/12.host", "12", "/pbs_jobs.service/jobid/12.host"),
        ("/lsf/hpc/job.12.345.678", "12", "/lsf/hpc/job.12.345.678"),
        ("/slurm/uid_0/job_123/step_0", "12", ""),
        ("/user.slice/session-12.scope", "", ""),
    ],
)
def test_the_group_of_a_job(sampler: Any, path: str, job: str, wanted: str) -> None:
    assert sampler.of_job(path, job) == wanted


def test_a_control_group_of_version_2(sampler: Any, tmp_path: Path) -> None:
    root = written(
        tmp_path,
        {
            "job_7/cpu.stat": "usage_usec 2500000\nuser_usec 1",
            "job_7/memory.stat": "anon 1000\nfile 999999\nshmem 24",
            "job_7/memory.max": 4096,
            "job_7/cpuset.cpus.effective": "0-3,8",
        },
    )
    group = sampler.Group("7", "0::/job_7/step_0/task_0\n", root)
    assert (group.seconds(), group.used(), group.limit(), group.cpus()) == (2.5, 1024, 4096, 5)


def test_control_groups_of_version_1(sampler: Any, tmp_path: Path) -> None:
    root = written(
        tmp_path,
        {
            "cpu,cpuacct/slurm/job_7/cpuacct.usage": 2_500_000_000,
            "memory/slurm/job_7/memory.stat": "rss 1\ntotal_rss 1000\ntotal_shmem 24",
            "memory/slurm/job_7/memory.limit_in_bytes": 9223372036854771712,
        },
    )
    groups = "4:cpu,cpuacct:/slurm/job_7/step_0\n3:memory:/slurm/job_7/step_0\n0::/\n"
    group = sampler.Group("7", groups, root)
    assert (group.seconds(), group.used(), group.limit(), group.cpus()) == (2.5, 1024, None, 0)
    other = sampler.Group("8", groups, root)
    assert (other.seconds(), other.used(), other.limit()) == (None, None, None)


def test_processes_are_those_of_the_attempt(sampler: Any, tmp_path: Path) -> None:
    def process(pid: int, environ: str, ticks: int, pages: int, shared: int) -> None:
        stat = f"{pid} (a ) b) S 1 1 1 0 0 0 0 0 0 0 {ticks} 1 2 3 0"
        written(tmp_path / str(pid), {"environ": environ, "stat": stat, "statm": f"9 {pages} {shared} 0"})
        written(tmp_path / str(pid), {"io": "rchar: 5\nread_bytes: 100\nwrite_bytes: 7"})

    process(101, "A=1\0CASTOFF_ATTEMPT_DIR=/run/0.0\0B=2\0", 94, 30, 10)
    process(102, "CASTOFF_ATTEMPT_DIR=/run/0.0\0", 94, 30, 20)
    process(103, "CASTOFF_ATTEMPT_DIR=/run/0.01\0", 1000, 1000, 0)
    processes = sampler.Processes("/run/0.0", str(tmp_path))
    found = processes.look()
    page, tick = os.sysconf("SC_PAGE_SIZE"), os.sysconf("SC_CLK_TCK")
    assert found["cpu"] == 200 / tick
    assert found["mem"] == (20 + 10 + 20) * page
    assert (found["read"], found["write"]) == (200, 14)
    (tmp_path / "102" / "stat").unlink()  # it ends just now
    assert processes.look()["cpu"] == 100 / tick


def test_a_process_that_is_about_to_run_a_program_is_looked_at_again(sampler: Any, tmp_path: Path) -> None:
    """Until then it has the variables of the script, which have no attempt yet."""
    process = tmp_path / "101"
    files = {"stat": "101 (sh) S 1 1 1 0 0 0 0 0 0 0 5 0 0 0 0", "statm": "9 9 9 0", "environ": "A=1"}
    written(process, files)
    processes = sampler.Processes("/run/0.0", str(tmp_path))
    assert processes.look()["cpu"] == 0
    written(process, {"environ": "CASTOFF_ATTEMPT_DIR=/run/0.0\0ROCR_VISIBLE_DEVICES=1,3\0"})
    assert processes.look()["cpu"] > 0
    assert processes.shown["ROCR_VISIBLE_DEVICES"] == ["1", "3"]


def test_devices_that_the_launcher_shows_to_other_ranks_are_added(
    sampler: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Device:
        name, total = "A", 1000

        def __init__(self, key: str):
            self.key = key

        def look(self) -> tuple[float, int]:
            return 0.5, int(self.key)

    monkeypatch.setattr(
        sampler, "devices", lambda masks: [*map(Device, masks["CUDA_VISIBLE_DEVICES"].split(","))]
    )
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2")
    one = sampler.Sampler(str(tmp_path), "")
    assert len(one.facts()["gpus"]) == 1
    assert not one.add_devices()
    one.processes.shown["CUDA_VISIBLE_DEVICES"] += ["2", "5"]
    assert one.add_devices()
    assert len(one.facts()["gpus"]) == 2
    line = one.line(one.look())
    assert (line["gpu"], line["gpu_mem"]) == ([0.5, 0.5], [2, 5])


def test_the_network_of_a_node(sampler: Any, tmp_path: Path) -> None:
    line = "{}: {} 0 0 0 0 0 0 0 {} 0 0 0 0 0 0 0"
    shown = "\n".join(["Inter-|", " face |", line.format("lo", 9, 9), line.format(" eth0", 100, 50)])
    proc = written(tmp_path / "proc", {"net/dev": shown})
    port = "class/infiniband/mlx5_0/ports/1/counters"
    files = {"class/net/eth0/device/x": 1, f"{port}/port_rcv_data": 10, f"{port}/port_xmit_data": 20}
    assert sampler.network(proc, written(tmp_path / "sys", files)) == (140, 130)


@pytest.mark.parametrize(
    ("mask", "wanted"),
    [
        (None, ["0", "1"]),
        ("1", ["1"]),
        ("", []),
        ("-1", []),
        ("0,-1,1", ["0"]),
        ("NoDevFiles", []),
        ("GPU-ab, 1", ["GPU-ab", "1"]),
    ],
)
def test_masks(sampler: Any, mask: str | None, wanted: list[str]) -> None:
    assert sampler.chosen(mask, 2) == wanted


def test_devices_of_amd(sampler: Any, tmp_path: Path) -> None:
    files: dict[str, object] = {"class/drm/card0/device/vendor": "0x1234", "class/drm/renderD128/x": 1}
    for card, busy in ((1, 20), (2, 90), (10, 35)):
        folder = f"class/drm/card{card}/device"
        files |= {
            f"{folder}/vendor": "0x1002",
            f"{folder}/gpu_busy_percent": busy,
            f"{folder}/unique_id": f"a{card}",
        }
        files |= {f"{folder}/mem_info_vram_total": 1000, f"{folder}/mem_info_vram_used": card}
    root = written(tmp_path, files)
    found = [*sampler.Amd.all(None, root)]
    assert sorted(one.look() for one in found) == [(0.2, 1), (0.35, 10), (0.9, 2)]
    assert [one.look() for one in sampler.Amd.all("GPU-a2", root)] == [(0.9, 2)]
    assert len([*sampler.Amd.all("1", root)]) == 1


NVIDIA = r"""
#include <string.h>
typedef struct { unsigned long long total, free, used; } memory_t;
typedef struct { unsigned int gpu, memory; } rates_t;
static char devices[3];
int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned int *count) { *count = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned int at, void **device) { *device = &devices[at]; return at > 1; }
int nvmlDeviceGetHandleByUUID(const char *id, void **device) {
  *device = &devices[2];
  return strcmp(id, "MIG-1") != 0;
}
int nvmlDeviceGetName(void *device, char *name, unsigned int size) { strncpy(name, "Fake", size); return 0; }
int nvmlDeviceGetMemoryInfo(void *device, memory_t *found) {
  memory_t known = {1000, 600, 400};
  *found = known;
  return 0;
}
int nvmlDeviceGetUtilizationRates(void *device, rates_t *found) {
  if (device == (void *)&devices[2]) return 3; /* NVML_ERROR_NOT_SUPPORTED, as with MIG */
  found->gpu = device == (void *)&devices[1] ? 75 : 25;
  return 0;
}
"""

LEVEL_ZERO = r"""
#include <stdint.h>
typedef struct { int stype; void *next; int health; uint64_t free, size; } memory_t;
typedef struct { int stype; void *next; int type; uint8_t on_subdevice; uint32_t subdevice; } engine_t;
typedef struct { uint64_t active, at; } stats_t;
static char devices[2], engines[6], memories[2];
static uint64_t asked;
int zesInit(int flags) { return flags; }
#define LISTS(type, count_of, first) \
  if (!found) { *count = count_of; return 0; } \
  for (uint32_t one = 0; one < *count; one++) found[one] = first + one; \
  return 0;
int zesDriverGet(uint32_t *count, void **found) { LISTS(char, 1, devices) }
int zesDeviceGet(void *driver, uint32_t *count, void **found) { LISTS(char, 2, devices) }
int zesDeviceEnumEngineGroups(void *device, uint32_t *count, void **found) {
  LISTS(char, 3, engines + 3 * ((char *)device - devices))
}
int zesDeviceEnumMemoryModules(void *device, uint32_t *count, void **found) {
  LISTS(char, 1, memories + ((char *)device - devices))
}
int zesEngineGetProperties(void *engine, engine_t *found) {
  if (found->stype != 5) return 1;
  found->type = ((char *)engine - engines) % 3 == 2 ? 3 : 0; /* two tiles, and an engine that copies */
  return 0;
}
int zesEngineGetActivity(void *engine, stats_t *found) {
  asked += 1000;
  found->at = asked;
  found->active = asked / (((char *)engine - engines) % 3 ? 2 : 1);
  return 0;
}
int zesMemoryGetState(void *memory, memory_t *found) {
  if (found->stype != 0x1e) return 1;
  found->size = 1000;
  found->free = memory == (void *)memories ? 900 : 100;
  return 0;
}
"""

ASK = """
import importlib.util, json, os, sys
spec = importlib.util.spec_from_file_location("use", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
print(json.dumps([[one.name, one.total, *one.look()] for one in module.devices(dict(os.environ))]))
"""


@pytest.mark.parametrize(
    ("library", "code", "mask", "wanted"),
    [
        ("libnvidia-ml.so.1", NVIDIA, {}, [["Fake", 1000, 0.25, 400], ["Fake", 1000, 0.75, 400]]),
        ("libnvidia-ml.so.1", NVIDIA, {"CUDA_VISIBLE_DEVICES": "1"}, [["Fake", 1000, 0.75, 400]]),
        ("libnvidia-ml.so.1", NVIDIA, {"CUDA_VISIBLE_DEVICES": "MIG-1"}, [["Fake", 1000, None, 400]]),
        ("libnvidia-ml.so.1", NVIDIA, {"CUDA_VISIBLE_DEVICES": "7"}, []),
        ("libnvidia-ml.so.1", "int nvmlOther(void) { return 0; }", {}, []),
        ("libze_loader.so.1", LEVEL_ZERO, {}, [["Intel", 1000, 0.75, 100], ["Intel", 1000, 0.75, 900]]),
        ("libze_loader.so.1", LEVEL_ZERO, {"ZE_AFFINITY_MASK": "1.0,1.1"}, [["Intel", 1000, 0.75, 900]]),
        ("libze_loader.so.1", LEVEL_ZERO, {"ZE_AFFINITY_MASK": "2"}, [["Intel", 1000, 0.75, 900]]),
    ],
)
def test_libraries_of_vendors(
    library: str,
    code: str,
    mask: Mapping[str, str],
    wanted: list[Any],
    tmp_path: Path,
    system_program: SystemProgram,
) -> None:
    """A small library in the vendor's place; no test has a GPU."""
    source = tmp_path / "fake.c"
    source.write_text(code)
    compiler = system_program("gcc", "gcc")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", tmp_path / library, source], check=True)
    environ = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path), **mask}
    command = [sys.executable, "-IS", "-c", ASK, str(PROGRAM)]
    assert json.loads(subprocess.check_output(command, env=environ, text=True)) == wanted


def test_a_full_disk_and_a_missing_folder_are_silent(sampler: Any, tmp_path: Path) -> None:
    lines = sampler.Lines(str(tmp_path / "use"), 3)
    lines.write({"host": "n1"})
    file, lines.file = lines.file, os.open("/dev/full", os.O_WRONLY)
    lines.write(dict.fromkeys("abc", 1))
    os.close(lines.file)
    lines.file, lines.torn = file, True  # as if the disk had taken a part of that line
    lines.write({"t": 1})
    path = tmp_path / "use" / "node-00003.jsonl"
    assert path.read_text() == '{"host":"n1"}\n\n{"t":1}\n'
    assert lines.is_there
    path.unlink()
    assert not lines.is_there
    with pytest.raises(OSError):
        sampler.Lines(str(tmp_path / "gone" / "0.0" / "use"), 0)
    assert not (tmp_path / "gone").exists()


def test_lines_become_rarer(sampler: Any) -> None:
    for nodes, first in ((1, 1.0), (1000, 1.0)):
        week, count = 7 * 86400.0, 0
        pauses = sampler.pauses(nodes)
        while week > 0:
            week -= (pause := next(pauses))
            assert count or pause == first
            count += 1
        assert count <= 2000
    assert [pause for pause, _ in zip(sampler.pauses(1000), range(3), strict=False)] == [1.0, 50.0, 50.0]


def _samplers(mark: str) -> list[psutil.Process]:
    return [
        process
        for process in psutil.process_iter(["cmdline"])
        if mark in " ".join(process.info["cmdline"] or ()) and process.status() != psutil.STATUS_ZOMBIE
    ]


def test_it_ends_with_its_parent(tmp_path: Path) -> None:
    shell = f'{sys.executable} -ISB {PROGRAM} "$0" 0 1 "$$" & echo begun; read -r _'
    parent = subprocess.Popen(
        ["bash", "-c", shell, tmp_path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    patience.until((tmp_path / "use" / "node-00000.jsonl").exists)
    (sampler,) = _samplers(f"{tmp_path} 0 1")
    sampler.terminate()  # as a scheduler does to all processes of a job; it ends with the shell all the same
    parent.kill()
    assert parent.communicate()[0] == b"begun\n"
    patience.until(lambda: not _samplers(f"{tmp_path} 0 1"))


BUSY = """
import json, os, pathlib, sys, time
file = pathlib.Path(os.environ["CASTOFF_ATTEMPT_DIR"], "use", "node-00000.jsonl")
held = bytearray(b"1") * 50_000_000
def most():
    lines = file.read_text().split("\\n")[:-1] if file.exists() else []
    return max((json.loads(line).get("mem", 0) for line in lines), default=0)
while most() < int(os.environ["WORLD_SIZE"]) * 50_000_000:
    if sys.argv[1] == "sleeps":
        time.sleep(0.05)
"""


@pytest.mark.parametrize(("ranks", "what"), [(1, "computes"), (3, "sleeps")])
def test_a_job_of_any_program(
    ranks: int, what: str, castoff: Castoff, tmp_path: Path, for_real: None
) -> None:
    (tmp_path / "busy.py").write_text(BUSY)
    command = ("--", sys.executable, "busy.py", what)
    sent = castoff("submit", "--site", "local", "--ranks-per-node", str(ranks), "--json", *command)
    assert sent.returncode == 0, sent.stderr
    run = Path(json.loads(sent.stdout)["directory"])
    assert castoff("wait", run).returncode == 0
    found = parse((run / "attempts/0.0/use/node-00000.jsonl").read_bytes())
    assert found is not None
    assert found.node.by == "processes"
    assert found.samples[-1].mem >= ranks * 50_000_000
    assert found.samples[-1].cpu > 0
    assert "CPUs, memory " in castoff("status", run).stdout
    shown = json.loads(castoff("status", run, "--json").stdout)["use"]
    assert (shown["of"], shown["advice"]) == (1, "")
    assert not (run / "logs/0.0/rank-00000.log").read_bytes()
    patience.until(lambda: not _samplers(str(run)))


def test_a_job_may_decline(castoff: Castoff, tmp_path: Path) -> None:
    words = ("--site", "local", "--set", "sample_use=false", "--", "true")
    assert "castoff_record_use" not in castoff("render", *words).stdout
    sent = castoff("submit", "--json", *words)
    run = Path(json.loads(sent.stdout)["directory"])
    assert castoff("wait", run).returncode == 0
    assert not (run / "use.py").exists()
    assert not (run / "attempts/0.0/use").exists()
