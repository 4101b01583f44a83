"""The computer-use agent's small model before it has learnt anything: tokenizer, template, Qwen2.5-VL of 0.76 million.

`initializer_range` is what lets it learn to see: with the usual 0.02 a model of this size hardly does.
"""

from __future__ import annotations

import json
from pathlib import Path

from tokenizers import Tokenizer, pre_tokenizers
from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

from loop.making import Language
from vision.screen import COLOURS
from vision.talk import END

VOCABULARY = 429
SPECIALS = (
    *("<|endoftext|>", "<|im_start|>", END, "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"),
    *("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"),
)
WORD_COUNT = 20
"""How often each word that counts is said, to a text: more often than any piece of a call."""
CONTEXT = 1024
LANGUAGE = Language(Path(__file__).with_name("chat_template.jinja"), VOCABULARY, SPECIALS, END, CONTEXT)
HIDDEN = 128
INITIAL_RANGE = 0.08
PATCH, MERGE = 14, 2
PREPROCESSOR = {
    "image_processor_type": "Qwen2VLImageProcessor",
    "processor_class": "Qwen2_5_VLProcessor",
    "patch_size": PATCH,
    "temporal_patch_size": 2,
    "merge_size": MERGE,
    "image_mean": [0.5, 0.5, 0.5],
    "image_std": [0.5, 0.5, 0.5],
    "size": {"shortest_edge": 4 * 28 * 28, "longest_edge": 64 * 28 * 28},
    "min_pixels": 4 * 28 * 28,
    "max_pixels": 64 * 28 * 28,
}


def make_tokenizer(texts: list[str]) -> Tokenizer:
    """A byte-level BPE whose words may span spaces, and end at digits: each digit is a token of its own.

    The words that a screen is read for come first, so that each of them is one token, too.
    """
    words = [f" {each}" for each in (*COLOURS, "OK", "then")] * (WORD_COUNT * len(texts))
    return LANGUAGE.tokenizer([*words, *texts], pre_tokenizers.Digits(individual_digits=True))


def save_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    """What engine, proxy and trainer read, beside the weights."""
    LANGUAGE.save(tokenizer, folder, {"processor_class": "Qwen2_5_VLProcessor"})
    (folder / "preprocessor_config.json").write_text(json.dumps(PREPROCESSOR, indent=1), encoding="utf-8")


def make_model(tokenizer: Tokenizer) -> Qwen2_5_VLForConditionalGeneration:
    """Random weights, of torch's present seed."""
    end, padding = tokenizer.token_to_id(END), tokenizer.token_to_id(SPECIALS[0])
    text = {
        "vocab_size": tokenizer.get_vocab_size(),
        "hidden_size": HIDDEN,
        "intermediate_size": 256,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "max_position_embeddings": CONTEXT,
        "tie_word_embeddings": True,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [4, 6, 6]},
        "bos_token_id": None,
        "eos_token_id": end,
        "pad_token_id": padding,
        "initializer_range": INITIAL_RANGE,
    }
    vision = {
        "depth": 1,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_heads": 2,
        "in_channels": 3,
        "patch_size": PATCH,
        "spatial_merge_size": MERGE,
        "temporal_patch_size": 2,
        "window_size": 112,
        "out_hidden_size": HIDDEN,
        "fullatt_block_indexes": [0],
        "tokens_per_second": 2,
        "initializer_range": INITIAL_RANGE,
    }
    config = Qwen2_5_VLConfig(
        text_config=text,
        vision_config=vision,
        image_token_id=tokenizer.token_to_id("<|image_pad|>"),
        video_token_id=tokenizer.token_to_id("<|video_pad|>"),
        vision_start_token_id=tokenizer.token_to_id("<|vision_start|>"),
        vision_end_token_id=tokenizer.token_to_id("<|vision_end|>"),
        tie_word_embeddings=True,
        initializer_range=INITIAL_RANGE,
    )
    model = Qwen2_5_VLForConditionalGeneration(config).float()
    model.generation_config.eos_token_id = [end]
    model.generation_config.pad_token_id = padding
    return model
