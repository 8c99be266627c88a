"""Tests of the store of proteins."""
