"""Tests of how inverse folding is started."""
