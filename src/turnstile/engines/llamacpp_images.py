"""Prompts with images for llama.cpp, which takes text and pictures there, and no ids.

So what stands between the images goes as text, and only if the server's tokenizer makes the very same ids of it again.
A model may sample ids that are not how its tokenizer spells their text; such a prompt cannot be given exactly, and it
is refused. Source: llama.cpp `tools/server/server-common.cpp` (`process_mtmd_prompt`), `tools/mtmd/mtmd.cpp`.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence

import msgspec

from turnstile.engines.llamacpp_sight import ImageCounts, Sight, Spellings
from turnstile.errors import CallerError
from turnstile.expansion import ExpandedIds, expand
from turnstile.generation import Prompt
from turnstile.tokens import NO_IDS, IdRun, Vocabulary, first_difference


class ShownPrompt(msgspec.Struct, frozen=True):
    """A prompt with images, ready to be sent."""

    json: bytes
    """The value of `prompt`, an object."""
    length: int
    """Ids that the server will run, images included."""
    echo: str
    """What its echo has to say."""
    expanded: ExpandedIds
    """What runs, once length and echo are confirmed."""


class _Wire(msgspec.Struct, frozen=True):
    prompt_string: str
    multimodal_data: tuple[str, ...]


class Showing:
    """Turns prompts with images into what one server takes."""

    def __init__(self, sight: Sight, vocabulary: Vocabulary, counts: ImageCounts, spellings: Spellings) -> None:
        self._sight = sight
        self._vocabulary = vocabulary
        self._counts = counts
        self._spellings = spellings

    async def of(self, prompt: Prompt, placeholder_id: int, marker: str) -> ShownPrompt:
        """The prompt as text and pictures.

        Args:
            prompt: with its media.
            placeholder_id: what stands for an image in its ids.
            marker: what stands for one in text, as the server says now.

        Raises: CallerError `images_not_supported` if the template does not put round an image what the server does,
        `prompt_not_exact` if text would become other ids; EngineError.
        """
        texts = [await self._text(run, marker) for run in await self._between(prompt, placeholder_id)]
        counts = [await self._counts.of(each) for each in prompt.media]
        body = _Wire(
            marker.join(texts),
            tuple(base64.b64encode(each.data).decode() for each in prompt.media),
        )
        runs = [IdRun.of([placeholder_id] * count) for count in counts]
        return ShownPrompt(
            json=msgspec.json.encode(body),
            length=len(prompt) - len(counts) + sum(counts),
            echo=self._sight.leading + self._sight.around.join(texts),
            expanded=expand(prompt.ids_T, placeholder_id, runs),
        )

    async def _between(self, prompt: Prompt, placeholder_id: int) -> list[IdRun]:
        """The ids between the images, without those that the server adds itself."""
        pieces = _split(prompt.ids_T, placeholder_id)
        leading = await self._added(self._sight.leading)
        around = await self._added(self._sight.around)
        if len(pieces) != len(prompt.media) + 1:
            raise _unlike(f"{len(pieces) - 1} placeholders for {len(prompt.media)} images")
        if not pieces[0].startswith(leading):
            raise _unlike(f"llama.cpp begins prompts with `{self._sight.leading}`, and this one does not begin so")
        for at in range(len(around) + 1):
            stripped = _stripped(pieces, around.slice(0, at), around.slice(at))
            if stripped is not None:
                return [stripped[0].slice(len(leading)), *stripped[1:]]
        raise _unlike(f"llama.cpp puts `{self._sight.around}` around an image, and the prompt has something else there")

    async def _added(self, text: str) -> IdRun:
        return await self._spellings.of(text) if text else NO_IDS

    async def _text(self, ids_T: IdRun, marker: str) -> str:
        spelled = b"".join(self._vocabulary.token_bytes(token_id) for token_id in ids_T)
        try:
            text = spelled.decode()
        except UnicodeDecodeError as broken:
            raise _inexact("has half a character there") from broken
        if marker in text:
            raise _inexact("has the server's mark of an image in its text")
        if text and not await self._spellings.is_exact(ids_T, text):
            at = first_difference(await self._spellings.of(text), ids_T) or 0
            snippet = b"".join(self._vocabulary.token_bytes(token_id) for token_id in ids_T.slice(at, at + 8))
            raise _inexact(f"reads `{snippet.decode(errors='replace')}` as other ids than those that are held")
        return text


def _split(ids_T: IdRun, placeholder_id: int) -> list[IdRun]:
    places = [at for at, token_id in enumerate(ids_T) if token_id == placeholder_id]
    starts = [0, *(place + 1 for place in places)]
    return [ids_T.slice(start, end) for start, end in zip(starts, [*places, len(ids_T)], strict=True)]


def _stripped(pieces: Sequence[IdRun], before: IdRun, behind: IdRun) -> list[IdRun] | None:
    """The pieces without what stands before and behind each image; None if it does not stand there."""
    out: list[IdRun] = []
    for at, piece in enumerate(pieces):
        start = len(behind) if at > 0 else 0
        end = len(piece) - (len(before) if at < len(pieces) - 1 else 0)
        if start > end or (at > 0 and not piece.startswith(behind)):
            return None
        if at < len(pieces) - 1 and piece.slice(end) != before:
            return None
        out.append(piece.slice(start, end))
    return out


def _unlike(what: str) -> CallerError:
    return CallerError(
        f"The images of this prompt cannot be given to llama.cpp: {what}",
        "Serve with the chat template of the very model",
        code="images_not_supported",
        param="messages",
    )


def _inexact(what: str) -> CallerError:
    return CallerError(
        f"llama.cpp takes text beside images, no ids, and its tokenizer {what}",
        "Begin a new conversation, or serve the model with vLLM or SGLang, which take ids beside images",
        code="prompt_not_exact",
        param="messages",
    )
