"""`minijinja` as template engine: a conversation's text some three times faster.

An accelerator, and a narrow one (docs/decisions/0011). It is written in Rust, and cannot be stopped from Python. Its
fuel counts instructions and the characters that they make, but not the lists: of a template made to do harm, one line
hangs the process. So it runs only templates that are known, by their hash, and only on values of which both
engines make the same text.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
from collections.abc import Callable, Iterator
from typing import TypeAlias

from turnstile.templates.panics import Guarded
from turnstile.templates.render import RenderRequest, Template, variables_of
from turnstile.templates.sandbox import to_json, without_generation_tags
from turnstile.templates.sentinel import texts_of

FastRender: TypeAlias = Callable[[RenderRequest], str]
"""Another template engine. Raises: ValueError where it cannot."""

PACKAGE = "minijinja"
FUEL = 20_000_000
"""Instructions and characters of one render, at most two seconds. A conversation of 128,000 ids takes some million."""

_NAME = "chat"
_ODD_JSON = re.compile(
    r"(?:^|[:\[,])\s*-?(?:\d+(?:[.eE]|\d{15})|NaN|Infinity)|\\u00(?:0[bBcC]|1[c-fC-F]|85)|\\u202[89]"
)
"""Numbers that it writes otherwise (`1.0` as `1`, `1e-05` as `0.00001`, long integers), and escaped blanks."""
_ODD_BLANK = re.compile("[\x0b\x0c\x1c-\x1f\x85\u2028\u2029]")
"""Characters that are blanks or ends of lines for Python alone, or for Rust alone."""


class NotForIt(ValueError):
    """A conversation of which the engine may make another text."""


def is_installed() -> bool:
    """Whether the package is there."""
    return importlib.util.find_spec(PACKAGE) is not None


def fast_renderer(template: Template) -> FastRender | str:
    """A renderer for a known template; or why there is none, in words.

    It raises whatever its engine raises, and NotForIt; the reference then decides what the text is.
    """
    if template.sha256 not in KNOWN_TEMPLATES:
        return f"{PACKAGE} renders only published templates that were compared, and this is none of them"
    engine = importlib.import_module(PACKAGE)
    environment = engine.Environment(
        templates={_NAME: without_generation_tags(template.source)},
        filters={"tojson": to_json},
        globals={"raise_exception": _raise},
        auto_escape_callback=_no_escaping,
        trim_blocks=True,
        lstrip_blocks=True,
        pycompat=True,
        fuel=FUEL,
        debug=False,
    )

    def render(request: RenderRequest) -> str:
        if any(odd.search(text) for odd, text in _suspects(request)):
            raise NotForIt("a number or a blank that is written in more than one way")
        try:
            return str(environment.render_template(_NAME, **variables_of(request, template.special_tokens)))
        except engine.TemplateError as failure:
            raise NotForIt(str(failure)) from failure

    return Guarded(PACKAGE, render)


def _no_escaping(_name: str) -> None:
    """Prompts are no HTML."""


def _raise(message: str) -> None:
    raise ValueError(message)


def _suspects(request: RenderRequest) -> Iterator[tuple[re.Pattern[str], str]]:
    for text in (*request.tools, request.kwargs):
        yield _ODD_JSON, text
    for message in request.messages:
        for call in message.calls:
            yield _ODD_JSON, call.arguments
    for text in texts_of(request.messages):
        yield _ODD_BLANK, text


class FastTemplate(Template):
    """A template that another engine renders where it can, and Jinja2 wherever that one raises."""

    def __init__(self, reference: Template, fast: FastRender) -> None:
        """Take over a compiled template's source and special tokens."""
        super().__init__(reference.source, reference.special_tokens)
        self._fast = fast

    def render(self, request: RenderRequest) -> str:
        """The same text as `Template.render`, and the same errors."""
        try:
            return self._fast(request)
        except ValueError:
            return super().render(request)


