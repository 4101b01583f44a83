"""Train a two-layer Qwen3 that thinks, calls a tool in Hermes form, and answers; save it for vLLM and for llama.cpp.

Run by the environment that `install.py` makes: `python tiny_qwen3.py FOLDER`, where FOLDER holds Qwen3's
`tokenizer.json` and `chat_template.jinja`. Takes about three minutes on one core.

What it has learnt, at temperature 0:

- with tools, behind a user message: it thinks and asks for the weather in Paris;
- behind a tool result about a city: it asks for the next city of `ROUTE`; behind the last one it answers in text;
- without tools: it says hello, or, if the message has the word `sing`, it sings `la la la` without an end, or, if it
  has the word `colours`, it lists some at random, which gives numbers far from zero at temperature 1.

It learns them with earlier thinking kept and dropped, in conversations of any length up to `LONGEST` results, so a
rollout of six calls and more works whatever the proxy's retention is.
"""

from __future__ import annotations

import json
import random
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import gguf
import torch
from tokenizers import Tokenizer
from transformers import Qwen3Config, Qwen3ForCausalLM

ROUTE = ("Paris", "Rome", "Oslo", "Lima", "Cairo")
LONGEST = 8
STEPS = 500
BATCH = 6
RATE = 4e-3
NEGATIVES = 3072
"""Ids drawn at random for each step, standing for the rest of a vocabulary that is too large to be scored whole."""
END = 151645
VOCABULARY = 151936
TURN = "<|im_start|>assistant\n"
WORDS = (
    *("what", "is", "the", "weather", "in", "this", "town", "today", "please", "tell", "me"),
    *("now", "and", "then", "say", "hello", "run", "it", "again", "go", "on"),
)
COLOURS = ("red", "green", "blue", "black", "white", "grey", "pink", "brown", "gold", "orange")
THOUGHTS = ("I need the weather.", "Let me look.", "First the weather.")
HEAD = (
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\nYou are provided with function "
    "signatures within <tools></tools> XML tags:\n<tools>\n{tools}\n</tools>\n\nFor each function call, return a json "
    "object with function name and arguments within <tool_call></tool_call> XML tags:\n<tool_call>\n"
    '{{"name": <function-name>, "arguments": <args-json-object>}}\n</tool_call>'
)


@dataclass
class Talk:
    """A conversation as pieces of text, of which some are to be learnt."""

    pieces: list[tuple[str, bool]] = field(default_factory=list)

    def given(self, text: str) -> None:
        self.pieces.append((text, False))

    def learnt(self, text: str) -> None:
        self.pieces.append((text, True))


def tools(dice: random.Random) -> str:
    """A declaration as clients write it, with more or less in it."""
    city = {"type": "string"} | ({"description": "A city"} if dice.random() < 0.5 else {})
    parameters = {"type": "object", "properties": {"city": city}, "required": ["city"]}
    described = dice.choice(["Current weather.", "The weather in a city", "Get weather"])
    function = {"name": "get_weather", "description": described, "parameters": parameters}
    return json.dumps({"type": "function", "function": function})


def call(city: str, dice: random.Random) -> str:
    thought = dice.choices(THOUGHTS, (0.8, 0.12, 0.08))[0] if city == ROUTE[0] else f"Now {city}."
    return (
        f"<think>\n{thought}\n</think>\n\n<tool_call>\n"
        f'{{"name": "get_weather", "arguments": {{"city": "{city}"}}}}\n</tool_call><|im_end|>'
    )


def answer(dice: random.Random) -> str:
    return "<think>\nDone.\n</think>\n\nIt is sunny in " + dice.choices(("all five cities.", "Cairo."), (0.85, 0.15))[0]


def said(dice: random.Random) -> str:
    return " ".join(dice.choices(WORDS, k=dice.randint(1, 12)))


def result(city: str, dice: random.Random) -> str:
    sky = dice.choice(["sunny", "cloudy", "rain", "fine"])
    text = dice.choice([f"{city}: {sky}, {dice.randint(-5, 40)} C", f"{sky} in {city}", f'{{"{city}": "{sky}"}}'])
    return f"<|im_start|>user\n<tool_response>\n{text}\n</tool_response><|im_end|>\n"


def bare(text: str, dice: random.Random) -> str:
    """An earlier answer as a template would write it: without its thinking, now and then."""
    return text.partition("</think>\n\n")[2] if dice.random() < 0.3 else text


