"""Writes the references in docs/: from types, parsers, docstrings and registries.

A page says in a comment what stands below it, up to the next END:

    <!-- fields castoff.launcher.config.job:JobSpec
    command
    start.*
    workdir, see code.md
    -->

The fields of a struct, all of them or those that are listed: a part's by its path, or all of a part's as
`start.*`. What stands behind `see` is a link for that row.

    <!-- flags castoff.trainers.dpo.start.flags:COMMAND_LINE -->    all flags of a command line
    <!-- modules launcher -->                               all modules of a package, room by room
    <!-- arguments castoff.trainers.gnn.models.encoder:Encoder -->  what a class is made with
    <!-- members castoff.launcher.api.run:Run                       those of its methods and attributes
    status
    wait
    -->
    <!-- defaults castoff.trainers.dpo.start.configuration:OBJECTIVES -->  where alternatives differ

    <!-- names castoff.launcher.planning.machinery:FEATURES         a mapping of names to what they mean, or
    feature                                                 to other names, below these two headings
    what it says of a script
    -->
"""
