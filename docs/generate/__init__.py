"""Writes the references in docs/: tables of fields from their types, of modules from their docstrings.

A page says in a comment what stands below it, up to the next END:

    <!-- fields launcher.config.job:JobSpec
    command
    start.*
    workdir, see code.md
    -->

The fields of a struct, all of them or those that are listed: a part's by its path, or all of a part's as
`start.*`. What stands behind `see` is a link for that row. `<!-- modules launcher -->` stands for all
modules of a package, room by room.
"""
