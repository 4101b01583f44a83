"""The closed list of reasons: why a prompt, a token or a call is not the plain case.

Every fork, drop, mask, retry and fallback carries one of these words; `docs/reference/reasons.md` is printed
from this module. A word never changes meaning; a new one is added here and nowhere else.
"""

from __future__ import annotations

import enum


class RootReason(enum.StrEnum):
    """Why a prompt starts a new tree, with nothing lost."""

    FIRST_CALL = "first_call"
    """The rollout's first call."""
    HEAD_CHANGED = "head_changed"
    """Tokenizer, template, template arguments, tools, leading system text or model differ from every earlier head."""
    NEW_CONVERSATION = "new_conversation"
    """A known head, other opening messages, and no assistant message yet: a sub-agent, or another task."""


class ForkReason(enum.StrEnum):
    """Why a prompt does not extend the last token of a held sequence, although history was held."""

    MESSAGE_EDITED = "message_edited"
    """A system, user or tool message of the past is not what it was."""
    ASSISTANT_EDITED = "assistant_edited"
    """The client changed what the model had said."""
    ASSISTANT_TURN_OMITTED = "assistant_turn_omitted"
    """The client left an answer of the model out of its history."""
    HISTORY_REWRITTEN = "history_rewritten"
    """The history was replaced or shortened, by compaction for instance."""
    MEDIA_CHANGED = "media_changed"
    """An image of the past was dropped, replaced or added; a screenshot window that slides does this at each step."""
    REWOUND = "rewound"
    """The client went back to an earlier point and went on from there with other messages."""
    STOP_MISMATCH = "stop_mismatch"
    """The sampled stop token is not the one with which the template closes the message before what follows."""
    CONTINUED = "continued"
    """The client asked to go on writing an answer that had ended."""
    NODE_INCOMPLETE = "node_incomplete"
    """The answer that the client builds on has no trustworthy ids, or no ids at all."""

    RETENTION = "retention"
    """The rollout's retention policy has the template write its past, and it writes it in another way."""


class RerenderReason(enum.StrEnum):
    """Why the whole history was rendered again although nothing in it changed."""

    TEMPLATE_ERROR = "template_error"
    """The template raised on the small conversation from which a bridge is read."""
    SENTINEL_LOST = "sentinel_lost"
    """The template does not print the body of an assistant message as it was given."""
    SENTINEL_REPEATED = "sentinel_repeated"
    """The template prints the body of an assistant message more than once."""
    CLOSING_MISMATCH = "closing_mismatch"
    """The template closes a message otherwise when another one follows."""
    NO_TERMINATOR = "no_terminator"
    """No stop token closes the message, so its end cannot be found."""
    CONTENT_LOST = "content_lost"
    """A new message would not be in the prompt."""
    MEDIA_CHANGED = "media_changed"
    """The prompt would not have one placeholder for each image."""
    NOT_CERTIFIED = "not_certified"
    """The template's certificate says that nothing can be spliced."""


class MaskReason(enum.StrEnum):
    """Why a sampled token is not trainable."""

    OWNED_BY_OTHER_SEQUENCE = "owned_by_other_sequence"
    """It is trained in an earlier sequence of the same rollout, under the same prefix."""
    LOGPROB_MISSING = "logprob_missing"
    """The engine did not say how likely it was."""
    NOT_FINITE = "not_finite"
    """The engine's log-probability was no finite number."""
    INCOMPLETE_CALL = "incomplete_call"
    """Its call cannot be trusted as a whole."""
    AUXILIARY = "auxiliary"
    """It belongs to a call that the harness made for itself."""
    DISCARDED = "discarded"
    """Nobody consumed the answer that it belongs to."""
    ABORTED = "aborted"
    """Its call was broken off."""
    ROLLOUT_UNTRAINABLE = "rollout_untrainable"
    """The rollout as a whole is not to be trained on."""
    SAMPLED_PLACEHOLDER = "sampled_placeholder"
    """It is the placeholder of an image, which only an image may put there."""


class DiscardReason(enum.StrEnum):
    """Why nobody consumed what was sampled."""

    CLIENT_GONE = "client_gone"
    """The client left before its answer's last byte and did not come back for it."""
    SUPERSEDED_RETRY = "superseded_retry"
    """A retry was sampled in its place."""
    UNSELECTED_CHOICE = "unselected_choice"
    """Another choice of the same call was taken up."""
    VERIFICATION_FAILED = "verification_failed"
    """The answer contradicted what was asked."""


class IncompleteReason(enum.StrEnum):
    """Why a call's ids or log-probabilities cannot be trusted as a whole."""

    IDS_INCOMPLETE = "ids_incomplete"
    """Fewer ids arrived than the engine says it sampled."""
    LOGPROBS_MISSING = "logprobs_missing"
    """The engine gave no log-probabilities at all."""
    COUNT_MISMATCH = "count_mismatch"
    """Ids, log-probabilities and usage disagree."""
    ECHO_MISMATCH = "echo_mismatch"
    """The engine ran other prompt ids than it was given."""
    UPSTREAM_TRUNCATED = "upstream_truncated"
    """The engine's answer broke off."""
    STOP_UNKNOWN = "stop_unknown"
    """The engine says it stopped, but neither a stop token nor a stop string is there."""


