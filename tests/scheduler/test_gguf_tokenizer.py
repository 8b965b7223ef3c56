"""Vocabularies of GGUF files, against transformers' own reading of them."""

from collections.abc import Iterator
from pathlib import Path

import gguf
import numpy as np
import pytest
from octavo_scheduler.errors import StartError
from octavo_scheduler.model import ServedModel, load_model
from octavo_scheduler.tokens import Detokenizer

SENTENCE = "the page table of a server holds tokens and pages in memory while streams are answered"
WORDS = tuple(SENTENCE.split(" "))
TEXTS = ["the page table in memory", "  two  spaces and a tab\t", "你好 page é", "THE END 123", "", "\n\n the\n"]


def pieces() -> Iterator[tuple[str, float, int]]:
    """(text, score, type) of a small SentencePiece vocabulary whose every piece can be reached by merges."""
    yield from [("<unk>", 0.0, 2), ("<s>", 0.0, 3), ("</s>", 0.0, 3)]
    yield from ((f"<0x{byte:02X}>", 0.0, 6) for byte in range(256))
    starts = sorted({f"▁{word}"[:end] for word in WORDS for end in range(2, len(word) + 2)}, key=lambda p: (len(p), p))
    ends = sorted({word[-end:] for word in WORDS for end in (2, 3) if len(word) > 3} - set(starts))
    for rank, piece in enumerate([*ends, *starts]):
        yield piece, -float(rank), 1
    for rank, letter in enumerate("▁abcdefghijklmnopqrstuvwxyz"):
        yield letter, -1000.0 - rank, 1


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("spm") / "spm.gguf"
    texts, scores, kinds = zip(*pieces(), strict=True)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(1)
    writer.add_context_length(256)
    writer.add_embedding_length(8)
    writer.add_feed_forward_length(16)
    writer.add_head_count(1)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(texts)
    writer.add_token_scores(scores)
    writer.add_token_types(kinds)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_tensor("token_embd.weight", np.zeros((len(texts), 8), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture(scope="module")
def spm(path: Path) -> ServedModel:
    return load_model(path)


@pytest.mark.filterwarnings("ignore")
def test_a_sentence_piece_vocabulary_equals_that_of_transformers(path: Path, spm: ServedModel) -> None:
    from transformers import AutoTokenizer

    theirs = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    for text in [*TEXTS, SENTENCE]:
        expected = theirs.encode(text, add_special_tokens=False)
        assert spm.vocabulary.encode(text) == [1, *expected], text
        assert spm.vocabulary.decode(expected) == theirs.decode(expected)
    assert len(spm.vocabulary.encode(SENTENCE)) <= 2 * len(WORDS), "merges are used"


@pytest.mark.parametrize("text", [text for text in TEXTS if text])
def test_its_text_streams_as_it_decodes(spm: ServedModel, text: str) -> None:
    ids = spm.vocabulary.encode(text)
    detokenizer = Detokenizer(spm.vocabulary)
    assert "".join(detokenizer.push(token) for token in ids) + detokenizer.flush() == spm.vocabulary.decode(ids)


def test_a_vocabulary_of_another_kind_says_which_are_known(path: Path, tmp_path: Path) -> None:
    entry = b"tokenizer.ggml.model\x08\0\0\0\x05\0\0\0\0\0\0\0"
    changed = path.read_bytes().replace(entry + b"llama", entry + b"other")
    (tmp_path / "other.gguf").write_bytes(changed)
    with pytest.raises(StartError, match="has a vocabulary of kind other/default; known are llama, and gpt2 with"):
        load_model(tmp_path / "other.gguf")
