"""Programs in containers: what reaches the inside, what does not, and how they end."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from castoff.launcher.planning.render import template_folder
from tests.cases import others_long
from tests.hostile import ARGUMENTS

from .conftest import Benches
from .harness import HERE, PROBE, STALE, Bench

CHECKOUT = str(HERE.parents[2])

Find = Callable[[str, str], Path]
Containers = Callable[..., Bench]

RUNTIMES = {"apptainer": "hydra", "shifter": "srun", "podman-hpc": "srun", "pyxis": "srun"}
"""Each with a launcher that runs it."""

IMAGE_SAYS = {
    **{"RANK": "7", "WORLD_SIZE": "9", "MASTER_ADDR": "image", "OMP_NUM_THREADS": "99", "GREETING": "image"},
    **{"A_SECRET": "image", "ONLY_IMAGE": "yes", "PATH": "/usr/local/bin:/usr/bin:/bin"},
}
"""What an image that somebody made of a running container may set."""

WORDS = [word for word in ARGUMENTS if word != ":"]
"""Without the word for which a shell is put round the others."""

SECRET = "it's $secret\nof 'two' lines"


@pytest.fixture
def containers(bench: Benches, tmp_path: Path) -> Containers:
    """`containers("apptainer")`: a bench with that runtime and an image `torch`."""
    if subprocess.run(["unshare", "--mount", "true"], check=False, capture_output=True).returncode:
        user = subprocess.run(["unshare", "-r", "--mount", "true"], check=False, capture_output=True)
        if user.returncode:
            pytest.skip("only root can make mount namespaces here")

    def made(runtime: str, kind: str | None = None, folder: str = "here") -> Bench:
        here = bench(kind or RUNTIMES[runtime], folder)
        here.stub(runtime, f"#!{sys.executable}\n{(HERE / 'stub_container.py').read_text()}")
        here.env |= {"STUB_IMAGES": str(tmp_path), "STUB_SITE_FS": str(tmp_path), "STUB_CHECKOUT": CHECKOUT}
        image = tmp_path / "torch"
        (image / "rootfs").mkdir(parents=True, exist_ok=True)
        (image / "env.json").write_text(json.dumps(IMAGE_SAYS))
        return here

    return made


def container(here: Bench, runtime: str, **fields: Any) -> dict[str, Any]:
    """A job's container whose program can write down what it sees."""
    image = str(here.seen.parent / "torch") if runtime == "apptainer" else "torch"
    binds = [] if runtime == "shifter" else [str(here.seen)]
    binds += fields.pop("binds", [])
    return {"runtime": runtime, "image": image, "binds": binds, **fields}


@pytest.mark.everyday("apptainer-local")
@pytest.mark.parametrize(
    ("runtime", "kind"),
    [
        *RUNTIMES.items(),
        ("apptainer", "local"),
        ("apptainer", "pals"),
        pytest.param("apptainer", "openmpi", marks=pytest.mark.long),
    ],
)
def test_what_a_program_sees_inside(runtime: str, kind: str, containers: Containers) -> None:
    here = containers(runtime, kind, folder="with 'quotes' and spaces")
    decided = here.plan_of(
        command=[*PROBE, *WORDS],
        ranks_per_node=2,
        setup=["export FROM_SETUP=set", "export LD_LIBRARY_PATH=/host/libs"],
        env={"GREETING": "it's the job", "name": "mine", "folder": "mine"},
        env_from=["A_SECRET"],
        container=container(here, runtime, env={"ONLY_INSIDE": "it's\nCASTOFF_INSIDE\n$HOME"}),
    )
    ended = here.start_plan(decided, env={**STALE, "A_SECRET": SECRET, "TMPDIR": "/tmp"}).end()
    assert ended.code == 0, ended.output
    assert ended.ending == ("done", 0)
    ranks = here.ranks()
    assert len(ranks) == 2
    for number, seen in enumerate(ranks):
        environ = seen["environ"]
        assert seen["argv"] == WORDS
        assert seen["cwd"] == str(here.folder)
        assert (environ["RANK"], environ["WORLD_SIZE"], environ["LOCAL_RANK"]) == (
            str(number),
            "2",
            str(number),
        )
        assert environ["MASTER_ADDR"] != "image" and environ["OMP_NUM_THREADS"] != "99"
        assert (environ["GREETING"], environ["A_SECRET"]) == ("it's the job", SECRET)
        assert (environ["name"], environ["folder"]) == ("mine", "mine")
        assert (environ["ONLY_IMAGE"], environ["FROM_SETUP"]) == ("yes", "set")
        assert environ["ONLY_INSIDE"] == "it's\nCASTOFF_INSIDE\n$HOME"
        assert environ["PATH"] == IMAGE_SAYS["PATH"]
        assert runtime == "pyxis" or environ.get("LD_LIBRARY_PATH") != "/host/libs"
        assert not [name for name in environ if name.startswith("CASTOFF_GIVEN_")]
        assert (seen["detected"]["rank"], seen["detected"]["launcher"]) == (number, kind)
    assert here.calls(runtime)
    assert "secret" not in here.calls_file.read_text()


