"""The tests of launcher."""
