"""Data sets as they are published: right images and labels from every layout, damage named, hostile files refused."""

import hashlib
import io
import os
import pickle
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from engram.streams import DataError, Dataset, load_dataset, loading
from engram.streams.cifar import CIFAR10, CIFAR100, CifarFiles, load_cifar
from engram.streams.files import open_files
from engram.streams.tiny_imagenet import load_tiny_imagenet
from engram.streams.unpickle import load_arrays
from tests.streams.imagefiles import mini_files, pack, picture, tiny_files, write


@pytest.fixture(scope="session")
def real_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def own_cache(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests of real data share what they decode; the others have a cache each."""
    real = "real_data" in request.fixturenames
    monkeypatch.setenv("ENGRAM_CACHE", str(request.getfixturevalue("real_cache") if real else tmp_path / "cache"))


def same(left: Dataset, right: Dataset) -> bool:
    arrays = ("train_x", "train_y", "test_x", "test_y")
    return left.class_names == right.class_names and all(
        np.array_equal(getattr(left, name), getattr(right, name)) for name in arrays
    )


def pixels(content: bytes) -> np.ndarray:
    """What Pillow makes of an image file, channels first."""
    return np.asarray(Image.open(io.BytesIO(content)).convert("RGB")).transpose(2, 0, 1)


def test_digits_are_split_by_a_fixed_rule() -> None:
    data = load_dataset("digits")
    assert data.train_x.shape == (1433, 1, 16, 16)
    assert data.test_x.shape == (364, 1, 16, 16)
    assert data.train_x.dtype == np.uint8
    assert data.train_x.max() == 255
    assert np.bincount(data.train_y).min() > 130
    assert np.bincount(data.test_y).min() > 30
    assert np.array_equal(data.train_x[:, :, ::2, ::2], data.train_x[:, :, 1::2, 1::2])
    assert load_dataset("digits", size=32).train_x.shape == (1433, 1, 32, 32)
    with pytest.raises(DataError, match="multiple"):
        load_dataset("digits", size=20)


def test_unknown_dataset_suggests_the_nearest() -> None:
    with pytest.raises(DataError, match="did you mean 'mini-imagenet'"):
        load_dataset("miniimagenet")


@pytest.mark.parametrize("name", ["cifar10", "cifar100", "mini-imagenet", "tiny-imagenet"])
def test_a_missing_data_set_says_what_to_put_where(name: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=rf"{name} was not found in .*ENGRAM_DATA"):
        load_dataset(name, root=tmp_path)


class Hostile:
    def __reduce__(self) -> tuple:
        return os.system, ("touch hostile-was-here",)


def test_pickles_may_hold_arrays_and_plain_values_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    honest = {b"data": np.arange(6, dtype=np.uint8).reshape(2, 3), b"fine_labels": [1, 2]}
    for protocol in range(2, 6):
        loaded = load_arrays(pickle.dumps(honest, protocol=protocol), "it")
        assert np.array_equal(loaded[b"data"], honest[b"data"])
    with pytest.raises(DataError, match=r"it is damaged or not a data set .*does not belong"):
        load_arrays(pickle.dumps(Hostile()), "it")
    assert not (tmp_path / "hostile-was-here").exists()


def array_pickle(code: str, shape: tuple, content: bytes, order: str = "<") -> bytes:
    """A pickled array that says of itself what it likes."""

    class Kind:
        def __reduce__(self) -> tuple:
            return np.dtype, (code, False, True), (3, order, None, None, None, -1, -1, 0)

    class Array:
        def __reduce__(self) -> tuple:
            made = np.zeros(1).__reduce__()
            return made[0], made[1], (1, shape, Kind(), False, content)

    return pickle.dumps(Array())


def test_arrays_that_lie_about_themselves_are_refused() -> None:
    assert load_arrays(array_pickle("u1", (2, 2), b"abcd"), "it").tolist() == [[97, 98], [99, 100]]
    assert load_arrays(array_pickle("i2", (1,), b"\x01\x00", ">"), "it").tolist() == [256]
    for lie in (
        array_pickle("O8", (1,), b"\x01" * 8),
        array_pickle("u1", (10**9,), b"abc"),
        array_pickle("u1", (-1,), b"abc"),
        array_pickle("V8", (1,), b"\x01" * 8),
    ):
        with pytest.raises(DataError, match="obtain it again"):
            load_arrays(lie, "it")


def fake_cifar(files: CifarFiles) -> tuple[CifarFiles, dict[str, bytes]]:
    """Small files of the published layout, and the layout with their checksums."""

    def part(count: int, first: int) -> bytes:
        pixels = (np.arange(count * 3072) + first).astype(np.uint8).reshape(count, 3072)
        return pickle.dumps({b"data": pixels, files.labels: [0, 1] * (count // 2)}, protocol=3)

    contents = {name: part(6, index) for index, name in enumerate(files.train)}
    contents |= {files.test: part(2, 99), files.meta: pickle.dumps({files.label_names: [b"apple", b"bear"]})}
    return replace(files, md5={name: hashlib.md5(content).hexdigest() for name, content in contents.items()}), contents


def pack_tar(files: CifarFiles, contents: dict[str, bytes], root: Path) -> Path:
    root.mkdir(parents=True, exist_ok=True)
    with tarfile.open(root / files.archive, "w:gz") as archive:
        for name, content in contents.items():
            member = tarfile.TarInfo(f"{files.folder}/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return root / files.archive


@pytest.mark.parametrize("published", [CIFAR10, CIFAR100], ids=lambda files: files.name)
def test_archive_and_folder_of_cifar_give_the_same_arrays(published: CifarFiles, tmp_path: Path) -> None:
    files, contents = fake_cifar(published)
    packed = load_cifar(files, pack_tar(files, contents, tmp_path))
    assert packed.train_x.shape == (6 * len(files.train), 3, 32, 32)
    assert packed.test_y.tolist() == [0, 1]
    assert packed.class_names == ("apple", "bear")
    assert packed.train_x[0, 0, 0, :3].tolist() == [0, 1, 2]
    assert same(packed, load_cifar(files, write(tmp_path / files.folder, contents)))
    assert load_cifar(files, tmp_path / files.archive, size=16).train_x.shape[-2:] == (16, 16)


def test_a_truncated_archive_is_named_with_what_to_do(tmp_path: Path) -> None:
    files, contents = fake_cifar(CIFAR100)
    path = pack_tar(files, contents, tmp_path)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(DataError, match=rf"{files.archive}.*obtain it again"):
        load_cifar(files, path)


def test_a_damaged_or_missing_member_is_named(tmp_path: Path) -> None:
    files, contents = fake_cifar(CIFAR100)
    with pytest.raises(DataError, match=r"'test' is damaged.*obtain it again"):
        load_cifar(files, pack_tar(files, contents | {"test": contents["test"][:-100]}, tmp_path))
    del contents["test"]
    with pytest.raises(DataError, match="lacks test"):
        load_cifar(files, pack_tar(files, contents, tmp_path))


def test_cifar_that_others_pickled_is_read_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Other protocols, text as keys, arrays of labels, images in their shape: the content is the same."""
    files, contents = fake_cifar(CIFAR100)
    expected = load_cifar(files, write(tmp_path / "a", contents))
    caplog.clear()

    def again(content: bytes, protocol: int) -> bytes:
        values = {
            key.decode() if isinstance(key, bytes) else key: value for key, value in pickle.loads(content).items()
        }
        if "data" in values:
            values["data"] = values["data"].reshape(-1, 3, 32, 32)
            values[files.labels] = np.array(values[files.labels])
        return pickle.dumps(values, protocol=protocol)

    for protocol in range(6):
        others = {name: again(content, protocol) for name, content in contents.items()}
        caplog.clear()
        assert same(load_cifar(files, write(tmp_path / f"b{protocol}", others)), expected)
        assert "the file 'train' is not the published one" in caplog.text


@pytest.mark.parametrize(
    "content",
    [
        {"data": np.zeros((4, 3072), np.uint8), "fine_labels": [0, 1, 0]},
        {"data": np.zeros((4, 3072), np.uint8), "fine_labels": [0, 1, 0, 2]},
        {"data": np.zeros((4, 3000), np.uint8), "fine_labels": [0, 1, 0, 1]},
        {"data": np.zeros((4, 3072), np.float32), "fine_labels": [0, 1, 0, 1]},
        {"fine_labels": [0, 1, 0, 1]},
        [1, 2],
    ],
)
def test_cifar_without_its_content_is_refused(content: object, tmp_path: Path) -> None:
    files, contents = fake_cifar(CIFAR100)
    place = write(tmp_path, contents | {"train": pickle.dumps(content)})
    with pytest.raises(DataError, match=r"the file 'train' does not hold .*: obtain it again"):
        load_cifar(files, place)


def test_one_pickle_of_three_gives_its_classes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    root = mini_layouts(mini_files(), tmp_path / "layouts")["pickles"]
    for each in ("val", "test"):
        (root / f"mini-imagenet-cache-{each}.pkl").unlink()
    data = load_dataset("mini-imagenet", root=root)
    assert (len(data.class_names), len(data.train_y), len(data.test_y)) == (2, 20, 4)
    assert "lacks the pickle of val and the pickle of test" in caplog.text


def test_tiny_imagenet_from_zip_and_folder(tmp_path: Path) -> None:
    files = tiny_files()
    pack(tmp_path / "a" / "tiny-imagenet-200.zip", files, "tiny-imagenet-200/")
    write(tmp_path / "b" / "tiny-imagenet-200", files)
    packed, unpacked = (load_dataset("tiny-imagenet", root=tmp_path / root) for root in "ab")
    assert same(packed, unpacked)
    assert packed.train_x.shape == (36, 3, 64, 64)
    assert packed.class_names == ("word0 (n00001000)", "word1", "word0 (n00001002)")
    assert packed.train_y.tolist() == [0] * 12 + [1] * 12 + [2] * 12
    assert packed.test_y.tolist() == [0, 1, 2, 0, 1, 2]
    numbered = files["train/n00001000/images/n00001000_2.JPEG"]
    assert np.array_equal(packed.train_x[2], pixels(numbered)), "image 2 comes before image 10"


def test_tiny_imagenet_damage_is_named(tmp_path: Path) -> None:
    files = tiny_files()
    lines = files["val/val_annotations.txt"].splitlines()
    write(tmp_path / "a", files | {"val/val_annotations.txt": b"\n".join(lines[1:])})
    with pytest.raises(DataError, match=r"val_annotations.txt does not say the class of val/images/val_0.JPEG"):
        load_tiny_imagenet(tmp_path / "a")
    write(tmp_path / "b", files | {"wnids.txt": files["wnids.txt"] + b"\nn99999999"})
    with pytest.raises(DataError, match=r"names 4 classes, train/ holds 3 \(they differ in n99999999\)"):
        load_tiny_imagenet(tmp_path / "b")
    path = pack(tmp_path / "tiny-imagenet-200.zip", files, "tiny-imagenet-200/")
    path.write_bytes(path.read_bytes()[:-3000])
    with pytest.raises(DataError, match=r"tiny-imagenet-200.zip is damaged or cut off"):
        load_tiny_imagenet(path)


def mini_layouts(files: dict[str, bytes], root: Path) -> dict[str, Path]:
    """The same images in every layout, each below a root of its own."""
    images = {name.split("/")[1]: content for name, content in files.items() if name.startswith("images/")}
    splits = {
        line.split(",")[0]: (split, line.split(",")[1])
        for split in ("train", "val", "test")
        for line in files[f"{split}.csv"].decode().splitlines()[1:]
    }
    write(root / "csv" / "mini-imagenet", files)
    pack(root / "zip" / "mini-imagenet.zip", files, "mini-imagenet/")
    write(root / "flat" / "mini-imagenet", {f"{splits[name][1]}/{name}": images[name] for name in images})
    by_split = {f"{splits[name][0]}/{splits[name][1]}/{name}": images[name] for name in images}
    write(root / "split" / "mini-imagenet", by_split)
    (root / "pickles").mkdir()
    for split in ("train", "val", "test"):
        names = sorted(name for name in images if splits[name][0] == split)
        members: dict[str, list[int]] = {}
        for index, name in enumerate(names):
            members.setdefault(splits[name][1], []).append(index)
        stacked = np.stack([pixels(images[name]).transpose(1, 2, 0) for name in names])
        content = pickle.dumps({"image_data": stacked, "class_dict": members}, protocol=2)
        (root / "pickles" / f"mini-imagenet-cache-{split}.pkl").write_bytes(content)
    return {path.name: path for path in root.iterdir() if path.is_dir()}


def test_every_layout_of_mini_imagenet_gives_the_same_arrays(tmp_path: Path) -> None:
    files = mini_files()
    layouts = mini_layouts(files, tmp_path / "layouts")
    loaded = {name: load_dataset("mini-imagenet", root=root) for name, root in layouts.items()}
    assert len(loaded) == 5
    data = loaded["csv"]
    assert data.train_x.shape == (40, 3, 84, 84)
    assert data.test_x.shape == (8, 3, 84, 84)
    assert np.bincount(data.train_y).tolist() == [10] * 4
    assert np.array_equal(data.train_x[0], pixels(files["images/n0000200000000000.jpg"]))
    assert np.array_equal(data.test_x[-1], pixels(files["images/n0000200300000011.jpg"]))
    for name, other in loaded.items():
        assert same(other, data), name


def test_mini_imagenet_damage_is_named(tmp_path: Path) -> None:
    files = mini_files()
    del files["images/n0000200000000003.jpg"]
    write(tmp_path / "mini-imagenet", files)
    with pytest.raises(DataError, match=r"train.csv lists n0000200000000003.jpg, which is not in images/"):
        load_dataset("mini-imagenet", root=tmp_path)
    write(tmp_path / "mini-imagenet", {"train.csv": b"file,class\na,b"})
    with pytest.raises(DataError, match="needs the columns filename and label"):
        load_dataset("mini-imagenet", root=tmp_path)
    for split in ("train", "val", "test"):
        write(tmp_path / "pickled", {f"mini-imagenet-cache-{split}.pkl": pickle.dumps({"data": [1]})})
    with pytest.raises(DataError, match="does not hold image_data and class_dict"):
        load_dataset("mini-imagenet", root=tmp_path / "pickled")
    write(tmp_path / "pickled", {"mini-imagenet-cache-val.pkl": b"nothing like a pickle"})
    write(tmp_path / "pickled", {"mini-imagenet-cache-train.pkl": pickle.dumps(Hostile())})
    with pytest.raises(DataError, match=r"mini-imagenet-cache-train.pkl is damaged or not a data set"):
        load_dataset("mini-imagenet", root=tmp_path / "pickled")


def test_an_own_folder_of_images(tmp_path: Path) -> None:
    files = {f"{kind}/{index}.png": picture(index, 20, "PNG") for kind in ("cats", "dogs") for index in range(6)}
    data = load_dataset(str(write(tmp_path / "pets", files)), size=20)
    assert data.class_names == ("cats", "dogs")
    assert (data.train_y.tolist(), data.test_y.tolist()) == ([0] * 5 + [1] * 5, [0, 1])
    assert np.array_equal(data.train_x[0], pixels(files["cats/0.png"]))
    write(tmp_path / "pets", {"eels/0.png": picture(0, 20, "PNG")})
    data = load_dataset(str(tmp_path / "pets"), size=20)
    assert (data.train_y.tolist(), data.test_y.tolist()) == ([0] * 5 + [1] * 5 + [2], [0, 1])
    split = {f"train/{name}": content for name, content in files.items()} | {"test/dogs/a.png": picture(7, 40, "PNG")}
    data = load_dataset(str(write(tmp_path / "split", split)))
    assert data.train_x.shape == (12, 3, 32, 32)
    assert data.test_y.tolist() == [1]
    write(tmp_path / "split", {"test/birds/a.png": picture(8)})
    with pytest.raises(DataError, match="'birds' has test images but no training image"):
        load_dataset(str(tmp_path / "split"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="has no image in a folder of its class"):
        load_dataset(str(tmp_path / "empty"))


def test_a_folder_with_only_one_of_train_and_test_is_split(tmp_path: Path) -> None:
    files = {f"train/{kind}/{index}.png": picture(index, 16, "PNG") for kind in ("a", "b") for index in range(6)}
    data = load_dataset(str(write(tmp_path / "own", files)))
    assert data.class_names == ("a", "b")
    assert (len(data.train_y), len(data.test_y)) == (10, 2)


def test_links_to_class_folders_are_followed_and_loops_are_not(tmp_path: Path) -> None:
    files = {f"{kind}/{index}.png": picture(index, 16, "PNG") for kind in ("a", "b") for index in range(6)}
    write(tmp_path / "all", files)
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "a").symlink_to(tmp_path / "all" / "a")
    (tmp_path / "own" / "b").symlink_to(tmp_path / "all" / "b")
    (tmp_path / "all" / "a" / "loop").symlink_to(tmp_path / "all" / "a")
    data = load_dataset(str(tmp_path / "own"))
    assert data.class_names == ("a", "b")
    assert len(data.train_y) == 10


def test_sixteen_bit_grey_images_keep_their_greys(tmp_path: Path) -> None:
    file = io.BytesIO()
    ramp = np.linspace(0, 65535, 32 * 32).astype(np.uint16).reshape(32, 32)
    Image.fromarray(ramp).save(file, "PNG")
    data = load_dataset(str(write(tmp_path / "gray", {f"a/{i}.png": file.getvalue() for i in range(6)})))
    assert np.array_equal(data.train_x[0, 0], ramp >> 8)


def test_oblong_and_large_images_are_cut_and_resized_without_aliasing(tmp_path: Path) -> None:
    stripes = np.zeros((64, 128, 3), dtype=np.uint8)
    stripes[:, ::2] = 255
    file = io.BytesIO()
    Image.fromarray(stripes).save(file, "PNG")
    data = load_dataset(str(write(tmp_path / "own", {f"a/{i}.png": file.getvalue() for i in range(6)})), size=16)
    assert np.abs(data.train_x.astype(int) - 127).max() < 12, "stripes finer than a pixel become gray"


def test_one_damaged_image_is_named_and_can_be_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    files = tiny_files()
    broken = "train/n00001001/images/n00001001_5.JPEG"
    root = write(tmp_path / "tiny-imagenet-200", files | {broken: files[broken][:300]})
    with pytest.raises(DataError, match=rf"{broken} is damaged.*skip_damaged"):
        load_dataset("tiny-imagenet", root=root.parent)
    data = load_dataset("tiny-imagenet", root=root.parent, skip_damaged=True)
    assert broken in caplog.text
    assert np.bincount(data.train_y).tolist() == [12, 11, 12]
    assert len(data.train_x) == 35
    after = files["train/n00001001/images/n00001001_6.JPEG"]
    assert np.array_equal(data.train_x[17], pixels(after))
    assert same(data, load_dataset("tiny-imagenet", root=root.parent, skip_damaged=True))


def test_damage_inside_an_archive_can_be_left_out_too(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A member whose checksum is wrong, and a picture Pillow has its own words for."""
    files = tiny_files()
    broken = "train/n00001001/images/n00001001_5.JPEG"
    files["train/n00001000/images/n00001000_0.JPEG"] = picture(1, 64, "PNG")[:20]
    with zipfile.ZipFile(tmp_path / "tiny-imagenet-200.zip", "w") as archive:
        for name, content in files.items():
            archive.writestr(f"tiny-imagenet-200/{name}", content)
    content = (tmp_path / "tiny-imagenet-200.zip").read_bytes()
    at = content.index(files[broken]) + 100
    (tmp_path / "tiny-imagenet-200.zip").write_bytes(content[:at] + bytes([content[at] ^ 255]) + content[at + 1 :])
    with pytest.raises(DataError):
        load_dataset("tiny-imagenet", root=tmp_path)
    for _ in range(2):
        caplog.clear()
        data = load_dataset("tiny-imagenet", root=tmp_path, skip_damaged=True)
        assert np.bincount(data.train_y).tolist() == [11, 11, 12]
        assert broken in caplog.text
        assert "n00001000_0.JPEG" in caplog.text


def test_grey_images_become_rgb(tmp_path: Path) -> None:
    files = {f"a/{i}.jpg": picture(i, 32, mode="L") for i in range(6)}
    data = load_dataset(str(write(tmp_path / "gray", files)))
    assert data.train_x.shape == (5, 3, 32, 32)
    assert (data.train_x[:, 0] == data.train_x[:, 2]).all()


@pytest.mark.parametrize("name", ["../outside.jpg", "/etc/outside.jpg", "a/../../outside.jpg", "a\\..\\b.jpg"])
def test_names_that_leave_the_archive_are_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / "evil.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("honest.jpg", picture(0))
        archive.writestr(zipfile.ZipInfo(name), picture(1))
    with pytest.raises(DataError, match="points outside the archive"):
        open_files(path)


def test_bombs_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = pack(tmp_path / "bomb.zip", {"a.jpg": b"\0" * 5_000_000})
    with pytest.raises(DataError, match="5,000,000 bytes, more than 1,000,000"):
        open_files(path).read("a.jpg", limit=1_000_000)
    many = pack(tmp_path / "many.zip", {str(i): b"" for i in range(3)})
    with monkeypatch.context() as limited:
        limited.setattr("engram.streams.files.MOST_FILES", 2)
        with pytest.raises(DataError, match="not a data set"):
            open_files(many)
    monkeypatch.setattr("engram.streams.images.MOST_PIXELS", 1000)
    with pytest.raises(DataError, match="40×40 pixels, too many"):
        load_dataset(str(write(tmp_path / "large", {f"a/{i}.png": picture(i, 40, "PNG") for i in range(6)})))


def test_a_member_that_unpacks_to_more_than_it_says_is_refused(tmp_path: Path) -> None:
    path = pack(tmp_path / "liar.zip", {"a.jpg": b"x" * 1000})
    tree = open_files(path)
    tree.sizes["a.jpg"] = 10
    with pytest.raises(DataError, match="does not have its stated 10 bytes"):
        tree.read("a.jpg")


def test_every_known_data_set_can_be_found_by_its_download(tmp_path: Path) -> None:
    for name, known in loading.DATASETS.items():
        if known.download:
            assert known.download.url.startswith("https://")
            (tmp_path / name).mkdir()
            (tmp_path / name / known.download.file).touch()
            assert known.find(tmp_path / name) == tmp_path / name / known.download.file


@pytest.mark.realdata
def test_real_cifar100_is_whole(real_data: Path) -> None:
    data = load_dataset("cifar100", root=real_data)
    assert data.train_x.shape == (50_000, 3, 32, 32)
    assert np.bincount(data.train_y).tolist() == [500] * 100
    assert np.bincount(data.test_y).tolist() == [100] * 100
    assert data.class_names[data.train_y[0]] == "cattle"
    first, last = (hashlib.sha256(image.tobytes()).hexdigest() for image in (data.train_x[0], data.test_x[-1]))
    assert first == "d48e87e6d75805dce9ed40f9a8ce251ae229f09d06907f2a46191236506791e2"
    assert last == "f4e99d314612b89b1e04f7a93b12bab1d12257f12c3690f85817ff6c9ee4f4a1"
    assert smoother_than_scrambled(data.train_x[:2000])


def smoother_than_scrambled(images: np.ndarray) -> bool:
    """Pixels in the right order: neighbors are alike, as they would not be with channels and columns mixed up."""
    count, channels, height, width = images.shape
    scrambled = images.reshape(count, height, width, channels).transpose(0, 3, 1, 2)
    rows, wrong = (np.abs(np.diff(each.astype(int), axis=2)).mean() for each in (images, scrambled))
    return bool(rows < 0.6 * wrong)


@pytest.mark.realdata
def test_real_tiny_imagenet(real_data: Path) -> None:
    data = load_dataset("tiny-imagenet", root=real_data)
    assert data.train_x.shape[1:] == (3, 64, 64)
    assert np.bincount(data.train_y).tolist() == [100] * 200
    assert np.bincount(data.test_y).tolist() == [10] * 200
    assert data.class_names[0] == "goldfish"
    (path,) = real_data.glob("tiny-imagenet-200*.zip")
    with zipfile.ZipFile(path) as archive:
        first = archive.read("tiny-imagenet-200/train/n01443537/images/n01443537_0.JPEG")
        wnids = sorted(archive.read("tiny-imagenet-200/wnids.txt").decode().split())
        last = archive.read(f"tiny-imagenet-200/train/{wnids[-1]}/images/{wnids[-1]}_99.JPEG")
        annotated = archive.read("tiny-imagenet-200/val/val_annotations.txt").decode().splitlines()[0].split("\t")
        tested = pixels(archive.read(f"tiny-imagenet-200/val/images/{annotated[0]}"))
    assert hashlib.sha256(first).hexdigest() == "edbf2df46176d60aa4629685638539a1b108a0fcaa5a27d6af323c0c9acbf705"
    assert hashlib.sha256(last).hexdigest() == "be7215184898e4d9e970c6fbf58cc471306516631f8d7c6fb90c65d16c198bbd"
    assert np.array_equal(data.train_x[0], pixels(first))
    assert np.array_equal(data.train_x[-1], pixels(last))
    (place,) = np.flatnonzero((data.test_x == tested).all((1, 2, 3)))
    assert wnids[data.test_y[place]] == annotated[1]
    assert ((data.train_x[:, 0] == data.train_x[:, 1]) & (data.train_x[:, 1] == data.train_x[:, 2])).all((1, 2)).any()


@pytest.mark.realdata
def test_real_tiny_imagenet_unpacked_is_the_same(real_data: Path, tmp_path: Path) -> None:
    """Three classes of it, in the zip and in the folder it unpacks to."""
    (path,) = real_data.glob("tiny-imagenet-200*.zip")
    with zipfile.ZipFile(path) as archive:
        wnids = sorted(archive.read("tiny-imagenet-200/wnids.txt").decode().split())[:3]
        annotations = archive.read("tiny-imagenet-200/val/val_annotations.txt").decode().splitlines()
        kept = [line for line in annotations if line.split("\t")[1] in wnids]
        tested = {f"val/images/{line.split(chr(9))[0]}" for line in kept}
        names = [name.removeprefix("tiny-imagenet-200/") for name in archive.namelist()]
        wanted = [name for name in names if name in tested or any(name.startswith(f"train/{each}/") for each in wnids)]
        files = {name: archive.read(f"tiny-imagenet-200/{name}") for name in wanted}
    files |= {"wnids.txt": "\n".join(wnids).encode(), "val/val_annotations.txt": "\n".join(kept).encode()}
    pack(tmp_path / "zip" / "tiny-imagenet-200.zip", files, "tiny-imagenet-200/")
    write(tmp_path / "folder" / "tiny-imagenet-200", files)
    packed, unpacked = (load_dataset("tiny-imagenet", root=tmp_path / kind) for kind in ("zip", "folder"))
    assert packed.train_x.shape == (300, 3, 64, 64)
    assert same(packed, unpacked)
    assert np.array_equal(packed.train_x, load_dataset("tiny-imagenet", root=real_data).train_x[:300])


@pytest.mark.realdata
def test_real_mini_imagenet_in_every_layout(real_data: Path, tmp_path: Path) -> None:
    data = load_dataset("mini-imagenet", root=real_data)
    assert data.train_x.shape == (5000, 3, 84, 84)
    assert np.bincount(data.train_y).tolist() == [50] * 100
    assert np.bincount(data.test_y).tolist() == [10] * 100
    assert smoother_than_scrambled(data.train_x[:500])
    (path,) = real_data.glob("mini-imagenet*.zip")
    with zipfile.ZipFile(path) as archive:
        listed = {
            each: archive.read(f"mini-imagenet/{each}.csv").decode().splitlines() for each in ("train", "val", "test")
        }
        classes = [sorted({line.split(",")[1] for line in lines[1:]})[0] for lines in listed.values()]
        files = {}
        for split, lines in listed.items():
            rows = [line for line in lines[1:] if line.split(",")[1] in classes]
            files[f"{split}.csv"] = "\n".join([lines[0], *rows]).encode()
            names = [f"images/{line.split(',')[0]}" for line in rows]
            files |= {name: archive.read(f"mini-imagenet/{name}") for name in names}
    first = files[min(name for name in files if name.startswith("images/"))]
    assert hashlib.sha256(first).hexdigest() == "ea4078e5d722ad352ecc598cff75b46bed9b794df7125e934474ee433f71cf14"
    loaded = {
        name: load_dataset("mini-imagenet", root=root) for name, root in mini_layouts(files, tmp_path / "l").items()
    }
    whole = {name: data.train_x[data.train_y == label] for label, name in enumerate(data.class_names)}
    for other in loaded.values():
        assert same(other, loaded["csv"])
        for label, name in enumerate(other.class_names):
            assert np.array_equal(other.train_x[other.train_y == label], whole[name])


@pytest.mark.realdata
def test_a_horizontal_edge_of_a_real_image_stays_one(real_data: Path) -> None:
    """The image of the first hundred whose rows differ most from one another, and columns least, as Pillow shows it."""
    data = load_dataset("tiny-imagenet", root=real_data)
    (path,) = real_data.glob("tiny-imagenet-200*.zip")

    def edge(image: np.ndarray) -> float:
        gray = image.astype(float).mean(0)
        return float(np.abs(np.diff(gray, axis=0)).mean() / np.abs(np.diff(gray, axis=1)).mean())

    with zipfile.ZipFile(path) as archive:
        shown = [
            pixels(archive.read(f"tiny-imagenet-200/train/n01443537/images/n01443537_{i}.JPEG")) for i in range(100)
        ]
    strongest = max(range(100), key=lambda index: edge(shown[index]))
    assert edge(shown[strongest]) > 1.5
    assert edge(data.train_x[strongest]) == pytest.approx(edge(shown[strongest]))
