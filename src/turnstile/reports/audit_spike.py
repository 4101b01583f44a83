"""One id, or one number, that is wrong: where the trouble begins, and what stood there.

A wrong id leaves every number before it alone and disturbs those behind it, the less the farther they are.
"""

from __future__ import annotations

import hashlib
from array import array

import msgspec

from turnstile.reports.audit_figures import Figures, Limits, Verdict, figures_of
from turnstile.reports.audit_run import FEWEST, Asked, FaultKind, Finding, Rerun, Run, is_explained_by, own_rows
from turnstile.reports.audit_subject import Drawn, Subject
from turnstile.tokens import IdRun

LOUD = 0.5
"""|d| beyond which a token is no noise: bfloat16 and weights of four bits reach 0.25."""
_UNCERTAIN = -0.5
_IDS_TRIED = 8
_HASHED_BYTES = 1 << 31
"""Up to which every id is tried in every place until the hash of the prompt is right: seconds."""


class Compared(msgspec.Struct, frozen=True):
    """A sequence whose numbers have been compared, sampled token by sampled token."""

    subject: Subject
    drawn_D: tuple[Drawn, ...]
    asked_D: tuple[Asked, ...]
    differences_D: tuple[float, ...]

    def figures(self) -> Figures:
        """Those of all tokens."""
        return figures_of(self.differences_D)

    def begins_exact(self, limits: Limits) -> bool:
        """Whether the first numbers fit to the last digit, which tells a float32 engine.

        Of a token that was almost certain, a coarse engine's number fits as well, so those do not count.
        """
        calm = self.drawn_D[: self.first_beyond(limits.exact_max_abs)]
        return sum(1 for each in calm if each.logprob < _UNCERTAIN) >= FEWEST

    def first_beyond(self, limit: float) -> int:
        """Index of the first difference that is larger; their number if none is."""
        return next((at for at, each in enumerate(self.differences_D) if abs(each) > limit), len(self.drawn_D))


def find_spike(compared: Compared, run: Run, rerun: Rerun, limits: Limits) -> Finding:
    """Where the trouble begins, and with what."""
    index = _beginning(compared, limits)
    drawn = compared.drawn_D[index]
    if drawn.call in compared.subject.other_prompts:
        return _before(compared, index, rerun)
    rest = figures_of(each for at, each in enumerate(compared.differences_D) if at != index)
    place = (drawn.at, drawn.at + 1, drawn.call)
    if rest.tokens >= FEWEST and rest.verdict(limits) in (Verdict.EXACT, Verdict.ENGINE_NOISE):
        said = f"The number of token {drawn.at} alone is wrong; those behind it fit"
        return Finding(FaultKind.WRONG_NUMBER, said, *place, figures=rest)
    swapped = _sampled_instead(compared, index, run, rerun, limits)
    if swapped is not None:
        return swapped
    start = compared.drawn_D[index - 1].at + 1 if index else 0
    if start == drawn.at:
        said = f"Token {drawn.at} of call {drawn.call} is not the id that was sampled"
        return Finding(FaultKind.WRONG_SAMPLED_ID, said, *place)
    return _before(compared, index, rerun)


def _beginning(compared: Compared, limits: Limits) -> int:
    """Index of the first sampled token that the trouble reaches."""
    indices_by_call: dict[int, list[int]] = {}
    for index, drawn in enumerate(compared.drawn_D):
        indices_by_call.setdefault(drawn.call, []).append(index)
    hashed = [indices[0] for call, indices in indices_by_call.items() if call in compared.subject.other_prompts]
    return min([_first_disturbed(compared, limits, list(indices_by_call.values())), *hashed])


def _first_disturbed(compared: Compared, limits: Limits, calls: list[list[int]]) -> int:
    last = len(compared.drawn_D) - 1
    if compared.begins_exact(limits):
        return min(compared.first_beyond(limits.exact_max_abs), last)
    loud = compared.first_beyond(LOUD)
    before = figures_of(compared.differences_D[:loud])
    if FEWEST <= before.tokens <= last and before.verdict(limits) is Verdict.ENGINE_NOISE:
        return loud
    for indices in calls:
        if figures_of(compared.differences_D[index] for index in indices).verdict(limits) is Verdict.FAULT:
            return indices[0]
    return 0 if compared.figures().verdict(limits) is Verdict.FAULT else last


