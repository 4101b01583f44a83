"""What a trainer cannot express is refused by name, with a code, before any sample of it is made.

Each check is about one thing; `refuse_row` asks them all, by what the trainer's `Facts` say.
"""

from __future__ import annotations

from typing import cast

from turnstile.errors import CallerError
from turnstile.trajectory.converters.base import Facts, Keeps, Media, Reward, Rows, Temperature, Unit, Weights
from turnstile.trajectory.converters.options import Images, Options, RawLogprobs
from turnstile.trajectory.converters.rows import Row
from turnstile.trajectory.shapes import CallInfo, JsonObject, Rollout

OF_A_ROLLOUT = frozenset(
    {
        "rollout_running",
        "reward_missing",
        "reward_per_sequence",
        "several_sequences",
        "logprobs_raw",
        "logprobs_unknown",
        "logprobs_suspect",
        "temperature_unknown",
        "weights_unsupported",
        "images_unsupported",
        "image_format",
        "placeholder_sampled",
        "media_mismatch",
        "row_too_long",
        "advantage_missing",
        "advantage_per_token",
        "policy_version_unknown",
    }
)
"""Codes of refusals that are about one rollout, which can be left out instead."""

_UNKNOWN_MODES = frozenset({"none", "unknown"})
_SUSPECT = "logprob_suspect"


def refuse_rollout(rollout: Rollout, facts: Facts) -> None:
    """Make sure that a trainer can take a rollout at all.

    Raises: CallerError `rollout_running` for one that is not finished, `reward_missing` for an unscored one where the
    trainer has no word for it.
    """
    if rollout.status == "running" and facts.keeps is Keeps.TRAINED:
        raise CallerError(
            f"Rollout {rollout.rollout_id} is still running; {facts.trainer} would train what there is of it",
            f"End it with POST /rollouts/{rollout.rollout_id}/finish, "
            "or leave such rollouts out with `--drop rollout_running`",
            code="rollout_running",
        )
    if rollout.reward is None and facts.reward is not Reward.MAY_BE_UNKNOWN:
        raise CallerError(
            f"Rollout {rollout.rollout_id} is unscored, which {facts.trainer} would take for a reward",
            "Finish it with a reward, or leave unscored rollouts out with `--drop reward_missing`",
            code="reward_missing",
        )


def refuse_unknown_codes(options: Options) -> None:
    """Raises: CallerError `option_invalid` for a code to drop that is about no single rollout."""
    for code in sorted(options.drop - OF_A_ROLLOUT):
        raise CallerError(
            f"There is nothing to drop at `{code}`",
            f"Codes that leave out a rollout are {', '.join(sorted(OF_A_ROLLOUT))}",
            code="option_invalid",
        )


def is_dropped(rollout: Rollout, options: Options) -> str:
    """The code for which a rollout is left out as it stands, whatever the trainer; empty if it is not."""
    if rollout.reward is None and "reward_missing" in options.drop:
        return "reward_missing"
    return "rollout_running" if rollout.status == "running" and "rollout_running" in options.drop else ""


def refuse_row(row: Row, facts: Facts, options: Options) -> None:
    """Make sure that a trainer can express a row. Raises: CallerError with the code of what it cannot express."""
    _refuse_logprobs(row, facts, options)
    _refuse_weights(row, facts)
    _refuse_media(row, facts, options)
    _refuse_length(row, facts, options)
    _refuse_own_reward(row, facts)


def _refuse_logprobs(row: Row, facts: Facts, options: Options) -> None:
    if options.raw_logprobs is RawLogprobs.ALLOW:
        return
    for call in row.trained_calls:
        if call.logprobs_mode in _UNKNOWN_MODES:
            raise CallerError(
                f"Nobody knows what the log-probabilities of call {call.call_id} of rollout "
                f"{row.rollout.rollout_id} are ({call.logprobs_mode})",
                "Record with an engine that says so, or take them as they are with `--allow-raw`",
                code="logprobs_unknown",
            )
        if _suspect(row.rollout, call):
            raise CallerError(
                f"The log-probabilities of call {call.call_id} of rollout {row.rollout.rollout_id} are implausible",
                "Serve with `--suspect-logprobs mask`, which masks such calls, or take them with `--allow-raw`",
                code="logprobs_suspect",
            )
        _refuse_other_temperature(row, call, facts)


def _refuse_other_temperature(row: Row, call: CallInfo, facts: Facts) -> None:
    """A trainer that divides its logits by the temperature compares `raw` numbers with another distribution's."""
    if facts.temperature is Temperature.UNKNOWN:
        return
    temperature = row.rollout.samplings[call.sampling].temperature
    if temperature is None:
        if call.logprobs_mode == "raw" or facts.temperature is Temperature.EACH_TOKEN:
            raise CallerError(
                f"The temperature of call {call.call_id} of rollout {row.rollout.rollout_id} is unknown, "
                f"and {facts.trainer} divides by it",
                "Let the agent or the server set a temperature, or take the numbers as they are with `--allow-raw`",
                code="temperature_unknown",
            )
    elif temperature == 0 or (call.logprobs_mode == "raw" and temperature != 1):
        raise CallerError(
            f"The log-probabilities of call {call.call_id} of rollout {row.rollout.rollout_id} are "
            f"{call.logprobs_mode} at temperature {temperature:g}; {facts.trainer} compares them with those at "
            "that temperature",
            "Sample at temperature 1, let the engine give processed log-probabilities, or take these with "
            "`--allow-raw`",
            code="logprobs_raw",
        )


