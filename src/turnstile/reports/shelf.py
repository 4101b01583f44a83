"""The models that a store's rollouts were rendered with, kept in the store itself.

So a report needs nothing but the store, also when the model's folder is gone or was replaced.
"""

from __future__ import annotations

import asyncio

import msgspec

from turnstile.errors import StoreError
from turnstile.generation import Head
from turnstile.store import Blobs, Journal, Reader
from turnstile.templates.facts import serve
from turnstile.templates.files import ModelFiles
from turnstile.templates.served import Served

_SOME_TOOL = ("{}",)
"""Any tool: a model may have another template for requests with tools."""


class _Card(msgspec.Struct, frozen=True):
    """What is stored of a served model."""

    files: ModelFiles
    model: str
    stop_ids: tuple[int, ...]


def _key(tokenizer_sha256: str, chat_template_sha256: str) -> str:
    return f"model_files:{tokenizer_sha256}:{chat_template_sha256}"


class ModelShelf:
    """Finds the tokenizer and template behind a head."""

    def __init__(self, reader: Reader, blobs: Blobs) -> None:
        self._reader = reader
        self._blobs = blobs
        self._served: dict[str, Served] = {}

    async def put(self, journal: Journal, served: Served, files: ModelFiles) -> None:
        """Keep a model's texts, once; durable on return."""
        variants = {
            _key(each.tokenizer.sha256, each.template.sha256) for each in (served, served.for_tools(_SOME_TOOL))
        }
        missing = [key for key in sorted(variants) if self._reader.meta(key) is None]
        if missing:
            card = _Card(files, served.model, tuple(sorted(served.stop_ids)))
            sha256 = await asyncio.to_thread(self._blobs.put, msgspec.json.encode(card))
            for key in missing:
                await journal.set_meta(key, sha256)
        self._served.update(dict.fromkeys(variants, served))

    def served(self, head: Head) -> Served:
        """The model that a prompt with this head was rendered with.

        Raises: StoreError if the store does not have it.
        """
        key = _key(head.tokenizer_sha256, head.chat_template_sha256)
        if (known := self._served.get(key)) is not None:
            return known.for_tools(head.tools)
        sha256 = self._reader.meta(key)
        if sha256 is None:
            raise StoreError(
                f"The store has no tokenizer {head.tokenizer_sha256[:12]}"
                f" with template {head.chat_template_sha256[:12]}",
                "Copy the whole store directory, `blobs` included",
                code="model_missing",
            )
        card = msgspec.json.decode(self._blobs.get(sha256), type=_Card)
        served = serve(card.files, model=card.model, stop_ids=frozenset(card.stop_ids))
        self._served[key] = served
        return served.for_tools(head.tools)
