"""A program as people write it for another engine: only the import is ours. `offline.py MODEL FOLDER`."""

import sys

import torch
from octavo_client import LLM, SamplingParams


class CustomAttention:
    """Softmax attention, head by head."""

    def forward(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, position: torch.Tensor
    ) -> torch.Tensor:
        shared = query.shape[1] // key.shape[1]
        key, value = key.repeat_interleave(shared, 1), value.repeat_interleave(shared, 1)
        scores = torch.einsum("thd,nhd->htn", query, key) * query.shape[-1] ** -0.5
        hidden = torch.arange(key.shape[0]) > position[:, None]
        return torch.einsum("htn,nhd->thd", scores.masked_fill(hidden, -torch.inf).softmax(-1), value)


if __name__ == "__main__":
    model, folder = sys.argv[1:]
    llm = LLM(
        model=model,
        dtype="bfloat16",
        gpu_memory_utilization=0.9,
        max_num_seqs=100,
        tensor_parallel_size=2,
        max_num_batched_tokens=4096,
        enable_chunked_prefill=True,
        chunked_prefill_token_size=512,
        block_size=32,
        swap_space=4,
        load_in_low_bit="fp8",
        attention_class=CustomAttention,
    )
    prompts = ["The page table maps", "the user and the system"]
    results = llm.generate(prompts, SamplingParams(temperature=0.8, top_p=0.95, seed=1))
    print([len(result.outputs[0].token_ids) for result in results], repr(results[0].outputs[0].text))
    llm.llm_engine.stat_logger.print_stats()
    llm.shutdown()

    plain = LLM(model=model, dtype="bfloat16", seed=3)
    before = plain.generate(prompts, SamplingParams(temperature=0.8, top_p=0.95))
    plain.save_engine(folder)
    plain.shutdown()
    with LLM.load(folder, seed=3) as loaded:
        after = loaded.generate(prompts, sampling_params=SamplingParams(temperature=0.8, top_p=0.95), use_tqdm=True)
    same = [one.outputs == other.outputs for one, other in zip(before, after, strict=True)]
    print("the same from the engine folder:", same)
