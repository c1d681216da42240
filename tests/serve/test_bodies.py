"""Reading bodies: three ways to send images, and everything else refused with a reason."""

import base64
import dataclasses
import io
import json
import pickle
import zipfile
from typing import Any, get_args

import numpy as np
import pytest
from PIL import Image

from engram.serve.bodies import ImageFacts, form_labels, from_json, from_npz, from_pictures
from engram.serve.limits import resolve_limits
from engram.serve.refusal import Refusal
from engram.streams.images import Fit
from tests.serve.serving import LIMITS, npz

SHAPE = (3, 16, 16)
FACTS = ImageFacts(SHAPE, "crop", integer_labels=False)
IMAGES = np.random.default_rng(0).integers(0, 256, (2, 3, 16, 16), dtype=np.uint8)


def picture(side: int = 16, kind: str = "PNG", mode: str = "RGB") -> bytes:
    written = io.BytesIO()
    Image.new(mode, (side, side), 128 if mode == "L" else (200, 100, 50)).save(written, kind)
    return written.getvalue()


def base64_of(content: bytes) -> str:
    return base64.b64encode(content).decode()


def array(**changes: Any) -> dict[str, Any]:
    return {"shape": list(IMAGES.shape), "dtype": "uint8", "data": base64_of(IMAGES.tobytes())} | changes


def as_json(images: Any, **more: Any) -> bytes:
    return json.dumps({"images": images} | more).encode()


def test_an_array_in_json_is_read() -> None:
    images, labels = from_json(as_json(array(), labels=["a", "b"]), FACTS, LIMITS)
    np.testing.assert_array_equal(images, IMAGES)
    assert labels == ["a", "b"]
    floats = (IMAGES / 255).astype("<f4")
    read, labels = from_json(as_json(array(dtype="float32", data=base64_of(floats.tobytes()))), FACTS, LIMITS)
    np.testing.assert_array_equal(read, floats)
    assert labels is None


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF", "BMP"])
def test_pictures_are_scaled_to_the_shape_of_the_learner(kind: str) -> None:
    for shape in (SHAPE, (1, 20, 20)):
        images, _ = from_json(as_json([base64_of(picture(40, kind))]), ImageFacts(shape, "crop", False), LIMITS)
        assert images.dtype == np.uint8
        assert images.shape == (1, *shape)
    color = from_pictures([picture(40, kind)], FACTS, LIMITS)[0].mean((1, 2))
    np.testing.assert_allclose(color, (200, 100, 50), atol=6)


def test_an_npz_file_is_read() -> None:
    images, labels = from_npz(npz(images=IMAGES, labels=np.array([3, -4])), LIMITS)
    np.testing.assert_array_equal(images, IMAGES)
    assert labels == [3, -4]
    assert from_npz(npz(images=IMAGES, labels=np.array(["ä", "b"])), LIMITS)[1] == ["ä", "b"]
    assert from_npz(npz(images=IMAGES), LIMITS)[1] is None


class Harm:
    def __reduce__(self) -> Any:
        return (pytest.fail, ("a pickle was loaded",))


