"""What the built-in profiles say is what the sites' guides said on the date that stands beside it."""

from __future__ import annotations

import pytest

from castoff import JobSpec, Plan, Site, plan

AURORA = {"account": "a", "walltime": "30m", "queue": "debug", "command": ["true"]}


def on_aurora(**fields: object) -> Plan:
    return plan(
        JobSpec.of({**AURORA, "directives": {"filesystems": "home:flare"}, **fields}), Site.load("aurora")
    )


@pytest.mark.parametrize("named", ["flare:daos_user_fs", "flare:daos_perf_fs", "home:daos_user"])
def test_auroras_file_systems(named: str) -> None:
    """daos_user_fs and daos_perf_fs: aurora/data-management/daos/daos-overview of the guide of 2026-08-19."""
    found = on_aurora(directives={"filesystems": named}, options=["no-vni"])
    assert dict(found.directives)["filesystems"] == named


def test_what_aurora_has_applications_try_with_oneccl() -> None:
    """The application-dependent set of aurora/data-science/frameworks/oneCCL, guide of 2026-08-19."""
    found = on_aurora(options=["ccl-application"])
    assert found.setup == ["ulimit -c unlimited || true"]
    wanted = {
        "FI_MR_ZE_CACHE_MONITOR_ENABLED": "0",
        "FI_MR_CACHE_MONITOR": "disabled",
        "FI_CXI_RX_MATCH_MODE": "hybrid",
        "FI_CXI_OFLOW_BUF_SIZE": "8388608",
        "FI_CXI_DEFAULT_CQ_SIZE": "1048576",
        "FI_CXI_CQ_FILL_PERCENT": "30",
        "INTELGT_AUTO_ATTACH_DISABLE": "1",
        "PALS_PING_PERIOD": "240",
        "PALS_RPC_TIMEOUT": "240",
        "MPIR_CVAR_GATHERV_INTER_SSEND_MIN_PROCS": "-1",
        "CCL_ATL_SYNC_COLL": "1",
        "CCL_OP_SYNC": "1",
    }
    assert wanted.items() <= found.variables.items()
    assert found.variables["CCL_ATL_TRANSPORT"] == "mpi"  # the minimal set is still there


def test_no_option_loads_a_module_that_left_the_image() -> None:
    """frameworks/2025.0.5, on 2026-03-10: aurora/system-updates of the guide of 2026-08-19."""
    site = Site.load("aurora")
    lines = [line for option in site.options.values() for line in (*option.setup, *option.setup_last)]
    assert [line for line in lines if "module load frameworks" in line] == []


@pytest.mark.parametrize(
    ("name", "dates"),
    [
        ("aurora", {"2026-08-19"}),  # of argonne-lcf/user-guides
        ("polaris", {"2026-08-19"}),
        ("frontier", {"2026-07-22"}),  # of olcf/olcf-user-docs
        ("perlmutter", {"2026-11-25", "2026-10-01"}),  # as read, for NERSC's sources are not public
    ],
)
def test_what_is_required_names_its_guide(name: str, dates: set[str]) -> None:
    required = Site.load(name).required
    assert {"account", "walltime"} <= {each.field for each in required}
    assert {str(each.date) for each in required} == dates
    assert all(each.source for each in required)
