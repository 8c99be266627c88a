"""What is measured trains, too."""

from tests.trainers.conftest import _few_threads as _few_threads
