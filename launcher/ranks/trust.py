"""Whether a file that the user names may be read: re-exported here for `trainers`, which may not import
`launcher.trust` itself."""

from __future__ import annotations

from castoff.launcher.errors import CastoffError
from castoff.launcher.trust.decision import check_named

__all__ = ["CastoffError", "check_named"]