@pytest.mark.everyday("apptainer-hydra-False")
@pytest.mark.parametrize(
    ("runtime", "kind", "torchrun"),
    [
        ("apptainer", "hydra", False),
        ("pyxis", "srun", False),
        pytest.param("podman-hpc", "srun", False, marks=pytest.mark.long),
        pytest.param("apptainer", "local", False, marks=pytest.mark.long),
        pytest.param("apptainer", "hydra", True, marks=pytest.mark.long),
        pytest.param("apptainer", "local", True, marks=pytest.mark.long),
    ],
)
def test_the_loader_changes_the_programs_alone(
    runtime: str, kind: str, torchrun: bool, containers: Containers, tmp_path: Path
) -> None:
    here = containers(runtime, kind)
    reports = here.seen / "reports"
    reports.mkdir()
    says = f'unset -v LD_DEBUG; : >"{here.seen}/program.$$"; env | grep "^CASTOFF_GIVEN_\\|_PAD_="; exec true'
    inside, binds = {}, []
    if torchrun:
        binds = [str(Path(pytest.importorskip("torch").__file__).parents[1])]
        inside = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}
    decided = here.plan_of(
        command=["sh", "-c", says],
        ranks_per_node=2,
        launcher={"torchrun": torchrun},
        setup=["export MALLOC_TOP_PAD_=1"],
        env={"LD_DEBUG": "files", "LD_DEBUG_OUTPUT": f"{reports}/of", "MALLOC_TOP_PAD_": "2"},
        container=container(here, runtime, env=inside, binds=binds),
    )
    ended = here.start_plan(decided).end()
    assert ended.code == 0, ended.output
    programs = {path.suffix for path in here.seen.glob("program.*")}
    assert len(programs) == 2
    assert {path.suffix for path in reports.iterdir()} == programs
    logs = [path.read_text() for path in (ended.run_dir / "logs" / "0.0").glob("*.log")]
    assert "".join(logs).count("MALLOC_TOP_PAD_=2\n") == 2, logs
    assert "GIVEN" not in "".join(logs)


