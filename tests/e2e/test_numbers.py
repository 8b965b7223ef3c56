"""A model that has no number for one of its tokens, through real processes."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from octavo_client import AsyncClient, SamplingParams
from octavo_client.errors import ServerFault

from tests.e2e.test_streams import assert_nothing_is_left
from tests.kernels.implementations import WHOLE
from tests.processes import serving
from tests.worker.test_numbers import BAD, with_a_bad_token

PARAMS = SamplingParams(max_tokens=12, temperature=0.0, ignore_eos=True)
SENTENCE = r"the model's logits for this request are not numbers \(NaN or infinite\)"


@pytest.mark.parametrize("kernels", WHOLE)
async def test_NU01_a_request_without_numbers_is_an_error_and_its_neighbours_get_their_answers(
    kernels: str, tmp_path: Path
) -> None:
    flags = ("--page-size=4", "--pages=80", "--host-pages=8", "--dtype=float32", "--threads=1", f"--kernels={kernels}")
    good = [[number + 3, *range(40, 52)] for number in range(6)]
    bad = [*range(40, 52), BAD, 5]
    with serving(with_a_bad_token(tmp_path / "m"), worker=flags) as address:
        async with AsyncClient(address) as client:

            async def answers() -> list[list[int]]:
                outputs = await asyncio.gather(*(client.generate(prompt, PARAMS) for prompt in good))
                return [output.outputs[0].token_ids for output in outputs]

            async def fail(**changes: int) -> None:
                params = replace(PARAMS, **changes)  # type: ignore[arg-type]
                with pytest.raises(ServerFault, match=SENTENCE):
                    await client.generate(bad, params)

            truth = await answers()
            together = await asyncio.gather(answers(), fail(), fail(n=3), fail(max_tokens=1))
            assert together[0] == truth
            assert await answers() == truth
            await assert_nothing_is_left(client)
