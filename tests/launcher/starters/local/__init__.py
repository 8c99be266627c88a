"""Tests of the local starter; a package, so that they share helpers."""
