"""`engram run [METHOD] [DATASET]`: run one learner over one stream, with one seed or several."""

from __future__ import annotations

import os
import secrets
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from engram.base.errors import InputError
from engram.base.plugins import PLUGIN_VARIABLE
from engram.base.settings import Count, schema_of
from engram.cli.console import plain_console
from engram.cli.parser import Parser, nested
from engram.cli.progress import RunProgress
from engram.cli.stopping import StopRequest, stop_on_signal
from engram.cli.tables import print_comparison, time_by_part
from engram.experiment.config import DataOptions, EvaluationOptions, RunConfig, RunOptions, read_yaml
from engram.experiment.engines import LocalEngine
from engram.experiment.event_log import EventLog
from engram.experiment.events import Event
from engram.experiment.jobs import Job, cores
from engram.experiment.mlflow_log import MlflowLog
from engram.experiment.result import RunResult
from engram.experiment.run import Interrupted, batch_counts
from engram.experiment.save_interval import SaveInterval
from engram.experiment.scheduler import run_jobs
from engram.experiment.tensorboard import TensorBoardLog
from engram.experiment.wandb_log import WandbLog
from engram.methods import DEFAULT_METHOD, MEMORIES, METHODS, configurable, find_method, is_method
from engram.options import ComputeOptions, ImageOptions, MemoryOptions, TrainingOptions, limit_slug
from engram.report.tables import compare
from engram.streams import StreamOptions

GROUPS = {
    "data": DataOptions,
    "images": ImageOptions,
    "stream": StreamOptions,
    "memory": MemoryOptions,
    "training": TrainingOptions,
    "computing": ComputeOptions,
    "evaluation": EvaluationOptions,
}
"""The options of a run, by their headings in the help."""
NOTHING_BEGUN = "Nothing was begun: use the same command again"
LOGS: dict[str, type[EventLog]] = {"tensorboard": TensorBoardLog, "wandb": WandbLog, "mlflow": MlflowLog}
"""Programs that a run can be logged to."""


def main(argv: list[str]) -> int:
    """Run `engram run` and return the exit code."""
    given = 0
    while given < min(2, len(argv)) and not argv[given].startswith("-"):
        given += 1
    named = [f"--{name}={value}" for name, value in zip(("method", "dataset"), argv[:given], strict=False)]
    rest = argv[given:]
    if "--resume" in rest and not named and not {"--config", "--method"} & {name for name, *_ in _options(rest)}:
        rest += configuration_to_resume(rest)
    parser = build_parser(_method_name(named + rest))
    options = parser.parse_args(rest + named)
    config = to_config(options)
    out = options.out or Path("runs") / _default_name(config)
    seeds = _seeds(config, options.seeds, out if options.resume else None)
    every = SaveInterval.parse(str(options.checkpoint_every))
    alone = options.out and options.seeds in (None, 1) and len(seeds) == 1 and not (out / f"seed-{seeds[0]}").exists()
    folders = [out] if alone else [out / f"seed-{seed}" for seed in seeds]
    jobs = [
        Job(config.replace(seed=seed), folder, options.resume, every)
        for seed, folder in zip(seeds, folders, strict=True)
    ]
    logs = [LOGS[options.log](job.config, job.out) for job in jobs] if options.log else []
    return execute(jobs, out, logs=logs, again=_command_to_resume(options, out))


def configuration_to_resume(arguments: list[str]) -> list[str]:
    """Return the option that reads the configuration of the run to resume; an `InputError` if no run began there."""
    found = [value or following for name, value, following in _options(arguments) if name == "--out"]
    folder = Path(found[-1]).expanduser() if found and found[-1] else None
    if folder is None:
        raise InputError("--resume needs --out, the folder of the run to go on with, or a method")
    begun = [path for path in (folder, *seed_folders(folder).values()) if (path / "config.yaml").is_file()]
    if not begun:
        raise InputError(f"no run began in {folder}, so there is none to resume: name a method and a data set")
    return [f"--config={begun[0] / 'config.yaml'}"]


