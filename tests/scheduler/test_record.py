"""What a recording holds, what it does not hold, and what becomes of it when things go wrong."""

import gzip
import json
import stat
import tracemalloc
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
from octavo_scheduler import event_log
from octavo_scheduler.core import Core, Settings
from octavo_scheduler.core.events import Drain, Event, Masked, Pin, Resume, StepDone, Tick
from octavo_scheduler.core.explain import explain
from octavo_scheduler.core.request import FinishReason, RequestSpec, Sampling
from octavo_scheduler.event_log import Apply, Entry, EventLog, LogError, LogWriter, Submit, plan_digest
from octavo_scheduler.offline.replay import replay
from octavo_scheduler.offline.traffic import read_traffic
from octavo_scheduler.pseudonyms import STOP, Pseudonyms
from octavo_scheduler.record import Recorder

from tests.doubles.history import history
from tests.doubles.paper_worker import PaperWorker
from tests.doubles.table_top import TableTop
from tests.scheduler.core.test_faults import POISON, Overflowing


def recorded(path: Path, *, has_tokens: bool = False, settings: Settings | None = None) -> tuple[TableTop, Recorder]:
    """A table top whose core is recorded."""
    table = TableTop(settings)
    recorder = Recorder(table.core.settings, path, has_tokens=has_tokens)
    table.core = recorder
    table.join("w", PaperWorker())
    return table, recorder


def submissions(path: Path) -> list[RequestSpec]:
    return [entry.spec for entry in EventLog(path) if isinstance(entry, Submit)]


def results(path: Path) -> list[StepDone]:
    return [e.event for e in EventLog(path) if isinstance(e, Apply) and isinstance(e.event, StepDone)]


def common(first: tuple[int, ...], second: tuple[int, ...]) -> int:
    """Places at which two prompts are alike."""
    return sum(a == b for a, b in zip(first, second, strict=False))


def test_a_recorded_core_plans_and_says_what_a_core_does(tmp_path: Path) -> None:
    recorders: list[Recorder] = []

    def make(settings: Settings) -> Core:
        recorders.append(Recorder(settings, tmp_path / f"{len(recorders)}.log", has_tokens=bool(recorders)))
        return recorders[-1]

    plain = history(5)
    for table in (history(5, make), history(5, make)):
        assert table.plans == plain.plans
        assert table.tokens == plain.tokens
        assert table.finished == plain.finished
    for recorder in recorders:
        recorder.close()


def test_asking_why_leaves_no_trace_and_changes_nothing_of_what_is_replayed(tmp_path: Path) -> None:
    table, recorder = recorded(tmp_path / "log", settings=Settings(max_wait_seconds=1, max_num_seqs=2))
    for number in range(20):
        table.submit(f"r{number}", [number % 3] * 9, 6, priority=number % 2, tenant="ab"[number % 2])
    asked = 0
    events: list[Event] = [Tick(), Drain("w"), Tick(), Resume("w"), *[Tick()] * 50]
    for event in events:
        table.now += 1.0
        table.apply(event)
        for name in table.core.requests:
            asked += bool(explain(table.core, name, table.now))
        table.turn()
    assert asked > 50
    assert recorder.auditor.due == table.now + 1.0, "it looked at the pages in the last turn"
    recorder.close()
    replayed = replay(EventLog(tmp_path / "log"))
    assert replayed.difference is None
    assert {type(e.event) for e in EventLog(tmp_path / "log") if isinstance(e, Apply)} >= {Drain, Resume, Tick}


def test_tokens_tenants_and_salts_do_not_get_into_a_log(tmp_path: Path) -> None:
    table, recorder = recorded(tmp_path / "log")
    prompt = [811, 812, 813, 814, 815]
    table.submit("a", prompt, 6, tenant="lovelace", salt="lovelace's salt", stop_token_ids=frozenset({777, 778}))
    table.run()
    recorder.close()
    text = gzip.decompress((tmp_path / "log").read_bytes()).decode()
    assert "lovelace" not in text
    (spec,) = submissions(tmp_path / "log")
    assert len(spec.prompt) == 5
    assert not {*spec.prompt} & {*prompt}
    assert spec.stop_token_ids == {STOP}
    said = [token for done in results(tmp_path / "log") for token in done.tokens]
    assert len(said) == len(table.tokens["a"]) == 6
    assert not {*said} & {*table.tokens["a"]}


