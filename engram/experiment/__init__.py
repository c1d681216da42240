"""One run over one stream, measured; its results on disk; many runs over the cores of a machine."""
