"""The wheel and the sdist: what they hold, and that the wheel works outside of the checkout."""

import email
import os
import re
import runpy
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

FIRST_EXAMPLE = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), flags=re.DOTALL)[0]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-d", str(out)], cwd=ROOT, check=True)
    return out


def test_the_wheel_works_in_a_fresh_environment(built: Path, tmp_path: Path) -> None:
    """Dependencies are those of this environment; engram itself comes from the wheel."""
    (wheel,) = built.glob("*.whl")
    venv.create(tmp_path / "fresh", with_pip=False)
    python = tmp_path / "fresh" / "bin" / "python"
    packages = Path(
        subprocess.check_output(
            [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], text=True
        ).strip()
    )
    pip = (sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps")
    subprocess.run([*pip, str(wheel)], check=True)
    (packages / "dependencies.pth").write_text("\n".join(path for path in sys.path if path.endswith("site-packages")))
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"OMP_NUM_THREADS": "1"}

    def run(program: str, *arguments: str) -> str:
        command = [python.with_name(program), *arguments]
        ran = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout

    assert str(packages) in run("python", "-c", "import engram; print(engram.__file__)")
    assert "usage: engram COMMAND" in run("engram", "--help")
    printed = [line.split("[") for line in run("python", "-c", FIRST_EXAMPLE).splitlines()]
    assert [method.strip() for method, _ in printed] == ["fine-tune", "er", "er-ema"]
    forgetful, _, remembering = ([int(value) for value in values.strip("]").split(",")] for _, values in printed)
    assert len(remembering) == 5
    assert remembering[-1] > forgetful[-1] + 20, "the memory prevents forgetting"
    demo = run("engram", "demo", "--seeds", "1", "--out", "demo", "--threads", "1")
    assert all(f"{method} " in demo for method in ("scr", "scr+dynamic", "scr+ssd"))
    assert (tmp_path / "demo" / "scr+ssd" / "seed-0" / "memory" / "contact-sheet.png").is_file()
    few = ("--tasks", "2", "--images-per-class", "12", "--memory-size", "4", "--net.width", "8")
    assert "er" in run("engram", "run", "er", "digits", *few, "--out", "run")
    assert run("engram", "report", "run").strip().endswith("kB)")


def test_the_archives_hold_what_they_should(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        facts = email.message_from_bytes(archive.read(next(name for name in names if name.endswith("/METADATA"))))
    assert {"engram/py.typed", "engram/report/page.css", "engram/paper/targets.json"} <= set(names)
    assert {name.split("/")[0] for name in names} == {"engram", f"engram-{facts['Version']}.dist-info"}
    optional = {"ray", "serve", "tensorboard", "wandb", "mlflow", "onnx", "heic", "avalanche", "cluster"}
    assert optional | {"docs", "dev"} == set(facts.get_all("Provides-Extra") or [])
    assert facts.get_all("Project-URL")
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        below = {name.partition("/")[2] for name in archive.getnames()}
    assert {"README.md", "SECURITY.md", "tests/test_packaging.py", "docs/method.md", "constraints.txt"} <= below


def test_everything_needed_has_its_version_and_a_checksum() -> None:
    """`pip install --require-hashes -r requirements.txt` refuses a file that lacks any."""
    script = runpy.run_path(str(ROOT / ".ci" / "hashes.py"))
    entries = [entry.split() for entry in (ROOT / "requirements.txt").read_text().replace("\\\n", "").splitlines()]
    pinned = {entry[0].partition("==")[0]: entry for entry in entries if entry[0] != "#"}
    assert pinned.keys() == script["needed"](["engram", *script["BUILD"]]) - {"engram"}, "run `make hashes`"
    for name, (pin, *digests) in pinned.items():
        assert pin.partition("+")[0] == f"{name}=={script['pins']()[name]}", "run `make hashes`"
        assert digests
        assert all(re.fullmatch("--hash=sha256:[0-9a-f]{64}", digest) for digest in digests), name
