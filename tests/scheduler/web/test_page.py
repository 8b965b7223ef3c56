"""The page in a browser: what a person does and sees. Skipped where there is no Chromium."""

import json
import re
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio
from octavo_scheduler.model import ServedModel
from octavo_scheduler.roles import Role

from tests.doubles.paper_service import PaperService, paper_service
from tests.doubles.paper_worker import PaperWorker
from tests.patience import until
from tests.scheduler.web.test_guard import address_of, bearer, guarding, keys, started  # noqa: F401 (a fixture)

playwright = pytest.importorskip("playwright.async_api")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed"),
    pytest.mark.asyncio(loop_scope="module"),
]
if TYPE_CHECKING:
    from playwright.async_api import Browser, Page

EVIL = '<img src=x onerror="document.title=1"><b>bold</b>'


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> "AsyncIterator[Browser]":
    async with playwright.async_playwright() as driver:
        launched = await driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield launched
        await launched.close()


@pytest_asyncio.fixture(loop_scope="module")
async def tab(browser: "Browser") -> "AsyncIterator[Page]":
    """A tab in which nothing may go wrong unseen."""
    context = await browser.new_context(ignore_https_errors=True)
    page = await context.new_page()
    said: list[str] = []
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("console", lambda message: said.append(message.text) if "Security Policy" in message.text else None)
    page.set_default_timeout(60_000)
    yield page
    await context.close()
    assert said == []


@pytest_asyncio.fixture(loop_scope="module")
async def service(model: ServedModel, tmp_path: Path) -> AsyncIterator[PaperService]:
    worker = PaperWorker(page_size=4, pages=24, host_pages=8, max_slots=4)
    async with paper_service(model, tmp_path, worker, "--http", "127.0.0.1:0") as running:
        yield running


async def open_page(tab: "Page", service: PaperService) -> None:
    await tab.goto(f"http://{address_of(service.scheduler)}/")
    await tab.wait_for_selector("canvas")


async def ask(tab: "Page", most: int, words: str = "the user") -> None:
    await tab.click("summary")
    await tab.fill("#max-tokens", str(most))
    await tab.fill("#question", words)
    await tab.press("#question", "Enter")


async def test_an_answer_is_streamed_and_summed_up(tab: "Page", service: PaperService) -> None:
    service.is_open.set()
    await open_page(tab, service)
    assert (await tab.text_content("#model") or "").startswith("tiny · context of ")
    await ask(tab, 5)
    await tab.wait_for_selector(".stats")
    assert re.match(r"5 tokens · first after .* · ended by its limit", await tab.text_content(".stats") or "")
    assert await tab.text_content(".user") == "the user"
    assert await tab.is_visible("#send")


async def test_stop_frees_the_pages_and_keeps_what_came(tab: "Page", service: PaperService) -> None:
    await open_page(tab, service)
    await ask(tab, 50)
    await until(lambda: len(service.scheduler.loop.core.requests) == 1)
    await tab.click("#stop")
    await until(lambda: not service.scheduler.loop.core.requests)
    await tab.wait_for_selector("text=stopped")
    assert await tab.is_visible("#send")


async def test_a_refusal_is_said(tab: "Page", service: PaperService) -> None:
    await open_page(tab, service)
    await ask(tab, 1_000_000)
    await tab.wait_for_selector("[role=alert]")
    assert "max_tokens is 1000000" in (await tab.text_content("[role=alert]") or "")


async def test_what_models_and_clients_say_is_text_and_no_markup(tab: "Page", service: PaperService) -> None:
    messages = [{"delta": {"text": EVIL}}, {"delta": {"text": " …"}}]
    body = "".join(f"data: {json.dumps(message)}\n\n" for message in messages)
    await tab.route("**/ChatStream", lambda route: route.fulfill(content_type="text/event-stream", body=body))
    (running,) = await service.ask_in_one_plan((EVIL, [1, 2, 3]))
    await open_page(tab, service)
    await ask(tab, 5, EVIL)
    await playwright.expect(tab.locator(".assistant")).to_have_text(f"{EVIL} …")
    assert await tab.text_content(".user") == EVIL
    await tab.hover("canvas", position={"x": 5, "y": 5})
    await playwright.expect(tab.locator("#detail")).to_contain_text(f"{EVIL}: tokens 0 to 3")
    assert await tab.evaluate("document.querySelectorAll('main img, main b').length") == 0
    service.is_open.set()
    await running


async def test_every_page_says_whose_it_is_to_pointer_and_keys(tab: "Page", service: PaperService) -> None:
    answers = await service.ask_in_one_plan(("story", [1, 2, 3, 4, 5, 6]))
    await open_page(tab, service)
    assert await tab.text_content(".worker h4") == "device: 2 of 24 pages in use"
    await tab.focus("canvas")
    seen = []
    for _ in range(24):
        await tab.keyboard.press("ArrowRight")
        seen.append(await tab.text_content("#detail") or "")
    assert seen[0] == "Page 1 of the device: held. story: tokens 0 to 3, its page 1 of 2"
    assert seen[1] == "Page 2 of the device: held. story: tokens 4 to 7, its page 2 of 2"
    assert all("free, ready to be taken" in each for each in seen[2:])
    service.is_open.set()
    await answers[0]


async def test_the_page_fits_phones_and_desks_by_day_and_by_night(tab: "Page", service: PaperService) -> None:
    await open_page(tab, service)
    backgrounds = set()
    for width, scheme in ((320, "light"), (390, "dark"), (1360, "light"), (1360, "dark")):
        await tab.set_viewport_size({"width": width, "height": 800})
        await tab.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        assert await tab.evaluate("document.scrollingElement.scrollWidth") <= width
        assert await tab.is_visible("#send")
        backgrounds.add(await tab.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert len(backgrounds) == 2


async def test_a_token_opens_the_chat_and_an_administrators_the_pages(
    tab: "Page",
    model: ServedModel,
    keys: Path,  # noqa: F811
    tmp_path: Path,
) -> None:
    scheduler = await started(model, tmp_path, "--http=127.0.0.1:0", *guarding(keys))
    await tab.goto(f"https://{address_of(scheduler)}/")
    for role, state in ((Role.INFER, "an administrator's token"), (Role.ADMIN, "no worker is here")):
        if role is Role.ADMIN:
            await tab.click("#open-token")
        await tab.fill("#token", bearer(keys, role)["authorization"].removeprefix("Bearer "))
        await tab.click("#token-dialog button[value=use]")
        await tab.wait_for_selector("text=context of")
        await playwright.expect(tab.locator("#engine-state")).to_contain_text(state)
    await scheduler.stop(0)
