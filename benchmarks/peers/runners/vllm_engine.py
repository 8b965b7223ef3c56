"""vLLM on the CPU. Argument: a model folder."""

import os
import sys

from benchmarks.peers.runners.protocol import Request, serve, take_stdout, timed

MAX_CONTEXT = 4096
MAX_SEQUENCES = 64
ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "4",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
}


def main() -> None:
    answers = take_stdout()
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    import vllm

    llm = vllm.LLM(
        model=sys.argv[1],
        dtype="bfloat16",
        max_model_len=MAX_CONTEXT,
        max_num_seqs=MAX_SEQUENCES,
        enable_prefix_caching=False,
    )

    def generate(work: list[Request]) -> list[list[int]]:
        prompts = [{"prompt_token_ids": prompt} for prompt, _ in work]
        params = [vllm.SamplingParams(temperature=0, max_tokens=n, ignore_eos=True) for _, n in work]
        return [list(output.outputs[0].token_ids) for output in llm.generate(prompts, params, use_tqdm=False)]

    serve(answers, {"engine": "vLLM", "version": vllm.__version__}, timed(generate))


if __name__ == "__main__":  # vLLM starts its engine as a child that imports this module again
    main()