class FailReason(enum.StrEnum):
    """Why a call ended without a turn."""

    REFUSED = "refused"
    """The request could not be read or cannot be served as asked."""
    RENDER_FAILED = "render_failed"
    """The chat template raised on the client's own messages."""
    ENGINE_UNREACHABLE = "engine_unreachable"
    """The engine could not be reached, or the connection broke."""
    ENGINE_REFUSED = "engine_refused"
    """The engine answered with an error status."""
    ENGINE_BROKEN = "engine_broken"
    """The engine's answer cannot be read."""
    CONTEXT_OVERFLOW = "context_overflow"
    """Prompt and answer do not fit into the engine's context."""
    ECHO_MISMATCH = "echo_mismatch"
    """The engine ran other prompt ids than it was given; the failure says from which index on."""
    VERIFICATION_FAILED = "verification_failed"
    """The answer contradicts what was asked in another way than by its prompt ids."""
    CLIENT_GONE = "client_gone"
    """Nobody waited for the answer any more, or the rollout was closed."""
    INTERNAL = "internal"
    """Turnstile itself failed; the log says how."""
    INTERRUPTED = "interrupted"
    """The process ended while the call was running."""


class NoteCode(enum.StrEnum):
    """What was noticed, forgiven or repaired on the way; never a reason by itself to mask or fork."""

    MATCH_WHITESPACE = "normalised:parser_trim"
    """Text matched after leading and trailing whitespace was ignored."""
    MATCH_AMBIGUOUS = "match_ambiguous"
    """Several equal answers were held; the latest was taken, or the one whose minted ids came back."""
    SPLIT_PARALLEL_CALLS = "normalised:split_parallel_calls"
    """One answer with several calls came back as several messages."""
    ARGUMENTS_ADDED = "normalised:arguments_added"
    """A call came back with keys that the model did not write."""
    TOOL_ID_DUPLICATE = "tool_id_duplicate"
    """The client's history has one id for several calls; their results were paired by position."""
    CALL_AS_TEXT = "normalised:call_as_text"
    """An answer whose call could not be parsed came back as plain text."""
    REASONING_IN_CONTENT = "normalised:reasoning_in_content"
    """The thinking came back inside the text."""
    INJECTED_ASSISTANT = "injected_assistant"
    """An assistant message that was never handed out; rendered as text, never trained."""
    RERENDERED_HISTORY = "rerendered_history"
    """Earlier answers of the model were rendered again from text on this path."""
    CONTENT_LOST = "content_lost"
    """The template leaves out some text of a new message."""
    CONTROL_TEXT_IN_CONTENT = "control_text_in_content"
    """A new message contains the text of a control token."""
    LOOSER_THAN_TEMPLATE = "looser_than_template"
    """The template would raise on the full history, or hide the answer in it; the bridge does not."""
    SYNTHETIC_CLOSE = "synthetic_close"
    """An answer without a stop token was closed by scaffold."""
    TOOL_JSON_INVALID = "tool_json_invalid"
    """A tool call could not be parsed; the client got it as text."""
    TOOL_SECTION_WITHOUT_CALL = "tool_section_without_call"
    """A tool-call marker was sampled and no call came of it."""
    CUT_IN_CALL = "cut_in_call"
    """The answer was cut inside a tool call."""
    REASONING_UNCLOSED = "reasoning_unclosed"
    """The answer ended inside its reasoning."""
    TRIMMED_PAST_STOP = "trimmed_past_stop"
    """Tokens sampled after a stop string was complete were dropped from every array."""
    STOP_STRING_KEPT = "stop_string_kept"
    """An answer was continued behind the stop string that had ended it; the client's text does not show that string."""
    LOGPROB_FILLED = "logprob_filled"
    """A log-probability that the engine left out was asked for again and is exact."""
    LOGPROB_MISSING = "logprob_missing"
    """A log-probability that the engine left out could not be had."""
    LOGPROBS_ALL_ZERO = "logprob_suspect:all_zero"
    """Every log-probability is 0.0 at a temperature above 0."""
    SAMPLED_CONTROL_TOKEN = "sampled_control_token"
    """The model sampled a control token in mid-answer; kept."""
    CONSTRAINED = "constrained"
    """A grammar constrained the sampling."""
    FINISH_CONFLICT = "finish_conflict"
    """The engine's finish label and the ids disagree; the ids count."""
    ECHO_UNVERIFIED = "echo_unverified"
    """The engine cannot say which prompt ids it ran."""
    REASONING_BLOB_UNKNOWN = "reasoning_blob_unknown"
    """Reasoning came sealed by someone else; it was not read."""
    UNKNOWN_FIELDS = "unknown_fields"
    """The request had fields that are not known here."""
