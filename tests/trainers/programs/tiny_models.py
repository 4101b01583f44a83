"""Makes a checkpoint of a random tiny model, with numbers as peaked as those of a trained one.

Runs inside the environment of TRL. In: {"folder": path, "gguf": path of a gguf or null}. Out: the folder.

Without a gguf: a Llama of 512 ids, for the audit. With one, whose tokenizer is taken: a Qwen3 that writes plain words,
the same weights as `model.safetensors` and as `model.gguf`, both float32.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import gguf
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

WORDS = 400
"""Of the vocabulary are sampled so many; they are whole ASCII words, so that every token can be read by itself."""
LIKELY, UNLIKELY, STOP = 1.0, -12.0, 3.0
_NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}


def tiny_llama(folder: Path) -> None:
    """107,456 weights."""
    config = LlamaConfig(
        vocab_size=512,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=2048,
        initializer_range=0.15,
        tie_word_embeddings=False,
        bos_token_id=1,
        eos_token_id=2,
    )
    model = LlamaForCausalLM(config).to(torch.float32)
    with torch.no_grad():
        model.lm_head.weight *= 2.0
    model.save_pretrained(folder)


def tiny_qwen3(folder: Path, fields: dict[str, Any]) -> None:
    """A model over the ids of a gguf's tokenizer, of which it likes plain words and, now and then, the stop token."""
    texts: list[str] = fields["tokenizer.ggml.tokens"]
    config = Qwen3Config(
        vocab_size=len(texts),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,
        max_position_embeddings=4096,
        initializer_range=0.15,
        rms_norm_eps=1e-6,
        tie_word_embeddings=False,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
    )
    model = Qwen3ForCausalLM(config).to(torch.float32)
    words = [at for at, text in enumerate(texts) if text.isascii() and text.isalpha() and len(text) > 2][:WORDS]
    with torch.no_grad():
        # The first dimension carries a constant through all layers, which makes a bias of the head's first column.
        model.model.embed_tokens.weight[:, 0] = 2.0
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight[0] = 0.0
            layer.mlp.down_proj.weight[0] = 0.0
        model.lm_head.weight[:, 0] = UNLIKELY
        model.lm_head.weight[words, 0] = LIKELY
        model.lm_head.weight[fields["tokenizer.ggml.eos_token_id"], 0] = STOP
    model.save_pretrained(folder)
    _write_gguf(folder / "model.gguf", model, fields)


def _write_gguf(path: Path, model: Any, fields: dict[str, Any]) -> None:
    config, weights = model.config, model.state_dict()
    writer = gguf.GGUFWriter(path, "qwen3")
    writer.add_name("tiny")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_vocab_size(config.vocab_size)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_tokenizer_model(fields["tokenizer.ggml.model"])
    writer.add_tokenizer_pre(fields["tokenizer.ggml.pre"])
    writer.add_token_list(fields["tokenizer.ggml.tokens"])
    writer.add_token_types(fields["tokenizer.ggml.token_type"])
    writer.add_token_merges(fields["tokenizer.ggml.merges"])
    writer.add_bos_token_id(fields["tokenizer.ggml.bos_token_id"])
    writer.add_eos_token_id(fields["tokenizer.ggml.eos_token_id"])
    writer.add_unk_token_id(fields["tokenizer.ggml.unknown_token_id"])
    writer.add_add_bos_token(False)
    writer.add_chat_template(fields["tokenizer.chat_template"])
    for ours, theirs in {
        "model.embed_tokens": "token_embd",
        "model.norm": "output_norm",
        "lm_head": "output",
    }.items():
        writer.add_tensor(f"{theirs}.weight", weights[f"{ours}.weight"].numpy())
    for layer in range(config.num_hidden_layers):
        for ours, theirs in _NAMES.items():
            writer.add_tensor(f"blk.{layer}.{theirs}.weight", weights[f"model.layers.{layer}.{ours}.weight"].numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main() -> None:
    said = json.loads(sys.stdin.readline())
    torch.manual_seed(7)
    folder = Path(said["folder"])
    if said.get("gguf"):
        reader = gguf.GGUFReader(said["gguf"])
        tiny_qwen3(folder, {name: field.contents() for name, field in reader.fields.items() if name[:4] != "GGUF"})
    else:
        tiny_llama(folder)
    print(json.dumps(str(folder)))


main()
