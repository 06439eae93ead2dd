"""Rows with images: placeholders become as many tokens as the model wants, and a small LLaVA trains on them."""
# ruff: noqa: TID253

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import datasets
import pytest
import torch
import transformers
from PIL import Image

from cuvee import MixedDataset, Mixture, MixtureSampler, Source
from cuvee.errors import CuveeError, SourceError
from cuvee.train.collate import SFTCollator
from cuvee.train.encoder import Encoder
from cuvee.train.encoding import EncodedRows, encode
from cuvee.train.model import load_model, load_processor, load_tokenizer, tiny_config, tiny_tokenizer
from cuvee.train.rows import RowForm, check_sources

PATCHES = 4  # tokens of an image: 8 x 8 pixels in patches of 4
TEMPLATE = (
    "{% for m in messages %}<|{{ m.role }}|>{% for part in m.content %}{% if part.type == 'image' %}<image>{% else %}"
    "{{ part.text }}{% endif %}{% endfor %}{{ eos_token }}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


@pytest.fixture(scope="module")
def llava(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a small LLaVA, as a hub would give it."""
    folder = tmp_path_factory.mktemp("llava")
    tokenizer = tiny_tokenizer()
    tokenizer.add_tokens(["<image>"], special_tokens=True)
    tokenizer.chat_template = TEMPLATE
    processor = transformers.LlavaProcessor(
        image_processor=transformers.CLIPImageProcessor(
            size={"height": 8, "width": 8}, crop_size={"height": 8, "width": 8}
        ),
        tokenizer=tokenizer,
        patch_size=4,
        vision_feature_select_strategy="full",
        chat_template=TEMPLATE,
    )
    text = tiny_config()
    text.vocab_size = 272
    vision = transformers.CLIPVisionConfig(
        hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, image_size=8, patch_size=4
    )
    config = transformers.LlavaConfig(
        vision_config=vision,
        text_config=text,
        image_token_index=tokenizer.convert_tokens_to_ids("<image>"),
        vision_feature_select_strategy="default",
        vision_feature_layer=-1,
        image_seq_length=PATCHES,
    )
    torch.manual_seed(0)
    transformers.LlavaForConditionalGeneration(config).save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder


@pytest.fixture
def encoder(llava: Path) -> Encoder:
    processor = load_processor(str(llava))
    return Encoder(processor.tokenizer, processor)


def picture(shade: int = 0) -> Image.Image:
    return Image.new("RGB", (12, 9), (shade, 100, 200))


def shown(encoder: Encoder, row: dict[str, Any], kind: Any = "prompt") -> str:
    (found,) = encoder.encode([row], RowForm(kind=kind, images="images"), name="s")
    assert not found.targets[found.tokens == encoder.tokenizer.convert_tokens_to_ids("<image>")].any()
    return encoder.tokenizer.decode(found.tokens)


def test_an_image_takes_its_tokens_where_its_placeholder_stands(encoder: Encoder) -> None:
    image = "<image>" * PATCHES
    parts = [{"type": "text", "text": "see "}, {"type": "image"}, {"type": "text", "text": "?"}]
    messages = [{"role": "user", "content": parts}, {"role": "assistant", "content": "a dog"}]
    wanted = f"<|user|>see {image}?<|eos|><|assistant|>a dog<|eos|>"
    assert shown(encoder, {"messages": messages, "images": [picture()]}, "messages") == wanted
    assert shown(encoder, {"prompt": "see <image>?", "response": "a dog", "images": [picture()]}) == wanted
    tokens = encoder.tokenizer("see <image>?", add_special_tokens=False)["input_ids"]
    row = {"tokens": [*tokens, 9], "prompt_mask": [1] * len(tokens) + [0], "images": [picture()]}
    assert shown(encoder, row, "tokens").startswith(f"see {image}?")


def test_images_without_placeholders_come_first(encoder: Encoder) -> None:
    row = {"prompt": "what?", "response": "dogs", "images": [picture(), picture(9)]}
    assert shown(encoder, row) == f"<|user|>{'<image>' * 2 * PATCHES}what?<|eos|><|assistant|>dogs<|eos|>"
    assert shown(encoder, row | {"images": []}) == "<|user|>what?<|eos|><|assistant|>dogs<|eos|>"


@pytest.mark.parametrize(
    ("kind", "row", "images", "placeholders"),
    [
        ("prompt", {"prompt": "<image> <image>", "response": "r"}, 1, 2),
        ("prompt", {"prompt": "<image> <image>", "response": "r"}, 0, 2),
        ("prompt", {"prompt": "p", "response": "an <image>"}, 0, 1),
        ("tokens", {"tokens": [8, 9], "prompt_mask": [1, 0]}, 1, 0),
    ],
)
def test_images_and_placeholders_must_be_as_many(encoder: Encoder, kind, row, images, placeholders) -> None:
    message = f"source 's', row 0: must have a placeholder .*for each of its {images} images, but got {placeholders}"
    with pytest.raises(SourceError, match=message):
        shown(encoder, row | {"images": [picture()] * images}, kind)


def test_images_come_as_paths_bytes_and_pil_images(encoder: Encoder, tmp_path: Path) -> None:
    png = io.BytesIO()
    picture().save(png, "png")
    (tmp_path / "a.png").write_bytes(png.getvalue())
    kinds = [picture(), picture().convert("L"), str(tmp_path / "a.png"), tmp_path / "a.png", png.getvalue()]
    kinds += [{"bytes": png.getvalue(), "path": None}, {"bytes": None, "path": str(tmp_path / "a.png")}]
    texts = {shown(encoder, {"prompt": "p", "response": "r", "images": [kind]}) for kind in kinds}
    assert len(texts) == 1
    with pytest.raises(SourceError, match="source 's', row 0: an image must be one that can be opened, but got"):
        shown(encoder, {"prompt": "p", "response": "r", "images": [b"no image"]})


def test_images_where_none_can_be_read_are_refused() -> None:
    encoder = Encoder(tiny_tokenizer())
    with pytest.raises(SourceError, match="row 0: must have no images where no processor was loaded, but it has some"):
        shown(encoder, {"prompt": "p", "response": "r", "images": [picture()]})
    with pytest.raises(CuveeError, match=r"ckpt must be a model that takes images, .* but got 'tiny'"):
        load_processor("tiny")


def sources() -> dict[str, Any]:
    shades = range(6)
    columns = {
        "prompt": [f"shade {shade}?" for shade in shades],
        "response": ["dark" for _ in shades],
        "image": [picture(shade) for shade in shades],
    }
    seen = datasets.Dataset.from_dict(columns).cast_column("image", datasets.Image())
    return {"seen": seen, "read": [{"prompt": "2 + 2?", "response": "4"}] * 6}


def test_a_small_llava_trains_on_images_beside_text(llava: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("CUVEE_CACHE", str(tmp_path))
    data = sources()
    assert {name: form.images for name, form in check_sources(data).items()} == {"seen": "image", "read": None}
    processor = load_processor(str(llava))
    encoder = Encoder(processor.tokenizer, processor)
    rows = encode(data, encoder=encoder, fingerprints={"seen": "1", "read": "2"})
    mixture = Mixture([Source(name, one) for name, one in rows.items()])
    loader = torch.utils.data.DataLoader(
        MixedDataset(mixture, metadata=False),
        batch_sampler=MixtureSampler(mixture.plan(), batch_size=6),
        collate_fn=SFTCollator(processor.tokenizer.pad_token_id, processor=processor),
        num_workers=1,
    )
    model = load_model(str(llava), images=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for batch in [*loader, *loader]:
        loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
    assert len(losses) == 4
    assert losses[-1] < losses[0]
    assert next(model.parameters()).isfinite().all()


def test_the_pixels_are_those_of_the_row(encoder: Encoder) -> None:
    data = sources()
    found = encode({"seen": data["seen"]}, encoder=encoder, fingerprints={"seen": None})["seen"]
    assert isinstance(found, EncodedRows)
    batch = SFTCollator(0, processor=encoder.processor)(found.__getitems__([3, 1]))
    wanted = encoder.processor.image_processor([picture(3), picture(1)], return_tensors="pt")["pixel_values"]
    assert torch.equal(batch["pixel_values"], wanted)
    assert int((batch["input_ids"] == encoder.tokenizer.convert_tokens_to_ids("<image>")).sum()) == 2 * PATCHES


def test_the_tokens_are_those_that_the_processor_makes(encoder: Encoder) -> None:
    parts = [{"type": "image"}, {"type": "text", "text": " or "}, {"type": "image"}]
    messages = [{"role": "user", "content": parts}, {"role": "assistant", "content": "no"}]
    images = [picture(1), picture(2)]
    (row,) = encoder.encode(
        [{"messages": messages, "images": images}], RowForm(kind="messages", images="images"), name="s"
    )
    messages[1]["content"] = [{"type": "text", "text": "no"}]
    text = encoder.processor.apply_chat_template(messages, tokenize=False)
    wanted = encoder.processor(text=[text], images=images, add_special_tokens=False)["input_ids"][0]
    assert row.tokens.tolist() == list(wanted)
    assert encoder.tokenizer.decode(row.tokens[row.targets]) == "no<|eos|>"


def test_a_model_that_asks_where_images_stand_is_told(encoder: Encoder) -> None:
    class Asking(transformers.LlavaProcessor):
        @property
        def model_input_names(self) -> list[str]:
            return [*super().model_input_names, "mm_token_type_ids"]

    asking = Asking(encoder.processor.image_processor, encoder.tokenizer, patch_size=4)
    rows = encode({"seen": sources()["seen"]}, encoder=encoder, fingerprints={"seen": None})["seen"]
    batch = SFTCollator(0, processor=asking)(rows.__getitems__([0, 1]))
    image = encoder.tokenizer.convert_tokens_to_ids("<image>")
    assert torch.equal(batch["mm_token_type_ids"], (batch["input_ids"] == image).long())


def test_the_processor_decides_where_rows_with_images_are_kept(llava: Path, encoder: Encoder) -> None:
    def identity(**changes: int) -> str:
        processor = load_processor(str(llava))
        for name, value in changes.items():
            setattr(processor, name, value)
        return Encoder(processor.tokenizer, processor).identity(RowForm(kind="prompt", images="images"))

    assert identity() == identity() != identity(patch_size=2)


def test_the_tokenizer_of_a_folder_is_the_one_saved(llava: Path, encoder: Encoder) -> None:
    loaded = load_tokenizer(str(llava))
    assert loaded.chat_template == TEMPLATE
    assert loaded("a <image>")["input_ids"] == encoder.tokenizer("a <image>")["input_ids"]
