"""What each route answers, for the description of the routes in OpenAPI."""

from __future__ import annotations

from typing import Any, NotRequired

from typing_extensions import TypedDict

Label = str | int


class Receipt(TypedDict):
    """What `/observe` answers: the batch is on disk."""

    id: str
    position: int
    duplicate: bool
    queued: int


class Guess(TypedDict):
    """A label that an image may have."""

    label: Label
    score: float
    probability: float


class Prediction(TypedDict):
    """The likeliest label of an image, and the likeliest labels in order."""

    label: Label
    top: list[Guess]


class Predictions(TypedDict):
    """What `/predict` answers. `position` is the number of batches that the learner had learned."""

    position: int
    predictions: list[Prediction]
    labels: NotRequired[list[Label]]
    scores: NotRequired[list[list[float | None]]]


class MemoryUse(TypedDict):
    """What the memory holds, and the options that limit it."""

    images: int
    bytes: int
    most_images: int | None
    most_bytes: int | None
    codec: str


class Budget(TypedDict):
    """The option that limits the learner, how much of it is used, and the limit."""

    option: str
    used: int
    limit: int


class Status(TypedDict):
    """What the learner is and how far it has come."""

    method: str | None
    healthy: bool
    failure: str | None
    labels: list[Label]
    image_shape: list[int] | None
    accepted: int
    learned: int
    published: int
    saved: int
    queued: int
    most_queued: int
    seconds_per_batch: float
    journal_bytes: int
    threads: int
    bytes: dict[str, int]
    budget: Budget
    memory: MemoryUse


class MemoryImage(TypedDict):
    """An image in memory."""

    slot: int
    label: Label
    bytes: int
    claimed: bool
    summary: bool
    png: NotRequired[str]


class Memory(TypedDict):
    """A part of the images in memory."""

    position: int
    size: int
    images: list[MemoryImage]


class Health(TypedDict):
    """Whether every learner can learn."""

    healthy: bool


class Learners(TypedDict):
    """The names of the learners."""

    learners: list[str]


class Reason(TypedDict):
    """Why a request was refused. `retry_after` is there if time helps, in seconds."""

    detail: str
    retry_after: NotRequired[float]


Responses = dict[int | str, dict[str, Any]]
REFUSED = {
    400: "The body is malformed.",
    401: "The token is missing or wrong.",
    403: "The request comes from a page of another site, or names a host that this server is not known as.",
    404: "There is no learner of this name.",
    405: "The route does not take this method.",
    408: "The body did not arrive in time.",
    409: "The id was used for another batch, or nothing was learned yet.",
    413: "The body, an image or their number is too large.",
    415: "The body is of a kind that is not taken.",
    422: "The learner cannot take these images or labels; the reason says why.",
    429: "The queue is full, or requests come too fast; Retry-After says when to try again.",
    500: "The server failed; its log says why.",
    503: "The server is busy or shutting down, or learning has stopped.",
}
"""What each status of a refusal means."""
REFUSALS: Responses = {status: {"model": Reason, "description": words} for status, words in REFUSED.items()}


def answering(model: Any) -> Responses:
    """Return the description of a route that answers 200 with this."""
    return {200: {"model": model}}