def _sampled_instead(compared: Compared, index: int, run: Run, rerun: Rerun, limits: Limits) -> Finding | None:
    """The id that puts everything right in the place of a sampled one, if there is one."""
    drawn, ids = compared.drawn_D[index], compared.subject.token_ids
    for token_id in run.ids_near(compared.asked_D[index], drawn.logprob, _IDS_TRIED):
        left = _mended(compared, drawn.at, token_id, rerun)
        if is_explained_by(left, compared.figures(), limits):
            said = f"Token {drawn.at} of call {drawn.call} is {ids[drawn.at]}, and {token_id} was sampled"
            place = (drawn.at, drawn.at + 1, drawn.call)
            return Finding(FaultKind.WRONG_SAMPLED_ID, said, *place, token_id=token_id, figures=left)
    return None


def _mended(compared: Compared, at: int, token_id: int, rerun: Rerun) -> Figures:
    ids = compared.subject.token_ids
    mended = ids.slice(0, at) + IdRun.of([token_id]) + ids.slice(at + 1)
    found = rerun(mended).logprobs(own_rows(compared.drawn_D, mended))
    return figures_of(a - b.logprob for a, b in zip(found, compared.drawn_D, strict=True))


def _before(compared: Compared, index: int, rerun: Rerun) -> Finding:
    """A fault among the ids between two answers, or before the first."""
    drawn, subject = compared.drawn_D[index], compared.subject
    start = compared.drawn_D[index - 1].at + 1 if index else 0
    place = (start, drawn.at, drawn.call)
    where = f"tokens {start} to {drawn.at - 1}"
    other = subject.other_prompts.get(drawn.call)
    if other is not None:
        found = _by_hash(subject.token_ids.slice(0, drawn.at), start, other, subject.vocab_size)
        if found is not None:
            at, token_id = found
            left = _mended(compared, at, token_id, rerun)
            said = f"Token {at}, before call {drawn.call}, is {subject.token_ids[at]}, and the engine had {token_id}"
            return Finding(FaultKind.WRONG_PROMPT_ID, said, at, at + 1, drawn.call, token_id=token_id, figures=left)
        said = f"The ids among {where} are not those that the engine had for call {drawn.call}: their hash is another"
        return Finding(FaultKind.WRONG_PROMPT_ID, said, *place)
    if index or _fades(compared.differences_D):
        said = (
            f"An id among {where} is not the one that the engine had, or one is missing or doubled there: "
            f"{'all before it fits, and ' if index else ''}the trouble begins with call {drawn.call}"
        )
        return Finding(FaultKind.WRONG_PROMPT_ID, said, *place)
    thing = "an image or an id" if subject.media else "an id"
    said = (
        f"No single fault explains the differences. Either this is not the model, or the revision, that sampled, or "
        f"{thing} among {where} is not the one that the engine had; it is that if other sequences fit"
    )
    return Finding(FaultKind.UNEXPLAINED, said, *place)


def _fades(differences_D: tuple[float, ...]) -> bool:
    """Whether the trouble is less at the end, as behind a wrong id; another model is wrong everywhere alike."""
    quarter = max(FEWEST, len(differences_D) // 4)
    if len(differences_D) < 2 * quarter:
        return False
    return 2 * figures_of(differences_D[-quarter:]).mean_abs < figures_of(differences_D[:quarter]).mean_abs


def _by_hash(prompt_T: IdRun, start: int, sha256: str, vocab_size: int) -> tuple[int, int] | None:
    """The one exchange of an id, at `start` or behind it, that gives the prompt its hash: token index and id."""
    places = len(prompt_T) - start
    if not 0 < places * vocab_size * len(prompt_T.packed) <= _HASHED_BYTES:
        return None
    choices = [array("i", [token_id]).tobytes() for token_id in range(vocab_size)]
    for at in range(start, len(prompt_T)):
        before = hashlib.sha256(prompt_T.packed[: 4 * at])
        behind = prompt_T.packed[4 * at + 4 :]
        for token_id, packed in enumerate(choices):
            tried = before.copy()
            tried.update(packed + behind)
            if tried.hexdigest() == sha256:
                return at, token_id
    return None
