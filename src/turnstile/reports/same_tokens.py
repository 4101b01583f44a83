"""Whether another tokenizer means the same by the ids that were recorded."""

from __future__ import annotations

from collections.abc import Iterable

from turnstile.errors import CallerError
from turnstile.history.forest import Forest
from turnstile.templates.tokenizer import Tokenizer


def refuse_other_tokens(forest: Forest, then: Tokenizer, now: Tokenizer) -> None:
    """See that every recorded id stands for the same bytes, as a control token or not, in both tokenizers.

    Without that the recorded answers would be other texts, and nothing that a replay says would be about the rollout.

    Raises: CallerError `tokenizer_mismatch` naming the first id that is another token now.
    """
    for token_id in sorted(recorded_ids(forest)):
        was, will = ((tokenizer.token_bytes(token_id), tokenizer.is_special(token_id)) for tokenizer in (then, now))
        if was != will:
            raise CallerError(
                f"Id {token_id} is {_shown(*was)} in the rollout's own tokenizer and {_shown(*will)} in the given one",
                "Give a tokenizer with the same tokens: recorded ids mean nothing to another one",
                code="tokenizer_mismatch",
            )


def recorded_ids(forest: Forest) -> frozenset[int]:
    """Every id that stands in a prompt or an answer."""
    runs = [state.started.added_A for state in forest.calls.values()]
    runs += [node.choice.ids_S for node in forest.nodes]
    return frozenset(_flat(run.tolist() for run in runs))


def _flat(lists: Iterable[list[int]]) -> Iterable[int]:
    for each in lists:
        yield from each


def _shown(token: bytes, is_control: bool) -> str:  # noqa: FBT001 - what the tokenizer answered
    text = repr(token.decode("utf-8", "replace"))
    return f"the control token {text}" if is_control else text
