"""The verbs of the command line, one module each; each module's `command` is the verb."""
