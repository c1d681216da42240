"""A learner with a frozen net of its owner's own is served like any other."""

from dataclasses import replace
from pathlib import Path

import pytest
from torch import nn

from engram import InputError, Learner
from engram.cli.serve_command import made_net
from engram.serve.service import Service
from tests.helpers import fingerprint
from tests.latents.nets import latent_learner, pretrained
from tests.serve.serving import batch_of, crash, labeled, settings_with, wait_for

SETTINGS = replace(settings_with(), net=pretrained())


def saved(folder: Path) -> Path:
    latent_learner("er-ema", threads=1).save(folder)
    return folder


def test_a_crash_changes_no_bit_of_a_learner_above_a_cut(tmp_path: Path) -> None:
    folder = saved(tmp_path / "served")
    expected = Learner.load(folder, net=pretrained())
    for index in range(6):
        expected.observe(*batch_of(index))
    opened = Service(folder, SETTINGS)
    for index in range(3):
        opened.observe(f"id-{index}", labeled(index))
    wait_for(opened, 3)
    crash(opened)
    opened = Service(folder, SETTINGS)
    for index in range(3, 6):
        opened.observe(f"id-{index}", labeled(index))
    wait_for(opened, 6)
    answer = opened.predict(batch_of(0)[0], 1, all_scores=False)["predictions"][0]["label"]
    opened.close()
    served = Learner.load(folder, net=pretrained())
    assert fingerprint(served) == fingerprint(expected)
    assert answer == served.predict(batch_of(0)[0])[0]


def test_the_memory_of_latents_is_listed_without_pictures(tmp_path: Path) -> None:
    testclient = pytest.importorskip("starlette.testclient")
    from engram.serve.application import create_application
    from engram.serve.server import open_services

    folder = saved(tmp_path / "served")
    services = open_services({"served": folder}, SETTINGS)
    app = create_application(lambda: services, SETTINGS.limits, None)
    with testclient.TestClient(app, base_url="http://127.0.0.1", client=("127.0.0.1", 1)) as client:
        opened = services["served"]
        opened.observe("id", labeled(1))
        wait_for(opened, opened.intake.journal.last)
        listed = client.get("/memory").json()
        assert listed["size"] >= 4
        assert all("png" not in image and image["bytes"] == 512 for image in listed["images"])
        assert client.get("/status").json()["bytes"]["images"] == 512 * listed["size"]


def test_the_command_line_makes_the_net_from_a_function() -> None:
    assert isinstance(made_net("tests.latents.nets:pretrained"), nn.Module)
    for path in ("tests.latents.nets", "no.such:thing", "tests.latents.nets:no_such"):
        with pytest.raises(InputError, match="makes no net"):
            made_net(path)
    with pytest.raises(InputError, match=r"returns a dict: need a torch\.nn\.Module"):
        made_net("builtins:dict")
