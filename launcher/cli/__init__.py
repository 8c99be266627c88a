"""The command line: each verb parses its words, calls one function and prints the result."""
