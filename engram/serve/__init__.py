"""A learner as a service: it takes labeled images as they come, answers while it learns, and survives a kill.

Only the client is imported here. It needs no web framework; the server needs the extra `serve`.
"""

from engram.serve.client import Client, ServerError

__all__ = ["Client", "ServerError"]
