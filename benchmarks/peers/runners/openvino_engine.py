"""OpenVINO GenAI's continuous batching. Argument: a GGUF file."""

import sys

from benchmarks.peers.runners.protocol import Request, serve, take_stdout, timed

CACHE_GIB = 2
MAX_STEP_TOKENS = 512
MAX_SEQUENCES = 64


def main() -> None:
    answers = take_stdout()
    import numpy as np
    import openvino
    import openvino_genai as genai

    scheduling = genai.SchedulerConfig()
    scheduling.cache_size = CACHE_GIB
    scheduling.max_num_batched_tokens = MAX_STEP_TOKENS
    scheduling.max_num_seqs = MAX_SEQUENCES
    scheduling.dynamic_split_fuse = True
    scheduling.enable_prefix_caching = False
    pipeline = genai.ContinuousBatchingPipeline(sys.argv[1], scheduling, "CPU", {})

    def greedy(num_tokens: int) -> object:
        config = genai.GenerationConfig()
        config.do_sample, config.ignore_eos = False, True
        config.min_new_tokens = config.max_new_tokens = num_tokens
        return config

    def generate(work: list[Request]) -> list[list[int]]:
        prompts = [openvino.Tensor(np.array([prompt], np.int64)) for prompt, _ in work]
        results = pipeline.generate(prompts, [greedy(num_tokens) for _, num_tokens in work])
        return [list(result.m_generation_ids[0]) for result in results]

    serve(answers, {"engine": "OpenVINO GenAI", "version": genai.__version__}, timed(generate))


if __name__ == "__main__":
    main()
