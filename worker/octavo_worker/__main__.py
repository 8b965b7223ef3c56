"""`python -m octavo_worker`: load the model, join the scheduler, serve until told to end.

Exit code 0 after SIGTERM, SIGINT or the end of the lifeline; 2 with one sentence on stderr for bad input; 1 likewise for a
tensor-parallel worker that lost one of its ranks.
"""

import os
import signal
import sys
from collections.abc import Callable, Sequence

from octavo.audit import refuse_unpickling

from octavo_worker.config import WorkerConfig
from octavo_worker.errors import WorkerError
from octavo_worker.flags import read_flags

# A thread that waits for another must sleep, not spin: the scheduler and its clients want the cores too. Decode of 8
# rows of a 135M model on two cores that others keep busy took 2,400 ms a step with spinning threads, 133 ms without.
THREADS_SLEEP = {"OMP_WAIT_POLICY": "PASSIVE"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a worker; the exit code."""
    on_signal(lambda: sys.exit(0))  # until there is somebody to say Goodbye to
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        config = read_flags(arguments)
        if config.tensor_parallel_size == 1:
            serve(config)
        else:
            serve_with_others(config, arguments)
    except WorkerError as error:
        print(f"octavo worker: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def on_signal(act: Callable[[], object]) -> None:
    """What SIGTERM and SIGINT do from now on."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: act())


def let_threads_sleep() -> None:
    """Before anything is imported that reads this."""
    for name, value in THREADS_SLEEP.items():
        os.environ.setdefault(name, value)


def serve_with_others(config: WorkerConfig, arguments: Sequence[str]) -> None:
    """Be one rank of a tensor-parallel worker."""
    let_threads_sleep()
    from octavo_worker.group.serve import serve_as_group

    serve_as_group(config, arguments, on_signal)


def serve(config: WorkerConfig) -> None:
    """Load the model, warm up and serve until told to end. The imports wait until here: some kernels read the environment
    when they come in, and a bad flag need not wait for them."""
    let_threads_sleep()
    from octavo_worker.link import Link
    from octavo_worker.loading import behind_a_bar
    from octavo_worker.runner import build_runner
    from octavo_worker.warming import warm_up

    runner = behind_a_bar(f"loading {config.model.name}", lambda show: build_runner(config, show))
    warm_up(runner)
    link = Link(config, runner)
    on_signal(link.stop)
    link.run()


if __name__ == "__main__":
    refuse_unpickling()
    sys.exit(main())
