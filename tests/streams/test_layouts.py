"""Image files as people have them: what is a class, a training image or a test image, and what is refused."""

import codecs
import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from engram.cli import main
from engram.streams import DATASETS, DataError, Dataset, ImageReading, class_incremental, load_dataset, to_batches
from engram.streams import images as images_module
from tests.streams.imagefiles import mini_files, pack, picture, tiny_files, write


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGRAM_CACHE", str(tmp_path / "cache"))


def images(*folders: str, count: int = 6, suffix: str = ".png") -> dict[str, bytes]:
    """Return `count` small images in each folder."""
    return {
        f"{folder}/{index}{suffix}": picture(100 * number + index, 16, "PNG")
        for number, folder in enumerate(folders)
        for index in range(count)
    }


def counts(data: Dataset) -> tuple[tuple[str, ...], int, int]:
    return data.class_names, len(data.train_y), len(data.test_y)


@pytest.mark.parametrize(
    ("folders", "classes"),
    [
        (["Train/a", "Train/b", "Test/a", "Test/b"], "ab"),
        (["training/a", "training/b", "testing/a", "testing/b"], "ab"),
        (["TRAIN_SET/a", "TRAIN_SET/b", "validation-set/a", "validation-set/b"], "ab"),
        (["top/inner/train/a", "top/inner/train/b", "top/inner/test/a", "top/inner/test/b"], "ab"),
        (["train/images/a", "train/images/b", "test/images/a", "test/images/b"], "ab"),
        (["train/a/images", "train/b/images", "test/a", "test/b"], "ab"),
        (["a/train", "b/train", "a/test", "b/test"], "ab"),
        (["train_images/a", "train_images/b", "test_images/a", "test_images/b"], "ab"),
    ],
    ids=lambda value: value if isinstance(value, str) else value[0],
)
def test_folders_of_training_and_test_images_are_recognized(folders: list[str], classes: str, tmp_path: Path) -> None:
    files = images(*folders)
    data = load_dataset(str(write(tmp_path / "own", files)), size=16)
    assert counts(data) == (tuple(classes), 12, 12)
    for folder, side in zip(folders, (data.train_x, data.train_x, data.test_x, data.test_x), strict=True):
        expected = np.asarray(Image.open(io.BytesIO(files[f"{folder}/3.png"]))).transpose(2, 0, 1)
        assert (side == expected).all((1, 2, 3)).sum() == 1, folder


def test_folders_above_the_classes_are_passed(tmp_path: Path) -> None:
    data = load_dataset(str(write(tmp_path / "own", images("photos/2024/cat", "photos/2024/dog"))))
    assert counts(data) == (("cat", "dog"), 10, 2)
    assert counts(load_dataset(str(write(tmp_path / "two", images("all/cat/images", "all/dog/images"))))) == (
        ("cat", "dog"),
        10,
        2,
    )


def test_a_class_may_be_called_train(tmp_path: Path) -> None:
    data = load_dataset(str(write(tmp_path / "vehicles", images("car", "train", "ship"))))
    assert data.class_names == ("car", "ship", "train")