def seed_folders(folder: Path) -> dict[int, Path]:
    """Return the folders of seeds in a folder of runs, by seed; those that have not begun are empty."""
    found = {path.name.removeprefix("seed-"): path for path in folder.glob("seed-*") if path.is_dir()}
    return {int(seed): found[seed] for seed in sorted(found, key=len) if seed.isdecimal()}


def _seeds(config: RunConfig, count: int | None, resumed: Path | None) -> Sequence[int]:
    """Return the seeds to run: so many from the first on, or those in the folder that is resumed."""
    there = sorted(seed_folders(resumed)) if resumed and count is None else []
    return there or range(config.options["seed"], config.options["seed"] + (count or 1))


def _command_to_resume(options: Any, out: Path) -> str:
    """Return the command that continues these runs."""
    command = ["engram", "run", "--resume", "--out", str(out)]
    command += [f"--checkpoint-every={options.checkpoint_every}"] if options.checkpoint_every != "60s" else []
    command += [f"--log={options.log}"] if options.log else []
    command += [f"--plugin={module}" for module in os.environ.get(PLUGIN_VARIABLE, "").split(",") if module]
    return shlex.join(command)


def execute(jobs: list[Job], out: Path, *, again: str, logs: Sequence[EventLog] = ()) -> int:
    """Run the jobs with progress, print their table, and return the exit code.

    Args:
        jobs: jobs to run. A single job runs in this process; several run in one process per core, with one thread each.
        out: folder to name in messages.
        again: command that continues the jobs after an interruption.
        logs: logs that get the events of the jobs, one log per job.
    """
    console = plain_console()
    names = [f"{job.config.method} seed {job.config.options['seed']}" for job in jobs]
    totals = batch_counts([job.config for job in jobs]) if len(jobs) > 1 else [0]
    if len(jobs) > 1:  # so that a resumed command knows the seeds that had not begun
        for job in jobs:
            job.out.mkdir(parents=True, exist_ok=True)
    finished = [(job.out / "result.json").is_file() for job in jobs]
    with stop_on_signal() as should_stop, RunProgress(names, console, totals, finished) as progress:

        def on_event(job: int, event: Event) -> None:
            progress(job, event)
            if logs:
                logs[job](event)

        try:
            if len(jobs) > 1:
                results = _run_several(jobs, out, on_event, should_stop)
            else:
                results = [jobs[0].run(should_stop, lambda event: on_event(0, event))]
        except Interrupted as stopped:
            reason = stopped if len(jobs) == 1 else progress.summary()
            begun = any((job.out / "config.yaml").exists() for job in jobs)
            how = f"Everything is saved in {out}. To continue:\n{again}" if begun else NOTHING_BEGUN
            console.print(f"{reason}. {how}", soft_wrap=True)
            return should_stop.exit_code
        finally:
            for log in logs:
                log.close()
    rows = compare(results)
    print_comparison(rows, console)
    for row in rows:
        console.print(time_by_part(row))
    for name, result in zip(names, results, strict=True):
        if tested := result.prequential:
            figures = ", ".join(f"{figure} {value:.1f}" for figure, value in tested.items() if figure != "images")
            console.print(f"{name}, tested on each image before learning from it: {figures}", soft_wrap=True)
    console.print(f"Results and pictures of the memory: {out}", soft_wrap=True)
    return 0


def _run_several(jobs: list[Job], out: Path, on_event: Any, should_stop: StopRequest) -> list[RunResult]:
    outcome = run_jobs(
        jobs,
        LocalEngine(min(cores(), len(jobs))),
        out / f".stop-{os.getpid()}-{secrets.token_hex(4)}",
        attempts=1,
        stop_on_failure=True,
        wait_for_locks=False,
        on_event=on_event,
        should_stop=should_stop,
    )
    for error in outcome.errors.values():
        raise error
    return [outcome.results[position] for position in range(len(jobs))]


