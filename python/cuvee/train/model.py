"""Models and tokenizers by name: a tiny one made on the spot, a folder, or one of a hub."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from ..checks import as_choice
from ..errors import INSTALL_HF, CuveeError
from ..sources.files import reason

if TYPE_CHECKING:
    import torch
    from transformers import LlamaConfig, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerFast

TINY = "tiny"
Hub = Literal["hf", "modelscope", "local"]
HUBS: tuple[Hub, ...] = ("hf", "modelscope", "local")
TINY_POSITIONS = 2048
_HUB_WAIT = 10.0  # seconds that a hub may take to answer
_MOST_TOLD = 300  # characters of another library's error
_ROLES = ("system", "user", "assistant", "tool")
_HUB_NAME = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?")

# One turn is <|role|>content<|eos|>. Of the assistant's turns content and end are to be learnt.
TINY_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}{{ '<|' + message['role'] + '|>' }}"
    "{% if message['role'] == 'assistant' %}{% generation %}{{ message['content'] + eos_token }}{% endgeneration %}"
    "{% else %}{{ message['content'] + eos_token }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer of the 256 bytes, padding, begin, end and a token per role, with a chat template.

    Any text comes back from its tokens, one per byte of UTF-8. Nothing is downloaded.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    pad, bos, eos = "<|pad|>", "<|bos|>", "<|eos|>"
    specials = [pad, bos, eos, *(f"<|{role}|>" for role in _ROLES)]
    symbols = specials + sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {symbol: number for number, symbol in enumerate(symbols)}
    bytewise = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    bytewise.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bytewise.decoder = decoders.ByteLevel()
    bytewise.add_special_tokens(specials)
    bytewise.post_processor = processors.TemplateProcessing(single=f"{bos} $A", special_tokens=[(bos, vocabulary[bos])])
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=bytewise,
        pad_token=pad,
        bos_token=bos,
        eos_token=eos,
        additional_special_tokens=specials[3:],
        model_max_length=TINY_POSITIONS,
        clean_up_tokenization_spaces=False,
        chat_template=TINY_TEMPLATE,
    )


def tiny_config() -> LlamaConfig:
    """Return the configuration of a Llama of half a million parameters that reads the tiny tokenizer's tokens."""
    from transformers import LlamaConfig

    return LlamaConfig(
        vocab_size=264,  # 263 used, even so that a vocabulary can be split
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=TINY_POSITIONS,
        tie_word_embeddings=True,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        architectures=["LlamaForCausalLM"],
    )


def tiny_model(seed: int = 42) -> PreTrainedModel:
    """Return the tiny model with float32 weights that depend on `seed` alone; torch's own generator is not touched."""
    import torch
    from transformers import LlamaForCausalLM

    config = tiny_config()
    with torch.device("meta"):
        shapes = {name: tensor.shape for name, tensor in LlamaForCausalLM(config).named_parameters()}
    random = torch.Generator().manual_seed(seed)
    weights = {
        name: torch.ones(shape)
        if len(shape) == 1
        else torch.empty(shape).normal_(std=config.initializer_range, generator=random)
        for name, shape in shapes.items()
    }
    with _no_bars():
        model = LlamaForCausalLM.from_pretrained(None, config=config, state_dict=weights, dtype=torch.float32)
    return cast("PreTrainedModel", model.train())


def locate(ckpt: str, hub: Hub = "hf") -> str:
    """Return the folder of a checkpoint, or its name on the Hub after a look at whether it is there.

    Args:
        ckpt: "tiny", a folder, or a name on the hub.
        hub: "hf" (and its mirrors, by HF_ENDPOINT), "modelscope", or "local": folders and what was downloaded before.

    Raises:
        CuveeError: there is no such folder, and no such model that can be reached.
    """
    as_choice(hub, "model_hub", HUBS, CuveeError)
    if ckpt == TINY:
        return ckpt
    folder = Path(ckpt).expanduser()
    if ckpt and folder.is_dir():
        if not (folder / "config.json").is_file():
            raise CuveeError(f"ckpt must be a folder with a model's config.json, but got {str(folder)!r} without one")
        return str(folder)
    if not _HUB_NAME.fullmatch(ckpt):
        raise CuveeError(f"ckpt must be {TINY!r}, a model's folder or a name on the hub, but got {ckpt!r}")
    return _from_modelscope(ckpt) if hub == "modelscope" else _from_hf(ckpt, hub)


def _from_hf(ckpt: str, hub: Hub) -> str:
    """Return `ckpt` if the Hub answers and has it, else the folder of what was downloaded of it before."""
    from huggingface_hub import constants, get_hf_file_metadata, hf_hub_url, snapshot_download

    error: Exception | None = None
    if hub == "hf" and not constants.HF_HUB_OFFLINE:
        try:  # one question without retries: an answer within seconds, where loading would ask on for minutes
            get_hf_file_metadata(hf_hub_url(ckpt, "config.json"), timeout=_HUB_WAIT)
            return ckpt
        except Exception as failed:
            error = failed
    try:
        return str(snapshot_download(ckpt, local_files_only=True))
    except Exception as absent:
        where = "the Hub has" if error else "was downloaded before"
        told = f" ({reason(error)[:_MOST_TOLD]})" if error else ""
        cure = "give the path of a local copy" + ("; gated models need `hf auth login`" if error else "")
        raise CuveeError(
            f"ckpt must be {TINY!r}, a model's folder or a model that {where}, but got {ckpt!r}{told}; {cure}"
        ) from (error or absent)


