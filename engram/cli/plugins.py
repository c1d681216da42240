"""`--plugin MODULE`: every command can load methods and other parts from outside this package."""

from __future__ import annotations

import os
from importlib.metadata import entry_points

from engram.base.errors import InputError
from engram.base.plugins import PLUGIN_GROUP, PLUGIN_VARIABLE


def take_plugins(arguments: list[str]) -> list[str]:
    """Load the plugins that are installed or named by `--plugin`, and return the other arguments.

    Plugins named by `--plugin` are added to the environment, so that processes started from here load them too.
    """
    rest, named = [], []
    tokens = iter(arguments)
    for token in tokens:
        name, equals, value = token.partition("=")
        if name != "--plugin":
            rest.append(token)
            continue
        module = value if equals else next(tokens, "")
        if not module:
            raise InputError("--plugin has no value: put the name of a module behind it")
        named.append(module)
    if named:
        os.environ[PLUGIN_VARIABLE] = ",".join(
            dict.fromkeys([*filter(None, [os.environ.get(PLUGIN_VARIABLE)]), *named])
        )
    if os.environ.get(PLUGIN_VARIABLE) or entry_points(group=PLUGIN_GROUP):
        from engram.methods import load_plugins

        load_plugins()
    return rest
