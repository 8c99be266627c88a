"""The versions of the packages that a training has loaded, for the record of its run."""

from __future__ import annotations

import platform
import sys


def packages() -> dict[str, str]:
    """The version of Python, and of each loaded package that states one, by their import names.

    What the modules themselves say: nothing is searched for on the disk, which thousands of jobs may share.
    """
    found = {"python": platform.python_version()}
    for name, module in sorted(sys.modules.items()):
        # Not getattr: some modules compute an attribute, with a warning that it is going to be removed.
        version = vars(module).get("__version__") if hasattr(module, "__dict__") else None
        if "." not in name and name not in sys.stdlib_module_names and isinstance(version, str):
            found[name] = str(version)  # torch's is a class of its own
    return found
