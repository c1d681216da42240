"""The wheel and the sdist: what they hold, and that the wheel works outside of the checkout."""

import email
import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

EXAMPLE = """
from engram import Learner, class_incremental, evaluate, load_dataset

stream = class_incremental(load_dataset("digits"), seed=0, tasks=2, images_per_class=20)
print(evaluate(Learner("er", memory_size=10, net={"width": 8}), stream).average_end_accuracy)
"""


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
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(packages), str(wheel)],
        check=True,
    )
    (packages / "dependencies.pth").write_text("\n".join(path for path in sys.path if path.endswith("site-packages")))
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"OMP_NUM_THREADS": "1"}

    def run(*arguments: str) -> str:
        ran = subprocess.run([python, *arguments], cwd=tmp_path, env=env, capture_output=True, text=True)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout

    assert str(packages) in run("-c", "import engram; print(engram.__file__)")
    assert "usage: engram COMMAND" in run("-m", "engram", "--help")
    few = ("--tasks", "2", "--images-per-class", "12", "--memory-size", "4", "--net.width", "8")
    assert "er" in run("-m", "engram", "run", "er", "digits", *few, "--out", "run")
    assert run("-m", "engram", "report", "run").strip().endswith("MB)")
    assert float(run("-c", EXAMPLE)) > 10


def test_the_archives_hold_what_they_should(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        facts = email.message_from_bytes(archive.read(next(name for name in names if name.endswith("/METADATA"))))
    assert {"engram/py.typed", "engram/report/page.css", "engram/paper/targets.json"} <= set(names)
    assert {name.split("/")[0] for name in names} == {"engram", f"engram-{facts['Version']}.dist-info"}
    optional = {"ray", "serve", "tensorboard", "wandb", "mlflow", "onnx", "heic", "avalanche"}
    assert optional | {"docs", "dev"} == set(facts.get_all("Provides-Extra") or [])
    assert facts.get_all("Project-URL")
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        below = {name.partition("/")[2] for name in archive.getnames()}
    assert {"README.md", "SECURITY.md", "tests/test_packaging.py", "docs/method.md", "constraints.txt"} <= below
