"""Pictures for the documentation, of a running server with the real model under more load than its pages hold.

Writes docs/images/{page,page-dark,page-phone}.png, top.svg and bench.svg (the plot of `octavo bench`), and prints one line
of JSON with what the server counted meanwhile: without a preemption and an answer the pictures would show nothing, and this
ends with exit code 1. Needs Chromium (Debian: chromium).
"""

import argparse
import asyncio
import io
import json
import random
import shutil
import socket
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from octavo_client.cli import main as octavo
from octavo_client.client import AsyncClient
from octavo_client.default_model import find_default_model
from octavo_client.errors import OctavoError
from octavo_client.local import LocalServer
from octavo_client.params import SamplingParams
from octavo_client.top_view import frame
from octavo_client.window import Window
from playwright.async_api import Page, async_playwright
from rich.console import Console

if TYPE_CHECKING:
    from playwright.async_api import Browser

IMAGES = Path(__file__).parents[1] / "docs" / "images"
QUESTIONS = (
    "What is virtual memory in a computer? Answer in two sentences.",
    "Tell me the story of a printer's apprentice who finds a page that is in no book.",
)
OPENINGS = (
    "Tell the story of a lighthouse keeper who writes letters to the sea, and of",
    "Explain to a child how a printing press works, step by step, and then",
    "Describe a walk through a city at night in winter, with",
    "List what one should take along on a long journey by train through",
)
STREAMS = 16
WARM_UP = 60.0
"""Seconds of load, which the timeline shows, before the first question is asked."""

BENCH = ("--requests=120", "--rate=3", "--prompt=50-200", "--answer=20-60")
PATIENCE = 180_000
"""Milliseconds for an answer among all the others."""


@dataclass(frozen=True)
class Look:
    """One picture."""

    name: str
    width: int
    height: int
    scheme: Any = "light"
    points: bool = False
    """At a page of the map."""


LOOKS = (Look("page", 1360, 860), Look("page-dark", 1360, 860, "dark", points=True), Look("page-phone", 390, 844))


async def load(client: AsyncClient, number: int) -> None:
    """One reader of long stories after the other."""
    chance = random.Random(number)
    await asyncio.sleep(chance.random() * 4)
    while True:
        prompt = f"{chance.choice(OPENINGS)} {chance.randrange(1000)} things that happened on the way."
        params = SamplingParams(temperature=1.0, max_tokens=chance.randrange(150, 380), ignore_eos=True)
        with suppress(OctavoError):
            await client.generate(prompt, params, request_id=f"story-{number}-{chance.randrange(1000)}")


async def watch(client: AsyncClient, window: Window) -> None:
    while True:
        window.add(await client.status())
        await asyncio.sleep(1.0)


async def open_tab(browser: "Browser", url: str, look: Look) -> Page:
    context = await browser.new_context(
        viewport={"width": look.width, "height": look.height}, color_scheme=look.scheme, device_scale_factor=1.5
    )
    page = await context.new_page()
    page.set_default_timeout(PATIENCE)
    await page.goto(url)
    await page.wait_for_selector("canvas")
    return page


async def picture(page: Page, look: Look) -> None:
    """With one answer that is whole and one that is coming."""
    for number, question in enumerate(QUESTIONS):
        await page.fill("#question", question)
        await page.press("#question", "Enter")
        if number == 0:
            await page.wait_for_selector(".stats")
    if look.points:
        await page.locator("canvas").first.hover(position={"x": 30, "y": 30})
    await asyncio.sleep(3.0)
    await page.screenshot(path=IMAGES / f"{look.name}.png", full_page=True)
    await page.context.close()


def draw_top(window: Window, address: str) -> None:
    console = Console(record=True, width=100, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(frame(window, address, console.width))
    (IMAGES / "top.svg").write_text(console.export_svg(title="octavo top"))


async def pictures(address: str, url: str, chromium: str) -> dict[str, Any]:
    window = Window()
    async with AsyncClient(address) as client, async_playwright() as driver:
        work = [asyncio.create_task(load(client, number)) for number in range(STREAMS)]
        work.append(asyncio.create_task(watch(client, window)))
        browser = await driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        tabs = [await open_tab(browser, url, look) for look in LOOKS]
        await asyncio.sleep(WARM_UP)
        for tab, look in zip(tabs, LOOKS, strict=True):
            await picture(tab, look)
        draw_top(window, address)
        await browser.close()
        for task in work:
            task.cancel()
        await asyncio.gather(*work, return_exceptions=True)
        counters = (await client.status()).counters
    return {"swaps": counters.swaps, "drops": counters.drops, "tokens": counters.generated_tokens}


def free_address() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, help="folder or GGUF file; default: the small one of the demo")
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    model = parser.parse_args().model or find_default_model()
    if chromium is None:
        print("screenshots need Chromium (Debian: apt-get install chromium)", file=sys.stderr)
        return 1
    IMAGES.mkdir(exist_ok=True)
    http = free_address()
    scheduler = ["--http", http, "--preempt", "swap"]
    worker = ["--device", "cpu", "--pages", "150", "--host-pages", "100", "--threads", "1"]
    with LocalServer(model, listen=free_address(), scheduler_flags=scheduler, worker_flags=worker) as server:
        counted = asyncio.run(pictures(server.address, f"http://{http}/", chromium))
        is_plotted = octavo(["bench", "--address", server.address, *BENCH, "--plot", str(IMAGES / "bench.svg")]) == 0
    files = sorted(path.name for path in IMAGES.iterdir())
    print(json.dumps({"target": "screenshots", "files": files, **counted}))
    return 0 if is_plotted and counted["tokens"] and counted["swaps"] + counted["drops"] else 1


if __name__ == "__main__":
    sys.exit(main())
