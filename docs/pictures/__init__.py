"""Draws the documents' pictures, each from what the code says or a real run printed: `make pictures`."""
