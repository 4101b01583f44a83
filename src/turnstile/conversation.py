"""What a client asked for and what it is answered, in no dialect and without ids."""

from __future__ import annotations

import enum
import hashlib
import itertools
from collections.abc import Iterable
from typing import TypeAlias

import msgspec

JsonText: TypeAlias = str
"""JSON as written: spelling, key order and number forms kept."""


class Role(enum.StrEnum):
    """Who speaks. `developer` is read as system."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


class Text(msgspec.Struct, frozen=True, tag="text"):
    """A piece of text."""

    text: str


class Image(msgspec.Struct, frozen=True, tag="image"):
    """An image, by reference: its bytes travel beside the messages (`Call.media`)."""

    sha256: str
    """Of the decoded bytes, lower-case hex: equal images are one, however a client wrote them."""
    media_type: str
    """What the bytes are, such as `image/png`."""


Part: TypeAlias = Text | Image


class Media(msgspec.Struct, frozen=True):
    """An image's bytes."""

    sha256: str
    media_type: str
    data: bytes
    """As the client sent them, decoded from base64."""
    width: int | None = None
    """In pixels, as its header says; None: the header cannot be read."""
    height: int | None = None
    url: str = ""
    """Where the client says that it is; with no `data` it is still to be fetched, and `sha256` is `address_sha256`."""
    field: str = ""
    """The field of the request that holds the address."""

    @property
    def image(self) -> Image:
        """The part that stands for it in a message."""
        return Image(self.sha256, self.media_type)

    @property
    def address_sha256(self) -> str:
        """What stands for its address in messages and records; empty if it came without one."""
        return hashlib.sha256(f"url {self.url}".encode()).hexdigest() if self.url else ""


class ToolCall(msgspec.Struct, frozen=True):
    """One call of a tool by the model."""

    call_id: str
    """The id that the client knows it by; minted by us for calls that we hand out."""
    name: str
    arguments: JsonText
    """As the model or the client wrote it; need not be valid JSON."""


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """One message. Absent, null, "" and [] are one value here: the empty one."""

    role: Role
    parts: tuple[Part, ...] = ()
    reasoning: str = ""
    calls: tuple[ToolCall, ...] = ()
    call_id: str = ""
    """On a tool message: the call that it answers."""
    name: str = ""
    answer_id: str = ""
    """On an assistant message of a request: the answer of ours that it says it is, by a signature that came back."""

    @property
    def text(self) -> str:
        """All text, joined without a separator (identity, parsing and previews, not rendering)."""
        return "".join(part.text for part in self.parts if isinstance(part, Text))

    @property
    def images(self) -> tuple[Image, ...]:
        """Its images, in order."""
        return tuple(part for part in self.parts if isinstance(part, Image))


Kind: TypeAlias = str
"""Role of a message, and what of it templates look at: calls, text beside calls, media."""

BEGINNING: Kind = "^"
"""In front of a conversation's first message."""

_ROLES = {role: role.value for role in Role}


def kind_of(message: Message) -> Kind:
    """What of a message a template may look at, its text left out."""
    # Asked of each new message, so the common cases are told by look-ups alone.
    calls, parts = message.calls, message.parts
    kind = _ROLES[message.role]
    if parts and not is_plain(message) and message.images:
        kind += "+media"
    if not calls:
        return kind
    kind += "+call" if len(calls) == 1 else "+calls"
    return f"{kind}+text" if parts else kind


def is_plain(message: Message) -> bool:
    """Whether a message shows no image, as two look-ups tell; False may be said of several texts too."""
    parts = message.parts
    return not parts or (len(parts) == 1 and type(parts[0]) is Text)


class Past(msgspec.Struct, frozen=True):
    """What is asked of all messages of a conversation at each turn, kept so that nobody looks at them again."""

    last: Kind = BEGINNING
    """Of the last message."""
    neighbours: frozenset[tuple[Kind, Kind]] = frozenset()
    """Which kinds follow each other; the first follows `^`."""
    images: int = 0
    """How many are shown; one that is shown twice counts twice."""
    image_roles: frozenset[Role] = frozenset()
    """In whose messages they are."""

    def then(self, messages: Iterable[Message]) -> Past:
        """The same of a conversation that goes on with these; costs their number."""
        shown = tuple(messages)
        kinds = (self.last, *map(kind_of, shown))
        pairs = frozenset(itertools.pairwise(kinds))
        pictured = [message for message in shown if not is_plain(message) and message.images]
        return Past(
            last=kinds[-1],
            # The same object where nothing is new: there is one of these for each answer that is held.
            neighbours=self.neighbours if pairs <= self.neighbours else self.neighbours | pairs,
            images=self.images + sum(len(message.images) for message in pictured),
            image_roles=self.image_roles.union(message.role for message in pictured) if pictured else self.image_roles,
        )


def answer_id(rollout_id: str, attempt: int, call_id: str) -> str:
    """What an answer is known by outside: one id for each call of each attempt of each rollout."""
    again = f"-{attempt}" if attempt > 1 else ""
    return f"{rollout_id}{again}-{call_id}"


class ToolSpec(msgspec.Struct, frozen=True):
    """A tool that the client offers."""

    name: str
    declaration: JsonText
    """The whole entry in OpenAI's chat form, key order kept: order matters to ids."""


class ToolMode(enum.StrEnum):
    """How free the model is to call tools."""

    AUTO = "auto"
    NONE = "none"
    REQUIRED = "required"


class NamedTool(msgspec.Struct, frozen=True, tag="named"):
    """The model must call this tool."""

    name: str


ToolChoice: TypeAlias = ToolMode | NamedTool


