"""Download a file: interrupted downloads are resumed, and the file appears only when it is complete and checked."""

from __future__ import annotations

import errno
import hashlib
import http.client
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from engram.streams.dataset import DataError

BLOCK = 1 << 20
"""Number of bytes that are read at a time."""
ATTEMPTS = 3
PAUSE = 1.0
"""Seconds between two attempts."""
TIMEOUT = 30.0
"""Seconds to wait for the server."""

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
    have = part.stat().st_size if part.exists() else 0
    if have > size:
        part.unlink()
        have = 0
    if have == size:
        return True
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT) as response:
            if have and response.status != http.HTTPStatus.PARTIAL_CONTENT:
                have = 0
            with part.open("ab" if have else "wb") as file:
                while have < size and (block := _received(response, min(BLOCK, size - have))):
                    file.write(block)
                    have += len(block)
                    on_progress(have, size)
                file.flush()
                os.fsync(file.fileno())
    except urllib.error.HTTPError as error:
        if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            part.unlink()
            return False
        raise DataError(f"{url} answered with the HTTP status {error.code} ({error.reason})") from error
    except urllib.error.URLError as error:
        if have:
            return False
        raise DataError(f"{url} cannot be reached ({error.reason}): check the network and try again") from error
    except (_BrokenOff, http.client.HTTPException, ConnectionError, TimeoutError):
        return False
    return have >= size


class _BrokenOff(Exception):
    """Raised when the connection ended too early."""


def _received(response: http.client.HTTPResponse, count: int) -> bytes:
    """Return up to `count` bytes. Network errors become `_BrokenOff`, which tells them from errors of the disk."""
    try:
        return response.read(count)
    except OSError as error:
        raise _BrokenOff from error


def _md5(path: Path) -> str:
    digest = hashlib.md5(usedforsecurity=False)
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()
