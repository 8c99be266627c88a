"""The command line: a verb parses, calls one function and prints."""
