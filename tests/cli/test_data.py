from pathlib import Path

import pytest

from engram.cli import data_command, main
from engram.streams import DataError
from tests.streams.imagefiles import picture, tiny_files, write


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ENGRAM_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("ENGRAM_CACHE", str(tmp_path / "cache"))
    return tmp_path / "data"


def words(capsys) -> str:
    return " ".join(capsys.readouterr().out.split())


def test_list_says_what_is_there(folders: Path, capsys) -> None:
    write(folders / "tiny-imagenet-200", tiny_files())
    assert main(["data", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any("tiny-imagenet " in line and "tiny-imagenet-200" in line for line in lines)
    assert any("cifar10 " in line and "–" in line for line in lines)


def test_info_and_check_say_how_complete_it_is(folders: Path, capsys) -> None:
    assert main(["data", "info", "tiny-imagenet"]) == 0
    assert "not found in" in words(capsys)
    write(folders / "tiny-imagenet-200", tiny_files())
    for action in ("info", "check"):
        assert main(["data", action, "tiny-imagenet"]) == 0
        shown = words(capsys)
        assert "holds 3 classes, 36 training images (12 to 12 per class), 6 test images" in shown
        assert "Not complete" in shown
        assert "6 of 10,000 test images" in shown


def test_check_names_damage_and_goes_on_if_asked(folders: Path, capsys) -> None:
    files = tiny_files()
    broken = "train/n00001001/images/n00001001_5.JPEG"
    write(folders / "tiny-imagenet-200", files | {broken: b"nothing"})
    assert main(["data", "check", "tiny-imagenet"]) == 1
    assert broken in capsys.readouterr().err
    assert main(["data", "check", "tiny-imagenet", "--skip-damaged"]) == 0
    assert "35 training images" in words(capsys)


def test_check_an_own_folder(tmp_path: Path, capsys) -> None:
    write(tmp_path / "pets", {f"cat/{index}.png": picture(index, 16, "PNG") for index in range(6)})
    assert main(["data", "check", str(tmp_path / "pets")]) == 0
    assert "holds 1 classes, 5 training images" in words(capsys)


def test_get_fetches_from_the_publisher(folders: Path, capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def fetch(url: str, target: Path, md5: str, size: int, on_progress) -> None:
        asked.append(url)
        on_progress(size, size)
        target.parent.mkdir(parents=True)
        target.touch()

    monkeypatch.setattr(data_command, "download", fetch)
    assert main(["data", "get", "cifar10"]) == 0
    assert asked == ["https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz"]
    assert main(["data", "get", "cifar10"]) == 0
    assert "cifar10 is already there" in words(capsys)
    assert len(asked) == 1


def test_get_says_what_to_do_by_hand(folders: Path, capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(*arguments) -> None:
        raise DataError("https://… cannot be reached (no network)")

    monkeypatch.setattr(data_command, "download", closed)
    assert main(["data", "get", "tiny-imagenet"]) == 1
    error = capsys.readouterr().err
    assert "cannot be reached" in error
    assert f"put tiny-imagenet-200.zip from https://cs231n.stanford.edu/tiny-imagenet-200.zip into {folders}" in error
    assert main(["data", "get", "mini-imagenet"]) == 1
    assert "no official download" in capsys.readouterr().err


def test_a_name_is_needed_and_checked(capsys) -> None:
    with pytest.raises(SystemExit):
        main(["data", "check"])
    assert "needs the name of a data set" in capsys.readouterr().err
    assert main(["data", "check", "cifar1000"]) == 1
    assert "did you mean 'cifar100'" in capsys.readouterr().err


def test_a_run_on_an_own_folder_names_its_stream(tmp_path: Path, capsys) -> None:
    import json

    pets = write(tmp_path / "pets", {f"{c}/{i}.png": picture(i, 16, "PNG") for c in "abcd" for i in range(12)})
    out = tmp_path / "run"
    arguments = ["run", "er", str(pets), "--image-size", "16", "--stream", "blurry(0.2)", "--classes-per-task", "2"]
    options = ["--class-order", "fixed", "--instance-order", "kept", "--memory-size", "4", "--net.width", "8"]
    assert main([*arguments, *options, "--out", str(out)]) == 0
    result = json.loads((out / "result.json").read_text())
    chosen = result["config"]
    assert (chosen["stream"], chosen["class_order"], chosen["instance_order"]) == ("blurry(0.2)", "fixed", "kept")
    assert (chosen["image_size"], result["images_seen"]) == (16, 40)
    assert chosen["classes_total"] is None, "a blurry stream does not announce its classes"
