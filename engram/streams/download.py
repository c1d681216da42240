"""Download a file: interrupted downloads are resumed, and the file appears only when it is complete and checked."""

from __future__ import annotations

import errno
import hashlib
import http.client
import os
import stat
import time
import urllib.error
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from engram.streams.dataset import DataError
from engram.streams.transfer import BLOCK, BrokenOff, Transfer

ATTEMPTS = 3
PAUSE = 1.0
"""Seconds between two attempts."""

Progress = Callable[[int, int], None]
"""Called with the number of bytes downloaded so far and the total number of bytes."""


def download(url: str, target: Path, md5: str, size: int, on_progress: Progress = lambda done, total: None) -> None:
    """Download `url` into the file `target`.

    An incomplete download is kept next to it with the suffix .part, and the next call resumes it.

    Args:
        url: address of the file.
        target: path to write.
        md5: checksum that the file must have.
        size: number of bytes that the file must have.
        on_progress: called with the number of bytes so far and in total, after each block.
    """
    part = target.with_name(target.name + ".part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        for attempt in range(ATTEMPTS):
            if _fetch(url, part, size, on_progress):
                break
            if attempt + 1 < ATTEMPTS:
                time.sleep(PAUSE)
        else:
            raise DataError(
                f"the download of {url} broke off {ATTEMPTS} times: run the same command again to resume it"
            )
    except OSError as error:
        if error.errno == errno.ENOSPC:
            needed = f"{size / 1e6:.0f} MB are needed"
            raise DataError(
                f"{target.parent} is full, {needed}: free some space and run the same command again to resume"
            ) from error
        raise DataError(f"{target.parent} cannot be written ({error}): set ENGRAM_DATA to another folder") from error
    found = _md5(part)
    if found != md5:
        part.unlink()
        raise DataError(f"{url} gave a file whose md5 is {found}, not {md5}: it was removed, so download it again")
    os.replace(part, target)


def _fetch(url: str, part: Path, size: int, on_progress: Progress) -> bool:
    """Append the missing bytes to `part` and return whether it is complete."""
    have = _size(part)
    if have > size:
        part.unlink()
        have = 0
    if have == size:
        return True
    transfer = Transfer(url, have)
    try:
        if have and not transfer.resumed():
            have = 0
        with _open_part(part, append=have > 0) as file:
            for block in transfer.blocks(size - have):
                file.write(block)
                have += len(block)
                on_progress(have, size)
            file.flush()
            os.fsync(file.fileno())
    except urllib.error.HTTPError as error:
        if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            part.unlink()
            return False
        raise DataError(f"{url} answered with the HTTP status {error.code} ({str(error.reason)!r})") from error
    except urllib.error.URLError as error:
        if have:
            return False
        raise DataError(f"{url} cannot be reached ({error.reason}): check the network and try again") from error
    except BrokenOff:
        return False
    finally:
        transfer.end()
    return have >= size


def _size(part: Path) -> int:
    """Return the number of bytes of an incomplete download. What is not a plain file of its own is refused."""
    try:
        facts = part.lstat()
    except FileNotFoundError:
        return 0
    if not stat.S_ISREG(facts.st_mode) or facts.st_nlink > 1:
        raise DataError(f"{part} is a link or not a file, so nothing is written to it: remove it")
    return facts.st_size


def _open_part(part: Path, append: bool) -> BinaryIO:
    """Open the incomplete download for writing. Links are not followed."""
    start = os.O_APPEND if append else os.O_TRUNC
    return os.fdopen(
        os.open(part, os.O_WRONLY | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | start, 0o666), "ab" if append else "wb"
    )


def _md5(path: Path) -> str:
    digest = hashlib.md5(usedforsecurity=False)
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()
