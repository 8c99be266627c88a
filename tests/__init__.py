"""The tests, a package so that they can share what they stand on."""
