"""Whether a file that the user names may be read: for `trainers`, which use this room alone."""

from __future__ import annotations

from launcher.errors import CastoffError
from launcher.trust.decision import check_named

__all__ = ["CastoffError", "check_named"]
