"""The versions of the packages that a training has imported, for its run's record."""

from __future__ import annotations

import platform
import sys


def packages() -> dict[str, str]:
    """The versions of Python and of each imported package with a `__version__`, by import name.

    Only loaded modules are read: the file system, which thousands of jobs may share, is not searched.
    """
    versions = {"python": platform.python_version()}
    for name, module in sorted(sys.modules.items()):
        # Not getattr: some modules compute this attribute and warn that it is deprecated.
        version = vars(module).get("__version__") if hasattr(module, "__dict__") else None
        if "." not in name and name not in sys.stdlib_module_names and isinstance(version, str):
            versions[name] = str(version)  # torch's version is a subclass of str
    return versions