def test_validation_images_are_left_out_if_there_are_test_images(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place = write(tmp_path / "own", images("train/a", "train/b", "val/a", "val/b", "test/a", "test/b"))
    data = load_dataset(str(place))
    assert counts(data) == (("a", "b"), 12, 12)
    assert "left out 12 validation images" in caplog.text
    assert any("12 validation images" in words for words in data.left_out)


def test_what_systems_and_tools_add_is_no_class_and_no_image(tmp_path: Path) -> None:
    files = images("cat", "dog", ".ipynb_checkpoints", "__MACOSX/cat", ".Trash/x")
    files |= {f"cat/._{index}.png": b"\0\5\x16\7 resource fork" for index in range(6)}
    files |= {"cat/Thumbs.db": b"x", "notes.txt": b"x"}
    place = write(tmp_path / "own", files)
    data = load_dataset(str(place))
    assert counts(data) == (("cat", "dog"), 10, 2)
    assert any("cat/._0.png" in words for words in data.left_out)
    assert any("notes.txt" in words for words in data.left_out)


def test_all_usual_suffixes_and_none_are_read(tmp_path: Path) -> None:
    kinds = {"a.jfif": "JPEG", "b.jpe": "JPEG", "c.jp2": "JPEG2000", "d.avif": "AVIF", "e.tga": "TGA", "f": "PNG"}
    files = {f"cat/{name}": picture(1, 16, kind) for name, kind in kinds.items()}
    data = load_dataset(str(write(tmp_path / "own", files | {"cat/README": b"no picture"})))
    assert counts(data) == (("cat",), 5, 1)
    assert any("cat/README" in words for words in data.left_out)


@pytest.mark.parametrize(
    ("folders", "message"),
    [
        (["train/animal/cat", "train/animal/dog", "train/plant/rose"], r"unclear which .* classes: move these folders"),
        (["animal/cat", "animal/dog", "plant/rose"], r"animal/ has no images itself but the folders cat, dog"),
        (["a/train", "a/test", "b"], r"a/ has no images itself but the folders test, train"),
        (["train/a", "test/a", "extra/a"], r"unclear .*It has test/, train/, extra/: keep one folder train/"),
        (["train/a", "training/a", "test/a"], r"unclear .* test images and classes"),
        (["train", "test"], r"no image in a folder of its class, but 12 images elsewhere \(test/0.png"),
        (["train"], r"no image in a folder of its class"),
        (["test/a", "val/a"], r"has .* images but no training images: add a folder train/"),
        (["train/a", "train/b", "test/c", "test/d"], r"have no class in common.*put all classes into one folder"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_unclear_folders_are_refused_with_the_way_out(folders: list[str], message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=message):
        load_dataset(str(write(tmp_path / "own", images(*folders))))


@pytest.mark.parametrize(
    "folders", [("train/a", "train/b", "test/a", "test/b"), ("a/train", "b/train", "a/test", "b/test")]
)
def test_images_beside_the_splits_are_said(
    folders: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = write(tmp_path / "own", images(*folders) | {"preview.png": picture(1, 16, "PNG")})
    assert main(["data", "check", str(place)]) == 0
    assert "Left out: 1 images that are not in the folder of a class: preview.png" in capsys.readouterr().out


def test_folders_of_the_same_classes_are_told_how_to_be_named(tmp_path: Path) -> None:
    place = write(tmp_path / "own", images("fold1/a", "fold1/b", "fold2/a", "fold2/b"))
    with pytest.raises(DataError, match=r"fold1/ and fold2/ both have folders named a, b.* rename them to train/ and"):
        load_dataset(str(place))


def test_a_class_that_is_spelled_in_two_ways_is_named(tmp_path: Path) -> None:
    place = write(tmp_path / "own", images("train/Cat", "train/dog", "test/cat", "test/dog"))
    with pytest.raises(DataError, match=r"class 'cat' has test images .* rename it, if it is the class 'Cat'"):
        load_dataset(str(place))


def test_learning_from_a_folder_says_that_test_images_are_not_learned(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    batches = to_batches(write(tmp_path / "own", images("train/a", "train/b", "test/a", "test/b")), ImageReading())
    assert sum(len(labels) for _, labels in batches) == 12
    assert "its 12 test images are not learned from" in caplog.text


def test_images_that_are_in_no_class_are_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    place = write(tmp_path / "own", images("cat", "dog") | {"cover.png": picture(1, 16, "PNG")})
    assert counts(load_dataset(str(place))) == (("cat", "dog"), 10, 2)
    assert "left out 1 images that are not in the folder of a class: cover.png" in caplog.text


def test_the_split_is_made_after_damaged_files_are_dropped(tmp_path: Path) -> None:
    files = images("cat", "dog", count=12) | {f"cat/{index}.png": b"broken" for index in (0, 1, 10, 11, 2, 3)}
    place = write(tmp_path / "own", files)
    for _ in range(2):
        data = load_dataset(str(place), size=16, skip_damaged=True)
        assert np.bincount(data.train_y).tolist() == [5, 10], "five sixths of the six that are left"
        assert np.bincount(data.test_y).tolist() == [1, 2]
        last = np.asarray(Image.open(io.BytesIO(files["cat/9.png"]))).transpose(2, 0, 1)
        assert np.array_equal(data.test_x[0], last)


def test_a_class_without_training_images_is_named(tmp_path: Path) -> None:
    files = images("cat", "dog") | {f"dog/{index}.png": b"broken" for index in range(6)}
    data = load_dataset(str(write(tmp_path / "own", files)), skip_damaged=True)
    with pytest.raises(DataError, match="class 'dog' of own has no training image: add some"):
        class_incremental(data, classes_per_task=1)


def test_what_is_transparent_becomes_white(tmp_path: Path) -> None:
    hidden = np.zeros((16, 16, 4), dtype=np.uint8)
    hidden[..., 0] = 255
    hidden[:, 8:, 3] = 255
    paletted = Image.new("P", (16, 16), 1)
    paletted.putpalette([0, 0, 255, 0, 255, 0])
    files = {}
    for name, image, options in (("a", Image.fromarray(hidden), {}), ("b", paletted, {"transparency": 1})):
        file = io.BytesIO()
        image.save(file, "PNG", **options)
        files |= {f"{name}/{index}.png": file.getvalue() for index in range(6)}
    data = load_dataset(str(write(tmp_path / "own", files)), size=16)
    assert (data.train_x[0, :, :, :8] == 255).all(), "the hidden red is not seen"
    assert (data.train_x[0, 0, :, 8:] == 255).all()
    assert (data.train_x[0, 1:, :, 8:] == 0).all()
    assert (data.train_x[-1] == 255).all()


def test_messages_name_the_file_and_nothing_inside_of_python(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"cat/0.png is damaged \(it is not an image\)"):
        load_dataset(str(write(tmp_path / "own", images("cat") | {"cat/0.png": b"nothing"})))


def test_a_pillow_without_a_format_reads_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(Image.OPEN, "AVIF")
    images_module._formats.cache_clear()
    try:
        with pytest.raises(DataError, match="it is not an image"):
            load_dataset(str(write(tmp_path / "own", images("cat") | {"cat/0.png": b"nothing"})))
    finally:
        images_module._formats.cache_clear()


def test_a_format_that_runs_programs_is_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("PIL.EpsImagePlugin.Ghostscript", lambda *arguments, **options: pytest.fail("ran Ghostscript"))
    file = io.BytesIO()
    Image.new("RGB", (16, 16)).save(file, "EPS")
    with pytest.raises(DataError, match="it is not an image"):
        load_dataset(str(write(tmp_path / "own", images("cat") | {"cat/0.jpg": file.getvalue()})))


def in_every_split(files: dict[str, bytes]) -> dict[str, bytes]:
    """Mini-ImageNet with every class in train/ and in test/: its last two images are in test/."""
    names = [name.removeprefix("images/") for name in files if name.startswith("images/")]
    side = {name: "test" if int(name[9:17]) >= 10 else "train" for name in names}
    return {f"{side[name]}/{name[:9]}/{name}": files[f"images/{name}"] for name in names}


def test_test_images_of_mini_imagenet_stay_test_images(tmp_path: Path) -> None:
    write(tmp_path / "mini-imagenet", in_every_split(mini_files()))
    write(tmp_path / "listed" / "mini-imagenet", mini_files())
    data, listed = (load_dataset("mini-imagenet", root=root) for root in (tmp_path, tmp_path / "listed"))
    assert (len(data.train_y), len(data.test_y)) == (40, 8)
    assert np.array_equal(data.train_x, listed.train_x)
    assert np.array_equal(data.test_x, listed.test_x)


def test_csv_files_of_mini_imagenet_are_found_anywhere(tmp_path: Path) -> None:
    files = mini_files()
    moved = {name if name.startswith("images/") else f"split/{name}": content for name, content in files.items()}
    write(tmp_path / "mini-imagenet", moved)
    data = load_dataset("mini-imagenet", root=tmp_path)
    assert (len(data.class_names), len(data.train_y), len(data.test_y)) == (4, 40, 8)


def test_csv_files_that_a_spreadsheet_wrote_are_read(tmp_path: Path) -> None:
    files = mini_files()
    marked = {name: codecs.BOM_UTF8 + files[name] if name.endswith(".csv") else files[name] for name in files}
    write(tmp_path / "mini-imagenet-84", marked)
    data = load_dataset("mini-imagenet", root=tmp_path)
    assert (len(data.class_names), len(data.train_y), len(data.test_y)) == (4, 40, 8)


def test_images_of_tiny_imagenet_without_labels_are_said_to_be_left_out(tmp_path: Path) -> None:
    files = tiny_files() | {f"test/images/test_{index}.JPEG": picture(index, 64) for index in range(3)}
    data = load_dataset("tiny-imagenet", root=write(tmp_path / "tiny-imagenet-200", files))
    assert data.left_out[0].startswith("3 images that are neither training nor validation images: test/images/test_0")


def test_info_takes_the_path_of_an_archive(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "info", str(pack(tmp_path / "mini-imagenet.zip", mini_files()))]) == 0
    assert "holds 4 classes, 40 training images" in capsys.readouterr().out


def test_an_image_that_a_csv_file_lists_must_be_there_once(tmp_path: Path) -> None:
    files = mini_files()
    name = next(name for name in files if name.startswith("images/"))
    place = write(tmp_path / "mini-imagenet", files | {name.replace("images", "copies"): files[name]})
    with pytest.raises(DataError, match=r"lists n0000200000000000.jpg, which may be copies/.*, images/.*: keep one"):
        load_dataset("mini-imagenet", root=tmp_path)
    listed = files["train.csv"].decode().replace(name.removeprefix("images/"), name)
    write(place, {"train.csv": listed.encode()})
    assert len(load_dataset("mini-imagenet", root=tmp_path).train_y) == 40, "a path says which"
    write(place, {"train.csv": b'filename,label\n"' + b"x" * 200_000})
    with pytest.raises(DataError, match=r"train.csv is not a csv file"):
        load_dataset("mini-imagenet", root=tmp_path)


def test_images_without_classes_are_not_one_class(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ENGRAM_DATA", str(tmp_path))
    files = {name: content for name, content in mini_files().items() if name.startswith("images/")}
    write(tmp_path / "mini-imagenet", files)
    assert main(["data", "check", "mini-imagenet"]) == 1
    assert "no image in a folder of its class, but 48 images elsewhere" in capsys.readouterr().err
    pack(tmp_path / "zip" / "mini-imagenet.zip", files, "mini-imagenet/")
    with pytest.raises(DataError, match="but 48 images elsewhere"):
        load_dataset("mini-imagenet", root=tmp_path / "zip")


@pytest.mark.parametrize("form", ["val/{wnid}/{file}", "val/{wnid}/images/{file}", "val/images/{wnid}/{file}"])
def test_tiny_imagenet_with_its_validation_images_in_class_folders(form: str, tmp_path: Path) -> None:
    files = tiny_files()
    wnids = dict(line.split("\t")[:2] for line in files["val/val_annotations.txt"].decode().splitlines())
    moved = {
        form.format(wnid=wnids[name.rpartition("/")[2]], file=name.rpartition("/")[2])
        if "val_" in name
        else name: content
        for name, content in files.items()
        if name != "val/val_annotations.txt"
    } | {f"test/images/test_{index}.JPEG": picture(index, 64) for index in range(4)}
    stock = load_dataset("tiny-imagenet", root=write(tmp_path / "a" / "tiny-imagenet-200", files).parent)
    place = write(tmp_path / "b" / "tiny-imagenet-200", moved)
    for data in (load_dataset("tiny-imagenet", root=place.parent), load_dataset(str(place))):
        assert (len(data.train_y), len(data.test_y)) == (36, 6)
        assert data.class_names == stock.class_names
        assert np.array_equal(data.test_x, stock.test_x)
        assert np.array_equal(data.test_y, stock.test_y)
    kept = write(tmp_path / "c" / "tiny-imagenet-200", moved | {"val/val_annotations.txt": b""})
    assert len(load_dataset("tiny-imagenet", root=kept.parent).test_y) == 6, "the annotations may still be there"


@pytest.mark.parametrize("name", ["mini_imagenet", "miniImagenet", "Mini-ImageNet", "miniimagenet"])
def test_spellings_of_mini_imagenet_are_found(name: str, tmp_path: Path) -> None:
    write(tmp_path / "a" / name, mini_files())
    pack(tmp_path / "b" / f"{name}.zip", mini_files())
    pack(tmp_path / "c" / f"{name}.zip", mini_files() | {"__MACOSX/x": b""}, f"{name}/")
    for root in "abc":
        assert len(load_dataset("mini-imagenet", root=tmp_path / root).train_y) == 40, root


@pytest.mark.parametrize("name", ["tiny-imagenet", "tiny_imagenet_200", "TinyImageNet"])
def test_spellings_of_tiny_imagenet_are_found(name: str, tmp_path: Path) -> None:
    write(tmp_path / "a" / name, tiny_files())
    pack(tmp_path / "b" / f"{name}.zip", tiny_files())
    for root in "ab":
        assert len(load_dataset("tiny-imagenet", root=tmp_path / root).train_y) == 36, root


def test_each_cifar_is_found_by_its_own_names_only(tmp_path: Path) -> None:
    for number, name in enumerate(
        ("cifar-100-python.tar.gz", "cifar-10-matlab.tar.gz", "cifar-10-binary/x", "cifar100/x")
    ):
        root = tmp_path / str(number)
        write(root, {name: b""})
        assert DATASETS["cifar10"].find(root) is None, name
        assert (DATASETS["cifar100"].find(root) is None) == ("100" not in name), name
    write(tmp_path / "spelled", {"CIFAR10/x": b"", "cifar_100_python.tgz": b""})
    assert DATASETS["cifar10"].find(tmp_path / "spelled") == tmp_path / "spelled" / "CIFAR10"
    assert DATASETS["cifar100"].find(tmp_path / "spelled") == tmp_path / "spelled" / "cifar_100_python.tgz"


def test_an_own_folder_with_csv_files_is_not_taken_for_mini_imagenet(tmp_path: Path) -> None:
    place = write(tmp_path / "flowers", images("rose", "tulip") | {"train.csv": b"filename,label\n0.png,rose"})
    assert load_dataset(str(place)).name == "flowers"
    assert load_dataset(str(write(tmp_path / "here", mini_files()))).name == "mini-imagenet"


def test_the_data_folder_may_be_the_data_set_itself(tmp_path: Path) -> None:
    write(tmp_path / "here", mini_files())
    write(tmp_path / "there", tiny_files())
    write(tmp_path / "mini-imagenet", in_every_split(mini_files()))
    assert len(load_dataset("mini-imagenet", root=tmp_path / "here").train_y) == 40
    assert len(load_dataset("tiny-imagenet", root=tmp_path / "there").train_y) == 36
    assert len(load_dataset("mini-imagenet", root=tmp_path / "mini-imagenet").train_y) == 40
    (tmp_path / "tiny-imagenet").mkdir()
    with pytest.raises(DataError, match="was not found"):
        load_dataset("tiny-imagenet", root=tmp_path / "tiny-imagenet")


def test_an_archive_is_found_by_its_path_and_whatever_its_suffix_looks_like(tmp_path: Path) -> None:
    archive = pack(tmp_path / "mini-imagenet.zip", mini_files()).rename(tmp_path / "Mini-ImageNet.ZIP")
    assert len(load_dataset("mini-imagenet", root=tmp_path).train_y) == 40
    assert len(load_dataset("mini-imagenet", root=archive).train_y) == 40, "ENGRAM_DATA may be the archive"
    assert load_dataset(str(archive)).name == "mini-imagenet"
    other = archive.rename(tmp_path / "photos.zip")
    with pytest.raises(DataError, match="was not found"):
        load_dataset("mini-imagenet", root=other)
    with pytest.raises(DataError, match="neither a known data set nor a folder"):
        load_dataset(str(other))


def test_a_data_set_in_one_more_folder_is_known_by_its_path(tmp_path: Path) -> None:
    """As unpacking an archive into a folder of its name leaves it."""
    write(tmp_path / "a" / "mini-imagenet", mini_files())
    write(tmp_path / "b" / "x", tiny_files())
    assert load_dataset(str(tmp_path / "a")).name == "mini-imagenet"
    assert len(load_dataset(str(tmp_path / "b")).test_y) == 6, "the validation images, by val_annotations.txt"
    write(tmp_path / "c" / "cifar10", images("train/cat", "train/dog", "test/cat", "test/dog"))
    assert load_dataset(str(tmp_path / "c")).class_names == ("cat", "dog"), "pictures in a folder called cifar10"


def test_pickles_in_an_archive_are_refused_with_what_to_do(tmp_path: Path) -> None:
    pack(tmp_path / "mini-imagenet.zip", {"mini-imagenet-cache-train.pkl": b"x"})
    with pytest.raises(DataError, match=rf"mini-imagenet-cache-train.pkl, .*: move them to {tmp_path}$"):
        load_dataset("mini-imagenet", root=tmp_path)


def test_an_image_is_listed_once(tmp_path: Path) -> None:
    """Otherwise one image could be a training image and a test image."""
    files = mini_files()
    row = files["train.csv"].splitlines()[3]
    write(tmp_path / "mini-imagenet", files | {"val.csv": files["val.csv"] + b"\n" + row})
    with pytest.raises(DataError, match=r"val.csv lists n0000200000000002.jpg a second time: keep one row"):
        load_dataset("mini-imagenet", root=tmp_path)


def test_validation_images_of_tiny_imagenet_that_are_sorted_by_half_are_named(tmp_path: Path) -> None:
    files = tiny_files()
    sorted_too = files | {"val/n00001000/val_0.JPEG": files["val/images/val_0.JPEG"]}
    write(tmp_path / "tiny-imagenet-200", sorted_too)
    with pytest.raises(
        DataError, match=r"val/ has class folders and 6 images beside them \(val/images/val_0.JPEG.*move"
    ):
        load_dataset("tiny-imagenet", root=tmp_path)


def test_one_csv_file_of_three_gives_its_classes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    files = {name: content for name, content in mini_files().items() if name not in ("val.csv", "test.csv")}
    write(tmp_path / "mini-imagenet", files)
    data = load_dataset("mini-imagenet", root=tmp_path)
    assert (len(data.class_names), len(data.train_y)) == (2, 20)
    assert "lacks val.csv and test.csv" in caplog.text
    assert any("24 images that no csv file lists" in words for words in data.left_out)


def test_check_counts_classes_and_names_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The right number of images is not enough, and that of classes neither."""
    monkeypatch.setenv("ENGRAM_DATA", str(tmp_path))
    monkeypatch.setitem(DATASETS, "tiny-imagenet", replace(DATASETS["tiny-imagenet"], train=36, test=6))
    write(tmp_path / "tiny-imagenet-200", tiny_files())
    assert main(["data", "check", "tiny-imagenet"]) == 0
    shown = capsys.readouterr().out
    assert "Not complete: it has 3 of 200 classes" in shown
    assert "Classes: word0 (n00001000), word1, word0 (n00001002)" in shown
    monkeypatch.setitem(DATASETS, "tiny-imagenet", replace(DATASETS["tiny-imagenet"], classes=3))
    assert main(["data", "check", "tiny-imagenet"]) == 0
    assert "Complete." in capsys.readouterr().out
    folder = tmp_path / "tiny-imagenet-200" / "train"
    (folder / "n00001000/images/n00001000_3.JPEG").rename(folder / "n00001001/images/n00001001_99.JPEG")
    assert main(["data", "check", "tiny-imagenet"]) == 0
    assert "Not as published: its classes differ in size." in capsys.readouterr().out


def test_info_and_check_of_a_folder_show_classes_and_what_is_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = write(tmp_path / "own", images("train/cat", "test/cat", "val/cat", ".git/x"))
    for action in ("info", "check"):
        assert main(["data", action, str(place)]) == 0
        shown = capsys.readouterr().out
        assert "holds 1 classes, 6 training images" in shown
        assert "Classes: cat" in shown
        assert "Left out: 6 validation images" in shown
        assert "Left out: 1 hidden or system files: .git/" in shown
