"""The models that a store's rollouts were rendered with, kept in the store itself.

So a report needs nothing but the store, also when the model's folder is gone or was replaced.
"""

from __future__ import annotations

import asyncio

import msgspec

from turnstile.errors import StoreError
from turnstile.generation import Head
from turnstile.history.forest import Forest
from turnstile.store import Blobs, Journal, Reader
from turnstile.templates.facts import serve
from turnstile.templates.files import ModelFiles
from turnstile.templates.served import Served

_SOME_TOOL = ("{}",)
"""Any tool: a model may have another template for requests with tools."""


class Card(msgspec.Struct, frozen=True):
    """What is stored of a served model."""

    files: ModelFiles
    model: str
    stop_ids: tuple[int, ...]
    answer_format: str = ""
    """Name of the tool-call format that answers were read with; empty = as the template suggests."""


MODEL_FILES = "model_files:"
"""How the keys of the store's own notes begin whose values are hashes of cards."""


def _key(tokenizer_sha256: str, chat_template_sha256: str) -> str:
    return f"{MODEL_FILES}{tokenizer_sha256}:{chat_template_sha256}"


class ModelShelf:
    """Finds the tokenizer and template behind a head."""

    def __init__(self, reader: Reader, blobs: Blobs) -> None:
        self._reader = reader
        self._blobs = blobs
        self._served: dict[str, Served] = {}

    async def put(self, journal: Journal, served: Served, files: ModelFiles, answer_format: str = "") -> None:
        """Keep a model's texts, once; durable on return.

        Args:
            journal: of the store.
            served: the model.
            files: what it was made from.
            answer_format: name of the tool-call format, if it is not the one that the template suggests.
        """
        variants = {
            _key(each.tokenizer.sha256, each.template.sha256) for each in (served, served.for_tools(_SOME_TOOL))
        }
        missing = [key for key in sorted(variants) if self._reader.meta(key) is None]
        if missing:
            card = Card(files, served.model, tuple(sorted(served.stop_ids)), answer_format)
            sha256 = await asyncio.to_thread(self._blobs.put, msgspec.json.encode(card))
            for key in missing:
                await journal.set_meta(key, sha256)
        self._served.update(dict.fromkeys(variants, served))

    def served(self, head: Head) -> Served:
        """The model that a prompt with this head was rendered with.

        Raises: StoreError if the store does not have it.
        """
        key = _key(head.tokenizer_sha256, head.chat_template_sha256)
        known = self._served.get(key)
        if known is None:
            card = self.card(head)
            known = serve(card.files, model=card.model, stop_ids=frozenset(card.stop_ids))
            self._served[key] = known
        return known.for_tools(head.tools)

    def card(self, head: Head) -> Card:
        """What is stored of the model that a prompt with this head was rendered with.

        Raises: StoreError if the store does not have it.
        """
        sha256 = self._reader.meta(_key(head.tokenizer_sha256, head.chat_template_sha256))
        if sha256 is None:
            raise StoreError(
                f"The store has no tokenizer {head.tokenizer_sha256[:12]}"
                f" with template {head.chat_template_sha256[:12]}",
                "Copy the whole store directory, `blobs` included",
                code="model_missing",
            )
        try:
            return msgspec.json.decode(self._blobs.get(sha256), type=Card)
        except msgspec.DecodeError as other:
            raise StoreError(
                f"The store's tokenizer {head.tokenizer_sha256[:12]} is stored in another form: {other}",
                "Read the store with the version of Turnstile that wrote it",
                code="model_unreadable",
            ) from other


def refuse_headless(forest: Forest, rollout_id: str) -> None:
    """Raises: StoreError if a rollout's records do not begin with its opening, without which no report can be made."""
    if forest.opened is None:
        raise StoreError(
            f"The records of rollout `{rollout_id}` do not begin with its opening",
            "Restore the journal from a copy",
            code="record_damaged",
        )
