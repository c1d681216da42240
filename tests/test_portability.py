"""engram on systems that lack what POSIX has: simulated by taking it away before the package is imported."""

import os
import subprocess
import sys
from pathlib import Path

from tests.streams.imagefiles import picture, write

WITHOUT = """
import os, signal, sys
sys.modules["fcntl"] = None
for name in ("SIGHUP", "pthread_sigmask"):
    delattr(signal, name)
for name in ("sched_getaffinity", "O_NOFOLLOW", "O_NONBLOCK", "O_DIRECTORY", "execv", "pread"):
    if hasattr(os, name):
        delattr(os, name)
posix_open, posix_unlink = os.open, os.unlink
def open_no_folder(path, *rest, **named):
    if os.path.isdir(path):
        raise PermissionError(13, "a folder cannot be opened", path)
    return posix_open(path, *rest, **named)
def unlink_closed(path, **named):
    opened = [os.path.realpath(f"/proc/self/fd/{{each}}") for each in os.listdir("/proc/self/fd")]
    if os.path.realpath(path) in opened:
        raise PermissionError(13, "an open file cannot be removed", path)
    return posix_unlink(path, **named)
os.open, os.unlink = open_no_folder, unlink_closed
sys.platform = "win32" if {windows} else sys.platform
"""

RUN = (
    WITHOUT.format(windows=False)
    + """
from pathlib import Path
from engram.cli import main
import engram.persistence.lock, engram.streams.cache_entry, engram.streams.download, engram.experiment.jobs as jobs
from engram.cli.stopping import stop_on_signal
assert engram.persistence.lock.fcntl is None
assert jobs.STOP_SIGNALS == (signal.SIGINT, signal.SIGTERM)
with jobs.interrupts_held_back(), stop_on_signal() as request:
    signal.raise_signal(signal.SIGTERM)
assert request.exit_code == 143
out = sys.argv[1]
few = ["--tasks", "2", "--images-per-class", "12", "--memory-size", "4", "--net.width", "8", "--threads", "1"]
assert main(["run", "er", "digits", *few, "--out", out]) == 0
assert main(["memory", "show", out]) == 0
assert main(["run", "er", sys.argv[2], "--memory-size", "4", "--net.width", "8", "--out", out + "-photos"]) == 0
"""
)


def test_runs_and_caches_need_no_posix(tmp_path: Path) -> None:
    write(tmp_path / "photos", {f"{each}/{i}.jpg": picture(i, 40) for each in ("cat", "dog") for i in range(12)})
    ran = subprocess.run(
        [sys.executable, "-c", RUN, str(tmp_path / "run"), str(tmp_path / "photos")],
        capture_output=True,
        text=True,
        env={**os.environ, "ENGRAM_CACHE": str(tmp_path / "cache")},
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert list((tmp_path / "cache").rglob("pixels.raw"))


def test_no_restart_for_huge_pages_elsewhere() -> None:
    code = WITHOUT.format(windows=True) + "from engram.cli.huge_pages import *; restart_with_huge_pages(); print('on')"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ran.stdout == "on\n", ran.stderr
