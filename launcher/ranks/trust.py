"""Re-exports the check of files that the user names; `trainers` may not import `launcher.trust`."""

from __future__ import annotations

from castoff.launcher.errors import CastoffError
from castoff.launcher.trust.decision import check_named

__all__ = ["CastoffError", "check_named"]