KNOWN_TEMPLATES = frozenset(
    {
        "2147c474f41b522b7296f74692b9f31e45f49a31465960576a9d321339c5915a",  # cohere2
        "cc60b553279347d83df761f5dc55b4b2fb66bc1fa9a33e219911c13c11552fac",  # command-r7b
        "56a1447ad31926fdc21fb07e56e5642bd9c850c4f52d8c8af7bbe5f079a84f5f",  # deepseek-r1-distill
        "563b1ce7d61d50a9b4c7439a912a1116f095b712df5b5e4d3e1116049874eb64",  # deepseek-v3
        "d9f5f351b276cf9e81d009db08830db7d38e94927aecd09a7beb43e2aafee94e",  # deepseek-v3.1
        "8e5a13fcc4bdd4d943311fc59064b805770fdeddfccbd7f1c252cc16e8acaf3d",  # deepseek-v3.2
        "7bd4fbdf0c06cd7398ddb6913de6e4a5839b9d06569e74e5b2ec246b375ca9c9",  # deepseek-v4
        "7de1c58e208eda46e9c7f86397df37ec49883aeece39fb961e0a6b24088dd3c4",  # gemma3
        "0a2c8073c878ab1da004bee933a998606537bbb62016310352c7285c3f01c5b5",  # gemma4
        "44f815868bf02fa458dd2f741a338046f4bf45f398eb6d067766726b9d96cce3",  # glm4.5
        "8804f445c761b9f259e3c1126a579d481a22ca09b2a3d32bcc4eb91bc36e0301",  # glm4.6
        "d63ad536c3c81880043e22ec7fd08db42b4d8fb7c89c7138bc562bfa25281375",  # glm4.7-flash
        "a4c9919cbbd4acdd51ccffe22da049264b1b73e59055fa58811a99efbd7c8146",  # gpt-oss
        "9524df67b77a7b25a2dfee898f75b316a157eb9d855b51e32aeac79d7c8a83ce",  # granite4.0
        "b4b2cd69d0c6611deede457b6792d8ca81125461ad6d13f0153c695db885209b",  # kimi-k2.5-fixed-miles
        "4578103bf225f58d5b7ceb613ccc2ac8fe82b6707b7289211b3d4825e87806b3",  # kimi-k3
        "c5b67247c9f736f6c40eaa91ae1ef27dc67f5b041eedaadb97a1bea5030fb0ff",  # lfm2.5
        "ba03a121d097859c7b5b9cd03af99aafe95275210d2876f642ad9929a150f122",  # llama3
        "e10ca381b1ccc5cf9db52e371f3b6651576caee0a630b452e2816b2d404d4b65",  # llama3.1
        "5816fce10444e03c2e9ee1ef8a4a1ea61ae7e69e438613f3b17b69d0426223a4",  # llama3.2
        "967ff7e387676f4b4340585da0585416532f1e6c5ee3f1ede64b2c21ef7ea001",  # minimax-m2
        "1a0918f9feafbe50b0ebf8aa938d4ca4dbaa42ab58962c3db0be30b4d71ef150",  # minimax-m2.5-fixed-miles
        "5b8f31f11198696548d544dbe424a3c1ef244d00a475f4e1bffb351fda085608",  # mistral-small-3.2
        "cfc67e5f349f37690dfd31ed1f18bc4442a9dd32fe39a648f993cb4eb3cae678",  # muse-glimmer
        "ab7813c3abdd9cb655905a410728b26c7884eca45ddfab8d9f931553485a7862",  # nemotron3-nano
        "575fb74f54ed264df9047d0ecce3c98938aae953fb4f50356675706264cbb68a",  # nemotron3-super
        "dcaee66df77bfbb789ec541fe713218da30225a526f1db97138fc39ee6dc56aa",  # phi3
        "78d976a442bcde2f0be15aafbb8e3050e1104f86732266f68403251b89982a90",  # phi3.5
        "cd8e9439f0570856fd70470bf8889ebd8b5d1107207f67a5efb46e342330527f",  # qwen2.5
        "a0bc6f6fc7a29a80017a433e8f03a1cc1236e838a944a2d034295a60c4f2fddb",  # qwen2.5-vl
        "a55ee1b1660128b7098723e0abcd92caa0788061051c62d51cbe87d9cf1974d8",  # qwen3
        "d287fb2edf144207f868ae1b282755dc19db2a3f1c5b3a3d57e9e5abffa98392",  # qwen3-coder
        "c0f795b809f8b461e072a03c88eb7de42fc3a72e4a68f2fef804491986acd0dc",  # qwen3-fixed-miles
        "64f85b198065d0fba2a81f37e10ed68161ce2c19a754c7100e67e0ca2ee9c326",  # qwen3-instruct-2507
        "1d944ff8f268b611abb296cdd24d0f51981eef1c8647ac321c3a0258f61eb6c9",  # qwen3-training
        "3636d0f0bd6bef02654cdffdc447b79cb2cef8ab02cc75267345946291a489e4",  # qwen3-vl
        "a4aee8afcf2e0711942cf848899be66016f8d14a889ff9ede07bca099c28f715",  # qwen3.5
        "51a8a66ead97dd7b761f074f6f23f9168367f41a24b80386d97502885843c1d5",  # qwen3.5-fixed-miles
        "273d8e0e683b885071fb17e08d71e5f2a5ddfb5309756181681de4f5a1822d80",  # qwen3.5-nothink
        "e84f32a23fdda27689f868aa4a1a5621f41133e51a48d7f3efcbea2839574259",  # qwen3.6
        "c3cf9e34abf4f9e36c2d72165aa9c132d3e2a725b6c2586aaa3a8af9d7a81041",  # qwen3.8
        "5ed15374ce53e19a7798710736a2c9fe41c79f7385e8421a2080d6575a80ef1b",  # qwq-32b
        "3f9e0dc4adeb8032287d0129dc75b6298fee8698a52ab41e863dbc89929330d3",  # seed-oss
        "872be49dbb638044ad01b60388f48d469ff2980e5f0dccdc22ec907db54d0788",  # smollm2
        "19eacf64569032f07644ea92c8e2a87af06ee7008147557302c31e474912ca97",  # smollm3
    }
)
"""sha256 of the sources of published templates, read and rendered in all shapes by both engines; whose they are."""
