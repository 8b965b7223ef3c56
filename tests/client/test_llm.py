import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from octavo_client import LLM, SamplingParams, errors
from octavo_client.llm import MOST_CALLS_AT_ONCE, _all
from octavo_client.local import Programs
from octavo_client.results import RequestOutput, Timings, Usage

from tests.client.programs import SCHEDULER, WORKER
from tests.patience import PATIENCE


@pytest.fixture(scope="module")
def llm(programs: Programs) -> Iterator[LLM]:
    with LLM("model", programs=programs) as running:
        yield running


def texts(outputs: list[Any]) -> list[str]:
    return [output.outputs[0].text for output in outputs]


def test_results_are_in_the_order_of_the_prompts_whatever_their_length(llm: LLM) -> None:
    prompts = [" ".join([f"p{number}"] * ((number * 37) % 50 + 1)) for number in range(300)]
    outputs = llm.generate(prompts, SamplingParams(max_tokens=64))
    assert [output.prompt for output in outputs] == prompts
    assert texts(outputs) == [f"{prompt.upper()} " for prompt in prompts]


@pytest.mark.parametrize(
    ("prompts", "expected"),
    [
        ("one", ["ONE "]),
        (["one", "two"], ["ONE ", "TWO "]),
        ([[1, 2], [3]], ["X XX ", "XXX "]),
        ([{"prompt_token_ids": [2]}, {"prompt": "two"}], ["XX ", "TWO "]),
        ([], []),
    ],
)
def test_every_shape_of_prompts_is_answered(llm: LLM, prompts: Any, expected: list[str]) -> None:
    assert texts(llm.generate(prompts)) == expected


def test_several_answers_to_each_prompt_lie_side_by_side(llm: LLM) -> None:
    outputs = llm.generate(["one two", "three four"], SamplingParams(n=2))
    assert [[answer.text for answer in output.outputs] for output in outputs] == [
        ["ONE TWO ", "TWO "],
        ["THREE FOUR ", "FOUR "],
    ]


def test_one_conversation_or_many_are_answered(llm: LLM) -> None:
    hello, bye = [{"role": "user", "content": "hello"}], [{"role": "user", "content": "bye"}]
    assert texts(llm.chat(hello)) == ["HELLO "]
    assert texts(llm.chat([hello, bye])) == ["HELLO ", "BYE "]


def test_params_may_be_given_for_each_prompt_but_then_for_every_one(llm: LLM) -> None:
    assert len(llm.generate(["a", "b"], [SamplingParams(), SamplingParams(max_tokens=1)])) == 2
    with pytest.raises(errors.InvalidRequest, match="2 prompts but 1 sampling parameters"):
        llm.generate(["a", "b"], [SamplingParams()])


def test_the_first_error_is_raised_and_ends_the_other_requests(llm: LLM) -> None:
    with pytest.raises(errors.InvalidRequest, match="too long"):
        llm.generate([*["hang"] * 300, "fail INVALID_ARGUMENT too long"][::-1])
    assert texts(llm.generate("one")) == ["ONE "]


async def test_no_more_calls_run_at_once_than_the_bound_allows() -> None:
    running, peak = 0, 0
    output = RequestOutput("", "", None, [], Usage(0, 0, 0), Timings(0, 0, 0, 0))

    async def call() -> RequestOutput:
        nonlocal running, peak
        running += 1
        peak = max(peak, running)
        await asyncio.sleep(0)
        running -= 1
        return output

    assert len(await _all([call] * (2 * MOST_CALLS_AT_ONCE))) == 2 * MOST_CALLS_AT_ONCE
    assert peak == MOST_CALLS_AT_ONCE


def test_a_setting_it_does_not_have_is_an_error_that_names_it() -> None:
    with pytest.raises(TypeError, match="tensor_paralel_size"):
        LLM("model", tensor_paralel_size=2)  # type: ignore[call-arg]


def test_a_seed_gives_each_request_without_one_its_own(programs: Programs) -> None:
    with LLM("model", seed=7, programs=programs) as llm:
        given = llm._params_for_each(3, [SamplingParams(), SamplingParams(seed=99), SamplingParams()])
        assert [params.seed for params in given] == [7, 99, 8]


def test_settings_become_flags_of_the_two_programs(tmp_path: Any) -> None:
    once_both_have_written = "while not os.path.exists(sys.argv[2]): time.sleep(0.01)"
    record = (
        f"import os, sys, time\nopen(sys.argv[1], 'w').write(' '.join(sys.argv[3:]))\n{once_both_have_written}\n"
        "sys.exit('as planned')"
    )
    wait = "import os, sys; open(sys.argv[1], 'w').write(' '.join(sys.argv[2:])); os.read(int(sys.argv[-1]), 1)"
    scheduler = (sys.executable, "-c", wait, str(tmp_path / "scheduler"))
    worker = (sys.executable, "-c", record, str(tmp_path / "worker"), str(tmp_path / "scheduler"))
    with pytest.raises(errors.StartFailed, match="as planned"):
        LLM(
            "model",
            block_size=32,
            max_num_seqs=8,
            max_num_batched_tokens=128,
            max_model_len=1000,
            swap_space=0.5,
            dtype="float32",
            weights="bfloat16",
            kv_cache_dtype="int8",
            threads=3,
            tensor_parallel_size=2,
            preempt=None,
            gpu_memory_utilization=0.5,
            num_workers=1,
            kernels="reference",
            ops="plain",
            programs=Programs(scheduler, worker),
        )
    flags = (tmp_path / "worker").read_text()
    for words in (
        "--page-size 32",
        "--max-slots 8",
        "--max-step-tokens 128",
        "--swap-space 512MiB",
        "--dtype float32",
        "--weights bfloat16",
        "--kv-dtype int8",
        "--threads 3",
        "--tensor-parallel-size 2",
        "--gpu-memory-utilization 0.5",
        "--kernels reference",
        "--ops plain",
    ):
        assert words in flags
    assert "--kv-cache-memory" not in flags
    for program in ("scheduler", "worker"):
        assert "--max-context 1000" in (tmp_path / program).read_text()


def test_shutdown_ends_the_processes_and_may_come_twice() -> None:
    llm = LLM("model", programs=Programs(SCHEDULER, WORKER))
    children = llm._server.children
    llm.shutdown()
    assert all(child.exit_code() is not None for child in children)
    llm.shutdown()


FORGETFUL = """
from octavo_client import LLM
from octavo_client.local import Programs
llm = LLM("model", programs=Programs({scheduler!r}, {worker!r}))
print(llm.generate("one")[0].outputs[0].text)
print(*(child.pid for child in llm._server.children))
"""


def test_a_program_that_forgets_the_shutdown_ends_quietly_and_its_processes_with_it() -> None:
    script = FORGETFUL.format(scheduler=SCHEDULER, worker=WORKER)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, timeout=PATIENCE
    )
    assert (done.returncode, done.stderr) == (0, "")
    text, pids = done.stdout.splitlines()
    assert text == "ONE "
    assert [pid for pid in pids.split() if Path("/proc", pid).exists()] == []
