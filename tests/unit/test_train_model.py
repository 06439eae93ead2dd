"""The tiny model and tokenizer are the same everywhere; checkpoints load from folders, and errors are one sentence."""
# ruff: noqa: TID253

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st

from cuvee.errors import CuveeError
from cuvee.train.model import (
    load_config,
    load_model,
    load_processor,
    load_tokenizer,
    locate,
    max_positions,
    tiny_config,
    tiny_model,
    tiny_tokenizer,
)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved")
    tiny_model(7).save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


def same(one: torch.nn.Module, other: torch.nn.Module) -> bool:
    pairs = zip(one.state_dict().items(), other.state_dict().items(), strict=True)
    return all(a == b and torch.equal(x, y) for (a, x), (b, y) in pairs)


# --- the tiny tokenizer

TOKENIZER = tiny_tokenizer()


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_comes_back_byte_by_byte(text: str) -> None:
    ids = TOKENIZER(text, add_special_tokens=False)["input_ids"]
    assert TOKENIZER.decode(ids) == text
    if "<|" not in text:
        assert len(ids) == len(text.encode())


def test_it_has_the_bytes_and_its_special_tokens() -> None:
    assert len(TOKENIZER) == 256 + 7 <= tiny_config().vocab_size
    assert (TOKENIZER.pad_token_id, TOKENIZER.bos_token_id, TOKENIZER.eos_token_id) == (0, 1, 2)
    assert TOKENIZER("a")["input_ids"][0] == 1
    assert TOKENIZER.is_fast
    assert TOKENIZER.model_max_length == 2048


def test_its_template_shows_each_turn_once() -> None:
    turns = [("system", "S"), ("user", "u"), ("assistant", "A"), ("tool", "t")]
    messages = [{"role": role, "content": content} for role, content in turns]
    text = TOKENIZER.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert text == "<|bos|><|system|>S<|eos|><|user|>u<|eos|><|assistant|>A<|eos|><|tool|>t<|eos|><|assistant|>"


# --- the tiny model


def test_its_weights_depend_on_the_seed_alone() -> None:
    first = tiny_model(3)
    torch.rand(5)
    assert same(tiny_model(3), first)
    assert not same(tiny_model(4), first)
    assert same(load_model("tiny", seed=3), first)


def test_no_random_state_of_the_process_is_touched() -> None:
    torch.manual_seed(11)
    before = (torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist())  # noqa: NPY002
    tiny_model()
    assert torch.equal(torch.get_rng_state(), before[0])
    assert random.getstate() == before[1]
    assert np.random.get_state()[1].tolist() == before[2]  # noqa: NPY002


@pytest.mark.slow
def test_its_weights_are_the_same_in_every_process(fresh_python) -> None:
    def total(model: torch.nn.Module) -> float:
        return float(sum(parameter.detach().double().abs().sum() for parameter in model.parameters()))

    code = """
from cuvee.train.model import tiny_model
print(float(sum(parameter.detach().double().abs().sum() for parameter in tiny_model(5).parameters())))
"""
    assert float(fresh_python(code)) == total(tiny_model(5)) != total(tiny_model(6))


def test_it_is_small_tied_and_in_training_mode() -> None:
    model = tiny_model()
    assert 400_000 < model.num_parameters() < 600_000
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight
    assert model.training
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert all(parameter.isfinite().all() and parameter.device.type == "cpu" for parameter in model.parameters())
    assert not any(buffer.is_meta for buffer in model.buffers())
    assert next(load_model("tiny", dtype=torch.bfloat16).parameters()).dtype == torch.bfloat16