class CallArity(enum.StrEnum):
    """How many tool calls one answer may hold."""

    MANY = "many"
    ONE = "one"


class AnyText(msgspec.Struct, frozen=True, tag="text"):
    """The answer may be any text."""


class JsonObject(msgspec.Struct, frozen=True, tag="json_object"):
    """The answer must be a JSON object."""


class JsonSchema(msgspec.Struct, frozen=True, tag="json_schema"):
    """The answer must be JSON that a schema accepts."""

    schema: JsonText


OutputForm: TypeAlias = AnyText | JsonObject | JsonSchema


class Sampling(msgspec.Struct, frozen=True, omit_defaults=True):
    """Sampling settings as the client gave them; None = the client did not say."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    logit_bias: tuple[tuple[int, float], ...] = ()
    seed: int | None = None
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    choices: int = 1
    top_logprobs: int | None = None
    """How many alternatives a token the client wants to see; None = no log-probabilities in its answer."""


class Ending(enum.StrEnum):
    """What the model is to do with the last message."""

    ANSWER = "answer"
    """Open a new assistant message."""
    CONTINUE = "continue"
    """Go on writing the last message, an assistant's (prefill)."""


class RetryMark(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the client says about a repeat."""

    idempotency_key: str = ""
    retry_count: int = 0


class Storage(enum.StrEnum):
    """Whether later requests may name an answer instead of repeating it."""

    PRIVATE = "private"
    REFERABLE = "referable"


class PieceKind(enum.StrEnum):
    """What of an answer a request names."""

    REASONING = "reasoning"
    TEXT = "text"
    CALL = "call"


class AnswerPiece(msgspec.Struct, frozen=True):
    """A piece of an earlier answer that a request names instead of repeating it."""

    index_M: int
    """The message of the request that it belongs to."""
    answer_id: str
    kind: PieceKind
    at: int
    """Which of the answer's calls; 0 for the whole text or reasoning, which are held once."""
    place: int
    """How many calls of that message stand before it."""


class Thread(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a request leaves to our memory (OpenAI Responses)."""

    previous: str = ""
    """Id of the answer which, with all before it, stands before `messages`; empty: none."""
    pieces: tuple[AnswerPiece, ...] = ()
    """What of the messages is named only; in order."""
    instructions_M: int = 0
    """How many leading messages hold for this request alone: one that follows it does not inherit them."""
    storage: Storage = Storage.PRIVATE


class CallKind(enum.StrEnum):
    """Whose call it is."""

    TURN = "turn"
    """The agent's."""
    AUXILIARY = "auxiliary"
    """The harness's own, such as a title for the conversation: recorded, and never trained on."""


class Call(msgspec.Struct, frozen=True, omit_defaults=True):
    """One request of an agent, whatever its dialect."""

    dialect: str
    model: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: ToolChoice = ToolMode.AUTO
    arity: CallArity = CallArity.MANY
    output: OutputForm = AnyText()
    sampling: Sampling = Sampling()
    template_kwargs: JsonText = "{}"
    """Arguments for the chat template, a JSON object with sorted keys."""
    ending: Ending = Ending.ANSWER
    retry: RetryMark = RetryMark()
    agent_name: str = ""
    unknown_fields: tuple[str, ...] = ()
    """Names of body fields that this dialect does not know; kept for the record, never acted on."""
    media: tuple[Media, ...] = ()
    """The bytes of the messages' images, each once, in order of first appearance."""
    thread: Thread = Thread()
    foreign_marks: tuple[str, ...] = ()
    """Places of reasoning that was sealed elsewhere, so that it says nothing here."""
    kind: CallKind = CallKind.TURN
    purpose: str = ""
    """What the harness wants an auxiliary call for, such as `title`."""
    parent_agent: str = ""
    """Who called the sub-agent that `agent_name` names, as the harness told it."""
    quirks: tuple[str, ...] = ()
    """Names of the habits of harnesses that were met and acted on (docs/reference/quirks.md)."""


class ToolCallDelta(msgspec.Struct, frozen=True):
    """A piece of a tool call. The first piece of a call carries its id and name, later ones only arguments."""

    index: int
    call_id: str = ""
    name: str = ""
    arguments: str = ""
    is_last: bool = False
    """Whether the call is whole with it: dialects whose calls have an end tell it at once, not with what follows."""


class TokenLogprob(msgspec.Struct, frozen=True):
    """One token as a client that asked for log-probabilities sees it."""

    token: bytes
    logprob: float | None
    top: tuple[tuple[bytes, float], ...] = ()


class ReplyDelta(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one choice gained since the last delta."""

    choice: int = 0
    reasoning: str = ""
    content: str = ""
    calls: tuple[ToolCallDelta, ...] = ()
    logprobs: tuple[TokenLogprob, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing that a client could be told."""
        return not (self.reasoning or self.content or self.calls or self.logprobs)


class ReplyFinish(enum.StrEnum):
    """Why an answer ended, as clients are told."""

    STOP = "stop"
    LENGTH = "length"
    TOOL_CALLS = "tool_calls"


class Reply(msgspec.Struct, frozen=True):
    """One finished choice, as handed out."""

    message: Message
    finish: ReplyFinish
    logprobs: tuple[TokenLogprob, ...] = ()
    stop_string: str = ""
    """The stop string that ended it, if one did."""


class Usage(msgspec.Struct, frozen=True):
    """Token counts of one request, as the engine counted."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int | None = None


class Answer(msgspec.Struct, frozen=True):
    """A whole answer: one reply a choice."""

    replies: tuple[Reply, ...]
    usage: Usage
