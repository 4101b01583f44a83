"""Certificates on disk, so that a template is checked once and then known.

They lie in `${XDG_CACHE_HOME:-~/.cache}/turnstile/certificates/KEY.json`; a key covers all that a certificate depends
on (docs/decisions/0008), so a file never ages.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from turnstile.conversation import JsonText, Message, Role, Text
from turnstile.engines import cache_home
from turnstile.templates.certificate import VERSION, Certificate, certificate_key
from turnstile.templates.certify import ShowStep, Step, certify, show_nothing
from turnstile.templates.checks_tokens import Faster
from turnstile.templates.files import ModelFiles, ModelFilesError
from turnstile.templates.render import RenderRequest, Template, TemplateFailed
from turnstile.templates.sandbox import Endless
from turnstile.templates.served import Served

ONE_RENDER_S = 0.1
"""Longest that a template may take for one message; real ones take a hundredth of it."""
AT_START_S = 5.0
"""Longest that they may keep a server from answering."""
ALL_CHECKS_S = 30.0
"""Longest that all checks may take; of real templates, none takes a second."""

_FIRST = RenderRequest(
    messages=(Message(role=Role.USER, parts=(Text("Hello"),)),), now=datetime(2024, 5, 6, 7, 8, 9, tzinfo=UTC)
)


class TooSlow(ModelFilesError):
    """A template takes so long that no agent could wait for it."""


def certificates_folder() -> Path:
    """Where certificates lie."""
    return cache_home() / "turnstile" / "certificates"


def certificate_of(  # noqa: PLR0913 - what is certified, where it is kept, how it is watched
    served: Served,
    folder: Path,
    kwargs: JsonText = "{}",
    show: ShowStep = show_nothing,
    limit_s: float = ALL_CHECKS_S,
    *,
    faster: Faster = Faster(),  # noqa: B008 - it cannot change
) -> Certificate:
    """The certificate of a served model, from the folder or made now and put there.

    Args:
        served: the model.
        folder: of certificates; made if it is not there.
        kwargs: template arguments, a JSON object.
        show: told how far the checks are; not called where the certificate is known.
        limit_s: the longest that the checks may take.
        faster: the accelerators that are at hand, to be compared.

    Raises: TooSlow if they take longer; CallerError if `kwargs` is no JSON object.
    """
    key = certificate_key(served, kwargs, faster.versions)
    file = folder / f"{key}.json"
    known = _known(file)
    # A file that was copied, renamed or edited may say anything; what it says of itself must be what is asked for.
    if known is not None and _names(known) == (VERSION, key, served.tokenizer.sha256, served.template.sha256, kwargs):
        return known
    made = certify(served, kwargs, _bounded(show, limit_s), faster)
    # A cache that cannot be written costs the next start a second, nothing else.
    with contextlib.suppress(OSError):
        _keep(file, made)
    return made


def _names(known: Certificate) -> tuple[int, str, str, str, JsonText]:
    return known.version, known.key, known.tokenizer_sha256, known.template_sha256, known.kwargs


def refuse_slow_template(files: ModelFiles) -> None:
    """Time one plain render of each of a model's templates, before many are made.

    Raises: TooSlow; ModelFilesError if a template cannot be compiled.
    """
    for source in filter(None, (files.chat_template, files.tool_use_template)):
        template = Template(source, files.special_tokens)
        # More than once, since one render may wait for a busy machine.
        taken = min(_seconds(template) for _ in range(3))
        if taken > ONE_RENDER_S:
            raise TooSlow(
                f"The chat template takes {taken:.1f} s for one message",
                "Give the template that the model was published with",
            )


def _seconds(template: Template) -> float:
    began = time.monotonic()
    try:
        template.render(_FIRST)
    except TemplateFailed as failure:
        if isinstance(failure.__cause__, Endless):
            raise TooSlow(failure.problem, "Give the template that the model was published with") from failure
    return time.monotonic() - began


def _bounded(show: ShowStep, limit_s: float) -> ShowStep:
    began = time.monotonic()

    def bounded(step: Step) -> None:
        if time.monotonic() - began > limit_s:
            raise TooSlow(
                f"After {limit_s:g} s only {step.done} of {step.total} checks of the chat template were done",
                "Give the template that the model was published with",
            )
        show(step)

    return bounded


def _known(file: Path) -> Certificate | None:
    try:
        return msgspec.json.decode(file.read_bytes(), type=Certificate)
    except (OSError, msgspec.DecodeError):
        # Not there, or cut off by a crash: made again, and then written over.
        return None


def _keep(file: Path, certificate: Certificate) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    handle, unfinished = tempfile.mkstemp(dir=file.parent, suffix=".unfinished")
    try:
        with os.fdopen(handle, "wb") as out:
            out.write(msgspec.json.encode(certificate))
        Path(unfinished).replace(file)
    except OSError:
        Path(unfinished).unlink(missing_ok=True)
        raise
