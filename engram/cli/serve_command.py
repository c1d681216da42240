"""`engram serve`: let learners learn from requests and answer them."""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from typing import Any

from torch import nn

from engram.base.errors import InputError
from engram.base.settings import Count, Natural, Positive, schema_of
from engram.cli.console import plain_console
from engram.cli.parser import Parser
from engram.learner import Learner
from engram.options import CommonOptions, MemoryOptions
from engram.persistence.checkpoint import holds_checkpoint
from engram.serve.limits import ServeLimits, resolve_limits
from engram.serve.service import NAME, ServiceSettings
from engram.serve.token import is_loopback, read_token


def main(argv: list[str]) -> int:
    """Run `engram serve` and return the exit code."""
    parser = Parser(
        prog="engram serve",
        usage="engram serve LEARNER [NAME=LEARNER ...] [options]",
        description="Serve learners: POST /observe teaches, POST /predict asks, a page at / does both. What was "
        "acknowledged is kept: after a kill, the learner goes on as if nothing had happened. See docs/serve.md.",
    )
    parser.add_argument(
        "learners", nargs="+", metavar="LEARNER", help="folder written by Learner.save, or NAME=FOLDER for several"
    )
    parser.add_argument("--host", type=str, default="127.0.0.1", help="address to listen at; others need a token")
    parser.add_argument("--port", type=Natural, default=8080, help="port to listen at; 0 for any that is free")
    parser.add_argument("--token-file", type=Path | None, default=None, help="file with the token that requests carry")
    parser.add_argument(
        "--new", type=str | None, default=None, metavar="METHOD", help="method of a new learner where there is none yet"
    )
    parser.add_argument(
        "--side", type=Count, default=32, help="pixels per side of the images of a learner that has seen none yet"
    )
    parser.add_argument("--width", type=Count, default=20, help="channels of the first layer of a new learner's net")
    parser.add_argument(
        "--net",
        type=str | None,
        default=None,
        metavar="MODULE:FUNCTION",
        help="what makes a module like the learner's net, if that is one of your own",
    )
    parser.add_argument("--threads", type=Count | None, default=None, help="CPU threads to learn with")
    parser.add_argument("--checkpoint-every", type=Positive, default=60.0, help="seconds between two checkpoints")
    parser.add_options("limits", ServeLimits)
    parser.add_options("memory of a new learner", MemoryOptions)
    options = parser.parse_args(argv)
    _require_extra()
    from engram.serve.server import listen, serve

    folders = named_folders(options.learners)
    token = read_token(options.token_file) if options.token_file else None
    limits = resolve_limits({key: value for key, value in vars(options).items() if key in schema_of(ServeLimits)})
    net = made_net(options.net) if options.net else None
    settings = ServiceSettings(limits, options.side, options.threads, options.checkpoint_every, net)
    listener = listen(options.host, options.port, token)
    made: Any = {key: value for key, value in vars(options).items() if key in schema_of(CommonOptions)}
    if (idle := made.keys() & schema_of(MemoryOptions).keys()) and not options.new:
        raise InputError(f"{', '.join(sorted(idle))} is for a new learner: give --new METHOD too, or leave it out")
    for folder in folders.values():
        if options.new and not holds_checkpoint(folder):
            Learner(options.new, net={"width": options.width}, **made).save(folder)
    port = listener.getsockname()[1]
    shown = "127.0.0.1" if is_loopback(options.host) and options.host != "::1" else options.host
    address = f"http://[{shown}]:{port}" if ":" in shown else f"http://{shown}:{port}"

    def ready() -> None:
        plain_console().print(f"{', '.join(folders)}: {address}/ (routes: {address}/docs)", soft_wrap=True)

    serve(folders, settings, listener, token, ready)
    return 0


def named_folders(given: list[str]) -> dict[str, Path]:
    """Return folders by name: NAME=FOLDER as it says, FOLDER alone by its own name.

    >>> named_folders(["cats=/data/one"])
    {'cats': PosixPath('/data/one')}
    """
    folders: dict[str, Path] = {}
    for text in given:
        name, equals, path = text.partition("=")
        folder = Path(path if equals else text).expanduser()
        name = name if equals else folder.resolve().name
        if not NAME.fullmatch(name):
            raise InputError(f"{name!r} cannot be the name of a learner: give NAME={folder}, with letters and digits")
        if name in folders:
            raise InputError(f"two learners are named {name!r}: give NAME=FOLDER to tell them apart")
        folders[name] = folder
    return folders


def made_net(path: str) -> nn.Module:
    """Return the module that a function returns, given as MODULE:FUNCTION."""
    module, _, name = path.partition(":")
    try:
        made = getattr(importlib.import_module(module), name)()
    except Exception as error:  # the caller's code may fail in any way
        raise InputError(f"--net {path} makes no net ({error}): give MODULE:FUNCTION, importable from here") from error
    if not isinstance(made, nn.Module):
        raise InputError(f"--net {path} returns a {type(made).__name__}: need a torch.nn.Module")
    return made


def _require_extra() -> None:
    missing = [name for name in ("fastapi", "uvicorn", "python_multipart") if importlib.util.find_spec(name) is None]
    if missing:
        named = [name.replace("_", "-") for name in missing]
        raise InputError(f"serving needs {', '.join(named)}, not installed here: `pip install {' '.join(named)}`")
