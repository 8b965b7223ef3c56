"""octavo demo: real answers from real processes, side by side, with the figures of the run."""

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from octavo.v1 import admin_pb2
from rich.console import Console

from octavo_client.client import AsyncClient
from octavo_client.default_model import MODEL_PACKAGE, find_default_model
from octavo_client.demo_summary import Recording, summarise
from octavo_client.demo_view import View, pick_view
from octavo_client.errors import OctavoError
from octavo_client.local import LocalServer, Programs
from octavo_client.params import SamplingParams
from octavo_client.results import Delta

ABOUT_DEFAULT_MODEL = (
    "The model is SmolLM2 with 135M parameters. It was trained on English: its Chinese is poor, and it errs a lot. "
    "It ran on {kernels}. `make demo MODEL=…` takes any supported Hugging Face folder or GGUF file."
)
KERNELS = {
    "cpu": "the C kernels for CPUs",
    "reference": "the plain torch reference, which is there to be right, not to be fast: the C kernels are not built here",
}
"""What to call them."""


@dataclass(frozen=True)
class Question:
    """One prompt of the demonstration and the title it is shown under."""

    title: str
    text: str


def questions() -> list[Question]:
    """Returns the prompts: three English ones, a Chinese one, and a document of 2,000 tokens with a question."""
    document = files("octavo_client").joinpath("demo_document.txt").read_text(encoding="utf-8")
    about_document = "Which mark did Ilse Maren press into the last page of every book?"
    short = (
        "What is virtual memory in a computer? Answer in two sentences.",
        "Write a short poem about a library at night.",
        "Give three tips for learning a new language.",
        "你好，请介绍下PagedAttention的原理",
    )
    return [
        *(Question(text, text) for text in short),
        Question(
            f"(document) {about_document}", f"{document}\nAnswer this question about the text above: {about_document}"
        ),
    ]


def add(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds the verb to the command line."""
    parser = verbs.add_parser(
        "demo",
        help="see a model answer several prompts at once",
        description="Starts a scheduler and a worker, asks five questions side by side and sums up. Ends with JSON.",
    )
    parser.add_argument("--model", default="", metavar="PATH", help=f"folder or GGUF file (default: {MODEL_PACKAGE})")
    parser.add_argument("--max-tokens", type=int, default=80, metavar="N", help="of each answer (default: %(default)s)")
    parser.set_defaults(run=demo)


def demo(args: argparse.Namespace, programs: Programs | None = None) -> int:
    """Runs the demonstration; 0 only when every stream ended well."""
    model = Path(args.model) if args.model else find_default_model()
    params = SamplingParams(temperature=0, max_tokens=args.max_tokens)
    asked = questions()
    console = Console(soft_wrap=not sys.stdout.isatty())
    console.print(f"Starting a scheduler and a worker for {model} …", markup=False, highlight=False)
    with LocalServer(model, programs=programs, verbose=sys.stderr.isatty()) as server:
        view = pick_view([question.title for question in asked])
        recordings, status = asyncio.run(_ask_all(server.address, asked, params, view))
    summary = summarise(recordings, status)
    console.print(summary.table())
    if not args.model:
        console.print(about_default_model(status), markup=False, highlight=False)
    print(json.dumps({"target": "demo", "model": model.name, **summary.figures()}), flush=True)
    return 0 if summary.complete == summary.streams else 1


def about_default_model(status: admin_pb2.GetStatusResponse) -> str:
    """What to expect of the model that comes along, and what it ran on."""
    names = dict.fromkeys(worker.kernels for worker in status.workers)
    return ABOUT_DEFAULT_MODEL.format(kernels=" and ".join(KERNELS.get(name, name) for name in names))


async def _ask_all(
    address: str, asked: Sequence[Question], params: SamplingParams, view: View
) -> tuple[list[Recording], admin_pb2.GetStatusResponse]:
    async with AsyncClient(address) as client:
        with view.running():
            calls = [_ask(client, number, question, params, view) for number, question in enumerate(asked)]
            recordings = await asyncio.gather(*calls)
        return recordings, await client.status()


async def _ask(client: AsyncClient, number: int, question: Question, params: SamplingParams, view: View) -> Recording:
    recording = Recording(started=time.monotonic())
    try:
        async for event in client.chat_stream([{"role": "user", "content": question.text}], params):
            recording.note(event, time.monotonic())
            if isinstance(event, Delta):
                view.append(number, event.text)
    except OctavoError as error:
        recording.error = str(error)
    num_tokens = sum(count for _, count in recording.arrivals)
    view.finish(number, recording.error or f"{num_tokens} tokens, {recording.finish_reason or 'cut off'}")
    return recording
