"""What a llama.cpp server does around an image, found out with two requests at start.

It takes images beside text only, with a marker in the place of each, and puts text of its own around them
(`<|vision_start|>` and `<|vision_end|>`, say), which no route tells. The one echo there is, the decoded prompt of an
answer, shows that text. Observed with xllamacpp 2026.10.11549 and a tiny Qwen2.5-VL (docs/decisions/0031).
"""

from __future__ import annotations

import base64
from collections import OrderedDict
from collections.abc import Awaitable, Callable

import msgspec

from turnstile.conversation import Media
from turnstile.engines.base import Missing
from turnstile.engines.llamacpp_shapes import Counted, Echoed, Props, Tokenized, read
from turnstile.engines.wire import WireAnswer
from turnstile.errors import TurnstileError
from turnstile.tokens import IdRun

Post = Callable[[str, bytes], Awaitable[WireAnswer]]
"""A route and a body in, an answer out."""

_PICTURE = (
    "iVBORw0KGgoAAAANSUhEUgAAADgAAAA4CAIAAAAn5KxJAAAAq0lEQVR4nNXOQREAAAyDMKRX+izw4xYFYU9QByzqgEUdsKgDFnXAog5Y1AGL"
    "OmBRByzqgEUdsKgDFnXAog5Y1AGLOmBRByzqgEUdsKgDFnXAog5Y1AGLOmBRByzqgEUdsKgDFnXAog5Y1AGLOmBRByzqgEUdsKgDFnXAog5Y"
    "1AGLOmBRByzqgEUdsKgDFnXAog5Y1AGLOmBRByzqgEUdsKgDFnXAog5Y1AHrAIzeYQ+3iyANAAAAAElFTkSuQmCC"
)
"""56 by 56 grey pixels, PNG."""
_BEFORE, _BEHIND = "Picture:", "Done."
_REMEMBERED = 4096


class Sight(msgspec.Struct, frozen=True):
    """How a server shows images to its model."""

    leading: str
    """What the server puts in front of a prompt of text: the token that begins one, if the model has it."""
    around: str
    """What it puts before and behind an image, joined."""
    constant: int
    """What its count for a chat of one image has more than the image's own tokens."""


class _TextPrompt(msgspec.Struct, frozen=True):
    prompt_string: str
    multimodal_data: tuple[str, ...]


class _ProbeBody(msgspec.Struct, frozen=True):
    prompt: _TextPrompt
    n_predict: int = 1
    response_fields: tuple[str, ...] = ("prompt", "tokens_evaluated")


class _ImageUrl(msgspec.Struct, frozen=True):
    url: str


class _ImagePart(msgspec.Struct, frozen=True):
    image_url: _ImageUrl
    type: str = "image_url"


class _Message(msgspec.Struct, frozen=True):
    content: tuple[_ImagePart, ...]
    role: str = "user"


class _Chat(msgspec.Struct, frozen=True):
    messages: tuple[_Message, ...]


async def look(post: Post, props: Props) -> Sight | Missing | None:
    """How images are taken, or why they cannot be; None for a model that is served for text only.

    Raises: EngineError `engine_unreachable`.
    """
    if not props.modalities.vision or not props.media_marker:
        return None
    text = _BEFORE + props.media_marker + _BEHIND
    answer = await post("/completion", msgspec.json.encode(_ProbeBody(_TextPrompt(text, (_PICTURE,)))))
    counted = await post("/v1/chat/completions/input_tokens", _chat(f"data:image/png;base64,{_PICTURE}"))
    try:
        shown, count = read(answer, Echoed), read(counted, Counted).input_tokens
        leading, _, rest = shown.prompt.partition(_BEFORE)
        around, _, trailing = rest.rpartition(_BEHIND)
        spelling = Spellings(post)
        texts = [await spelling.of(text) for text in (leading + _BEFORE, around, _BEHIND) if text]
    except TurnstileError as problem:
        return _blind(f"It fails at a picture ({problem.problem})", "A llama.cpp server of October 2026 or later")
    if trailing or not rest:
        return _blind("It changes the text around a picture in a way that is not understood", "")
    return Sight(leading, around, count - shown.tokens_evaluated + sum(map(len, texts)))


class ImageCounts:
    """How many tokens images are, asked of the server once for each."""

    def __init__(self, post: Post, sight: Sight) -> None:
        self._post = post
        self._constant = sight.constant
        self._known: OrderedDict[str, int] = OrderedDict()

    async def of(self, media: Media) -> int:
        """The tokens of one image. Raises: EngineError if the server cannot read it."""
        if media.sha256 not in self._known:
            url = f"data:{media.media_type};base64,{base64.b64encode(media.data).decode()}"
            counted = read(await self._post("/v1/chat/completions/input_tokens", _chat(url)), Counted)
            self._known[media.sha256] = counted.input_tokens - self._constant
            if len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)
        return self._known[media.sha256]


class Spellings:
    """Which runs of ids the server's tokenizer makes of their own text, asked once for each."""

    def __init__(self, post: Post) -> None:
        self._post = post
        self._exact: OrderedDict[IdRun, None] = OrderedDict()

    async def of(self, text: str) -> IdRun:
        """What the server makes of a text, control tokens recognised and none added. Raises: EngineError."""
        return IdRun.of(read(await self._post("/tokenize", _text(text)), Tokenized).tokens)

    async def is_exact(self, ids_T: IdRun, text: str) -> bool:
        """Whether a text becomes these very ids. Raises: EngineError."""
        if ids_T in self._exact:
            return True
        if await self.of(text) != ids_T:
            return False
        self._exact[ids_T] = None
        if len(self._exact) > _REMEMBERED:
            self._exact.popitem(last=False)
        return True


def _chat(url: str) -> bytes:
    return msgspec.json.encode(_Chat((_Message((_ImagePart(_ImageUrl(url)),)),)))


def _text(content: str) -> bytes:
    return msgspec.json.encode({"content": content, "add_special": False, "parse_special": True})


def _blind(cost: str, remedy: str) -> Missing:
    return Missing("images", f"{cost}; messages with images are refused", remedy)
