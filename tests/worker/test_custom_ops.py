"""Ops of somebody's own package: found by name, run inside steps, told to the scheduler."""

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from octavo_kernels.choice import pick
from octavo_kernels.custom import OF_A_STEP, customise
from octavo_kernels.ops import Ops
from octavo_worker.config import WorkerConfig
from octavo_worker.errors import ConfigError, PlanRefused
from octavo_worker.runner import Runner, build_runner

from tests.doubles.tiny_model import make_tiny_model
from tests.kernels.empty import empty_step
from tests.kernels.implementations import WHOLE
from tests.pools import poison
from tests.worker.plans import Driver
from tests.worker.test_families import MISTRAL, family
from tests.worker.test_model import PROMPT, logits_after

Make = Callable[..., Runner]
PACKAGE = Path(__file__).parents[1] / "doubles" / "custom_ops"
"""A folder as pip would have filled it."""


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(PACKAGE)


def announce(folder: Path, code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package of one module, `mine`, with an entry point of that name."""
    (folder / "mine-2.0.dist-info").mkdir(parents=True)
    (folder / "mine-2.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 2.0\n")
    (folder / "mine-2.0.dist-info" / "entry_points.txt").write_text("[octavo.ops]\nmine = mine_of_test:ops\n")
    (folder / "mine_of_test.py").write_text(code)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "mine_of_test", raising=False)


@pytest.mark.parametrize("chunk", [7, 90])
def test_attention_over_pages_of_its_own_order_gives_the_ids_of_ours(
    make_runner: Make, installed: None, chunk: int
) -> None:
    truth, runner = make_runner(), make_runner(ops="plain")
    poison(runner.cache.pool)
    assert Driver(runner).generate(PROMPT, 20, chunk=chunk) == Driver(truth).generate(PROMPT, 20)


def test_it_is_given_the_window_of_its_layer(make_runner: Make, installed: None, tmp_path: Path) -> None:
    path = family(tmp_path, MISTRAL | {"sliding_window": 11})
    ours, own = make_runner(model=path), make_runner(model=path, ops="plain")
    assert Driver(own).generate(PROMPT, 20) == Driver(ours).generate(PROMPT, 20)


def test_positions_may_be_replaced_alone(make_runner: Make, installed: None, tmp_path: Path) -> None:
    """Without positions one layer cannot tell in which order it saw what."""
    path = make_tiny_model(tmp_path, layers=1)
    ours, own = make_runner(model=path), make_runner(model=path, ops="without_positions")
    mixed = [*PROMPT[-2::-1], PROMPT[-1]]
    assert not logits_after(ours, PROMPT).allclose(logits_after(make_runner(model=path), mixed), atol=0.1)
    again = make_runner(model=path, ops="without_positions")
    assert logits_after(own, PROMPT).allclose(logits_after(again, mixed), atol=1e-4)


def test_hello_tells_of_them_and_the_digest_of_answers_covers_them(make_runner: Make, installed: None) -> None:
    plain, own, same, other = (make_runner(ops=each).hello() for each in (None, "plain", "plain", "without_positions"))
    assert own.kernels == f"{plain.kernels}+plain"
    assert own.geometry.layout == "example.plain"
    assert own.weights_digest == same.weights_digest
    assert len({hello.weights_digest for hello in (plain, own, other)}) == 3


ATTENTION = """
import torch
class Mine:
    def forward(self, query, key, value, position, *, window=10**9):
        shared = query.shape[1] // key.shape[1]
        key, value = (each.repeat_interleave(shared, 1) for each in (key, value))
        scores = torch.einsum("thd,nhd->htn", query, key) * query.shape[-1] ** -0.5
        at = torch.arange(key.shape[0])
        hidden = (at > position[:, None]) | (at <= position[:, None] - window)
        return torch.einsum("htn,nhd->thd", scores.masked_fill(hidden, -torch.inf).softmax(-1), value)
"""


@pytest.mark.parametrize("kernels", WHOLE)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_class_in_a_file_takes_the_place_of_attention(
    make_runner: Make, kernels: str, dtype: str, tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text(ATTENTION)
    settings = {"kernels": kernels, "dtype": dtype, "model": family(tmp_path, MISTRAL | {"sliding_window": 11})}
    ours, own = make_runner(**settings), make_runner(ops=f"{tmp_path}/mine.py:Mine", **settings)
    poison(own.cache.pool)
    bound = 1e-4 if dtype == "float32" else 0.25
    assert logits_after(own, PROMPT).allclose(logits_after(ours, PROMPT), atol=bound)
    assert own.hello().kernels == f"{ours.hello().kernels}+Mine"


def test_a_file_that_has_changed_is_another_model(make_runner: Make, tmp_path: Path) -> None:
    digests = set()
    for number, code in enumerate((ATTENTION, ATTENTION + "# of today", ATTENTION)):
        path = tmp_path / str(number) / "mine.py"
        path.parent.mkdir()
        path.write_text(code)
        digests.add(make_runner(ops=f"{path}:Mine").hello().weights_digest)
    assert len(digests) == 2


@pytest.mark.parametrize(
    ("name", "code", "sentence"),
    [
        ("no.py:Mine", "", "--ops: there is no file .*/no.py"),
        ("mine.py:Other", ATTENTION, "failed: AttributeError"),
        ("mine.py:Mine", "class Mine(", "failed: SyntaxError"),
    ],
)
def test_a_file_without_it_is_one_sentence(name: str, code: str, sentence: str, tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(code)
    with pytest.raises(ConfigError, match=sentence):
        build_runner(WorkerConfig(model=tiny, ops=f"{tmp_path}/{name}", pages=4))


def test_a_class_whose_result_has_another_shape_fails_the_step_with_both(make_runner: Make, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("class Mine:\n    def forward(self, query, *others): return query[0]")
    with pytest.raises(PlanRefused, match=r"gave \[4, 16\] instead of \[\d+, 4, 16\]"):
        Driver(make_runner(ops=f"{tmp_path}/mine.py:Mine")).generate(PROMPT, 3)


def test_a_step_that_is_recorded_runs_them_each_time_and_not_when_it_is_recorded(
    make_runner: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = """
from dataclasses import replace
calls = []
def ops(ops):
    def attention(*arguments, **named):
        calls.append(int(arguments[3].num_tokens))
        ops.attention(*arguments, **named)
    return replace(ops, attention=attention)
"""
    announce(tmp_path, code, monkeypatch)
    runner = make_runner(ops="mine")
    calls = sys.modules["mine_of_test"].calls
    assert calls == []
    assert Driver(runner).generate(PROMPT, 3) == Driver(make_runner()).generate(PROMPT, 3)
    assert calls == [90, 90, 1, 1, 1, 1]  # two layers


@pytest.mark.parametrize("name", WHOLE)
def test_a_rank_of_a_group_runs_them_between_exchanges(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = """
from dataclasses import replace
log = []
def ops(ops):
    return replace(ops, silu_mul=lambda rows, gate_up, out: log.append(int(rows[0])))
"""
    announce(tmp_path, code, monkeypatch)
    ours = customise(pick("cpu", name, dtype="float32"), "mine")
    log = sys.modules["mine_of_test"].log
    ops = replace(ours, all_reduce=lambda rows, x: ours.call(lambda: log.append("exchange")))
    rows = ops.share(np.ones(1, np.int32))
    step = empty_step()

    def body() -> None:
        ops.silu_mul(rows, rows, rows)
        ops.all_reduce(rows, rows)
        ops.silu_mul(rows, rows, rows)

    replay = ops.capture(step, body)
    assert log == []
    replay()
    rows[0] = 2
    replay()
    assert log == [1, "exchange", 1, 2, "exchange", 2]


def test_of_a_step_are_all_fields_that_a_model_calls() -> None:
    memory = {"new_buffer", "share", "changed", "copied", "fetch", "new_pool", "new_host_pool", "pack", "unpack"}
    between = {"capture", "call", "move_pages", "fence", "swap_seconds", "zero_pages"}
    of_ranks = {"all_reduce", "all_gather", "on_rows"}
    functions = {name for name in Ops.__slots__ if callable(getattr(pick("cpu", "reference"), name))}
    assert functions == {*OF_A_STEP} | memory | between | of_ranks


def test_a_name_that_no_package_has_is_one_sentence_that_lists_those_there_are(tiny: Path, installed: None) -> None:
    with pytest.raises(
        ConfigError, match=r"^--ops: no package has ops 'fast'; there are plain, without_positions\. FILE\.py:NAME"
    ):
        build_runner(WorkerConfig(model=tiny, ops="fast", pages=4))


def test_where_there_is_no_package_the_sentence_says_so(tiny: Path) -> None:
    with pytest.raises(ConfigError, match="no package has ops 'plain'; there are none"):
        build_runner(WorkerConfig(model=tiny, ops="plain", pages=4))


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        ("import nothing_of_the_kind", "failed: ModuleNotFoundError: No module named 'nothing_of_the_kind'"),
        ("def ops(ops): return None", "gave NoneType, not Ops"),
        ("def ops(ops): return ops.fast()", "failed: AttributeError"),
    ],
)
def test_a_package_that_fails_is_one_sentence(
    code: str, sentence: str, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    announce(tmp_path, code, monkeypatch)
    with pytest.raises(ConfigError, match=rf"--ops: ops 'mine' \(mine_of_test:ops\) {sentence}"):
        build_runner(WorkerConfig(model=tiny, ops="mine", pages=4))


def test_an_op_that_fails_in_a_step_fails_that_step_and_the_next_one_runs(
    make_runner: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = """
from dataclasses import replace
failures = [1]
def ops(ops):
    def attention(*arguments, **named):
        if failures and failures.pop():
            raise ArithmeticError("not today")
        ops.attention(*arguments, **named)
    return replace(ops, attention=attention)
"""
    announce(tmp_path, code, monkeypatch)
    runner = make_runner(ops="mine")
    with pytest.raises(PlanRefused, match="ArithmeticError: not today"):
        Driver(runner).generate(PROMPT, 3)
    runner.reset()
    assert Driver(runner).generate(PROMPT, 3) == Driver(make_runner()).generate(PROMPT, 3)
