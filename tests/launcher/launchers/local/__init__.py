"""Tests of the local launcher; a package, so that they share helpers."""
