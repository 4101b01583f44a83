"""What the load is made of: a tokenizer, a chat template, an answer and histories, all synthetic and repeatable.

Nothing is fetched. The tokenizer is a byte-level BPE trained here on made-up text. Like a real one of 150k entries on
English it makes a token of about four and a half characters, and most ids have five digits.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

MODEL = "bench"
_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_WORDS = 4000
_MERGED = 4000
"""Entries with bytes and merges."""
_UNUSED = 20_000
"""Entries that no text has: they move the others up to ids of five digits."""
_MESSAGE_WORDS = 350

TOOL = {
    "type": "function",
    "function": {
        "name": "read_file",
        "description": "Read a file of the repository.",
        "parameters": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
    },
}

TEMPLATE = """\
{%- if tools %}
{{- '<|im_start|>system\\n' }}
{%- if messages[0].role == 'system' %}{{- messages[0].content + '\\n\\n' }}{%- endif %}
{{- '# Tools\\n\\nYou may call one or more functions.\\n\\n<tools>' }}
{%- for tool in tools %}{{- '\\n' }}{{- tool | tojson }}{%- endfor %}
{{- '\\n</tools>\\n\\nFor each call answer with JSON within <tool_call></tool_call> tags:\\n<tool_call>\\n' }}
{{- '{"name": <function-name>, "arguments": <args-json-object>}\\n</tool_call><|im_end|>\\n' }}
{%- elif messages[0].role == 'system' %}
{{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
{%- if message.role == 'user' or (message.role == 'system' and not loop.first) %}
{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- elif message.role == 'assistant' %}
{{- '<|im_start|>assistant\\n' }}
{%- if message.reasoning_content %}{{- '<think>\\n' + message.reasoning_content + '\\n</think>\\n\\n' }}{%- endif %}
{{- message.content or '' }}
{%- for call in message.tool_calls or [] %}
{%- if (loop.first and message.content) or not loop.first %}{{- '\\n' }}{%- endif %}
{{- '<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' }}
{{- call.function.arguments if call.function.arguments is string else call.function.arguments | tojson }}
{{- '}\\n</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\\n' }}
{%- elif message.role == 'tool' %}
{%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}{{- '<|im_start|>user' }}{%- endif %}
{{- '\\n<tool_response>\\n' + message.content + '\\n</tool_response>' }}
{%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{- '<|im_end|>\\n' }}{%- endif %}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}
"""


@dataclass(frozen=True)
class Answer:
    """What the stub engine samples, always."""

    ids: list[int]
    """The stop token included."""
    content: str
    path: str
    """The argument of the tool call."""


@dataclass(frozen=True)
class Materials:
    """A model folder and the text that clients send."""

    folder: Path
    words: tuple[str, ...]
    tokenizer: Tokenizer

    @classmethod
    def make(cls, folder: Path, sampled: int, thought: int = 0) -> Materials:
        """Train the tokenizer, write the folder, and compose an answer of `sampled` tokens or one more.

        `thought` words of thinking stand in front; they are among the sampled.
        """
        words = _made_up_words()
        tokenizer = _trained(words)
        folder.mkdir(parents=True, exist_ok=True)
        tokenizer.save(str(folder / "tokenizer.json"))
        settings = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "chat_template": TEMPLATE}
        (folder / "tokenizer_config.json").write_text(json.dumps(settings))
        made = cls(folder, words, tokenizer)
        (folder / "answer.json").write_text(json.dumps(made.answer(sampled, thought).__dict__))
        return made

    def answer(self, sampled: int, thought: int = 0) -> Answer:
        """Thinking, if there is any, words, then a tool call, then the stop token."""
        path = "src/main.py"
        thinking = f"<think>\n{self.prose(thought, 3)}\n</think>\n\n" if thought else ""
        call = f'\n<tool_call>\n{{"name": "read_file", "arguments": {{"path": "{path}"}}}}\n</tool_call><|im_end|>'
        words = 0
        while True:
            content = "I look" + "".join(f" {self.words[at % 50]}" for at in range(words))
            ids = self.tokenizer.encode(thinking + content + call, add_special_tokens=False).ids
            if len(ids) >= sampled:
                return Answer(ids, content, path)
            words += 1

    def length(self, text: str) -> int:
        """How many ids a text has."""
        return len(self.tokenizer.encode(text, add_special_tokens=False).ids)

    def prose(self, words: int, seed: int) -> str:
        """Made-up text, always the same for a seed."""
        draw = random.Random(seed)
        return " ".join(draw.choices(self.words, k=words)) + "."

    def opening(self, held: int) -> list[str]:
        """User messages that together render to about `held` ids."""
        messages: list[str] = []
        ids = 200
        while ids < held:
            text = self.prose(_MESSAGE_WORDS, len(messages))
            length = self.length(text) + 5
            if ids + length > held:
                kept = max(1, _MESSAGE_WORDS * (held - ids) // length)
                text = " ".join(text.split()[:kept])
            messages.append(text)
            ids += length
        return messages


def _made_up_words() -> tuple[str, ...]:
    draw = random.Random(1)
    onsets, vowels, codas = (
        ("b", "d", "f", "g", "k", "l", "m", "n", "p", "r", "s", "st", "t", "tr", "v"),
        "aeiou",
        "nrstl",
    )
    words = {
        "".join(draw.choice(onsets) + draw.choice(vowels) for _ in range(draw.randint(1, 3)))
        + draw.choice((*codas, ""))
        for _ in range(_WORDS)
    }
    return tuple(sorted(words))


def _trained(words: tuple[str, ...]) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    split = pre_tokenizers.Split(Regex(_SPLIT), behavior="isolated")
    bytes_only = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, bytes_only])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=_MERGED,
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    draw = random.Random(2)
    corpus = [" ".join(draw.choices(words, k=400)) for _ in range(60)]
    tokenizer.train_from_iterator([*corpus, TEMPLATE, json.dumps(TOOL)], trainer)
    tokenizer = Tokenizer.from_str(_with_long_ids(tokenizer.to_str()))
    tokenizer.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    tokenizer.add_tokens([AddedToken("<tool_call>", normalized=False), AddedToken("</tool_call>", normalized=False)])
    return tokenizer


def _with_long_ids(tokenizer_json: str) -> str:
    written = json.loads(tokenizer_json)
    trained = written["model"]["vocab"]
    unused = {f"<unused_{at}>": at for at in range(_UNUSED)}
    written["model"]["vocab"] = unused | {token: _UNUSED + at for token, at in trained.items()}
    return json.dumps(written)
