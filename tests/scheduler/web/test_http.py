"""The services as JSON over HTTP: the same answers as over gRPC, the same refusals, and nothing left behind."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from octavo_scheduler.limits import HTTP_BODY_BYTES
from octavo_scheduler.model import ServedModel

from tests.doubles.paper_service import PaperService, paper_service
from tests.doubles.paper_worker import PaperWorker, answer
from tests.patience import until
from tests.scheduler.web.http import Browser

PROMPT = {"token_ids": {"ids": [1, 2, 3]}}


def asking(most: int = 8, **fields: object) -> dict[str, object]:
    """A request whose answer is known."""
    options = {"sampling": {"seed": 0}, "stopping": {"max_tokens": most, "ignore_eos": True}}
    return {"prompt": PROMPT, "options": options, **fields}


@pytest.fixture
async def service(model: ServedModel, tmp_path: Path) -> AsyncIterator[PaperService]:
    worker = PaperWorker(page_size=4, pages=16, host_pages=8, max_slots=2)
    async with paper_service(model, tmp_path, worker, "--http", "127.0.0.1:0") as running:
        yield running


@pytest.fixture
def browser(service: PaperService) -> Browser:
    assert service.scheduler.http_address is not None
    return Browser(service.scheduler.http_address)


async def test_a_stream_has_an_event_for_each_message(service: PaperService, browser: Browser) -> None:
    service.is_open.set()
    reply = await browser.call("InferenceService/GenerateStream", asking(request_id="a"))
    assert reply.status == 200
    assert reply.headers["content-type"].startswith("text/event-stream")
    assert {name for name, _ in reply.events} == {"message"}
    messages = [message for _, message in reply.events]
    assert (messages[0]["start"]["prompt_tokens"], messages[0]["request_id"]) == (3, "a")
    assert [token for each in messages[1:-1] for token in each["delta"]["token_ids"]] == answer([1, 2, 3], 8)
    assert messages[-1]["end"]["branches"][0]["finish"]["reason"] == "FINISH_REASON_LENGTH"


async def test_a_whole_answer_is_one_object(service: PaperService, browser: Browser) -> None:
    service.is_open.set()
    reply = await browser.call("InferenceService/Generate", asking())
    assert (reply.status, reply.headers["content-type"]) == (200, "application/json")
    assert reply.json["completions"][0]["token_ids"] == answer([1, 2, 3], 8)
    assert reply.json["usage"]["completion_tokens"] == 8


async def test_operators_see_pages_and_status(service: PaperService, browser: Browser) -> None:
    service.is_open.set()
    await service.ask("a", [1, 2, 3, 4, 5])
    maps = (await browser.call("AdminService/GetPageMap", {"with_holders": True})).json["workers"]
    assert maps[0]["worker_id"] == "w0"
    assert sum(maps[0]["device"]["num_pages"]) == 16
    status = (await browser.call("AdminService/GetStatus")).json
    assert int(status["counters"]["generated_tokens"]) == 8


async def test_what_is_wrong_with_a_request_is_said_in_one_sentence(service: PaperService, browser: Browser) -> None:
    too_long = asking(most=100_000)
    whole = await browser.call("InferenceService/Generate", too_long)
    assert (whole.status, whole.json["code"]) == (400, "INVALID_ARGUMENT")
    stream = await browser.call("InferenceService/GenerateStream", too_long)
    assert stream.events == [("error", whole.json)]
    assert "max_tokens is 100000" in whole.json["message"]
    unknown = await browser.call("AdminService/DrainWorker", {"worker_id": "w9"})
    assert (unknown.status, unknown.json) == (404, {"code": "NOT_FOUND", "message": "no worker named w9 is here"})


@pytest.mark.parametrize(
    "body", ["{", "7", '{"nonsense": 1}', '{"prompt": 5}', "[" * 100_000, '{"prompt": ' * 500, "\udcff", ""]
)
async def test_what_is_no_message_is_refused(service: PaperService, browser: Browser, body: str) -> None:
    reply = await asyncio.to_thread(
        browser.ask,
        "POST",
        "/octavo.v1.InferenceService/Generate",
        body.encode(errors="surrogateescape"),  # type: ignore[arg-type]
        {"content-type": "application/json"},
    )
    assert (reply.status, reply.json["message"]) == (400, "the request is no message of this method's type")


async def test_paths_types_and_sizes_have_statuses_of_their_own(service: PaperService, browser: Browser) -> None:
    assert (await browser.call("InferenceService/Nothing")).status == 404
    assert (await browser.call("NoService/Generate")).status == 404
    assert (await browser.get("/octavo.v1.InferenceService/Generate")).status in (404, 405)
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""):
        assert (await browser.call("InferenceService/Generate", asking(), **{"content-type": kind})).status == 415
    huge = json.dumps({"prompt": {"text": "x" * HTTP_BODY_BYTES}})
    assert (await browser.call("InferenceService/Generate", huge)).status == 413


async def test_a_browser_that_leaves_its_stream_frees_its_pages(service: PaperService, browser: Browser) -> None:
    """Also before the first token, when nothing is written that could fail."""
    core = service.scheduler.loop.core
    for method in ("GenerateStream", "Generate"):
        headers = {"content-type": "application/json"}
        body = json.dumps(asking(most=30))
        connection = await asyncio.to_thread(
            browser.begin, "POST", f"/octavo.v1.InferenceService/{method}", body, headers
        )
        await until(lambda: len(core.requests) == 1)
        connection.close()
        await until(lambda: not core.requests)
    assert service.scheduler.front.tally.outcomes["cancelled"] == 2
    assert service.scheduler.front.num_readers == 0


async def test_metrics_are_there_for_prometheus(service: PaperService, browser: Browser) -> None:
    reply = await browser.get("/metrics")
    assert reply.headers["content-type"].startswith("text/plain; version=")
    assert "\noctavo_live_requests 0.0\n" in reply.body


async def test_the_page_and_its_files_are_there_and_nothing_else_is(service: PaperService, browser: Browser) -> None:
    page = await browser.get("/")
    assert page.headers["content-type"].startswith("text/html")
    for name in ("main.js", "chat.js", "style.css", "icon.svg"):
        assert (await browser.get(f"/{name}")).status == 200
    for path in ("/../app.py", "/%2e%2e/app.py", "/..%2fapp.py", "/static", "/nothing", "//etc/passwd"):
        assert (await browser.get(path)).status == 404, path


async def test_every_answer_tells_browsers_to_be_careful(service: PaperService, browser: Browser) -> None:
    for reply in (await browser.get("/"), await browser.get("/metrics"), await browser.call("AdminService/GetStatus")):
        policy = reply.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert not [name for name in reply.headers if name.startswith("access-control-")]
        assert "server" not in reply.headers
