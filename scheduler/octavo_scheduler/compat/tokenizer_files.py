"""The served tokenizer as files that other programs read, made of what the scheduler itself works with.

So a model from a GGUF file has them too, and two schedulers of one model hand out the same bytes.
"""

import io
import json
import zipfile

from octavo_scheduler.model import ServedModel

FIRST_DAY_OF_ZIP = (1980, 1, 1, 0, 0, 0)


def tokenizer_archive(model: ServedModel) -> bytes:
    """A zip of tokenizer.json and tokenizer_config.json, the latter with chat template and special tokens."""
    config: dict[str, object] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": model.max_context,
        "clean_up_tokenization_spaces": False,
    }
    if model.template is not None:
        config |= {**model.template.special_tokens, "chat_template": model.template.source}
    files = {
        "tokenizer.json": model.vocabulary.tokenizer.to_str(),
        "tokenizer_config.json": json.dumps(config, indent=2),
    }
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(zipfile.ZipInfo(name, FIRST_DAY_OF_ZIP), text, zipfile.ZIP_DEFLATED)
    return data.getvalue()
