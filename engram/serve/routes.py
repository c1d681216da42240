"""The routes of one learner: observe, predict, memory, status, download."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from fastapi.security import HTTPBearer
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import FormData, UploadFile
from starlette.responses import JSONResponse, Response

from engram.base.validation import check_labels
from engram.experiment.pictures import to_image
from engram.serve.answers import REFUSALS, Memory, Predictions, Receipt, Status, answering
from engram.serve.batches import LabeledBatch
from engram.serve.bodies import form_labels, from_json, from_npz, from_pictures
from engram.serve.intake import new_id
from engram.serve.refusal import Refusal
from engram.serve.service import Service

JSON, FORM, NPZ = "application/json", "multipart/form-data", "application/octet-stream"
MOST_PICTURES = 200
"""Most pictures of a memory in one answer."""


class AsciiResponse(JSONResponse):
    """JSON in ASCII, so that any label can be written."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content, allow_nan=False).encode()


def service_of(request: Request) -> Service:
    """Return the learner that a request names, or the first one."""
    services: Mapping[str, Service] = request.app.state.services
    name = request.path_params.get("name", next(iter(services)))
    if name not in services:
        raise Refusal(404, "there is no learner of this name: GET /learners lists them")
    return services[name]


Named = Annotated[Service, Depends(service_of)]


def _body(labels: bool) -> dict[str, Any]:
    """Return the description of a body in the words of OpenAPI."""
    array = {
        "type": "object",
        "required": ["shape", "dtype", "data"],
        "properties": {
            "shape": {"type": "array", "items": {"type": "integer"}, "minItems": 4, "maxItems": 4},
            "dtype": {"enum": ["uint8", "float32"]},
            "data": {"type": "string", "format": "byte"},
        },
    }
    pictures = {"type": "array", "items": {"type": "string", "format": "byte"}, "minItems": 1}
    label = {"oneOf": [{"type": "string"}, {"type": "integer"}]}
    properties: dict[str, Any] = {"images": {"oneOf": [pictures, array]}}
    files: dict[str, Any] = {"images": {"type": "array", "items": {"type": "string", "format": "binary"}}}
    if labels:
        properties["labels"] = {"type": "array", "items": label}
        files["labels"] = {"type": "array", "items": {"type": "string"}}
    content = {
        JSON: {"schema": {"type": "object", "required": list(properties), "properties": properties}},
        FORM: {"schema": {"type": "object", "required": list(files), "properties": files}},
        NPZ: {"schema": {"type": "string", "format": "binary", "description": "an .npz file of these arrays"}},
    }
    return {"requestBody": {"required": True, "content": content}}


BEARER = HTTPBearer(auto_error=False, description="The token of the server, if it has one.")
"""Describes the token; `Guard` is what checks it."""

router = APIRouter(default_response_class=AsciiResponse, responses=REFUSALS, dependencies=[Depends(BEARER)])


@router.post("/observe", openapi_extra=_body(labels=True), responses=answering(Receipt))
async def observe(
    request: Request,
    service: Named,
    batch_id: Annotated[
        str | None, Query(alias="id", description="Id of the batch; sent twice, it is learned once.")
    ] = None,
) -> Response:
    """Learn from labeled images. The answer 200 means that the batch is on disk."""
    read = await _reader(request, service)

    def accept() -> dict[str, Any]:
        images, labels = read()
        if labels is None:
            raise Refusal(422, "labels are missing: send one for every image")
        batch = LabeledBatch(images, check_labels(labels, len(images), []))
        return service.observe(batch_id or new_id(), batch)

    return AsciiResponse(await run_in_threadpool(accept))


@router.post("/predict", openapi_extra=_body(labels=False), responses=answering(Predictions))
async def predict(
    request: Request,
    service: Named,
    top: Annotated[int, Query(ge=1, le=1000, description="Number of labels for each image.")] = 5,
    scores: Annotated[bool, Query(description="Return the scores of all classes too.")] = False,
) -> Response:
    """Return the likeliest labels of images. This never waits for a batch that is being learned."""
    read = await _reader(request, service)
    return AsciiResponse(await run_in_threadpool(lambda: service.predict(read()[0], top, all_scores=scores)))


@router.get("/status", responses=answering(Status))
def status(service: Named) -> Response:
    """Return what the learner is, how far it has come, and the bytes it holds by part."""
    return AsciiResponse(service.status())


@router.get("/memory", responses=answering(Memory))
def memory(
    service: Named,
    first: Annotated[int, Query(ge=0, le=1 << 40, description="First image to return.")] = 0,
    count: Annotated[int, Query(ge=0, le=MOST_PICTURES, description="Number of images to return.")] = 100,
    pictures: Annotated[bool, Query(description="Return each image as a base64 PNG file.")] = True,
) -> Response:
    """Return what the memory holds: label, bytes and picture of each image, and whether it is a summary.

    A memory of latents has no pictures.
    """
    published = service.publication.current
    learner = published.learner
    if learner.image_shape is None:
        return AsciiResponse({"position": published.position, "size": 0, "images": []})
    store = learner.memory
    slots = store.filled()[first : first + count]
    read = store.read(slots)
    images = [
        {
            "slot": slot,
            "label": learner.labels[label],
            "bytes": len(store.records[slot]),
            "claimed": bool(store.claimed[slot]),
            "summary": bool(store.summary[slot]),
        }
        | ({"png": _png(pixels)} if pictures and not store.latents else {})
        for slot, label, pixels in zip(slots.tolist(), read.y.tolist(), read.x.cpu(), strict=True)
    ]
    return AsciiResponse({"position": published.position, "size": store.size, "images": images})


@router.get(
    "/download",
    response_class=Response,
    responses={200: {"content": {"application/zip": {"schema": {"type": "string", "format": "binary"}}}}},
)
def download(service: Named) -> Response:
    """Return the learner as a zip file: unpack it, then `Learner.load("learner")`."""
    disposition = {"content-disposition": 'attachment; filename="learner.zip"'}
    return Response(service.archive(), media_type="application/zip", headers=disposition)


async def _reader(request: Request, service: Service) -> Any:
    """Receive a body and return a function that reads it, to be called where it holds up nothing."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    limits = service.settings.limits
    facts = service.image_facts()
    if kind == FORM:
        async with request.form(max_files=limits["most_images"] + 1, max_fields=limits["most_images"] + 1) as form:
            pictures, labels = await _read_form(form)
        return lambda: (from_pictures(pictures, facts, limits), form_labels(labels, facts) if labels else None)
    body = await request.body()
    if kind == JSON:
        return lambda: from_json(body, facts, limits)
    if kind in (NPZ, "application/x-npz", "application/zip"):
        return lambda: from_npz(body, limits)
    raise Refusal(415, f"the content type must be {JSON}, {FORM} or {NPZ} (an .npz file)")


async def _read_form(form: FormData) -> tuple[list[bytes], list[str]]:
    pictures, labels = [], []
    for name, value in form.multi_items():
        if name == "images" and isinstance(value, UploadFile):
            pictures.append(await value.read())
        elif name == "labels" and isinstance(value, str):
            labels.append(value)
        else:
            raise Refusal(422, "a form has files named images and texts named labels, nothing else")
    return pictures, labels


def _png(pixels: Any) -> str:
    written = io.BytesIO()
    to_image(pixels).save(written, "PNG")
    return base64.b64encode(written.getvalue()).decode()
