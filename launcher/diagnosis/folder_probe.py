"""`python folder_probe.py FOLDER`: the abilities of a folder's file system, as JSON.

It runs as a separate process, since a request to a lost file server blocks in the kernel, and the parent can
stop waiting for it. It imports only a few modules of the standard library, and leaves no files.
"""

import errno
import fcntl
import json
import os
import sys
import time


def probe(folder: str) -> dict[str, object]:
    """The folder, or the nearest existing folder above it: its space, locks and speed."""
    nearest = os.path.abspath(folder)  # noqa: PTH100 - as everything here: pathlib takes as long to load as the rest
    while not os.path.isdir(nearest) and nearest != "/":  # noqa: PTH112
        if os.path.lexists(nearest):
            return {"error": "is not a folder"}
        nearest = os.path.dirname(nearest)  # noqa: PTH120
    space = os.statvfs(nearest)
    return {
        "nearest": nearest,
        "real": os.path.realpath(nearest),
        "free": space.f_bavail * space.f_frsize,
        "files": space.f_files,
        "free_files": space.f_favail,
        **_written(nearest),
    }


def _written(folder: str) -> dict[str, object]:
    """The median time to write and remove a small file, and whether locks work; or the error."""
    took = []
    locks = True
    name = os.path.join(folder, f".castoff-doctor-{os.getpid()}")  # noqa: PTH118
    try:
        for _ in range(3):
            begun = time.monotonic()
            descriptor = os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
            try:
                os.write(descriptor, b"x" * 4096)
                os.fsync(descriptor)
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except OSError as error:
                    locks = error.errno not in (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)
            finally:
                os.close(descriptor)
                os.unlink(name)  # noqa: PTH108
            took.append(time.monotonic() - begun)
    except OSError as error:
        return {"failed": error.strerror, "code": errno.errorcode.get(error.errno or 0, "")}
    return {"seconds": sorted(took)[1], "locks": locks}


if __name__ == "__main__":
    json.dump(probe(sys.argv[1]), sys.stdout)
