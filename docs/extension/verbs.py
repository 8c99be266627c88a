"""The castoff command as sphinx-click reads it: all verbs loaded, where the command itself loads one."""

from __future__ import annotations

from importlib import import_module

import click

from castoff.launcher.cli.help import VERBS, module_of

castoff = click.Group("castoff", commands={verb: import_module(module_of(verb)).command for verb in VERBS})