def test_the_beginnings_of_resumed_answers_are_hidden_and_replayed_alike(tmp_path: Path) -> None:
    """A second request goes on like the first, so that it finds pages of its answer; both have the same pseudonyms."""
    table, recorder = recorded(tmp_path / "log")
    prompt = [811, 812, 813, 814, 815]
    table.submit("a", prompt, 12, seed=3)
    table.run()
    whole = table.tokens["a"]
    held = (tuple(whole[:9]), (), ())
    table.submit("b", prompt, 12, seed=3, n=3, held=held, ended=frozenset({1}))
    table.tokens["b"] = list(held[0])
    table.run()
    assert table.tokens["b"] == whole
    recorder.close()
    _, second = submissions(tmp_path / "log")
    assert [len(tokens) for tokens in second.held] == [9, 0, 0]
    assert not {*second.held[0]} & {*whole}
    assert second.held[0] == tuple(token for done in results(tmp_path / "log") for token in done.tokens)[:9]
    assert replay(EventLog(tmp_path / "log")).difference is None
    asked = read_traffic(EventLog(tmp_path / "log")).requests[1]
    assert [len(asked.answers.get(branch, [])) for branch in range(3)] == [12, 0, 12]
    assert asked.ended_at is not None


@pytest.mark.parametrize("has_tokens", [True, False])
def test_constrained_requests_are_replayed_alike_without_their_masks(tmp_path: Path, has_tokens: bool) -> None:
    table, recorder = recorded(tmp_path / "log", has_tokens=has_tokens)
    table.submit("a", [811, 812], 6, seed=3, n=2, is_constrained=True)
    table.submit("b", [811, 813], 6, seed=3)
    table.run()
    recorder.close()
    masked = [e.event for e in EventLog(tmp_path / "log") if isinstance(e, Apply) and isinstance(e.event, Masked)]
    assert len(masked) >= 12
    assert {event.mask for event in masked} == {b""}
    assert replay(EventLog(tmp_path / "log")).difference is None


def test_constrained_requests_whose_masks_followed_their_plans_are_replayed_alike(tmp_path: Path) -> None:
    table, recorder = recorded(tmp_path / "log")
    table.kill("w")
    table.join("late", PaperWorker(minor=3))
    table.submit("a", [811, 812], 9, seed=3, is_constrained=True)
    table.run()
    recorder.close()
    assert any(plan.rows.masked_row for plan in table.plans)
    assert table.num_open
    assert replay(EventLog(tmp_path / "log")).difference is None


def test_what_a_log_may_say_as_it_is_was_decided_for_every_field() -> None:
    """A new field that holds words or tokens must be hidden, or be named here because it says nothing."""
    said_as_it_is = {
        "Joined.weights_digest",
        "Joined.kernels",
        "Joined.kv_dtype",
        "RequestSpec.id",
        "RequestSpec.ended",
        "Pin.name",
        "Unpin.name",
        "Masked.request",
    }
    hidden = {f"RequestSpec.{name}" for name in ("prompt", "held", "stop_token_ids", "tenant", "salt")}
    hidden |= {"StepDone.tokens", "StepDone.logprobs", "Sampling.biases", "Pin.tokens", "Pin.salt", "Masked.mask"}
    found = {
        f"{kind.__name__}.{name}"
        for kind in (*get_args(Event), RequestSpec, Sampling, Settings)
        for name, hint in get_type_hints(kind).items()
        if name != "worker" and not says_nothing(hint)
    }
    assert found == said_as_it_is | hidden


def says_nothing(hint: Any) -> bool:
    """Numbers, choices of the operator's, and what is known by tenant, whose names are hidden."""
    return hint in (int, float, bool, int | None, float | None, Sampling) or get_origin(hint) in (Literal, Mapping)


@dataclass(frozen=True, kw_only=True)
class Weighted(Settings):
    weights: Mapping[str, float] = field(default_factory=dict)


def test_what_is_set_by_tenant_is_set_for_the_pseudonym_of_the_tenant() -> None:
    names = Pseudonyms(b"a secret of sixteen")
    weights = names.settings(Weighted(max_chunk=3, weights={"lovelace": 2.0, "": 1.0})).weights
    name = names.spec(RequestSpec(id="a", prompt=(1,), tenant="lovelace")).tenant
    assert weights == {name: 2.0, "": 1.0}
    assert "lovelace" not in name


