"""Which engine renders and which encodes: decided once at start, by what the certificate found, and said.

Source: docs/decisions/0011. Jinja2 and `tokenizers` are the reference and always there.
"""

from __future__ import annotations

import dataclasses
from importlib.metadata import version

import msgspec

from turnstile.templates import faster_render, faster_tokens
from turnstile.templates.certificate import Certificate, Parity
from turnstile.templates.checks_tokens import TEMPLATE_ENGINE, TOKENIZER, Faster
from turnstile.templates.faster_render import FastTemplate
from turnstile.templates.files import ModelFiles
from turnstile.templates.served import Served

_WHY = {"not run": "not compared", "different": "it differs"}


class Accelerated(msgspec.Struct, frozen=True):
    """What a model is served with."""

    renders: str = "jinja2"
    """`jinja2` or `minijinja`."""
    encodes: str = "tokenizers"
    """`tokenizers` or `fastokens`."""
    refused: tuple[str, ...] = ()
    """Why one that is installed is not used, a sentence each."""


def at_hand(files: ModelFiles, served: Served) -> Faster:
    """The faster engines that are installed, ready for this model; loads their vocabulary."""
    encode = faster_tokens.fast_encoder(files.tokenizer_json) if faster_tokens.is_installed() else None
    render = _renderer(served) if faster_render.is_installed() else None
    installed = ((faster_tokens.PACKAGE, encode), (faster_render.PACKAGE, render))
    return Faster(
        encode=None if isinstance(encode, str) else encode,
        render=None if isinstance(render, str) else render,
        versions=tuple(f"{name} {version(name)}" for name, found in installed if found is not None),
        unusable=tuple(
            (name, why) for name, why in ((TOKENIZER, encode), (TEMPLATE_ENGINE, render)) if isinstance(why, str)
        ),
    )


def _renderer(served: Served) -> faster_render.FastRender | str:
    if served.with_tools is not None:
        return "the model has two templates"
    return faster_render.fast_renderer(served.template)


def accelerated(served: Served, certificate: Certificate | None, faster: Faster) -> tuple[Served, Accelerated]:
    """The model with the engines that the certificate found to be the same, and which they are.

    Args:
        served: the model, with the reference.
        certificate: what the checks found; None: there were none, and the reference serves.
        faster: the engines that were compared.
    """
    parities = {each.name: each for each in certificate.parities} if certificate is not None else {}
    encode = faster.encode if _is_same(parities.get(TOKENIZER)) else None
    render = faster.render if _is_same(parities.get(TEMPLATE_ENGINE)) else None
    tokenizer = served.tokenizer if encode is None else served.tokenizer.encoding_with(encode)
    tools = served.with_tools and dataclasses.replace(served.with_tools, tokenizer=tokenizer)
    template = served.template if render is None else FastTemplate(served.template, render)
    chosen = Accelerated(
        renders=Accelerated().renders if render is None else faster_render.PACKAGE,
        encodes=Accelerated().encodes if encode is None else faster_tokens.PACKAGE,
        refused=tuple(_refusals(parities)),
    )
    return dataclasses.replace(served, tokenizer=tokenizer, template=template, with_tools=tools), chosen


def _is_same(parity: Parity | None) -> bool:
    return parity is not None and parity.outcome == "same"


def _refusals(parities: dict[str, Parity]) -> list[str]:
    compared = (parities.get(TOKENIZER), parities.get(TEMPLATE_ENGINE))
    return [
        f"The {each.name} is installed and not used ({_WHY.get(each.outcome, each.outcome)}): {each.detail}"
        for each in compared
        if each is not None and each.outcome not in ("same", "not installed")
    ]