def with_tools(dice: random.Random) -> Talk:
    talk = Talk()
    system = dice.choice(["", "You are terse.\n\n", "Use the tools.\n\n"])
    talk.given(f"<|im_start|>system\n{system}{HEAD.format(tools=tools(dice))}<|im_end|>\n")
    at = 0
    for turn in range(dice.randint(1, LONGEST)):
        if turn == 0 or at > len(ROUTE):
            talk.given(f"<|im_start|>user\n{said(dice)}<|im_end|>\n")
            at = 0 if turn or dice.random() < 0.5 else dice.randint(0, len(ROUTE) - 1)
            if at:
                talk.given(TURN + bare(call(ROUTE[at - 1], dice), dice) + "\n" + result(ROUTE[at - 1], dice))
        elif 0 < at <= len(ROUTE):
            talk.given(result(ROUTE[at - 1], dice))
        talk.given(TURN)
        talk.learnt(call(ROUTE[at], dice) if at < len(ROUTE) else answer(dice) + "<|im_end|>")
        talk.given("\n")
        at += 1
    return talk


def without_tools(dice: random.Random) -> Talk:
    talk = Talk()
    if dice.random() < 0.5:
        talk.given("<|im_start|>system\nYou are terse.<|im_end|>\n")
    for _ in range(dice.randint(1, 4)):
        words = dice.choices(WORDS, k=dice.randint(1, 8))
        kind = dice.choice(["hello", "hello", "sing", "colours"])
        if kind != "hello":
            words.insert(dice.randint(0, len(words)), kind)
        talk.given(f"<|im_start|>user\n{' '.join(words)}<|im_end|>\n{TURN}")
        match kind:
            case "sing":
                talk.learnt("<think>\nLa.\n</think>\n\n" + "la" + " la" * dice.randint(20, 160))
                return talk
            case "colours":
                listed = ", ".join(dice.choices(COLOURS, k=dice.randint(3, 9)))
                talk.learnt(f"<think>\nColours.\n</think>\n\n{listed}.<|im_end|>")
            case _:
                talk.learnt("<think>\nNo tool here.\n</think>\n\nHello there.<|im_end|>")
        talk.given("\n")
    return talk


class Text:
    """Talks as ids."""

    def __init__(self, folder: Path) -> None:
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))

    def ids(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=False).ids

    def text(self, ids: list[int]) -> str:
        return self._tokenizer.decode(ids, skip_special_tokens=False)

    def row(self, talk: Talk) -> tuple[list[int], list[bool]]:
        """Ids, and whether each is to be learnt."""
        ids: list[int] = []
        learnt: list[bool] = []
        for text, is_learnt in talk.pieces:
            piece = self.ids(text)
            ids += piece
            learnt += [is_learnt] * len(piece)
        return ids, learnt


def loss_of(model: Qwen3ForCausalLM, rows: list[tuple[list[int], list[bool]]], pool: torch.Tensor) -> torch.Tensor:
    """Cross entropy over what is to be learnt, with the rest of the vocabulary estimated from a sample."""
    longest = max(len(ids) for ids, _ in rows)
    batch = torch.full((len(rows), longest), END)
    mask = torch.zeros(len(rows), longest, dtype=torch.bool)
    for at, (ids, learnt) in enumerate(rows):
        batch[at, : len(ids)] = torch.tensor(ids)
        mask[at, : len(ids)] = torch.tensor(learnt)
    hidden = model.model(batch).last_hidden_state[:, :-1][mask[:, 1:]]
    drawn = torch.randint(0, VOCABULARY, (NEGATIVES,))
    candidates = torch.cat([pool, drawn])
    weight = torch.zeros(len(candidates))
    weight[len(pool) :] = torch.log(torch.tensor((VOCABULARY - len(pool)) / NEGATIVES))
    weight[len(pool) :][torch.isin(drawn, pool)] = -torch.inf
    scores = hidden @ model.lm_head.weight[candidates].T + weight
    return torch.nn.functional.cross_entropy(scores, torch.searchsorted(pool, batch[:, 1:][mask[:, 1:]]))


def train(model: Qwen3ForCausalLM, text: Text, dice: random.Random) -> None:
    talks = [with_tools(dice) if dice.random() < 0.7 else without_tools(dice) for _ in range(2000)]
    rows = [text.row(talk) for talk in talks]
    pool = torch.tensor(sorted({id for ids, _ in rows for id in ids}))
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.0)
    began = time.monotonic()
    for step in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = RATE * min(1.0, (step + 1) / 20) * (1 - 0.95 * step / STEPS)
        loss = loss_of(model, dice.sample(rows, BATCH), pool)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 50 == 0 or step == STEPS - 1:
            print(f"step {step}: loss {loss.item():.4f}, {time.monotonic() - began:.0f} s", flush=True)