def build_parser(method: str) -> Parser:
    """Return the parser for a run of `method`, with the options of a run and the settings of the method's parts."""
    parser = Parser(
        prog="engram run",
        usage="engram run [METHOD] [DATASET] [options]",
        description=f"Run one learner over one stream. METHOD and DATASET come first. Settings below are for {method}.",
    )
    parser.add_argument("--method", type=str, default=method, help="name of a method, as listed by engram methods")
    parser.add_argument(
        "--config",
        type=Path | None,
        default=None,
        help="YAML file of options, such as a run's config.yaml; METHOD, DATASET and options override it",
    )
    parser.add_argument("--out", type=Path | None, default=None, help="folder of the run (default: under runs/)")
    parser.add_argument(
        "--resume", action="store_true", help="continue the interrupted run in the folder --out; no more is needed"
    )
    parser.add_argument(
        "--seeds",
        type=Count | None,
        default=None,
        help="number of seeds to run, counting from --seed; one process per core (default: 1)",
    )
    parser.add_argument(
        "--checkpoint_every",
        type=str,
        default="60s",
        help="time between checkpoints: seconds (60, 0.5s) or batches (500b)",
    )
    parser.add_argument(
        "--log",
        type=Literal["tensorboard", "wandb", "mlflow"] | None,
        default=None,
        help="also write a log for TensorBoard (to tensorboard/ in the run's folder), Weights & Biases, or MLflow (to "
        "MLFLOW_TRACKING_URI, or mlruns/ in the run's folder)",
    )
    parser.explain_unknown = lambda name: _explain_missing_part(name, method)
    for title, declaration in GROUPS.items():
        parser.add_options(title, declaration)
    for role, part in configurable(find_method(method)).items():
        if schema_of(part):
            parser.add_options(role, part)
    return parser


def _explain_missing_part(option: str, method: str) -> str | None:
    """Return why a setting of a part that the method does not have is no option, and which method has that part."""
    role, _, setting = option.removeprefix("--").replace("-", "_").partition(".")
    if not setting or role in configurable(find_method(method)):
        return None
    combined = [name for memory in MEMORIES if is_method(name := f"{method}+{memory}")]
    parts = {name: configurable(find_method(name)).get(role) for name in [*combined, *METHODS]}
    having = [name for name, part in parts.items() if part and setting in schema_of(part)]
    if not having:
        return None
    lacking = {"summarize": "does not summarize", "theta": "does not summarize", "augment": "has no augmentation"}
    return f"{method} {lacking.get(role, f'has no {role}')}, so it takes no {option}; {having[0]} does"


def to_config(options: Any) -> RunConfig:
    """Return the configuration of the run from the parsed options."""
    content = _file_content(options.config) if options.config else {}
    chosen = {name: value for name, value in vars(options).items() if name in schema_of(RunOptions) or "." in name}
    merged = _merged(content, nested(chosen)) | {"method": options.method}
    return RunConfig.from_dict(merged)


def _file_content(path: Path) -> dict[str, Any]:
    content = read_yaml(path)
    if not isinstance(content, dict):
        raise InputError(f"{path} holds no options: it must be a YAML mapping of option names to values")
    method = find_method(str(content.get("method", DEFAULT_METHOD)))
    known = {*schema_of(RunOptions), *configurable(method), "method", "settings"}
    for name in content:
        if name not in known:
            raise InputError(f"{path} sets {name!r}, which is not an option of a run: remove it or correct its name")
    return content


def _merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Return `below` updated with the values of `above`, group by group."""
    both = {name for name in below.keys() & above.keys() if isinstance(below[name], dict)}
    return below | above | {name: _merged(below[name], above[name]) for name in both}


def _default_name(config: RunConfig) -> str:
    chosen = config.options
    return f"{config.method}-{Path(chosen['dataset']).name}-{chosen['stream']}-{limit_slug(chosen)}"


def _method_name(arguments: list[str]) -> str:
    """Return the method named by the arguments; its options are known only after it is."""
    found = None
    for name, value, following in _options(arguments):
        if name in ("--method", "--config") and not (value or following):
            raise InputError(f"{name} needs a value: put one behind it")
        if name == "--method":
            return value or following
        if name == "--config":
            content = read_yaml(Path(value or following).expanduser())
            found = str(content["method"]) if isinstance(content, dict) and "method" in content else None
    return found or DEFAULT_METHOD


def _options(arguments: list[str]) -> Iterator[tuple[str, str, str]]:
    """Yield name, value behind an equals sign, and following argument of each argument."""
    for token, following in zip(arguments, [*arguments[1:], ""], strict=True):
        name, _, value = token.partition("=")
        yield name, value, following
