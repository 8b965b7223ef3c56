"""octavo bench: puts load on a running server and sums up what its clients felt."""

import argparse
import asyncio
import json
import sys
from pathlib import Path

from rich.console import Console

from octavo_client.bench.figures import Figures, Goal
from octavo_client.bench.load import Load, Plan, Span
from octavo_client.client import AsyncClient
from octavo_client.demo_summary import Recording
from octavo_client.errors import ConfigError
from octavo_client.verbs import options


def add(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds the verb to the command line."""
    parser = verbs.add_parser(
        "bench",
        help="put load on a running server",
        description="Asks a running server for many answers and sums up how long its clients waited. Ends with JSON.",
    )
    parser.add_argument("--requests", type=int, default=100, metavar="N", help="default: %(default)s")
    parser.add_argument("--rate", type=float, metavar="X", help="requests per second, by chance; default: closed loop")
    parser.add_argument(
        "--concurrency", type=int, default=8, metavar="N", help="in a closed loop (default: %(default)s)"
    )
    parser.add_argument("--prompt", default="128", metavar="N[-M]", help="tokens of prompts (default: %(default)s)")
    parser.add_argument("--answer", default="64", metavar="N[-M]", help="tokens of answers (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="same seed, same load")
    parser.add_argument("--goal-first-token", type=float, default=1.0, metavar="SECONDS", help="of a good request")
    parser.add_argument("--goal-inter-token", type=float, default=0.1, metavar="SECONDS", help="of a good request")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the waiting times there, as SVG")
    options.add_server(parser)
    parser.set_defaults(run=bench)


def bench(args: argparse.Namespace) -> int:
    """Runs the load; 0 only when every request ended well."""
    if args.requests < 1 or args.concurrency < 1 or (args.rate is not None and args.rate <= 0):
        raise ConfigError("--requests and --concurrency must be at least 1, and --rate above 0.")
    goal = Goal(args.goal_first_token, args.goal_inter_token)
    figures = Figures(asyncio.run(_run(args)), goal)
    console = Console()
    console.print(figures.table())
    console.print(figures.legend(), style="dim italic", highlight=False)
    for error in sorted(set(figures.errors)):
        print(f"octavo: {figures.errors.count(error)} × {error}", file=sys.stderr)
    if args.plot is not None:
        try:
            args.plot.write_text(figures.svg())
        except OSError as error:
            raise ConfigError(f"{args.plot} cannot be written: {error.strerror}.") from error
    print(json.dumps({"target": "bench", **figures.as_json()}), flush=True)
    return 0 if figures.complete == figures.requests else 1


async def _run(args: argparse.Namespace) -> list[Recording]:
    prompt, answer = Span.read(args.prompt), Span.read(args.answer)
    async with options.open_async_client(args) as client:
        vocab_size = await _vocab_size(client, args.served_model)
        plan = Plan(
            requests=args.requests,
            rate=args.rate,
            concurrency=args.concurrency,
            prompt=prompt,
            answer=answer,
            vocab_size=vocab_size,
            seed=args.seed,
        )
        ask = lambda ids, params: client.stream({"prompt_token_ids": ids}, params, timeout=args.timeout)  # noqa: E731
        return await Load(plan, ask).run()


async def _vocab_size(client: AsyncClient, name: str) -> int:
    """Of the model that is asked."""
    models = await client.list_models()
    return next((int(each.vocab_size) for each in models if each.name == name), int(models[0].vocab_size))
