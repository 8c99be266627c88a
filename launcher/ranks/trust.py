"""Re-exports the check whether a file that the user names may be read, since `trainers` may not import
`launcher.trust`.
"""

from __future__ import annotations

from castoff.launcher.errors import CastoffError
from castoff.launcher.trust.decision import check_named

__all__ = ["CastoffError", "check_named"]
