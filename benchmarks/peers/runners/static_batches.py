"""Padded static batches, as before continuous batching: transformers' generate. Arguments: a model folder, a batch's size.

A batch is padded to its longest prompt and goes on until its longest answer is done; the next one begins then.
"""

import sys

from benchmarks.peers.runners.protocol import Request, serve, take_stdout, timed


def main() -> None:
    answers = take_stdout()
    import torch
    import transformers

    size = int(sys.argv[2])
    model = transformers.AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.bfloat16).eval()
    padding = int(model.config.eos_token_id)

    def batch(work: list[Request]) -> list[list[int]]:
        width, longest = max(len(prompt) for prompt, _ in work), max(n for _, n in work)
        ids = torch.tensor([[padding] * (width - len(prompt)) + prompt for prompt, _ in work])
        mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt, _ in work])
        made = model.generate(
            input_ids=ids,
            attention_mask=mask,
            min_new_tokens=longest,
            max_new_tokens=longest,
            do_sample=False,
            pad_token_id=padding,
        )
        return [row[width : width + n].tolist() for row, (_, n) in zip(made, work, strict=True)]

    def generate(work: list[Request]) -> list[list[int]]:
        return [ids for first in range(0, len(work), size) for ids in batch(work[first : first + size])]

    serve(answers, {"engine": "transformers, static batches", "version": transformers.__version__}, timed(generate))


if __name__ == "__main__":
    main()
