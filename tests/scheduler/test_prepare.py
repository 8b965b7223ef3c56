"""The scheduler's half of an engine folder: a model served from it is the model it was made from."""

import json
from pathlib import Path

import pytest
from octavo_scheduler.model import load_model
from octavo_scheduler.prepare import main

from tests.doubles.tiny_model import make_tiny_model
from tests.models import smollm2

TEXTS = ["the page table in memory", "  two  spaces and a tab\t", "你好 page é", "THE END 123", "", "<|im_end|> 1 <s>"]
CHAT = [("system", "be brief"), ("user", "who <|im_end|> are you?"), ("assistant", "nobody"), ("user", "oh")]


def prepared(model: Path, folder: Path, config: dict[str, object]) -> Path:
    """As if the worker's half were there."""
    folder.mkdir()
    assert main([str(model), str(folder)]) == 0
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def assert_same(model: Path, folder: Path) -> None:
    truth, ours = load_model(model), load_model(folder)
    for text in TEXTS:
        assert ours.vocabulary.encode(text) == truth.vocabulary.encode(text)
    ids = list(range(0, truth.vocab_size, 97))
    assert ours.vocabulary.decode(ids) == truth.vocabulary.decode(ids)
    assert ours.vocabulary.control_ids == truth.vocabulary.control_ids
    assert truth.template is not None
    assert ours.template is not None
    assert ours.vocabulary.encode_chat(ours.template, CHAT) == truth.vocabulary.encode_chat(truth.template, CHAT)
    ours_rest = (ours.vocab_size, ours.max_context, ours.end_token_ids, ours.defaults)
    assert ours_rest == (truth.vocab_size, truth.max_context, truth.end_token_ids, truth.defaults)
    assert ours.name == folder.name


def test_a_folder_keeps_its_files(tmp_path: Path) -> None:
    model = make_tiny_model(tmp_path / "model")
    generation = {"eos_token_id": [2, 0], "do_sample": True, "temperature": 0.6, "top_p": 0.9}
    (model / "generation_config.json").write_text(json.dumps(generation))
    (model / "chat_template.jinja").write_text("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}")
    config = json.loads((model / "config.json").read_text())
    folder = prepared(model, tmp_path / "engine", config)
    assert_same(model, folder)
    assert load_model(folder).defaults == {"temperature": 0.6, "top_p": 0.9}
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json", "chat_template.jinja"):
        assert (folder / name).read_bytes() == (model / name).read_bytes()


@pytest.mark.model
def test_the_vocabulary_of_a_gguf_file_becomes_a_tokenizer(tmp_path: Path) -> None:
    config: dict[str, object] = {"vocab_size": 49_152, "max_position_embeddings": 8192}
    assert_same(smollm2(), prepared(smollm2(), tmp_path / "engine", config))


def test_a_model_that_cannot_be_served_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = make_tiny_model(tmp_path / "model")
    (model / "tokenizer.json").unlink()
    for path, sentence in ((model, "has no tokenizer.json"), (tmp_path / "nowhere", "nowhere does not exist")):
        assert main([str(path), str(tmp_path)]) == 2
        error = capsys.readouterr().err
        assert error.startswith("octavo prepare: ")
        assert sentence in error
        assert error.count("\n") == 1


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = make_tiny_model(tmp_path / "model")
    assert main([str(model), str(tmp_path / "nowhere")]) == 2
    assert "nowhere cannot be written: No such file or directory" in capsys.readouterr().err
