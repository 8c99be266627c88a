"""What a script reads and runs while somebody else may put his own in its place."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from ..trust.make_cases import posix_list
from .conftest import Benches
from .harness import LAUNCHER, Bench, Ended

STRANGER = 12345

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")

# As one who may write to the folder around leaves it: another directory of that name, his.
SWAP = (
    'cp -r "$CASTOFF_RUN_DIR" his && mv "$CASTOFF_RUN_DIR" gone && mv his "$CASTOFF_RUN_DIR"'
    f' && chown -R {STRANGER} "$CASTOFF_RUN_DIR"'
)


# As by setfacl -m u:STRANGER:rwx.
LIST = posix_list(0o770, [("u", STRANGER, 7)])
SETS = f"import os, sys; os.setxattr(sys.argv[1], 'system.posix_acl_access', {LIST!r})"
LISTED = f"{sys.executable} -c {shlex.quote(SETS)}"

ENDS_IT = 'kill "$(cat script)"; exec sleep 600'


def stolen(here: Bench) -> Path:
    return here.folder / "stolen"


def refused(ended: Ended, here: Bench, why: str) -> None:
    assert ended.code != 0 and why in ended.output, ended.output
    assert not stolen(here).exists() and here.ranks() == []


class TestTheRunDirectory:
    @pytest.mark.parametrize("kind", ["srun", "local"])
    def test_one_of_his_is_noticed_before_the_ranks_start(self, kind: str, bench: Benches) -> None:
        here = bench(kind)
        ended = here.run(ranks_per_node=1, setup=[SWAP])
        refused(ended, here, "is a link or another user's, so nothing is written there")

    def test_one_that_an_access_list_lets_him_write_to(self, bench: Benches) -> None:
        """Its mask shows as the group's bits."""
        here = bench("srun")
        ended = here.run(ranks_per_node=1, setup=[f'{LISTED} "$CASTOFF_RUN_DIR"'])
        refused(ended, here, "others may write to it (mode 770)")


class TestProgramsOfTheNodes:
    """The launcher runs them by their path, seconds after they were written."""

    @pytest.mark.everyday("his-1-srun", "*-pals")
    @pytest.mark.parametrize("kind", ["srun", "pals"])
    @pytest.mark.parametrize("nodes", [1, 2])
    @pytest.mark.parametrize("how", ["his", "open", "listed"])
    def test_another_in_its_place_is_not_run(self, kind: str, nodes: int, how: str, bench: Benches) -> None:
        here = bench(kind)
        end = {"his": f"chown {STRANGER}", "open": "chmod g+w", "listed": LISTED}[how]
        name = {"srun": "srun", "pals": "mpiexec"}[kind]
        here.stub(
            name,
            f"#!/bin/sh\nrank=$CASTOFF_ATTEMPT_DIR/rank.sh\n"
            f'rm "$rank" && printf "#!/bin/sh\\ntouch {stolen(here)}\\n" >"$rank"\n'
            f'chmod 755 "$rank" && {end} "$rank" && exec {here.bin}/real/{name} "$@"\n',
        )
        (here.bin / "real").mkdir()
        (here.bin / "real" / name).write_text(LAUNCHER)
        (here.bin / "real" / name).chmod(0o755)
        refused(here.run(ranks_per_node=1, nodes=nodes), here, "castoff: others may have written ")

    @pytest.mark.long
    def test_nor_round_a_rank_of_torchrun(self, bench: Benches) -> None:
        here = bench("local")
        (here.bin / "python").write_text(
            f"#!/bin/sh\nrank=$CASTOFF_ATTEMPT_DIR/torchrun_rank.sh\n"
            f'chown {STRANGER} "$rank" && exec {sys.executable} "$@"\n'
        )
        (here.bin / "python").chmod(0o755)
        ended = here.run(ranks_per_node=1, launcher={"torchrun": True})
        refused(ended, here, "castoff: others may have written ")


class TestSecrets:
    @staticmethod
    def again(here: Bench, text: str, after: str = "true", **fields: Any) -> Ended:
        """A run in a directory that a submission made, with secrets."""
        array = fields.get("array")
        path = here.run(ranks_per_node=1, array=array).run_dir / "secrets.sh"
        path.write_text(text)
        path.chmod(0o600)
        for seen in here.seen.iterdir():
            seen.unlink()
        assert os.system(f"cd {here.folder} && secrets={path}; {after}") == 0
        return here.run(ranks_per_node=1, env_from=["A_SECRET"], **fields)

    @pytest.mark.parametrize("change", [f"chown {STRANGER}", "chmod 620", "chmod 602"])
    def test_of_others_are_not_read(self, change: str, bench: Benches) -> None:
        here = bench("srun")
        text = f"touch {stolen(here)}\nexport A_SECRET=his\n"
        ended = self.again(here, text, f"{change} $secrets")
        refused(ended, here, "secrets.sh may be another user's, so it is not read")

    @pytest.mark.long
    def test_what_comes_in_their_place_later_is_not_read(self, bench: Benches) -> None:
        here = bench("srun")
        later = f'echo "touch {stolen(here)}" >"$CASTOFF_RUN_DIR/secrets.sh"'
        ended = self.again(here, "export A_SECRET='as it\nwas'\n", setup=[later])
        assert ended.code == 0 and not stolen(here).exists(), ended.output
        assert here.ranks()[0]["environ"]["A_SECRET"] == "as it\nwas"

    @pytest.mark.everyday("failed-in-setup")
    @pytest.mark.parametrize(
        ("env", "fields", "stay"),
        [
            ({}, {}, False),
            ({}, {"command": ["false"]}, False),
            ({}, {"setup": ["exit 3"]}, False),
            ({"PROBE": "outcome resume"}, {"requeue": {"max": 1}}, True),
            (
                {},
                {"command": ["sh", "-c", ENDS_IT], "setup": ["echo $$ >script"]},
                True,
            ),
            ({}, {"array": {"count": 2}}, True),
        ],
        ids=["done", "failed", "failed-in-setup", "again", "told-to-end", "one-of-two-members"],
    )
    def test_secrets_are_removed_when_the_run_is_over(
        self, env: dict[str, str], fields: dict[str, Any], stay: bool, bench: Benches
    ) -> None:
        here = bench("srun")
        here.env |= env
        if "array" in fields:
            here.array_index = 0
        ended = self.again(here, "export A_SECRET=s3cr3t\n", **fields)
        assert (ended.run_dir / "secrets.sh").exists() == stay, ended.output

    def test_the_last_member_takes_them_away(self, bench: Benches) -> None:
        here = bench("srun")
        for member in (0, 1):
            here.array_index = member
            if member == 0:
                ended = self.again(here, "export A_SECRET=s3cr3t\n", array={"count": 2})
                os.utime(ended.run_dir / "secrets.sh", (1, 1))
            else:
                ended = here.run(ranks_per_node=1, env_from=["A_SECRET"], array={"count": 2})
            assert ended.code == 0, ended.output
            assert (ended.run_dir / "secrets.sh").exists() == (member == 0)
