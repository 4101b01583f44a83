"""`renderers`: hand-written renderers and bridges of a dozen families, used with this project's tokenizer."""

from __future__ import annotations

import importlib
import importlib.util
import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Protocol, final

from turnstile.conversation import Message
from turnstile.templates.render import MessageForm, RenderRequest, variables_of
from turnstile.templates.second_opinion import Crossed, Declined, Variant
from turnstile.templates.served import Served
from turnstile.templates.tokenizer import Tokenizer
from turnstile.tokens import IdRun

PACKAGE = "renderers"

_CONFIGS = {
    "qwen3": "Qwen3RendererConfig",
    "qwen3-vl": "Qwen3VLRendererConfig",
    "qwen3.5": "Qwen35RendererConfig",
    "qwen3.6": "Qwen36RendererConfig",
    "qwen3.8": "Qwen38RendererConfig",
    "gemma4": "Gemma4RendererConfig",
    "glm-4.5": "GLM45RendererConfig",
    "glm-5": "GLM5RendererConfig",
    "minimax-m2": "MiniMaxM2RendererConfig",
    "deepseek-v3": "DeepSeekV3RendererConfig",
    "deepseek-v4": "DeepSeekV4RendererConfig",
    "kimi-k2": "KimiK2RendererConfig",
    "kimi-k2.5": "KimiK25RendererConfig",
    "nemotron-3": "Nemotron3RendererConfig",
    "llama-3": "Llama3RendererConfig",
}
"""Not gpt-oss: its renderer fetches a vocabulary from elsewhere."""
_ANY_TIME = datetime(2024, 1, 1, tzinfo=UTC)
"""No bridge of theirs prints a date."""


class _Rendered(Protocol):
    @property
    def token_ids(self) -> Sequence[int]: ...


class _Renderer(Protocol):
    def bridge_to_next_turn(
        self,
        previous_prompt_ids: list[int],
        previous_completion_ids: list[int],
        new_messages: list[dict[str, Any]],
        *,
        tools: list[dict[str, Any]] | None,
    ) -> _Rendered | None: ...


@final
class _Vocabulary:
    """What their renderers ask of a tokenizer."""

    def __init__(self, tokenizer: Tokenizer, served: Served) -> None:
        self._tokenizer = tokenizer
        self.name_or_path = served.model
        self.chat_template = served.template.source
        self.unk_token_id: int | None = None
        self.eos_token_id: int | None = min(served.stop_ids, default=None)

    def encode(self, text: str, *_: object, **__: object) -> list[int]:
        return self._tokenizer.encode(text).tolist()

    def decode(self, token_ids: Sequence[int], *_: object, **__: object) -> str:
        return self._tokenizer.decode(IdRun.of(token_ids))

    def convert_tokens_to_ids(self, tokens: str | list[str]) -> int | list[int | None] | None:
        if isinstance(tokens, str):
            return self._tokenizer.id_of(tokens)
        return [self._tokenizer.id_of(token) for token in tokens]


@final
class _Variant:
    def __init__(self, name: str, renderer: _Renderer, form: MessageForm) -> None:
        self.name = name
        self._renderer = renderer
        self._form = form

    def next_prompt(self, crossed: Crossed) -> IdRun | Declined:
        prompt, sampled = crossed.prompt_T.tolist(), crossed.sampled_S.tolist()
        try:
            tools = [json.loads(tool)["function"] for tool in crossed.tools] or None
            found = self._renderer.bridge_to_next_turn(prompt, sampled, self._written(crossed.new_M), tools=tools)
            return Declined() if found is None else IdRun.of(found.token_ids)
        except Exception as failure:  # noqa: BLE001 - a foreign package may raise anything, which is its answer
            return Declined(repr(failure))

    def _written(self, messages: tuple[Message, ...]) -> list[dict[str, Any]]:
        return variables_of(RenderRequest(messages=messages, now=_ANY_TIME, form=self._form), {})["messages"]


@final
class Renderers:
    """The package."""

    name = PACKAGE

    def is_installed(self) -> bool:
        """Whether it can be imported; it needs `httpx` too, and does not say so."""
        return all(importlib.util.find_spec(package) is not None for package in (PACKAGE, "httpx"))

    def variants(self, served: Served) -> Iterable[Variant]:
        """Its bridges whose control tokens this vocabulary has."""
        return tuple(self._variants(served))

    def _variants(self, served: Served) -> Iterator[Variant]:
        package, configs = importlib.import_module(PACKAGE), importlib.import_module(f"{PACKAGE}.configs")
        vocabulary = _Vocabulary(served.tokenizer, served)
        for name, config in _CONFIGS.items():
            try:
                renderer = package.create_renderer(vocabulary, getattr(configs, config)())
            except Exception:  # noqa: BLE001 - a foreign package may raise anything, which is its answer
                continue
            yield _Variant(name, renderer, served.facts.form)
