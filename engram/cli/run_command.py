"""`engram run [METHOD] [DATASET]`: one learner over one stream, or the same over several seeds."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from jsonargparse import ActionConfigFile  # type: ignore[attr-defined]

from engram.cli.console import plain_console
from engram.cli.parser import Parser
from engram.cli.progress import RunProgress
from engram.cli.stopping import stop_on_signal
from engram.cli.tables import print_comparison, time_by_part
from engram.errors import InputError, require_at_least
from engram.experiment.config import RunConfig, read_yaml
from engram.experiment.events import Event
from engram.experiment.every import Every
from engram.experiment.jobs import Job
from engram.experiment.pool import run_all
from engram.experiment.run import Interrupted, run
from engram.experiment.tensorboard import TensorBoardLog
from engram.keeper import DEFAULT_MEMORY_SIZE
from engram.methods import changed_settings, configurable, find, settings_of
from engram.report.tables import compare


def main(argv: list[str]) -> int:
    given = 0
    while given < min(2, len(argv)) and not argv[given].startswith("-"):
        given += 1
    named = [f"--{name}={value}" for name, value in zip(("method", "dataset"), argv[:given], strict=False)]
    rest = argv[given:]
    parser = build_parser(_method_name(named + rest))
    options = parser.parse_args(rest + named)
    config = to_config(options)
    seeds = range(config.seed, config.seed + options.seeds)
    stream = config.stream or find(config.method).stream
    size = f"k{config.memory_size or DEFAULT_MEMORY_SIZE}" if config.memory_bytes is None else f"{config.memory_bytes}"
    out = options.out or Path("runs") / f"{config.method}-{Path(config.dataset).name}-{stream}-{size}"
    jobs = [Job(dataclasses.replace(config, seed=seed), out / f"seed-{seed}") for seed in seeds]
    if options.seeds == 1 and options.out:
        jobs = [Job(config, out)]
    every = Every.parse(str(options.checkpoint_every))
    logs = [TensorBoardLog(job.config, job.out) for job in jobs] if options.log == "tensorboard" else []
    return execute(jobs, out, resume=options.resume, threads=options.threads, checkpoint_every=every, logs=logs)


def execute(
    jobs: list[Job],
    out: Path,
    *,
    resume: bool,
    threads: int | None,
    checkpoint_every: Every,
    logs: Sequence[TensorBoardLog] = (),
    again: str = "the same command with --resume",
) -> int:
    """Run the jobs with progress, print their table, return the exit code; each of `logs` hears its job's events.

    `again` says what goes on with them after an interruption.
    """
    if not jobs:
        raise InputError("no seed to run: --seeds must be at least 1")
    if threads is not None:
        require_at_least(1, threads=threads)
    console = plain_console()
    names = [f"{job.config.method} seed {job.config.seed}" for job in jobs]
    with stop_on_signal() as should_stop, RunProgress(names, console) as progress:

        def hear(job: int, event: Event) -> None:
            progress(job, event)
            if logs:
                logs[job](event)

        try:
            if len(jobs) > 1:
                results = run_all(
                    jobs,
                    resume=resume,
                    checkpoint_every=checkpoint_every,
                    on_event=hear,
                    should_stop=should_stop,
                )
            else:
                results = [_run_here(jobs[0], hear, should_stop, resume, threads, checkpoint_every)]
        except Interrupted as stopped:
            console.print(f"{stopped}. Everything is saved in {out}: {again} goes on from there.", soft_wrap=True)
            return should_stop.exit_code
        finally:
            for log in logs:
                log.close()
    rows = compare(results)
    print_comparison(rows, console)
    for row in rows:
        console.print(time_by_part(row), soft_wrap=True)
    for name, result in zip(names, results, strict=True):
        if tested := result.get("prequential"):
            figures = ", ".join(f"{figure} {value:.1f}" for figure, value in tested.items() if figure != "images")
            console.print(f"{name}, before learning from each image: {figures}", soft_wrap=True)
    console.print(f"Results and pictures of the memory: {out}", soft_wrap=True)
    return 0


def build_parser(method: str) -> Parser:
    """The options of a run of `method`: the run's own, and a group for each of its parts."""
    parser = Parser(
        prog="engram run",
        usage="engram run [METHOD] [DATASET] [options]",
        description=f"One learner over one stream. METHOD and DATASET come first; the settings below are of {method}.",
    )
    parser.add_argument(
        "--config",
        action=ActionConfigFile,
        help="a YAML file of options, such as a run's config.yaml; METHOD, DATASET and options after it win",
    )
    parser.add_argument("--out", type=Path | None, default=None, help="folder of the run (default: under runs/)")
    parser.add_argument("--resume", action="store_true", help="go on with an interrupted run in that folder")
    parser.add_argument("--seeds", type=int, default=1, help="run so many seeds, counting from --seed, over the cores")
    parser.add_argument("--threads", type=int | None, default=None, help="threads of a single run (default: all cores)")
    parser.add_argument(
        "--checkpoint_every",
        type=str | float,
        default="60s",
        help="between checkpoints: seconds (60, 0.5s) or batches (500b)",
    )
    parser.add_argument(
        "--log", type=Literal["tensorboard"] | None, default=None, help="also log to tensorboard/ in its folder"
    )
    parser.add_class_arguments(RunConfig, None, skip={"settings"})
    for room, part in configurable(find(method)).items():
        if settings_of(part):
            required = {
                name
                for name, parameter in inspect.signature(part).parameters.items()
                if parameter.default is inspect.Parameter.empty
            }
            parser.add_class_arguments(part, room, skip=required)
    parser.set_defaults({"method": method} | _flat(find(method).settings))
    return parser


def to_config(options: Any) -> RunConfig:
    """The run that these options ask for, with only those settings that are not a part's default."""
    fields = {field.name for field in dataclasses.fields(RunConfig)} - {"settings"}
    chosen, method = options.as_dict(), find(options.method)
    settings = changed_settings(method, {room: chosen.get(room) for room in configurable(method)})
    return RunConfig(**{name: chosen[name] for name in fields}, settings=settings)


def _flat(settings: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    return {f"{room}.{name}": value for room, own in settings.items() for name, value in own.items()}


def _method_name(arguments: list[str]) -> str:
    """The method must be known before its options can be."""
    for token, following in zip(arguments, [*arguments[1:], ""], strict=True):
        name, _, value = token.partition("=")
        if name in ("--method", "--config") and not (value or following):
            raise InputError(f"{name} needs a value behind it")
        if name == "--method":
            return value or following
        if name == "--config":
            content = read_yaml(Path(value or following))
            if isinstance(content, dict) and "method" in content:
                return str(content["method"])
    return RunConfig.method


def _run_here(
    job: Job,
    hear: Callable[[int, Event], None],
    should_stop: Any,
    resume: bool,
    threads: int | None,
    checkpoint_every: Every,
) -> dict[str, Any]:
    if threads is not None:
        import torch

        torch.set_num_threads(threads)
    return run(
        job.config,
        job.out,
        resume=resume,
        checkpoint_every=checkpoint_every,
        on_event=lambda event: hear(0, event),
        should_stop=should_stop,
    )
