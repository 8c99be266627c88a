"""What castoff's own launcher is tested for, once more with ranks that begin as copies of one process."""

from tests.launcher.launchers.local.test_endings import *  # noqa: F403
from tests.launcher.launchers.local.test_start import *  # noqa: F403

del TestCannotStart  # noqa: F821 - there is always a Python here