def test_equal_beginnings_stay_equal_and_nothing_else_does(tmp_path: Path) -> None:
    table, recorder = recorded(tmp_path / "log")
    for name, prompt, salt in (
        ("a", [5, 5, 5, 5, 6], ""),
        ("b", [5, 5, 5, 7, 6], ""),
        ("c", [5, 5, 5, 5, 6], "other"),
        ("d", [9, 5, 5, 5, 6], ""),
    ):
        table.submit(name, prompt, 1, salt=salt)
    recorder.close()
    a, b, c, d = (spec.prompt for spec in submissions(tmp_path / "log"))
    assert common(a, b) == 3
    assert a[:3] == b[:3]
    assert common(a, c) == common(a, d) == 0
    assert len(set(a)) == 5, "one token at five places has five pseudonyms"


def test_an_answer_is_known_again_when_it_comes_back_in_a_prompt(tmp_path: Path) -> None:
    table, recorder = recorded(tmp_path / "log")
    table.submit("a", [1, 2, 3], 9)
    table.run()
    table.submit("b", [1, 2, 3, *table.tokens["a"], 4], 1)
    table.run()
    recorder.close()
    assert table.started["b"].cached == 8
    first, second = (spec.prompt for spec in submissions(tmp_path / "log"))
    said = tuple(token for done in results(tmp_path / "log")[:9] for token in done.tokens)
    assert second[:-1] == (*first, *said)
    assert replay(EventLog(tmp_path / "log")).difference is None


def test_a_pinned_prefix_is_known_again_in_prompts(tmp_path: Path) -> None:
    table, recorder = recorded(tmp_path / "log")
    table.apply(Pin(name="system", tokens=(4, 5, 6, 7, 8), salt="ada"))
    for name, salt in (("a", "ada"), ("b", "bob")):
        table.submit(name, [4, 5, 6, 7, 9], 1, salt=salt)
    recorder.close()
    (pin,) = (e.event for e in EventLog(tmp_path / "log") if isinstance(e, Apply) and isinstance(e.event, Pin))
    a, b = submissions(tmp_path / "log")
    assert (pin.salt, common(pin.tokens, a.prompt)) == (a.salt, 4)
    assert common(pin.tokens, b.prompt) == 0
    assert not {*pin.tokens} & {4, 5, 6, 7, 8}


@pytest.mark.parametrize("has_tokens", [False, True])
def test_a_request_without_numbers_and_a_result_that_cannot_be_right_are_replayed_as_they_were(
    has_tokens: bool, tmp_path: Path
) -> None:
    table, recorder = recorded(tmp_path / "log", has_tokens=has_tokens)
    table.join("v", Overflowing(pages=64))
    for number in range(6):
        table.submit(f"r{number}", [number, POISON if number % 2 else 5, 7], 6, n=1 + number % 3)
    table.plan("w")
    table.results["w"].clear()
    table.apply(StepDone("w", 1, (-2,)))
    table.run()
    recorder.close()
    ends = {table.finished[f"r{number}"].reason for number in range(6)}
    assert ends == {FinishReason.NO_NUMBERS, FinishReason.LENGTH}
    assert replay(EventLog(tmp_path / "log")).difference is None


def test_two_logs_have_no_pseudonym_in_common(tmp_path: Path) -> None:
    prompts = []
    for name in ("one", "two"):
        table, recorder = recorded(tmp_path / name)
        table.submit("a", [1, 2, 3], 1)
        recorder.close()
        prompts.append(submissions(tmp_path / name)[0].prompt)
    assert common(*prompts) == 0


def test_with_tokens_a_log_says_everything(tmp_path: Path) -> None:
    table, recorder = recorded(tmp_path / "log", has_tokens=True)
    table.submit("a", [1, 2, 3], 5, tenant="ada", salt="salt")
    table.run()
    recorder.close()
    assert submissions(tmp_path / "log")[0].prompt == (1, 2, 3)
    assert submissions(tmp_path / "log")[0].tenant == "ada"
    assert [token for done in results(tmp_path / "log") for token in done.tokens] == table.tokens["a"]


