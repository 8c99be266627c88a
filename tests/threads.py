"""How many threads compute in tests, and how they wait.

Those of OpenMP, which torch computes with, spin while they wait for each other. Where there are more of them
than cores, as on nodes that claim more than the machine has, a training takes four times as long.
"""

OF_A_TEST_PROCESS = {"OMP_NUM_THREADS": "1"}
"""To be set before it imports torch."""

OF_PROGRAMS = {"OMP_WAIT_POLICY": "passive"}
"""Has threads sleep while they wait. It is in the environment of all that tests start."""


def for_login_shells() -> str:
    """The same as a file for /etc/profile.d."""
    return "".join(f"export {name}={value}\n" for name, value in OF_PROGRAMS.items())
