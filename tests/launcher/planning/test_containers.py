"""Containers, decided: each runtime's words, and what it cannot do. How they run is tested in scripts/."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from castoff.launcher.config.job import JobSpec
from castoff.launcher.config.site import Site
from castoff.launcher.errors import InvalidInput
from castoff.launcher.planning.containers import bind_of
from castoff.launcher.planning.planner import plan
from castoff.launcher.planning.render import render
from tests.launcher.planning.test_plan_inputs import derived, planned, refused

APPTAINER = {"runtime": "apptainer", "image": "/torch.sif"}


def wrapped(site: Site | str, container: dict[str, Any], **fields: Any) -> Any:
    found = planned(site, container=container, **fields).container
    assert found is not None
    return found


class TestBinds:
    @pytest.mark.parametrize(
        ("text", "bind"),
        [
            ("/a", ("/a", "/a", False)),
            ("/a b:/c", ("/a b", "/c", False)),
            ("/a:/c:ro", ("/a", "/c", True)),
            ("/a:/a:rw", ("/a", "/a", False)),
        ],
    )
    def test_forms(self, text: str, bind: tuple[str, str, bool]) -> None:
        assert bind_of(text) == bind

    @pytest.mark.parametrize(
        "text", ["a", "a:/b", "/a:b", "/a:/b:rx", "/a:/b:ro:x", "/a:", ":/a", "", "/a::ro"]
    )
    def test_what_is_none(self, text: str) -> None:
        assert bind_of(text) is None

    def test_a_shared_folder_keeps_its_place(self) -> None:
        found = wrapped("slurm", {**APPTAINER, "binds": ["/lus", "/data:/data:ro", "/a:/b", "/c:/c"]})
        assert (found.shared, found.mounts) == (["/lus", "/c"], ["/data:/data:ro", "/a:/b"])

    @pytest.mark.parametrize(
        ("runtime", "text"),
        [
            ("apptainer", "/a,b"),
            ("apptainer", "/a\\b"),
            ("apptainer", "/a^b"),
            ("shifter", "/a b"),
            ("shifter", "/a/../b"),
            ("shifter", "/a;b"),
            ("pyxis", "/a,b"),
            ("pyxis", "/$(touch x)"),
            ("pyxis", '/a"b'),
            ("podman-hpc", "relative"),
            ("podman-hpc", "/a:b"),
        ],
    )
    def test_what_a_runtime_cannot_bind(self, runtime: str, text: str) -> None:
        container = {"runtime": runtime, "image": "/x", "binds": ["/fine", text]}
        problems = refused("slurm", container=container)
        assert list(problems) == ["container.binds.1"]
        assert f"is {text!r}, but " in problems["container.binds.1"]

    def test_a_line_break_is_none(self) -> None:
        with pytest.raises(InvalidInput, match=r"container\.binds\.0: .*one line of text|lines of text"):
            JobSpec.of({"command": ["x"], "container": {**APPTAINER, "binds": ["/a\nb"]}})


class TestImages:
    @pytest.mark.parametrize("image", ["docker://me/torch", "torch.sif", "./torch.sif", "library://x"])
    def test_apptainer_takes_a_file(self, image: str) -> None:
        (message,) = refused("slurm", container={"runtime": "apptainer", "image": image}).values()
        assert f"is {image!r}" in message
        assert ("apptainer build image.sif" in message) == ("://" in image)

    def test_shifter_would_drop_what_it_does_not_know(self) -> None:
        (message,) = refused("slurm", container={"runtime": "shifter", "image": "docker:me/a b"}).values()
        assert "shifter takes letters" in message

    @pytest.mark.parametrize("runtime", ["apptainer", "pyxis"])
    def test_a_staged_image(self, runtime: str) -> None:
        stage = [{"from": "/lus/torch.sif"}, {"from": "/lus/images"}]
        found = wrapped("slurm", {"runtime": runtime, "image": "stage/torch.sif"}, stage=stage)
        assert (found.staged, found.image) == (True, "torch.sif")
        assert wrapped("slurm", {"runtime": runtime, "image": "stage/images/a.sif"}, stage=stage).staged
        problems = refused("slurm", container={"runtime": runtime, "image": "stage/other.sif"}, stage=stage)
        assert problems == {
            "container.image": "is 'stage/other.sif', but what stage copies is torch.sif, images"
        }
        problems = refused("slurm", container={"runtime": runtime, "image": "stage/torch.sif"})
        assert "nothing, since stage is empty" in problems["container.image"]


class TestRuntimes:
    def test_it_is_off_by_default(self) -> None:
        assert planned("slurm").container is None

    def test_a_site_names_the_runtime(self) -> None:
        at = derived("slurm", defaults={"container": {"runtime": "shifter", "env": {"A": "site"}}})
        assert planned(at).container is None
        found = wrapped(at, {"image": "docker:x", "env": {"B": "job"}})
        assert (found.runtime, found.env) == ("shifter", {"A": "site", "B": "job"})

    def test_what_is_missing(self) -> None:
        assert refused("slurm", container={"image": "/x"}) == {
            "container.runtime": "is missing, and the site names none: "
            "use one of apptainer, shifter, podman-hpc, pyxis"
        }
        assert refused("slurm", container={"runtime": "apptainer"}) == {
            "container.image": "is missing: name the image, or drop container"
        }

    @pytest.mark.parametrize("site", ["aurora", "pbs", "local"])
    def test_pyxis_needs_srun(self, site: str) -> None:
        (message,) = refused(site, container={"runtime": "pyxis", "image": "x"}).values()
        assert "is pyxis, a part of srun, but " in message

    @pytest.mark.parametrize(
        ("runtime", "word"),
        [("podman-hpc", "--mpi"), ("pyxis", "--container-mounts=/a:/b"), ("pyxis", "--container-image")],
    )
    def test_flags_that_would_break_it(self, runtime: str, word: str) -> None:
        problems = refused("slurm", container={"runtime": runtime, "image": "x", "args": ["--ok", word]})
        assert list(problems) == ["container.args.1"]

    def test_a_secret_is_set_in_one_place(self) -> None:
        problems = refused("slurm", env_from=["KEY"], container={**APPTAINER, "env": {"KEY": "x"}})
        assert list(problems) == ["container.env.KEY"]

    def test_problems_name_the_line(self, tmp_path: Path) -> None:
        job = tmp_path / "job.yaml"
        job.write_text(
            "command: [x]\ncontainer:\n  runtime: apptainer\n  image: /x\n  binds:\n  - /a\n  - b\n"
        )
        with pytest.raises(InvalidInput, match=r"job\.yaml:7: container\.binds\.1: is 'b'"):
            plan(JobSpec.load(job), Site.load("slurm"))


@pytest.mark.parametrize(
    "fields", [{"container": APPTAINER}, {"stage": [{"from": "env.tar", "activate": True}]}]
)
def test_a_function_runs_with_the_python_that_is_there(fields: dict[str, Any]) -> None:
    """And not with the submitter's, which the local scheduler names in CASTOFF_PYTHON."""
    site = Site.load("local")
    assert "CASTOFF_PYTHON" in render(plan(JobSpec(), site, function=True))
    job = JobSpec.of({"command": ["x"], **fields})
    script = render(plan(job, site, function=True))
    assert "python -u -m submitit.core._submit" in script and "CASTOFF_PYTHON" not in script


