"""The journal: every accepted batch, on disk before it is acknowledged, until a checkpoint contains it.

    journal/000000000001.log   batches from position 1 on
    journal/000000000201.log   batches from position 201 on

A file begins with a mark, the identity of the journal and the position of its first record. A record is its length, a
CRC and its content. Records are appended and synced one at a time, so only the last one can be torn; it was never
acknowledged and is cut off. Damage anywhere else is refused: what stands behind it was acknowledged.

A file is closed at every checkpoint, and removed as a whole when no checkpoint needs it any more.
"""

from __future__ import annotations

import logging
import os
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from engram.base.errors import InputError
from engram.persistence.files import make_folder, open_plain, read_plain, sync_folder

MARK = b"ENGRAMJ1"
LARGEST_FILE = 1 << 32
"""Bytes of a file that is read."""
_HEAD = struct.Struct("<8s16sQ")
_RECORD = struct.Struct("<4sIIQ")
_RECORD_MARK = b"\xe5rec"
_log = logging.getLogger(__name__)


class JournalError(InputError):
    """A journal is damaged, or belongs to another learner."""


@dataclass(frozen=True)
class Entry:
    """Where a batch stands in the journal.

    Args:
        position: number of the batch, from 1 on.
        path: the file.
        offset: the first byte of its record.
    """

    position: int
    path: Path
    offset: int


