"""Nothing that a script does in the sandbox reaches this machine."""

from __future__ import annotations

from pathlib import Path

from tests.launcher.importing.pairs.batch import execution
from tests.launcher.importing.pairs.sandbox import SUBMIT, Ran, run

HEAD = "#!/bin/bash\n#SBATCH --time=10\n"


def ran(*bodies: str) -> list[Ran]:
    return run([execution("slurm", f"{HEAD}{body}\n", "test.sbatch") for body in bodies])


def test_the_machine_is_out_of_reach(tmp_path: Path) -> None:
    """A script removes all that it can, also by the paths that this test's own files have outside."""
    canary = tmp_path / "canary"
    canary.write_text("sings")
    own = Path(__file__)
    text = own.read_text()
    body = f"""
shopt -s dotglob
cat {canary} {own} && touch /tmp/seen
rm -rf {tmp_path} {own.parent} /proc/1/root{tmp_path} /machine/*
for place in /home /scratch /data /tmp /var /opt /etc /stand-ins /root /srv /mnt; do rm -rf $place/*; done
rm -f /usr/bin/env /bin/bash /usr/lib/os-release
echo >>/usr/bin/env
umount -l /machine /usr
"""
    here, after = ran(body, "ls /scratch/u/keep /usr/bin/env; ./prog still")
    assert canary.read_text() == "sings" and own.read_text() == text
    assert not here.error and Path("/usr/bin/env").stat().st_size > 1
    files = [path for path, said in here.tree.items() if said != "folder"]
    assert not files, "what it may write to was emptied, and nothing of outside was seen"
    assert after.code == 0 and after.starts[0]["argv"] == ["./prog", "still"]


def test_each_script_has_files_and_processes_of_its_own() -> None:
    first, second = ran(
        "service & echo mine >/tmp/mine; touch /dev/shm/x", "ls /tmp /dev/shm; cat /proc/*/comm"
    )
    assert first.tree["/tmp/mine"] == "mine\n" and "/tmp/mine" not in second.tree
    said = second.tree[f"{SUBMIT}/slurm-4711.out"]
    assert "mine" not in said and "a-service" not in said and "left" in said


def test_starts_are_written_down() -> None:
    """With what a launcher starts, even if the script removes all that it can."""
    body = "rm -rf /log/* /stand-ins/*; : >/log/starts; echo in | srun -n 3 ./prog a 'b c' >out.txt; exit 5"
    (found,) = ran(body)
    assert found.code == 5
    launch, *ranks = found.starts
    assert launch["argv"] == ["srun", "-n", "3", "./prog", "a", "b c"] and launch["count"] == 3
    assert [rank["env"]["SLURM_PROCID"] for rank in ranks] == ["0", "1", "2"]
    for rank in ranks:
        assert (rank["argv"], rank["cwd"], rank["stdin"]) == (["./prog", "a", "b c"], SUBMIT, "in\n")
        assert rank["out"] == f"{SUBMIT}/out.txt"