@pytest.mark.parametrize("has_tokens", [False, True])
def test_a_log_that_breaks_off_is_replayed_as_far_as_it_goes(tmp_path: Path, has_tokens: bool) -> None:
    whole = tmp_path / "whole"
    recorders: list[Recorder] = []

    def make(settings: Settings) -> Core:
        recorders.append(Recorder(settings, whole, has_tokens=has_tokens))
        return recorders[0]

    table = history(3, make)
    for _ in range(3):  # as after a turn of the loop
        table.now += 1
        table.submit(f"late {table.now}", [1, 2], 3)
        table.run()
        recorders[0].write()
    recorders[0].close()
    content = whole.read_bytes()
    num_calls = replay(EventLog(whole)).calls
    seen = []
    for share in (0.3, 0.6, 0.9, 0.999):
        torn = tmp_path / "torn"
        torn.write_bytes(content[: int(len(content) * share)])
        outcome = replay(EventLog(torn))
        assert outcome.difference is None
        assert not outcome.is_complete
        seen.append(outcome.calls)
    assert seen == sorted(seen)
    assert 0 < seen[0] < seen[-1] <= num_calls
    assert replay(EventLog(whole)).is_complete


def test_every_second_what_was_recorded_is_in_the_file(tmp_path: Path) -> None:
    table, recorder = recorded(tmp_path / "log")
    table.submit("a", [1, 2, 3], 3)
    recorder.write()
    table.now += 1.0
    table.run()
    recorder.write()
    entries = list(EventLog(tmp_path / "log"))
    assert sum(len(done.tokens) for done in results(tmp_path / "log")) == 3
    assert not replay(EventLog(tmp_path / "log")).is_complete
    recorder.close()
    assert list(EventLog(tmp_path / "log")) == entries


def test_a_file_that_exists_is_never_written_over(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("precious")
    with pytest.raises(FileExistsError):
        Recorder(Settings(), tmp_path / "log")
    assert (tmp_path / "log").read_text() == "precious"


def test_a_log_belongs_to_its_owner_alone(tmp_path: Path) -> None:
    recorded(tmp_path / "log")[1].close()
    assert stat.S_IMODE((tmp_path / "log").stat().st_mode) == 0o600


def test_a_full_disk_ends_the_recording_and_not_the_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    table, recorder = recorded(tmp_path / "log")

    def fail(self: LogWriter, entry: Entry) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(LogWriter, "write", fail)
    table.submit("a", [1, 2, 3], 3)
    recorder.write()
    assert "the recording ends here" in caplog.text
    assert "No space left on device" in caplog.text
    table.run()
    recorder.write()
    recorder.close()
    assert len(table.tokens["a"]) == 3


def test_on_a_full_disk_too_a_log_of_nothing_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, recorder = recorded(tmp_path / "log")

    close = LogWriter.close

    def fail(writer: LogWriter) -> None:
        close(writer)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(LogWriter, "close", fail)
    recorder.discard()
    assert not (tmp_path / "log").exists()


def test_a_request_that_is_refused_for_its_id_leaves_no_trace(tmp_path: Path) -> None:
    table, recorder = recorded(tmp_path / "log")
    table.submit("a", [1, 2, 3], 4)
    with pytest.raises(ValueError, match="live already"):
        recorder.submit(RequestSpec(id="a", prompt=(9,)), table.now)
    table.run()
    recorder.close()
    assert len(submissions(tmp_path / "log")) == 1
    assert replay(EventLog(tmp_path / "log")).difference is None


def test_pseudonyms_remember_live_requests_only() -> None:
    names = Pseudonyms(b"a secret of sixteen")
    for number in range(300):
        names.spec(RequestSpec(id=str(number), prompt=(1, 2)))
    names.forget({"7": None, "8": None})
    assert len(names) == 2


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "is not a log"),
        (b"GGUF something", "is not a log"),
        (gzip.compress(b"[1, 2]\n", mtime=0), "is not a log"),
        (gzip.compress(b"[" * 100_000 + b"\n", mtime=0), "is not a log"),
        (
            gzip.compress(b'{"octavo_log":1,"has_tokens":false,"settings":[]}\n', mtime=0),
            "Settings stands as its fields",
        ),
        (gzip.compress(b'{"octavo_log": 2}\n', mtime=0), "has format 2; this version reads 1"),
        (
            gzip.compress(b'{"octavo_log":1,"has_tokens":false,"settings":{"colour":1}}\n', mtime=0),
            "Settings has no field colour",
        ),
        (
            gzip.compress(b'{"octavo_log":1,"has_tokens":false,"settings":{"max_chunk":0}}\n', mtime=0),
            "max_chunk must be",
        ),
    ],
)
def test_a_file_that_is_no_log_is_refused_in_a_sentence(tmp_path: Path, content: bytes, sentence: str) -> None:
    (tmp_path / "log").write_bytes(content)
    with pytest.raises(LogError, match=sentence):
        EventLog(tmp_path / "log")


