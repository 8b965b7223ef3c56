"""Loading with a progress bar on a terminal."""

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from octavo_worker.config import WorkerConfig
from octavo_worker.runner import Runner, build_runner


def load_behind_a_bar(config: WorkerConfig) -> Runner:
    """`build_runner`, showing how many layers are read. Silent where stderr is no terminal."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task(f"loading {config.model.name}", total=None)
        return build_runner(config, lambda done, total: bar.update(task, completed=done, total=total))