def test_it_knows_nothing_yet_and_learns() -> None:
    model = tiny_model()
    batch = TOKENIZER(["hello hello hello"], return_tensors="pt", return_token_type_ids=False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(20):
        loss = model(**batch, labels=batch["input_ids"]).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
    assert losses[0] == pytest.approx(np.log(264), abs=0.3)
    assert losses[-1] < 1


def test_no_progress_bar_is_drawn_for_it(capfd: pytest.CaptureFixture[str]) -> None:
    shown = transformers.utils.logging.is_progress_bar_enabled()
    tiny_model()
    assert capfd.readouterr() == ("", "")
    assert transformers.utils.logging.is_progress_bar_enabled() == shown


# --- folders


def test_a_folder_gives_model_tokenizer_and_limits(saved: Path) -> None:
    assert same(load_model(str(saved)), tiny_model(7))
    assert load_model(str(saved)).training
    assert load_tokenizer(str(saved), "local")("é")["input_ids"] == TOKENIZER("é")["input_ids"]
    assert load_tokenizer(str(saved)).chat_template == TOKENIZER.chat_template
    assert load_config(str(saved)).vocab_size == 264
    assert max_positions(str(saved)) == max_positions("tiny") == 2048
    assert next(load_model(str(saved), dtype=torch.bfloat16).parameters()).dtype == torch.bfloat16


def test_a_tokenizer_without_padding_pads_with_its_end(tmp_path: Path, saved: Path) -> None:
    made = tiny_tokenizer()
    made.pad_token = None
    made.save_pretrained(tmp_path)
    tiny_config().save_pretrained(tmp_path)
    assert load_tokenizer(str(tmp_path)).pad_token == "<|eos|>"


def test_a_tokenizer_without_an_end_is_refused(tmp_path: Path) -> None:
    made = tiny_tokenizer()
    made.eos_token = None
    made.save_pretrained(tmp_path)
    tiny_config().save_pretrained(tmp_path)
    with pytest.raises(CuveeError, match=r"the tokenizer must have an end token .* but got None; set it in"):
        load_tokenizer(str(tmp_path))


@pytest.mark.parametrize("load", [load_model, load_tokenizer, load_processor, load_config])
def test_a_folder_that_holds_something_else_is_told_in_one_sentence(load, tmp_path: Path) -> None:
    with pytest.raises(CuveeError, match=r"ckpt must be a folder with a model's config\.json, but got"):
        load(str(tmp_path))
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(CuveeError, match=r"^ckpt .*: must have .* that can be loaded, but got [^\n]*$"):
        load(str(tmp_path))


def test_a_model_that_takes_no_images_is_refused_for_rows_with_images(saved: Path) -> None:
    with pytest.raises(CuveeError, match="must have a model of language and images that can be loaded"):
        load_model(str(saved), images=True)
    with pytest.raises(CuveeError, match="must have a processor of images"):
        load_processor(str(saved))


# --- hubs


@pytest.mark.parametrize("ckpt", ["", "/no/such/folder", "./nothing", "a/b/c", "two words"])
def test_what_is_no_folder_and_no_name_is_refused(ckpt: str) -> None:
    with pytest.raises(CuveeError, match=r"ckpt must be 'tiny', a model's folder or a name on the hub, but got"):
        locate(ckpt)


@pytest.mark.parametrize("hub", ["hf", "local"])
def test_a_model_that_is_not_here_is_told_at_once_where_no_network_is(hub) -> None:
    with pytest.raises(
        CuveeError, match=r"a model that was downloaded before, but got 'nobody/nothing'; give the path"
    ):
        load_tokenizer("nobody/nothing", hub)


def test_a_hub_that_does_not_answer_is_told_in_seconds(fresh_python) -> None:
    code = """
from cuvee.errors import CuveeError
from cuvee.train.model import load_tokenizer
try:
    load_tokenizer("nobody/nothing")
except CuveeError as error:
    print(error)
"""
    told = fresh_python(code, HF_HUB_OFFLINE="0", HF_ENDPOINT="http://127.0.0.1:9")
    assert told.startswith(
        "ckpt must be 'tiny', a model's folder or a model that the Hub has, but got 'nobody/nothing' ("
    )
    assert "Connection refused" in told
    assert told.count("\n") == 1


@pytest.mark.slow
def test_what_was_downloaded_before_is_used_without_a_network(saved: Path, tmp_path: Path, fresh_python) -> None:
    snapshot = tmp_path / "hub" / "models--some--model" / "snapshots" / "0123"
    snapshot.mkdir(parents=True)
    for file in saved.iterdir():
        (snapshot / file.name).write_bytes(file.read_bytes())
    refs = tmp_path / "hub" / "models--some--model" / "refs"
    refs.mkdir()
    (refs / "main").write_text("0123")
    code = """
from cuvee.train.model import load_model, load_tokenizer, max_positions
for hub in ("hf", "local"):
    print(len(load_tokenizer("some/model", hub)), max_positions("some/model", hub))
print(load_model("some/model").num_parameters())
"""
    shown = fresh_python(code, HF_HOME=str(tmp_path), HF_HUB_OFFLINE="0", HF_ENDPOINT="http://127.0.0.1:9")
    assert shown.split() == ["263", "2048"] * 2 + ["460416"]


def test_modelscope_needs_its_package() -> None:
    try:
        import modelscope  # noqa: F401
    except ModuleNotFoundError:
        with pytest.raises(CuveeError, match="must have the package modelscope, but it is not installed: pip install"):
            locate("some/model", "modelscope")
    else:
        pytest.skip("modelscope is installed")


def test_an_unknown_hub_is_refused_with_the_nearest() -> None:
    with pytest.raises(
        CuveeError, match=r"model_hub must be one of .* but got 'modelscop'; did you mean 'modelscope'\?"
    ):
        locate("tiny", "modelscop")  # type: ignore[arg-type]