@pytest.mark.parametrize(
    "line",
    [
        "x",
        '["fly",1.0]',
        '["apply",1.0,"Meteor",{}]',
        '["apply",1.0,"StepDone",{"step":1}]',
        '["submit",1.0,{"id":"a","colour":1,"prompt":""}]',
        '["apply",1.0,"StepDone",[1]]',
        '["submit",1.0,null]',
        '["submit",1.0,{"id":"a","prompt":"","sampling":1}]',
        '["plan",null,"w",null]',
        '["plan","noon","w",null]',
        "[]",
        "7",
        "[" * 100_000,
    ],
)
def test_a_line_that_is_no_entry_is_named(tmp_path: Path, line: str) -> None:
    header = '{"octavo_log":1,"has_tokens":false,"settings":{}}'
    (tmp_path / "log").write_bytes(gzip.compress(f"{header}\n{line}\n".encode()))
    with pytest.raises(LogError, match="line 2 is no entry of a log"):
        list(EventLog(tmp_path / "log"))


def test_what_unpacks_to_a_line_without_end_is_refused_before_it_fills_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_log, "LONGEST_LINE", 1 << 21)
    (tmp_path / "log").write_bytes(gzip.compress(b" " * (100 << 20)))
    tracemalloc.start()
    try:
        with pytest.raises(LogError, match="has a line of more than 2097152 bytes"):
            EventLog(tmp_path / "log")
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


def rewritten(path: Path, change: Any) -> Path:
    """The log with its entries changed by hand: `change` gets the list of lines."""
    lines = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
    change(lines)
    changed = path.with_suffix(".changed")
    changed.write_bytes(gzip.compress("".join(json.dumps(line) + "\n" for line in lines).encode()))
    return changed


def test_a_replay_names_the_first_plan_that_differs(tmp_path: Path) -> None:
    table, recorder = recorded(tmp_path / "log", settings=Settings(max_step_tokens=16))
    for name in "abc":
        table.submit(name, [1, 2, 3], 4)
    table.run()
    recorder.close()

    def forget_a_submission(lines: list[Any]) -> None:
        del lines[next(i for i, line in enumerate(lines) if i and line[0] == "submit")]

    def other_settings(lines: list[Any]) -> None:
        lines[0]["settings"] = {"max_step_tokens": 3}

    for change in (forget_a_submission, other_settings):
        difference = replay(EventLog(rewritten(tmp_path / "log", change))).difference
        assert difference is not None
        assert "worker w was given a plan with digest" in difference


def test_a_call_that_fails_in_the_replay_is_a_difference(tmp_path: Path) -> None:
    table, recorder = recorded(tmp_path / "log")
    table.submit("a", [1, 2, 3], 4)
    recorder.close()

    def drain_nobody(lines: list[Any]) -> None:
        lines.append(["apply", 0.0, "Drain", {"worker": "nobody"}])

    difference = replay(EventLog(rewritten(tmp_path / "log", drain_nobody))).difference
    assert difference == "call 3 (apply) raises KeyError('nobody')"


def test_the_digest_of_a_plan_hides_tokens_unless_they_are_recorded() -> None:
    table = TableTop(w=PaperWorker())
    table.submit("a", [1, 2, 3], 4)
    plan = table.core.plan("w", 0.0)
    assert plan is not None
    other = replace(plan, new_slots=[replace(new, tokens=(3, 2, 1)) for new in plan.new_slots])
    assert plan_digest(plan, has_tokens=False) == plan_digest(other, has_tokens=False)
    assert plan_digest(plan, has_tokens=True) != plan_digest(other, has_tokens=True)
    longer = replace(plan, new_slots=[replace(new, tokens=(3, 2, 1, 0)) for new in plan.new_slots])
    assert plan_digest(plan, has_tokens=False) != plan_digest(longer, has_tokens=False)
