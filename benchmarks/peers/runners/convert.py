"""A GGUF file as a folder of bfloat16 safetensors. Arguments: the file, the folder."""

import json
import sys
from pathlib import Path


def main() -> None:
    import torch
    from safetensors.torch import save_file
    from transformers import AutoModelForCausalLM, AutoTokenizer

    source, folder = Path(sys.argv[1]), Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    model = AutoModelForCausalLM.from_pretrained(source.parent, gguf_file=source.name, dtype=torch.float32)
    config = {**model.config.to_dict(), "dtype": "bfloat16", "architectures": [type(model).__name__]}
    config.pop("quantization_config", None)
    tied = {"lm_head.weight"} if config.get("tie_word_embeddings") else set()
    tensors = {name: tensor.bfloat16().contiguous() for name, tensor in model.state_dict().items() if name not in tied}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name).save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps(config, indent=2))


if __name__ == "__main__":
    main()
