"""Tests of the graph networks."""