def _from_modelscope(ckpt: str) -> str:
    """Download a model from ModelScope and return its folder."""
    try:
        from modelscope import snapshot_download  # type: ignore[import-not-found]
    except ModuleNotFoundError:
        raise CuveeError(
            "model_hub 'modelscope' must have the package modelscope, but it is not installed: pip install modelscope"
        ) from None
    try:
        return str(snapshot_download(ckpt))
    except Exception as error:
        raise CuveeError(
            f"ckpt must be a folder or a model that ModelScope has, but got {ckpt!r} ({reason(error)[:_MOST_TOLD]})"
        ) from error


def load_tokenizer(ckpt: str, hub: Hub = "hf") -> Any:
    """Return the tokenizer of a checkpoint, with a token for padding.

    Raises:
        CuveeError: there is none, or it is not a fast one (of the package tokenizers).
    """
    if ckpt == TINY:
        return tiny_tokenizer()
    place = locate(ckpt, hub)
    from transformers import AutoTokenizer

    with _loading("a tokenizer", ckpt):
        tokenizer = AutoTokenizer.from_pretrained(place, local_files_only=hub == "local")
    return ready_tokenizer(tokenizer, ckpt)


def ready_tokenizer(tokenizer: Any, ckpt: str) -> Any:
    """Return the tokenizer if it can be used for training; one without padding pads with its end token.

    Raises:
        CuveeError: it is not a fast one, or has no end token.
    """
    if not tokenizer.is_fast:
        raise CuveeError(
            f"ckpt {ckpt!r}: the tokenizer must be a fast one, of the package tokenizers, but got "
            f"{type(tokenizer).__name__}; convert it, so that the folder has a tokenizer.json"
        )
    if tokenizer.eos_token_id is None:
        raise CuveeError(
            f"ckpt {ckpt!r}: the tokenizer must have an end token (eos_token), or no answer would ever end, but got "
            "None; set it in tokenizer_config.json"
        )
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token  # padding is masked by position, so ends stay learnt
    return tokenizer


def load_processor(ckpt: str, hub: Hub = "hf") -> Any:
    """Return the processor of a checkpoint: its tokenizer and what prepares images.

    Raises:
        CuveeError: the checkpoint takes no images.
    """
    place = locate(ckpt, hub)
    if place == TINY:
        raise CuveeError("ckpt must be a model that takes images, as the rows have them, but got 'tiny'")
    from transformers import AutoProcessor

    with _loading("a processor of images", ckpt):
        processor = AutoProcessor.from_pretrained(place, local_files_only=hub == "local")  # type: ignore[no-untyped-call]
    if not hasattr(processor, "image_processor"):
        raise CuveeError(
            f"ckpt {ckpt!r}: must have a processor of images, as the rows have images, but got "
            f"{type(processor).__name__}"
        )
    ready_tokenizer(processor.tokenizer, ckpt)
    return processor


def load_config(ckpt: str, hub: Hub = "hf") -> PreTrainedConfig:
    """Return the configuration of a checkpoint.

    Raises:
        CuveeError: there is none.
    """
    if ckpt == TINY:
        return tiny_config()
    place = locate(ckpt, hub)
    from transformers import AutoConfig

    with _loading("a configuration", ckpt):
        return cast("PreTrainedConfig", AutoConfig.from_pretrained(place, local_files_only=hub == "local"))


def load_model(
    ckpt: str,
    hub: Hub = "hf",
    *,
    dtype: torch.dtype | None = None,
    images: bool = False,
    seed: int = 42,
    **options: Any,
) -> PreTrainedModel:
    """Return the model of a checkpoint, in training mode, for language with or without images.

    Args:
        ckpt: "tiny", a folder, or a name on the hub.
        hub: which hub.
        dtype: of the weights; None is float32.
        images: whether rows have images.
        seed: of the tiny model's weights.
        options: more for `from_pretrained`.

    Raises:
        CuveeError: it cannot be loaded, or is not of the kind wanted.
    """
    import torch
    import transformers

    dtype = torch.float32 if dtype is None else dtype
    if ckpt == TINY:
        tiny: Any = tiny_model(seed)
        return cast("PreTrainedModel", tiny.to(dtype))
    place = locate(ckpt, hub)
    kind = transformers.AutoModelForImageTextToText if images else transformers.AutoModelForCausalLM
    with _loading("a model of language and images" if images else "a causal language model", ckpt):
        model = kind.from_pretrained(place, dtype=dtype, local_files_only=hub == "local", **options)
    return cast("PreTrainedModel", model.train())


def max_positions(ckpt: str, hub: Hub = "hf") -> int | None:
    """Return the longest row a checkpoint's model can read, in tokens; None where its configuration does not say."""
    config = load_config(ckpt, hub)
    text = config.get_text_config()
    positions = getattr(text, "max_position_embeddings", None) or getattr(text, "n_positions", None)
    return positions if isinstance(positions, int) and positions > 0 else None


@contextlib.contextmanager
def _no_bars() -> Iterator[None]:
    """Keep transformers from drawing a progress bar for what takes no time."""
    from transformers.utils import logging as untyped

    logging: Any = untyped

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


@contextlib.contextmanager
def _loading(what: str, ckpt: str) -> Iterator[None]:
    try:
        yield
    except CuveeError:
        raise
    except ModuleNotFoundError as error:
        raise CuveeError(
            f"ckpt {ckpt!r}: loading it needs the package {error.name}, but it is not installed; {INSTALL_HF}"
        ) from error
    except Exception as error:
        raise CuveeError(
            f"ckpt {ckpt!r}: must have {what} that can be loaded, but got {reason(error)[:_MOST_TOLD]}"
        ) from error