class TestGpus:
    @pytest.mark.parametrize(
        ("variable", "gpus", "argv"),
        [
            ("CUDA_VISIBLE_DEVICES", "nvidia", ["apptainer", "exec", "--nv"]),
            ("ROCR_VISIBLE_DEVICES", "amd", ["apptainer", "exec", "--rocm"]),
            ("ZE_AFFINITY_MASK", "intel", ["apptainer", "exec"]),
        ],
    )
    def test_they_follow_from_the_sites_devices(self, variable: str, gpus: str, argv: list[str]) -> None:
        node = {"devices": [2], "device_variable": variable, "source": "x", "date": "2026-01-01"}
        at = derived("slurm", node=node)
        found = wrapped(at, APPTAINER)
        assert (found.gpus, found.argv) == (gpus, argv)
        assert wrapped(at, APPTAINER, devices_per_rank=0, ranks_per_node=1).gpus == "none"
        assert wrapped(at, {**APPTAINER, "gpus": "none"}).gpus == "none"

    def test_a_site_that_does_not_name_its_vendor_gives_no_gpus(self) -> None:
        found = planned("slurm", devices_per_rank=1, container=APPTAINER)
        assert found.container is not None and found.container.gpus == "none"
        assert (
            "the container is given no GPUs: the site does not name their vendor; set container.gpus"
            in found.notes
        )
        assert not [note for note in planned("slurm", container=APPTAINER).notes if "GPU" in note]

    @pytest.mark.parametrize(
        ("runtime", "gpus", "flags"),
        [
            ("shifter", "nvidia", ["--module=gpu", "--image=x"]),
            ("podman-hpc", "nvidia", ["--gpu"]),
            ("podman-hpc", "amd", ["--device=/dev/kfd", "--device=/dev/dri"]),
            ("podman-hpc", "intel", ["--device=/dev/dri"]),
        ],
    )
    def test_flags_of_each(self, runtime: str, gpus: str, flags: list[str]) -> None:
        found = wrapped("slurm", {"runtime": runtime, "image": "x", "gpus": gpus, "args": ["--more"]})
        assert found.argv[-len(flags) - 1 :] == [*flags, "--more"]

    def test_devices_that_pyxis_mounts(self) -> None:
        found = wrapped("slurm", {"runtime": "pyxis", "image": "x", "gpus": "amd"})
        assert found.mounts == ["/dev/kfd:/dev/kfd", "/dev/dri:/dev/dri"]