def _suspect(rollout: Rollout, call: CallInfo) -> bool:
    """Whether the recorder noted that a call's numbers cannot be right (`turnstile.calls` of `extra`)."""
    calls = rollout.extra.get("turnstile.calls")
    facts = cast(JsonObject, calls).get(call.call_id) if isinstance(calls, dict) else None
    notes = cast(JsonObject, facts).get("notes") if isinstance(facts, dict) else None
    found: list[object] = cast(list[object], notes) if isinstance(notes, list) else []
    codes = [cast(JsonObject, note).get("code") for note in found if isinstance(note, dict)]
    return any(isinstance(code, str) and code.startswith(_SUSPECT) for code in codes)


def _refuse_weights(row: Row, facts: Facts) -> None:
    sequence = row.sequence
    plain = sequence.token_weights is None and all(segment.weight == 1.0 for segment in sequence.segments)
    if facts.weights is Weights.CARRIED or plain:
        return
    trained = (weight for weight, counted in zip(row.weights_T, row.mask_T, strict=True) if counted)
    other = next((weight for weight in trained if weight != 1.0), None)
    if other is not None:
        raise CallerError(
            f"Sequence {sequence.sequence_id} weighs a token {other:.6g}; {facts.trainer} has no weights",
            "Export with `--weights token`, which weighs each trained token 1",
            code="weights_unsupported",
        )


def _refuse_media(row: Row, facts: Facts, options: Options) -> None:
    sequence = row.sequence
    if not sequence.media:
        return
    if facts.media is Media.REFUSED and options.images is Images.REFUSE:
        raise CallerError(
            f"Sequence {sequence.sequence_id} has {len(sequence.media)} images; {facts.trainer} cannot be given "
            "them beside exact ids",
            "Choose a trainer that takes images (docs/train/README.md), or leave such sequences out with "
            "`--drop images_unsupported`",
            code="images_unsupported",
        )
    placeholders = {entry.placeholder_id for entry in sequence.media}
    for segment, _ in sequence.sampled_segments():
        if not placeholders.isdisjoint(sequence.token_ids.slice(segment.start, segment.end).tolist()):
            raise CallerError(
                f"The model sampled an image's placeholder in sequence {sequence.sequence_id}, behind token "
                f"{segment.start}; {facts.trainer} would look for an image there",
                "Leave such sequences out with `--drop placeholder_sampled`, and ban the id while sampling",
                code="placeholder_sampled",
            )


def _refuse_length(row: Row, facts: Facts, options: Options) -> None:
    have, need = options.max_length, len(row.sequence.token_ids)
    if 0 < have < need:
        raise CallerError(
            f"Sequence {row.sequence.sequence_id} does not fit into a row of {facts.trainer}: need={need} have={have}",
            "Give the trainer's rows more room, or leave such sequences out with `--drop row_too_long`; nothing is "
            "ever cut off",
            code="row_too_long",
        )


def _refuse_own_reward(row: Row, facts: Facts) -> None:
    if row.sequence.reward in (None, row.rollout.reward):
        return
    compared = facts.reward is Reward.TURNED_INTO_ADVANTAGES and row.advantage is not None
    if compared or facts.unit is not Unit.SEQUENCE:
        raise CallerError(
            f"Sequence {row.sequence.sequence_id} has a reward of its own; {facts.trainer} is given one a rollout",
            "Put advantages into the file and choose `--advantage recorded`, or convert its agent's rollouts apart",
            code="reward_per_sequence",
        )


def refuse_several(rollout: Rollout, rows: int, facts: Facts) -> None:
    """Raises: CallerError `several_sequences` where a trainer has room for one."""
    if facts.rows is Rows.ONE and rows > 1:
        raise CallerError(
            f"Rollout {rollout.rollout_id} has {rows} sequences to train; {facts.trainer} takes one a rollout",
            "Choose one with `--one-sequence longest` or `last`, or a trainer that takes all (docs/train/README.md)",
            code="several_sequences",
        )


def refuse_models(models: frozenset[str], options: Options) -> None:
    """Raises: CallerError `model_not_in_file` or `model_ambiguous` unless one model is left to convert."""
    if options.model and models and options.model not in models:
        raise CallerError(
            f"No sequence to train is of model {options.model}; there are {', '.join(sorted(models))}",
            "Choose one of these with `--model`",
            code="model_not_in_file",
        )
    if not options.model and len(models) > 1:
        raise CallerError(
            f"The sequences are of several models: {', '.join(sorted(models))}",
            "Choose one with `--model`; a trainer trains one",
            code="model_ambiguous",
        )


def refuse_temperatures(temperatures: frozenset[float], facts: Facts, options: Options) -> None:
    """Raises: CallerError `temperature_mixed` where a trainer has one setting for all rows."""
    one = facts.temperature is Temperature.ONE_FOR_ALL and options.raw_logprobs is RawLogprobs.REFUSE
    if one and len(temperatures) > 1:
        named = ", ".join(f"{each:g}" for each in sorted(temperatures))
        raise CallerError(
            f"The trained calls were sampled at several temperatures ({named}); {facts.trainer} has one setting",
            "Export rollouts of one temperature at a time, or take the numbers as they are with `--allow-raw`",
            code="temperature_mixed",
        )