def raw_npz(members: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return written.getvalue()


def npy(head: str, body: bytes = b"") -> bytes:
    return b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head.encode() + body


BAD_NPZ = {
    "pickle": (pickle.dumps(Harm()), 422),
    "pickled array": (npz(images=np.array([Harm()], dtype=object)), 422),
    "object array by hand": (
        raw_npz({"images.npy": npy("{'descr': 'O', 'fortran_order': False, 'shape': (1,)}", bytes(8))}),
        422,
    ),
    "not a zip": (b"PK\x03\x04 nothing", 422),
    "empty": (b"", 422),
    "no images": (npz(labels=np.array([1])), 422),
    "another array": (npz(images=IMAGES, more=IMAGES), 422),
    "float64": (npz(images=IMAGES / 255), 422),
    "big endian": (npz(images=IMAGES.astype(">f4")), 422),
    "Fortran order": (npz(images=np.asfortranarray(IMAGES)), 422),
    "three axes": (npz(images=IMAGES[0]), 422),
    "float labels": (npz(images=IMAGES, labels=np.array([0.5, 1.5])), 422),
    "code in the header": (raw_npz({"images.npy": npy("__import__('os').abort()")}), 422),
    "deep header": (raw_npz({"images.npy": npy("(" * 4000)}), 422),
    "huge shape": (
        raw_npz({"images.npy": npy("{'descr': '|u1', 'fortran_order': False, 'shape': (9999999999999, 3, 16, 16)}")}),
        422,
    ),
    "unusual compression": (raw_npz({"images.npy": b"x"}, zipfile.ZIP_LZMA), 422),
    "bomb": (raw_npz({"images.npy": bytes(20 << 20)}, zipfile.ZIP_DEFLATED), 413),
    "many arrays": (raw_npz({f"{n}.npy": b"" for n in range(9)}), 413),
    "bad characters": (
        raw_npz(
            {
                "images.npy": npy("{'descr': '|u1', 'fortran_order': False, 'shape': (1,3,16,16)}", bytes(768)),
                "labels.npy": npy("{'descr': '<U1', 'fortran_order': False, 'shape': (1,)}", b"\xff" * 4),
            }
        ),
        422,
    ),
}


@pytest.mark.parametrize("name", BAD_NPZ)
def test_a_bad_npz_file_is_refused(name: str) -> None:
    content, status = BAD_NPZ[name]
    with pytest.raises(Refusal) as refused:
        from_npz(content, LIMITS)
    assert refused.value.status == status


BAD_JSON = {
    "nothing": (b"", 422),
    "half": (b'{"images": [', 422),
    "not UTF-8": (b"\xff\xfe{", 422),
    "deep": (b"[" * 100_000, 422),
    "a list": (b"[]", 422),
    "another key": (as_json(array(), more=1), 422),
    "a number": (as_json(3), 422),
    "no pictures": (as_json([]), 422),
    "no base64": (as_json(["!"]), 422),
    "pictures of nothing": (as_json([base64_of(b"GIF89a nothing")]), 422),
    "EPS": (as_json([base64_of(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n")]), 422),
    "cut off": (as_json([base64_of(picture(64)[:-40])]), 422),
    "dtype": (as_json(array(dtype="object")), 422),
    "three axes": (as_json(array(shape=[6, 16, 16])), 422),
    "no channels": (as_json(array(shape=[2, 0, 16, 16], data="")), 422),
    "astronomic": (as_json(array(shape=[1, 10**30, 16, 16])), 422),
    "negative": (as_json(array(shape=[-2, -3, 16, 16])), 422),
    "true": (as_json(array(shape=[True, 6, 16, 16])), 422),
    "too few bytes": (as_json(array(data=base64_of(IMAGES.tobytes()[1:]))), 422),
    "too many": (as_json(array(shape=[257, 1, 1, 1])), 413),
    "too wide": (as_json(array(shape=[1, 1, 257, 1])), 413),
    "too many pictures": (as_json([""] * 257), 413),
    "long number": (b'{"images": ' + b"9" * 5000 + b"}", 422),
}


@pytest.mark.parametrize("name", BAD_JSON)
def test_bad_json_is_refused(name: str) -> None:
    content, status = BAD_JSON[name]
    with pytest.raises(Refusal) as refused:
        from_json(content, FACTS, LIMITS)
    assert refused.value.status == status


def test_the_pixels_of_all_pictures_are_counted_before_any_is_decoded() -> None:
    limits = resolve_limits({"most_pixels": 3000})
    assert from_pictures([picture(32)] * 2, FACTS, limits).shape == (2, *SHAPE)
    with pytest.raises(Refusal, match="3,072 pixels together, at most 3,000") as refused:
        from_pictures([picture(32)] * 3, FACTS, limits)
    assert refused.value.status == 413


def test_labels_of_a_form_become_integers_where_the_learner_knows_integers() -> None:
    integers = dataclasses.replace(FACTS, integer_labels=True)
    assert form_labels(["1", "2"], FACTS) == ["1", "2"]
    assert form_labels(["1", "-2"], integers) == [1, -2]
    with pytest.raises(Refusal, match="labels are integers"):
        form_labels(["one"], integers)


def test_pictures_become_square_as_the_learner_reads_them() -> None:
    """Left half red, right half blue: what is cropped, padded and stretched differs."""
    wide = Image.new("RGB", (40, 20), "red")
    wide.paste("blue", (20, 0, 40, 20))
    file = io.BytesIO()
    wide.save(file, "PNG")
    read = {
        fit: from_pictures([file.getvalue()], ImageFacts((3, 20, 20), fit, integer_labels=False), LIMITS)[0]
        for fit in get_args(Fit)
    }
    assert read["pad"][:, 0].max() == 0, "black bars above and below"
    assert read["crop"][0, 10].tolist() == [255] * 10 + [0] * 10
    assert read["stretch"][:, 0].max() == 255
