"""Build a wheel of the running castoff, whether it is installed or a checkout.

Not by `pip wheel`, which needs a checkout and a network, and gives all states of a checkout the same version.
This wheel's version ends in a digest of its content, as in 0.1.0+g3f2a1bc94d0e. The same content always gives
the same bytes.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import io
import os
import re
import zipfile
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from castoff.launcher.errors import CastoffError

_DATE = (2020, 1, 1, 0, 0, 0)
"""The date of every file in a wheel: a fixed one, so that the same content gives the same bytes."""

_DIGITS = 12

EXTRA = "tui"
"""The extra to install with it, for `castoff top`; it cannot be added on the machine later."""

_OF_EXTRA = re.compile(rf"\s*;\s*extra == ['\"]{EXTRA}['\"]$")


class Wheel:
    """A built wheel."""

    def __init__(self, name: str, version: str, content: bytes, requirements: list[str]):
        self.name = name
        self.version = version
        self.content = content
        self.requirements = requirements
        """The requirements of castoff, including those of `EXTRA`."""


def own_version() -> str:
    """The version of the running castoff, with the digest of its content.

    Raises:
        CastoffError: castoff is not installed; only its files are found.
    """
    return _version(_files(), _distribution())


def public(version: str) -> str:
    """The version without its digest."""
    return version.partition("+")[0]


def differs(version: str, other: str) -> bool:
    """Whether two installations of castoff differ, by their versions, which may lack a digest."""
    if "+" in version and "+" in other:
        return version != other
    return public(version) != public(other)


def build() -> Wheel:
    """Build the wheel.

    Raises:
        CastoffError: castoff is not installed; only its files are found.
    """
    files, about = _files(), _distribution()
    version = _version(files, about)
    info = f"castoff-{version}.dist-info"
    metadata = re.sub(r"(?m)^Version: .*$", f"Version: {version}", about.read_text("METADATA") or "", count=1)
    entry_points = about.read_text("entry_points.txt") or ""
    tags = "Wheel-Version: 1.0\nGenerator: castoff\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    contents = dict(files)
    for name, text in (("METADATA", metadata), ("WHEEL", tags), ("entry_points.txt", entry_points)):
        contents[f"{info}/{name}"] = text.encode()
    recorded = [
        f"{name},sha256={_urlsafe(content)},{len(content)}" for name, content in sorted(contents.items())
    ]
    contents[f"{info}/RECORD"] = "\n".join([*recorded, f"{info}/RECORD,,", ""]).encode()
    lines = [_OF_EXTRA.sub("", line) for line in about.requires or []]
    requirements = [line for line in lines if "extra ==" not in line]
    return Wheel(f"castoff-{version}-py3-none-any.whl", version, _zipped(contents), requirements)


def _distribution() -> Distribution:
    try:
        return distribution("castoff")
    except PackageNotFoundError:
        raise CastoffError(
            "castoff's files are here, but it is not installed in this Python: install it "
            "(pip install -e . in a checkout), so that its requirements are known"
        ) from None


@functools.cache
def _files() -> dict[str, bytes]:
    """The content of each file of the package, by its name in the wheel."""
    home = Path(__file__).parents[2]
    contents = {}
    for path, inner, files in os.walk(home, followlinks=True):  # in a checkout, the packages are links
        inner[:] = [name for name in inner if name != "__pycache__"]
        for file in files:
            if not file.endswith((".pyc", ".pyo")) and not file.startswith("."):
                whole = os.path.join(path, file)  # noqa: PTH118 - many of them
                within = os.path.relpath(whole, home).replace(os.sep, "/")
                contents[f"castoff/{within}"] = Path(whole).read_bytes()
    return contents


def _version(files: dict[str, bytes], about: Distribution) -> str:
    digest = hashlib.sha256()
    for name, content in sorted(files.items()):
        digest.update(f"{name}\0{len(content)}\0".encode())
        digest.update(content)
    digest.update("\n".join(about.requires or []).encode())
    return f"{public(about.version)}+g{digest.hexdigest()[:_DIGITS]}"  # g: a number would lose a leading 0


def _urlsafe(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


def _zipped(files: dict[str, bytes]) -> bytes:
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            about = zipfile.ZipInfo(name, _DATE)
            about.compress_type = zipfile.ZIP_DEFLATED
            about.external_attr = 0o644 << 16
            archive.writestr(about, content)
    return whole.getvalue()