@pytest.mark.everyday("apptainer")
@pytest.mark.parametrize("runtime", RUNTIMES)
def test_it_is_inside_and_the_host_is_not(runtime: str, containers: Containers, tmp_path: Path) -> None:
    here = containers(runtime)
    for name in ("data", "hidden"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(f"the host's {name}\n")
    inside = "cat /in-the-container; echo; cat /data/file; echo >/data/new || echo cannot write"
    ended = here.run(
        command=["sh", "-c", f"{inside}; cat {tmp_path}/hidden/file || echo hidden"],
        container=container(here, runtime, binds=[f"{tmp_path}/data:/data:ro"]),
    )
    assert ended.code == 0, ended.output
    lines = (ended.run_dir / "logs" / "0.0" / "rank-00000.log").read_text().splitlines()
    assert lines[:2] == [runtime, "the host's data"]
    assert "cannot write" in lines
    assert "hidden" in lines or runtime == "shifter"  # which brings the shared file system inside


@pytest.mark.everyday("apptainer")
@pytest.mark.parametrize("runtime", others_long(RUNTIMES, ["apptainer", "pyxis"]))
def test_signals_and_files_reach_the_inside(runtime: str, containers: Containers) -> None:
    here = containers(runtime)
    running = here.start(ranks_per_node=2, container=container(here, runtime), env={"PROBE": "wait done"})
    running.wait_for("ready", 2)
    running.process.send_signal(signal.SIGUSR2)
    running.wait_for("stopping", 2)
    running.process.send_signal(signal.SIGTERM)
    ended = running.end()
    assert ended.ending == ("done", 0), ended.output


@pytest.mark.everyday("apptainer")
@pytest.mark.parametrize("runtime", others_long(RUNTIMES, ["apptainer", "pyxis"]))
def test_a_failure_inside_is_the_ranks(runtime: str, containers: Containers) -> None:
    here = containers(runtime)
    ended = here.run(ranks_per_node=3, container=container(here, runtime), env={"PROBE": "fail 1 3"})
    assert ended.ending == ("failed", 3), ended.output
    failure = ended.record("failure")
    assert (failure["rank"], failure["code"]) == (1, 3)
    assert failure["host"]


@pytest.mark.long
@pytest.mark.parametrize("runtime", others_long(RUNTIMES, ["apptainer", "pyxis"]))
def test_what_castoff_shell_starts_is_inside(runtime: str, containers: Containers) -> None:
    """With what the image and the job set, the rank's variables, its folder, and its code."""
    here = containers(runtime)
    job = {"GREETING": "it's the job", "PROBE": "wait done"}
    inside = container(here, runtime)
    decided = here.plan_of(command=PROBE, ranks_per_node=2, container=inside, env=job)
    running = here.start_plan(decided)
    running.wait_for("ready", 2)
    says = 'echo "$RANK of $WORLD_SIZE, $GREETING, $ONLY_IMAGE, $PWD"; cat /in-the-container; exit 5'
    program = (template_folder() / "interactive" / "beside.sh").read_text()
    words = [str(here.run_dir() / "attempts" / "0.0"), "1", "RUN", "sh", "-c", says]
    answer = subprocess.run(
        ["bash", "-c", program, "castoff", *words],
        env={"PATH": "/usr/bin:/bin"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.stdout == f"1 of 2, it's the job, yes, {here.folder}\n{runtime}", answer.stderr
    assert answer.returncode == 5
    running.process.send_signal(signal.SIGUSR2)
    running.wait_for("stopping", 2)
    running.process.send_signal(signal.SIGTERM)
    assert running.end().ending == ("done", 0)


def test_a_program_that_is_not_in_the_image(containers: Containers) -> None:
    here = containers("apptainer")
    ended = here.run(command=["no-such-program"], container=container(here, "apptainer"))
    assert ended.ending == ("failed", 127)
    assert "no-such-program" in ended.output and "not found" in ended.output


def test_python_and_workdir_are_the_insides(containers: Containers, tmp_path: Path) -> None:
    here = containers("apptainer")
    (here.folder / "deep").mkdir()
    ended = here.run(
        workdir="deep", python="/opt/it's/bin/python", container=container(here, "apptainer"), command=PROBE
    )
    assert ended.code == 0, ended.output
    (seen,) = here.ranks()
    assert seen["cwd"] == str(here.folder / "deep")
    assert seen["environ"]["PATH"].startswith("/opt/it's/bin:/usr/")


@pytest.mark.long
def test_torchrun_is_inside_too(containers: Containers) -> None:
    torch = pytest.importorskip("torch")
    here = containers("apptainer")
    python = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}
    ended = here.run(
        ranks_per_node=2,
        launcher={"torchrun": True},
        container=container(here, "apptainer", env=python, binds=[str(Path(torch.__file__).parents[1])]),
    )
    assert ended.code == 0, ended.output
    assert [seen["detected"]["launcher"] for seen in here.ranks()] == ["torchrun"] * 2
    assert len(here.calls("apptainer")) == 1


@pytest.mark.parametrize("runtime", others_long(RUNTIMES, ["apptainer", "pyxis"]))
def test_a_runtime_that_is_not_there(runtime: str, containers: Containers) -> None:
    here = containers(runtime)
    (here.bin / runtime).unlink()
    ended = here.run(container=container(here, runtime))
    assert ended.ending == ("failed", 1)
    assert here.calls("srun") == [] and here.ranks() == []
    if runtime == "pyxis":
        assert "castoff: container: srun on" in ended.output and "knows no --container-image" in ended.output
    else:
        assert f"castoff: container: {runtime} is not on PATH on " in ended.output
        assert f"setup: [module load {runtime}]" in ended.output


def test_an_image_that_is_not_there(containers: Containers, tmp_path: Path) -> None:
    here = containers("apptainer")
    ended = here.run(container={"runtime": "apptainer", "image": f"{tmp_path}/it's gone.sif"})
    assert ended.ending == ("failed", 1)
    assert (
        f"castoff: container: the image is not on {os.uname().nodename}: {tmp_path}/it's gone.sif"
        in ended.output
    )
    assert here.calls("apptainer") == []


@pytest.mark.parametrize(
    ("runtime", "name"),
    [
        ("apptainer", "a,b"),
        pytest.param("apptainer", "a\\b", marks=pytest.mark.long),
        ("podman-hpc", "a:b"),
        pytest.param("pyxis", "a$b", marks=pytest.mark.long),
        ("pyxis", "line\nbreak"),
    ],
)
def test_a_folder_that_cannot_be_bound(runtime: str, name: str, containers: Containers) -> None:
    here = containers(runtime, folder=name)
    ended = here.run(container=container(here, runtime))
    assert ended.ending == ("failed", 1)
    assert f"castoff: container: {runtime} cannot bind a folder of this name: {here.folder}" in ended.output
    assert here.calls(runtime) == []


def test_a_flag_that_drops_the_environment_is_noticed(containers: Containers) -> None:
    here = containers("apptainer")
    ended = here.run(container=container(here, "apptainer", args=["--cleanenv"]))
    assert ended.ending == ("failed", 1)
    assert "castoff: the environment did not reach the container" in ended.output
    assert here.ranks() == []


def test_no_folder_is_bound_twice(containers: Containers) -> None:
    """podman refuses a second mount at the same place."""
    here = containers("podman-hpc")
    folder = str(here.folder)
    ended = here.run(
        workdir=folder, container=container(here, "podman-hpc", binds=[folder, str(here.folder.parent)])
    )
    assert ended.code == 0, ended.output
    (call,) = here.calls("podman-hpc")
    targets = [word.split(":")[1] for flag, word in pairwise(call) if flag == "--volume"]
    assert sorted(targets) == [str(here.folder.parent), folder, str(here.seen)]


def test_the_image_and_its_tools_may_be_staged(containers: Containers, tmp_path: Path) -> None:
    here = containers("apptainer", "srun")
    (tmp_path / "local").mkdir()
    tools = tmp_path / "tools" / "bin"
    tools.mkdir(parents=True)
    (tools / "tool").write_text('#!/bin/sh\necho "$0, $CASTOFF_STAGE_DIR/torch/env.json"\n')
    (tools / "tool").chmod(0o755)
    ended = here.run(
        stage=[{"from": str(tmp_path / "torch")}, {"from": str(tools.parent), "activate": True}],
        container=container(here, "apptainer", image="stage/torch"),
        command=["sh", "-c", "tool && cat $CASTOFF_STAGE_DIR/torch/env.json"],
        env={"TMPDIR": str(tmp_path / "local")},
    )
    assert ended.code == 0, ended.output
    place = f"{tmp_path}/local/castoff-12.0.0"
    log = (ended.run_dir / "logs" / "0.0" / "rank-00000.log").read_text()
    assert log == f"{place}/tools/bin/tool, {place}/torch/env.json\n{json.dumps(IMAGE_SAYS)}"
    (call,) = here.calls("apptainer")
    assert f"{place}/torch" in call and not Path(place).exists()


# A real podman as podman-hpc, which adds but flags of its site (and takes those of its modules away)


PODMAN = """#!/bin/sh
# podman-hpc passes on what it does not know; these flags are what this machine needs.
verb=$1
shift
exec {podman} --root {store}/root --runroot {store}/run --storage-driver vfs --cgroup-manager cgroupfs \\
  --runtime {runc} "$verb" --pids-limit=-1 --ulimit nofile=1024:1024 --ulimit nproc=1000:1000 "$@"
"""


@pytest.fixture
def podman(bench: Benches, system_program: Find, tmp_path: Path) -> Iterator[Callable[..., Bench]]:
    """`podman("local")`: a bench whose podman-hpc is a real podman; the image `torch` is empty folders."""
    if os.geteuid() != 0:
        pytest.skip("only root can start podman's containers without more set-up")
    programs = {"podman": system_program("podman", "podman"), "runc": system_program("runc", "runc")}
    store = Path(tempfile.mkdtemp(prefix="podman-"))  # podman takes 50 characters at the most
    wrapper = PODMAN.format(store=store, **programs)
    root = tmp_path / "image"
    for folder in ("proc", "dev", "sys", "tmp", "etc", "usr"):
        (root / folder).mkdir(parents=True)
    for name in ("bin", "sbin", "lib", "lib64"):
        (root / name).symlink_to(f"usr/{name}")
    (root / "in-the-container").write_text("podman\n")
    subprocess.run(["tar", "-C", root, "-cf", tmp_path / "image.tar", "."], check=True)
    options = ["--root", f"{store}/root", "--runroot", f"{store}/run", "--storage-driver", "vfs"]
    changes = [f"--change=ENV {name}={value}" for name, value in IMAGE_SAYS.items()]
    command = [str(programs["podman"]), *options, "import", *changes, str(tmp_path / "image.tar"), "torch"]
    subprocess.run(command, check=True, capture_output=True)

    def made(kind: str) -> Bench:
        here = bench(kind)
        here.stub("podman-hpc", wrapper)
        return here

    yield made
    subprocess.run([programs["podman"], *options, "rm", "--all", "--force"], check=False, capture_output=True)
    shutil.rmtree(store)


def real(here: Bench, **fields: Any) -> dict[str, Any]:
    software = dict.fromkeys(["/usr", sys.base_prefix, sys.prefix, CHECKOUT])
    binds = [str(here.seen), *(f"{folder}:{folder}:ro" for folder in software)]
    return {"runtime": "podman-hpc", "image": "torch", "binds": binds, **fields}


@pytest.mark.long
def test_in_a_real_podman(podman: Callable[..., Bench]) -> None:
    here = podman("srun")
    decided = here.plan_of(
        command=[*PROBE, *WORDS],
        ranks_per_node=2,
        setup=["export FROM_SETUP=set", "export LD_LIBRARY_PATH=/host/libs"],
        env={"GREETING": "it's the job"},
        env_from=["A_SECRET"],
        container=real(here, env={"ONLY_INSIDE": "it's\nso"}),
    )
    ended = here.start_plan(decided, env={**STALE, "A_SECRET": SECRET}).end()
    assert ended.code == 0, ended.output
    for number, seen in enumerate(here.ranks()):
        environ = seen["environ"]
        assert (seen["argv"], seen["cwd"]) == (WORDS, str(here.folder))
        assert (environ["RANK"], environ["WORLD_SIZE"]) == (str(number), "2")
        assert environ["MASTER_ADDR"] == "127.0.0.1" and environ["OMP_NUM_THREADS"] == "1"
        assert (environ["GREETING"], environ["A_SECRET"]) == ("it's the job", SECRET)
        assert (environ["ONLY_INSIDE"], environ["ONLY_IMAGE"]) == ("it's\nso", "yes")
        assert (environ["FROM_SETUP"], environ.get("LD_LIBRARY_PATH")) == ("set", None)


@pytest.mark.everyday("local")
@pytest.mark.parametrize("kind", ["local", "hydra"])
def test_a_real_podman_passes_signals_on(kind: str, podman: Callable[..., Bench]) -> None:
    here = podman(kind)
    running = here.start(ranks_per_node=2, container=real(here), env={"PROBE": "wait done"})
    running.wait_for("ready", 2)
    running.process.send_signal(signal.SIGUSR2)
    running.wait_for("stopping", 2)
    running.process.send_signal(signal.SIGTERM)
    assert running.end().ending == ("done", 0)


@pytest.mark.long
def test_a_failure_in_a_real_podman(podman: Callable[..., Bench]) -> None:
    here = podman("local")
    ended = here.run(ranks_per_node=2, container=real(here), env={"PROBE": "fail 1 3"})
    assert ended.ending == ("failed", 3), ended.output
    assert ended.record("failure")["rank"] == 1
