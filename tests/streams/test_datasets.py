"""The embedded digits, and CIFAR-100 as published: right images, damaged files named, hostile pickles refused."""

import io
import os
import pickle
import tarfile
from pathlib import Path

import numpy as np
import pytest

from engram.streams import DataError, cifar, load_dataset
from engram.streams.cifar import ARCHIVE, FOLDER, MEMBERS, load_cifar100
from engram.streams.unpickle import load_arrays


def test_digits_are_split_by_a_fixed_rule() -> None:
    data = load_dataset("digits")
    assert data.train_x.shape == (1433, 1, 16, 16)
    assert data.test_x.shape == (364, 1, 16, 16)
    assert data.train_x.dtype == np.uint8
    assert data.train_x.max() == 255
    assert np.bincount(data.train_y).min() > 130
    assert np.bincount(data.test_y).min() > 30
    assert np.array_equal(data.train_x[:, :, ::2, ::2], data.train_x[:, :, 1::2, 1::2])


def test_unknown_dataset_suggests_the_nearest() -> None:
    with pytest.raises(DataError, match="did you mean 'cifar100'"):
        load_dataset("cifar10O")


class Hostile:
    def __reduce__(self) -> tuple:
        return os.system, ("touch hostile-was-here",)


def test_pickles_may_hold_arrays_and_plain_values_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    honest = {b"data": np.arange(6, dtype=np.uint8).reshape(2, 3), b"fine_labels": [1, 2]}
    loaded = load_arrays(pickle.dumps(honest, protocol=3))
    assert np.array_equal(loaded[b"data"], honest[b"data"])
    with pytest.raises(pickle.UnpicklingError, match="does not belong"):
        load_arrays(pickle.dumps(Hostile()))
    assert not (tmp_path / "hostile-was-here").exists()


def fake_files(monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """Small files of the published layout, with their checksums expected."""
    import hashlib

    def split(count: int) -> dict:
        pixels = np.arange(count * 3072, dtype=np.uint8).reshape(count, 3072)
        return {b"data": pixels, b"fine_labels": [0, 1] * (count // 2)}

    files = {
        "train": pickle.dumps(split(6), protocol=3),
        "test": pickle.dumps(split(2), protocol=3),
        "meta": pickle.dumps({b"fine_label_names": [b"apple", b"bear"]}, protocol=3),
    }
    checksums = {name: hashlib.md5(content).hexdigest() for name, content in files.items()}
    monkeypatch.setattr(cifar, "MEMBERS", checksums)
    return files


def pack(files: dict[str, bytes], path: Path) -> None:
    with tarfile.open(path, "w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(f"{FOLDER}/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


def test_archive_and_folder_give_the_same_arrays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = fake_files(monkeypatch)
    (tmp_path / "a").mkdir()
    pack(files, tmp_path / "a" / ARCHIVE)
    (tmp_path / "b" / FOLDER).mkdir(parents=True)
    for name, content in files.items():
        (tmp_path / "b" / FOLDER / name).write_bytes(content)
    packed, unpacked = load_cifar100(tmp_path / "a"), load_cifar100(tmp_path / "b")
    assert packed.train_x.shape == (6, 3, 32, 32)
    assert np.array_equal(packed.train_x, unpacked.train_x)
    assert packed.class_names == unpacked.class_names == ("apple", "bear")


def test_a_truncated_archive_is_named_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / ARCHIVE
    pack(fake_files(monkeypatch), path)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(DataError, match=rf"{ARCHIVE}.*obtain it again"):
        load_cifar100(tmp_path)


def test_a_changed_member_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = fake_files(monkeypatch)
    pack(files | {"test": files["test"] + b"x"}, tmp_path / ARCHIVE)
    with pytest.raises(DataError, match=r"'test' is damaged.*obtain it again"):
        load_cifar100(tmp_path)


def test_missing_files_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match=r"not found.*ENGRAM_DATA"):
        load_cifar100(tmp_path)
    files = fake_files(monkeypatch)
    pack({name: files[name] for name in ("train", "meta")}, tmp_path / ARCHIVE)
    with pytest.raises(DataError, match="lacks test"):
        load_cifar100(tmp_path)
    (tmp_path / FOLDER).mkdir()
    with pytest.raises(DataError, match="missing train, test, meta"):
        load_cifar100(tmp_path)


@pytest.mark.realdata
def test_real_cifar100_is_whole(real_data: Path) -> None:
    data = load_cifar100(real_data)
    assert set(MEMBERS) == {"train", "test", "meta"}
    assert data.train_x.shape == (50_000, 3, 32, 32)
    assert np.bincount(data.train_y).tolist() == [500] * 100
    assert np.bincount(data.test_y).tolist() == [100] * 100
    assert data.class_names[data.train_y[0]] == "cattle"
    rows = np.abs(np.diff(data.train_x[:2000].astype(int), axis=2)).mean()
    scrambled = data.train_x[:2000].reshape(-1, 32, 32, 3).transpose(0, 3, 1, 2)
    assert rows < 0.6 * np.abs(np.diff(scrambled.astype(int), axis=2)).mean()