class Journal:
    """The files of a journal. One thread appends at a time; another may read what was appended.

    Args:
        folder: the folder of the files; it is made if it is not there.
        identity: 16 bytes that the learner's checkpoint holds too.
        last: position of the last batch that the checkpoint contains.
    """

    def __init__(self, folder: Path, identity: bytes, last: int) -> None:
        make_folder(folder)
        self.folder, self.identity, self.last = folder, identity, last
        self.firsts: list[int] = []
        """First positions of the files, in order."""
        self.bytes = 0
        """Bytes of all files."""
        self._file: int | None = None
        self._size = 0
        self._broken = False

    def recover(self) -> Iterator[tuple[Entry, bytes]]:
        """Yield what was appended after the last checkpoint; cut off a torn record at the end."""
        paths = sorted(self.folder.glob("*.log"))
        expected: int | None = None
        for path in paths:
            content = read_plain(path, LARGEST_FILE)
            records, end = _parse(content, path, self.identity, is_last=path == paths[-1])
            if end < len(content) or not records:
                _cut_off(path, end if records else 0)
            if not records:
                continue
            first = records[0][0].position
            if expected not in (None, first) or (expected is None and first > self.last + 1):
                raise JournalError(
                    f"batches {expected or self.last + 1} to {first - 1} are missing in {self.folder}: put the files "
                    "back, or restore the whole folder of the learner from a copy"
                )
            self.firsts.append(first)
            self.bytes += end
            expected = records[-1][0].position + 1
            yield from ((entry, record) for entry, record in records if entry.position > self.last)
        self.last = max(self.last, (expected or 1) - 1)

    def append(self, content: bytes) -> Entry:
        """Write a record, wait until it is on disk, and return where it is.

        An OSError leaves the journal as it was. If that cannot be had either, every later call raises one.
        """
        if self._broken:
            raise OSError("an earlier write could not be undone: restart the server")
        position = self.last + 1
        if self._file is None:
            self._open(position)
        assert self._file is not None, "it was opened"
        entry = Entry(position, self._path(self.firsts[-1]), self._size)
        try:
            _write(self._file, _record(self.identity, position, content))
            os.fsync(self._file)
        except OSError:
            self._take_back()
            raise
        written = _RECORD.size + len(content)
        self._size += written
        self.bytes += written
        self.last = position
        return entry

    def read(self, entry: Entry) -> bytes:
        """Return the content of a record."""
        with open(open_plain(entry.path, os.O_RDONLY), "rb") as file:
            file.seek(entry.offset)
            head = file.read(_RECORD.size)
            length = _RECORD.unpack(head)[1]
            content = file.read(length)
        if head + content != _record(self.identity, entry.position, content):
            raise JournalError(f"batch {entry.position} in {entry.path} is damaged")
        return content

    def close_file(self) -> None:
        """Let the next record begin a new file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def forget(self, position: int) -> None:
        """Remove the files that hold nothing after a position."""
        ends = [first - 1 for first in self.firsts[1:]] + [self.last if self._file is None else self.last + 1]
        for first, end in zip(list(self.firsts), ends, strict=True):
            if end > position:
                break
            path = self._path(first)
            size = path.stat().st_size
            path.unlink()
            self.bytes -= size
            self.firsts.remove(first)
        sync_folder(self.folder)

    def _path(self, first: int) -> Path:
        return self.folder / f"{first:012}.log"

    def _open(self, first: int) -> None:
        path = self._path(first)
        descriptor = open_plain(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND)
        try:
            _write(descriptor, _HEAD.pack(MARK, self.identity, first))
            os.fsync(descriptor)
            sync_folder(self.folder)
        except OSError:
            os.close(descriptor)
            raise
        if first not in self.firsts:
            self.firsts.append(first)
        self._file, self._size = descriptor, _HEAD.size
        self.bytes += _HEAD.size

    def _take_back(self) -> None:
        """Cut off a record that could not be written."""
        assert self._file is not None, "something was written to it"
        try:
            os.ftruncate(self._file, self._size)
            os.fsync(self._file)
        except OSError:
            self._broken = True


def _record(identity: bytes, position: int, content: bytes) -> bytes:
    return _RECORD.pack(_RECORD_MARK, len(content), _checksum(identity, position, content), position) + content


def _checksum(identity: bytes, position: int, content: bytes) -> int:
    """Return the CRC of a record. With the identity in it, no image can contain what looks like a record."""
    return zlib.crc32(content, zlib.crc32(identity + position.to_bytes(8, "little")))


def _parse(content: bytes, path: Path, identity: bytes, is_last: bool) -> tuple[list[tuple[Entry, bytes]], int]:
    """Return the records of a file and where the last of them ends. Only the end of the last file may be torn."""
    if len(content) < _HEAD.size or not content.startswith(MARK):
        if is_last and len(content) <= _HEAD.size:
            return [], 0
        raise JournalError(f"{path} does not begin as a journal does: restore it from a copy, or remove it")
    _, found, first = _HEAD.unpack_from(content)
    if found != identity:
        raise JournalError(
            f"{path} belongs to another state of this learner: something else saved to the learner's folder. "
            "Restore the folder from a copy, or remove the journal to go on without its batches"
        )
    records: list[tuple[Entry, bytes]] = []
    at = _HEAD.size
    while (record := _record_at(content, at, identity)) is not None and record[0] == first + len(records):
        records.append((Entry(record[0], path, at), record[1]))
        at += _RECORD.size + len(record[1])
    if at < len(content):
        if not is_last or _has_record_behind(content, at, identity):
            raise JournalError(
                f"{path} is damaged at byte {at}, before batches that were acknowledged: restore it from a copy"
            )
        _log.warning("%s: the last record is torn and was not acknowledged; it is cut off", path)
    return records, at


def _record_at(content: bytes, at: int, identity: bytes) -> tuple[int, bytes] | None:
    """Return the position and the content of the record at a byte, or None if there is no whole one."""
    if len(content) < at + _RECORD.size:
        return None
    mark, length, checksum, position = _RECORD.unpack_from(content, at)
    body = content[at + _RECORD.size : at + _RECORD.size + length]
    if mark != _RECORD_MARK or len(body) < length:
        return None
    return (position, body) if _checksum(identity, position, body) == checksum else None


def _has_record_behind(content: bytes, at: int, identity: bytes) -> bool:
    """Return whether a whole record stands somewhere behind a byte."""
    while (at := content.find(_RECORD_MARK, at + 1)) >= 0:
        if _record_at(content, at, identity) is not None:
            return True
    return False


def _cut_off(path: Path, size: int) -> None:
    """Shorten a file, or remove it if nothing is left."""
    if not size:
        path.unlink()
    else:
        with open(open_plain(path, os.O_RDWR), "r+b") as file:
            file.truncate(size)
            os.fsync(file.fileno())
    sync_folder(path.parent)


def _write(descriptor: int, content: bytes) -> None:
    left = memoryview(content)
    while left:
        left = left[os.write(descriptor, left) :]
