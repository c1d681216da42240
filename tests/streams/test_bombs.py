"""Small files that ask for gigabytes or minutes: each is refused within 5 seconds and 500 MB."""

import gzip
import io
import itertools
import json
import os
import pickle
import struct
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from engram.streams import DataError, load_dataset
from engram.streams.unpickle import load_arrays
from tests.streams.imagefiles import pack, picture, tiny_files, write

CHILD = """
import json, resource, sys, time
from pathlib import Path
from engram.streams import DataError, load_dataset
resource.setrlimit(resource.RLIMIT_CPU, (30, 30))
began = time.process_time()
try:
    data = load_dataset(sys.argv[1], root=Path(sys.argv[2]))
    said = f"loaded {len(data.train_x)}"
except DataError as error:
    said = str(error)
used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # on Linux that of the parent may count
if sys.platform == "linux":
    (used,) = [int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("VmHWM")]
print(json.dumps([said, time.process_time() - began, used]))
"""


def load_in_child(name: str, root: Path) -> tuple[str, float, int]:
    """Return what loading says, the CPU seconds it took, and the bytes of memory it needed."""
    environment = os.environ | {"ENGRAM_CACHE": str(root / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", CHILD, name, str(root)], capture_output=True, text=True, timeout=60, env=environment
    )
    assert done.returncode == 0, done.stderr[-2000:]
    said, seconds, used = json.loads(done.stdout)
    return said, seconds, used


def cifar(root: Path, train: bytes) -> str:
    meta = pickle.dumps({"fine_label_names": ["a"]})
    write(root / "cifar-100-python", {"train": train, "test": train, "meta": meta})
    return "cifar100"


def shared_tuples(root: Path) -> str:
    """A list in which each of 60 tuples holds the one before twice."""
    return cifar(root, b"\x80\x02)" + b"2\x86" * 60 + b".")


def shared_tuples_as_key(root: Path) -> str:
    return cifar(root, b"\x80\x02})" + b"2\x86" * 60 + b"Ns.")


def memo_far_away(root: Path) -> str:
    return cifar(root, b"\x80\x02Nr" + struct.pack("<I", 400_000_000) + b".")


def bytes_that_are_not_there(root: Path) -> str:
    return cifar(root, b"\x80\x04\x8e" + struct.pack("<Q", 3 << 30) + b".")


def endless_instructions(root: Path) -> str:
    return cifar(root, b"\x80\x02" + b"N0" * 20_000_000 + b".")


def text_decoded_again_and_again(root: Path) -> str:
    text = b"a" * 10_000_000
    once = b"c_codecs\nencode\nh\x00X\x06\0\0\0latin1\x86R"
    return cifar(root, b"\x80\x02X" + struct.pack("<I", len(text)) + text + b"q\x00" + once * 1000 + b".")


def zip_of_zeros(root: Path) -> str:
    with zipfile.ZipFile(root / "tiny-imagenet-200.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr("train/a/images/0.JPEG", bytes(60_000_000))
        first = archive.infolist()[0]
        for index in range(1, 200):
            copied = zipfile.ZipInfo(f"train/a/images/{index}.JPEG")
            copied.compress_type, copied.header_offset, copied.CRC = first.compress_type, 0, first.CRC
            copied.file_size, copied.compress_size = first.file_size, first.compress_size
            archive.filelist.append(copied)
    return "tiny-imagenet"


def huge_text(root: Path) -> str:
    place = write(root / "tiny-imagenet-200", tiny_files())
    with (place / "wnids.txt").open("r+b") as file:
        file.truncate(2 << 30)
    return "tiny-imagenet"


def bz2_called_gz(root: Path) -> str:
    import bz2

    (root / "cifar-100-python.tar.gz").write_bytes(bz2.compress(bytes(30_000_000)) * 100)
    return "cifar100"


def tar_header(kind: bytes, size: int) -> bytes:
    member = tarfile.TarInfo("x")
    member.type, member.size = kind, size
    return member.tobuf(tarfile.GNU_FORMAT)


def huge_pax_header(root: Path) -> str:
    with gzip.open(root / "cifar-100-python.tar.gz", "wb", compresslevel=1) as file:
        file.write(tar_header(tarfile.XHDTYPE, 5 << 30))
        for _ in range(100):
            file.write(bytes(10_000_000))
    return "cifar100"


def gzip_of_zeros(root: Path) -> str:
    block = gzip.compress(tar_header(tarfile.REGTYPE, 20 << 30)) + gzip.compress(bytes(20_000_000)) * 200
    (root / "cifar-100-python.tar.gz").write_bytes(block)
    return "cifar100"


def large_pictures(root: Path) -> str:
    file = io.BytesIO()
    Image.new("RGB", (9990, 9990)).save(file, "PNG", compress_level=1)
    write(root / "own", {f"a/{index}.png": file.getvalue() for index in range(12)})
    return str(root / "own")


def links_among_folders(root: Path) -> str:
    for each in "abcdef":
        write(root / "own" / each, {"0.png": picture(1, 16, "PNG")})
        for other in "abcdef":
            (root / "own" / each / f"to-{other}").symlink_to(root / "own" / other)
    return str(root / "own")


def large_transparent_pictures(root: Path) -> str:
    file = io.BytesIO()
    Image.new("RGBA", (7000, 7000)).save(file, "PNG", compress_level=1)
    write(root / "own", {f"a/{index}.png": file.getvalue() for index in range(12)})
    return str(root / "own")


def mini_with(root: Path, rows: str) -> str:
    pack(root / "mini-imagenet.zip", {"images/a.jpg": picture(1, 84), "train.csv": b"filename,label\n" + rows.encode()})
    return "mini-imagenet"


def rows_without_end(root: Path) -> str:
    return mini_with(root, "a\n" * 4_000_000)


def one_image_listed_again_and_again(root: Path) -> str:
    return mini_with(root, "a.jpg,n\n" * 1_000_000)


def millions_of_names(root: Path) -> str:
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
    names = itertools.islice(itertools.product(letters, repeat=4), 1_600_000)
    pack(root / "tiny-imagenet-200.zip", tiny_files() | {"wnids.txt": "\n".join(map("".join, names)).encode()})
    return "tiny-imagenet"


def tar_of_empty_files(root: Path) -> str:
    headers = b"".join(tarfile.TarInfo(f"f{index}").tobuf(tarfile.GNU_FORMAT) for index in range(1000))
    (root / "cifar-100-python.tar.gz").write_bytes(gzip.compress(headers) * 500)
    return "cifar100"


def zip_of_empty_files(root: Path) -> str:
    with zipfile.ZipFile(root / "tiny-imagenet-200.zip", "w") as archive:
        for index in range(100_000):
            archive.writestr(f"{index:x}", b"")
    return "tiny-imagenet"


def deep_folders(root: Path) -> str:
    with zipfile.ZipFile(root / "tiny-imagenet-200.zip", "w") as archive:
        archive.writestr("a/" * 30_000 + "0.JPEG", b"")
    return "tiny-imagenet"


@pytest.mark.parametrize(
    ("bomb", "message"),
    [
        (shared_tuples, "more than 2,000,000 values"),
        (shared_tuples_as_key, "a dict has a key that is neither a text nor a number"),
        (memo_far_away, "'train' does not hold a dictionary"),
        (bytes_that_are_not_there, "it ends too early"),
        (endless_instructions, "more than 2,000,000 instructions"),
        (text_decoded_again_and_again, "decodes the same text again and again"),
        (zip_of_zeros, "unpacks to more than 50 times its size"),
        (huge_text, "wnids.txt has 2,147,483,648 bytes, more than"),
        (bz2_called_gz, "is damaged or cut off"),
        (huge_pax_header, "has a header of 5,368,709,120 bytes"),
        (gzip_of_zeros, "unpacks to more than 50 times its size"),
        (large_pictures, "9990×9990 pixels, too many to decode"),
        (large_transparent_pictures, "7000×7000 pixels, too many to decode"),
        (rows_without_end, "every row of train.csv needs the columns"),
        (one_image_listed_again_and_again, "lists a.jpg a second time"),
        (millions_of_names, "names 1600000 classes, train/ holds 3"),
        (tar_of_empty_files, "bytes: this is not a data set"),
        (zip_of_empty_files, "bytes: this is not a data set"),
        (deep_folders, "below more than 64 folders"),
        (links_among_folders, "are one folder, because of a link"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_bomb_is_refused_at_once(bomb: Callable[[Path], str], message: str, tmp_path: Path) -> None:
    said, seconds, used = load_in_child(bomb(tmp_path), tmp_path)
    assert message in said
    assert seconds < 5
    assert used < 500e6


def test_many_large_pictures_are_decoded_one_after_the_other(tmp_path: Path) -> None:
    """Pictures just below the limit: all threads together do not need more than one of them does."""
    file = io.BytesIO()
    Image.new("RGB", (7000, 7000)).save(file, "PNG", compress_level=1)
    write(tmp_path / "own", {f"a/{index}.png": file.getvalue() for index in range(6)})
    said, _, used = load_in_child(str(tmp_path / "own"), tmp_path)
    assert said == "loaded 5"
    assert used < 500e6


def test_pickled_images_are_not_read_into_memory(tmp_path: Path) -> None:
    """200 MB of images in a pickle of Mini-ImageNet need no more memory than a few hundred of them."""
    pixels = np.zeros((9600, 84, 84, 3), dtype=np.uint8)
    pixels[:, 0, 0, 0] = np.arange(9600) % 251
    members = {f"n{each}": list(range(600 * each, 600 * each + 600)) for each in range(16)}
    with (tmp_path / "mini-imagenet-cache-train.pkl").open("wb") as file:
        pickle.dump({"image_data": pixels, "class_dict": members}, file, protocol=4)
    said, _, used = load_in_child("mini-imagenet", tmp_path)
    assert said == "loaded 8000"
    assert used < 200e6


@pytest.mark.parametrize("protocol", range(6))
def test_every_protocol_of_pickle_is_read(protocol: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engram.streams.unpickle.LARGEST_IN_MEMORY", 10_000)
    monkeypatch.setattr("engram.streams.unpickle.DECODED_AT_ONCE", 101)
    pixels = np.random.default_rng(0).integers(0, 256, (20, 1000), dtype=np.uint8)
    honest = {
        "data": pixels,
        b"labels": [0, 1, 255, 256, 70_000, -1, 2**40, True, None, 0.5, "é", b"\xff", (1, 2, 3, 4), [], {}, ()],
        "scalars": [np.int64(3), np.float32(0.5)],
        "columns": np.asfortranarray(pixels[:3, :4]),
        "deep": {"a": [{"b": (pixels[0, :5],)}], 7: "number"},
    }
    loaded = load_arrays(pickle.dumps(honest, protocol=protocol), "it")
    assert np.array_equal(loaded["data"], pixels)
    assert loaded[b"labels"] == honest[b"labels"]
    assert loaded["scalars"] == [3, 0.5]
    assert np.array_equal(loaded["columns"], pixels[:3, :4])
    assert np.array_equal(loaded["deep"]["a"][0]["b"][0], pixels[0, :5])
    assert loaded["deep"][7] == "number"


def test_a_value_that_holds_itself_is_refused() -> None:
    own: list = []
    own.append(own)
    with pytest.raises(DataError, match="damaged or not a data set"):
        load_arrays(pickle.dumps(own), "it")


def test_a_folder_that_is_there_twice_is_named(tmp_path: Path) -> None:
    place = write(tmp_path / "own", {f"a/{index}.png": picture(index, 16, "PNG") for index in range(6)})
    (place / "b").symlink_to(place / "a")
    with pytest.raises(DataError, match=r"own/a and .*own/b are one folder, because of a link: remove the link"):
        load_dataset(str(place))
