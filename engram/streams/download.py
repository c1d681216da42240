"""One file over the network: resumed where it broke off, checked, and there only when it is whole."""

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
ATTEMPTS = 3
PAUSE = 1.0
TIMEOUT = 30.0

Progress = Callable[[int, int], None]
"""Hears of bytes there and bytes in all."""


def download(url: str, target: Path, md5: str, size: int, on_progress: Progress = lambda done, total: None) -> None:
    """Fetch `url` into `target`. What arrived is kept beside it as .part, and the next call goes on from there."""
    part = target.with_name(target.name + ".part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        for attempt in range(ATTEMPTS):
            if _fetch(url, part, size, on_progress):
                break
            if attempt + 1 < ATTEMPTS:
                time.sleep(PAUSE)
        else:
            raise DataError(f"{url} broke off {ATTEMPTS} times; what arrived is kept: the same command goes on")
    except OSError as error:
        if error.errno == errno.ENOSPC:
            needed = f"{size / 1e6:.0f} MB are needed"
            raise DataError(
                f"{target.parent} is full, {needed}; what arrived is kept: the same command goes on"
            ) from error
        raise DataError(f"{target.parent} cannot be written ({error}): choose another with ENGRAM_DATA") from error
    found = _md5(part)
    if found != md5:
        part.unlink()
        raise DataError(f"{url} gave a file whose md5 is {found}, not {md5}: it was removed, try again")
    os.replace(part, target)


def _fetch(url: str, part: Path, size: int, on_progress: Progress) -> bool:
    """Append to `part` what is missing; whether all of it is there now."""
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
        raise DataError(f"{url} answered {error.code} ({error.reason})") from error
    except urllib.error.URLError as error:
        if have:
            return False
        raise DataError(f"{url} cannot be reached ({error.reason})") from error
    except (_BrokenOff, http.client.HTTPException, ConnectionError, TimeoutError):
        return False
    return have >= size


class _BrokenOff(Exception):
    """The connection ended too early."""


def _received(response: http.client.HTTPResponse, count: int) -> bytes:
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
