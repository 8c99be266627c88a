"""What castoff's own launcher does with output, once more with ranks that begin as copies of one process."""

import pytest

from tests.launcher.launchers.local.test_output import *  # noqa: F403

pytestmark = pytest.mark.long
