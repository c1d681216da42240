"""Names by which plugins are found: modules that add methods and other parts from outside this package."""

PLUGIN_GROUP = "engram.plugins"
"""The group of entry points that installed packages may declare."""
PLUGIN_VARIABLE = "ENGRAM_PLUGINS"
"""The environment variable that names further modules, separated by commas."""
