"""The tests, a package so that they can share what they stand on."""

import os

# Daemons lie in folders that Debian's su and env -i leave out of PATH.
_FOLDERS = os.environ.get("PATH", os.defpath).split(os.pathsep)
os.environ["PATH"] = os.pathsep.join(dict.fromkeys([*_FOLDERS, "/usr/local/sbin", "/usr/sbin"]))