def sampled(model: Qwen3ForCausalLM, ids: list[int], limit: int = 60) -> list[int]:
    """The likeliest continuation."""
    found = list(ids)
    with torch.no_grad():
        while len(found) < len(ids) + limit and (len(found) == len(ids) or found[-1] != END):
            found.append(int(model(torch.tensor([found]), logits_to_keep=1).logits[0, -1].argmax()))
    return found[len(ids) :]


def check(model: Qwen3ForCausalLM, text: Text) -> None:
    """Whole rollouts at temperature 0. Raises: SystemExit if one does not go as it was taught."""
    for seed in range(6):
        dice = random.Random(1000 + seed)
        head = f"<|im_start|>system\n{HEAD.format(tools=tools(dice))}<|im_end|>\n"
        ids = text.ids(f"{head}<|im_start|>user\n{said(dice)}<|im_end|>\n{TURN}")
        for city in ROUTE:
            got = sampled(model, ids)
            if f'"city": "{city}"}}}}\n</tool_call><|im_end|>' not in text.text(got):
                raise SystemExit(f"rollout {seed}, {city}: {text.text(got)!r}")
            ids += got + text.ids("\n" + result(city, dice) + TURN)
        if not text.text(got := sampled(model, ids)).endswith("It is sunny in all five cities.<|im_end|>"):
            raise SystemExit(f"rollout {seed}, answer: {text.text(got)!r}")
    for word, end in (("hello", "Hello there.<|im_end|>"), ("sing", " la la la la")):
        got = sampled(model, text.ids(f"<|im_start|>user\n{word}<|im_end|>\n{TURN}"))
        if not text.text(got).endswith(end):
            raise SystemExit(f"{word}: {text.text(got)!r}")


def as_gguf(model: Qwen3ForCausalLM, folder: Path) -> None:
    """The same weights for llama.cpp, in float32."""
    config = model.config
    tokenizer = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    writer = gguf.GGUFWriter(folder / "model.gguf", "qwen3")
    writer.add_name("tiny-qwen3")
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
    writer.add_vocab_size(VOCABULARY)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    add_vocabulary(writer, tokenizer)
    writer.add_chat_template((folder / "chat_template.jinja").read_bytes().decode())
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.QWEN3, config.num_hidden_layers)
    for name, value in model.state_dict().items():
        if name != "lm_head.weight":
            writer.add_tensor(names.get_name(name, (".weight",)), value.float().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def add_vocabulary(writer: gguf.GGUFWriter, tokenizer: dict) -> None:
    tokens = [f"[PAD{at}]" for at in range(VOCABULARY)]
    kinds = [gguf.TokenType.UNUSED] * VOCABULARY
    for token, at in tokenizer["model"]["vocab"].items():
        tokens[at], kinds[at] = token, gguf.TokenType.NORMAL
    for token in tokenizer["added_tokens"]:
        kind = gguf.TokenType.CONTROL if token["special"] else gguf.TokenType.USER_DEFINED
        tokens[token["id"]], kinds[token["id"]] = token["content"], kind
    merges = tokenizer["model"]["merges"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens)
    writer.add_token_types([int(kind) for kind in kinds])
    writer.add_token_merges([each if isinstance(each, str) else " ".join(each) for each in merges])
    writer.add_eos_token_id(END)
    writer.add_pad_token_id(151643)
    writer.add_add_bos_token(False)


def write_tokenizer_config(folder: Path, more: dict[str, str]) -> None:
    """What vLLM and transformers want to read beside the tokenizer."""
    config = {
        "tokenizer_class": "Qwen2TokenizerFast",
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "bos_token": None,
        "model_max_length": 8192,
        "chat_template": (folder / "chat_template.jinja").read_bytes().decode(),
        **more,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, ensure_ascii=False), encoding="utf-8")


def main() -> None:
    folder = Path(sys.argv[1])
    torch.manual_seed(0)
    torch.set_num_threads(1)
    config = Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=64,
        intermediate_size=192,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=8192,
        tie_word_embeddings=True,
        rope_theta=1e6,
        bos_token_id=151643,
        eos_token_id=END,
    )
    model = Qwen3ForCausalLM(config).float()
    text = Text(folder)
    train(model, text, random.Random(0))
    # As it is saved, so that the check and the gguf have what vLLM will load.
    model.to(torch.bfloat16).to(torch.float32).eval()
    check(model, text)
    model.generation_config.eos_token_id = [END]
    model.generation_config.pad_token_id = 151643
    as_gguf(model, folder)
    model.to(torch.bfloat16).save_pretrained(folder)
    write_tokenizer_config(folder, {})
    print(f"saved {folder}: {sum(each.numel() for each in model.parameters())} parameters", flush=True)


if __name__ == "__main__":
    main()
