"""The bounded Jinja2 in which chat templates run.

A chat template is a program that came with a model. It gets what transformers gives it
(`transformers/utils/chat_template_utils.py`), and it cannot run or grow without end: every turn of a loop and
every call of a macro is counted, and so is the size of what operators make.
"""

from __future__ import annotations

import json
import re
import time
import unicodedata
from collections.abc import Mapping, Sized
from typing import Any, cast

from jinja2 import TemplateError, TemplateSyntaxError, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import loopcontrols
from jinja2.runtime import Context
from jinja2.sandbox import SandboxedEnvironment, modifies_known_mutable
from jinja2.visitor import NodeTransformer

from turnstile.templates.bounds import bounded_filters, refuse_method, refuse_percent, refuse_size

MAX_STEPS = 2_000_000
"""Turns of loops in one render: some seconds. A loop over all messages in a loop over all allows 1,400 messages."""
MACRO_STEPS = 20
"""How many turns of a loop a call of a macro counts as; it takes about as long."""
LEAST_STEPS = 100_000
"""Of those, what a short conversation may take; the real templates take some hundred for a message."""
STEPS_OF_PAIR = 4
"""More of them for each pair of messages."""
ITEMS_OF_TOOL = 50
"""As how many messages a tool counts: templates write each parameter of each."""
FREE_SIZE = 65_536
"""Characters or items that an operator makes as a part of its step; what it makes beyond is counted."""
SIZE_OF_STEP = 1024
"""How many of them count as one more step."""
MAX_INDENT = 64
"""Blanks by which JSON may be indented."""
MAX_POWER_BITS = 4096
"""Bits of a number that `**` makes."""

MAX_CPU_S = 20.0
"""Seconds that a render may compute, whatever its steps are made of: some filters do much in one. It is the thread's
own time, which no other work on the machine makes longer, and ten times what `MAX_STEPS` plain steps take."""
_STEPS_BETWEEN_LOOKS = 16
_STEPS = "turnstile_steps"
_ADVANCE = "turnstile_advance"
_JOIN = "turnstile_join"
_OURS = re.compile("turnstile_(?:steps|advance|join)")
_GENERATION_TAG = re.compile(r"\{%([-+]?)\s*(end)?generation\s*([-+]?)%\}")
_MUTATORS = frozenset(
    {"append", "extend", "insert", "pop", "remove", "clear", "reverse", "sort", "update", "setdefault"}
)


_OF_MAPPINGS = frozenset(dir(dict))


class _Bounded(SandboxedEnvironment):
    """A sandbox whose operators and calls make nothing huge."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def getattr(self, obj: Any, attribute: str) -> Any:  # noqa: ANN401 - Jinja2's signature
        """What `obj.attribute` is; Jinja2 finds a mapping's item by the error that there is no such attribute."""
        if type(obj) is dict and attribute not in _OF_MAPPINGS:
            fields = cast("dict[str, Any]", obj)
            if attribute in fields:
                return fields[attribute]
        return super().getattr(obj, attribute)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:  # noqa: ANN401 - Jinja2's signature
        """Refuse an operation whose result would be huge, else do it."""
        match operator:
            case "+" if type(left) is str and type(right) is str:
                # Nearly all that templates do, told without a call.
                if len(left) + len(right) > FREE_SIZE:
                    _count_size(context, len(left) + len(right))
                return left + right
            case "+":
                _count_size(context, _length(left) + _length(right))
            case "*":
                _count_size(context, _length(left) * _number(right) + _length(right) * _number(left))
            case "**" if _number(left).bit_length() * _number(right) > MAX_POWER_BITS:
                raise SecurityError("the template makes a number that is too large")
            case "%" if isinstance(left, str):
                refuse_percent(left, right)
            case _:
                pass
        return super().call_binop(context, operator, left, right)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - Jinja2's signature
        """Refuse a call with a huge number, such as a width to pad to."""
        for value in (*args, *kwargs.values()):
            refuse_size(_number(value))
        # The sandbox wraps `format`.
        method = getattr(__obj, "__wrapped__", __obj)
        text = getattr(method, "__self__", None)
        if isinstance(text, str):
            refuse_method(text, method.__name__, args, kwargs)
        return super().call(__context, __obj, *args, **kwargs)


class _BoundedImmutable(_Bounded):
    """The same, and templates cannot change a list or a mapping: what transformers uses."""

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:  # noqa: ANN401 - Jinja2's signature
        """Whether a template may read an attribute."""
        return super().is_safe_attribute(obj, attr, value) and not modifies_known_mutable(obj, attr)


class BoundedTemplate:
    """A compiled template; safe to share between threads."""

    def __init__(self, source: str) -> None:
        """Compile. Raises: jinja2.TemplateSyntaxError; RecursionError if it is nested too deeply."""
        # Python takes names that NFKC makes equal for one, and Jinja2's names become Python's.
        if _OURS.search(unicodedata.normalize("NFKC", source)):
            raise TemplateSyntaxError("the template uses a name by which its steps are counted", 1)
        rewritten = without_generation_tags(source)
        # Kimi K2 builds a list with `.append`, which the immutable sandbox forbids. Every value that a template
        # sees is made for one render, so a template that mutates changes nothing but its own render.
        kind = (
            _Bounded
            if _mutates(SandboxedEnvironment(extensions=[loopcontrols]).parse(rewritten))
            else _BoundedImmutable
        )
        environment = kind(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
        filters = cast("dict[str, Any]", vars(environment)["filters"])
        filters.update({"tojson": to_json, _ADVANCE: _Steps.advance})
        filters.update(bounded_filters(filters))
        # Text by chance: a prompt must come out the same each time.
        del cast("dict[str, Any]", vars(environment)["globals"])["lipsum"]
        tree = _Counting().visit(environment.parse(rewritten))
        self._template = environment.from_string(
            tree.set_environment(environment), globals={"raise_exception": _raise_exception, _JOIN: _join}
        )

    def render(self, variables: dict[str, Any]) -> str:
        """The text. Raises: jinja2.TemplateError, and whatever else the template's expressions raise."""
        pieces: list[str] = []
        size = 0
        for piece in self._template.generate({**variables, _STEPS: _Steps(_allowed(variables))}):
            size += len(piece)
            refuse_size(size)
            pieces.append(piece)
        return "".join(pieces)


def without_generation_tags(source: str) -> str:
    """A template in which `{% generation %}` is a condition that always holds.

    The tag marks what an assistant wrote, for training masks; Jinja2 does not know it. As a condition it keeps
    its effect on the whitespace around it, as a comment it would not.
    """

    def condition(tag: re.Match[str]) -> str:
        left, end, right = tag.groups()
        return f"{{%{left} {'endif' if end else 'if true'} {right}%}}"

    return _GENERATION_TAG.sub(condition, source)


def to_json(
    value: object,
    ensure_ascii: bool = False,  # noqa: FBT001, FBT002 - the signature that transformers gives templates
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,  # noqa: FBT001, FBT002
) -> str:
    """JSON as chat templates expect it: Jinja2's own filter would escape `<`, `>`, `&` and `'`."""
    if indent is not None and _number(indent) > MAX_INDENT:
        raise SecurityError("the template indents JSON too far")
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message: str) -> None:
    raise TemplateError(message)


def _mutates(tree: nodes.Template) -> bool:
    return any(
        isinstance(call.node, nodes.Getattr) and call.node.attr in _MUTATORS for call in tree.find_all(nodes.Call)
    )


class _Counting(NodeTransformer):
    """Puts a counted step into every loop and macro, and bounds `~`, which is no operator to the sandbox."""

    def visit_For(self, node: nodes.For) -> nodes.Node:
        return self._stepping(node, 1)

    def visit_Macro(self, node: nodes.Macro) -> nodes.Node:
        return self._stepping(node, MACRO_STEPS)

    def visit_CallBlock(self, node: nodes.CallBlock) -> nodes.Node:
        return self._stepping(node, MACRO_STEPS)

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return nodes.Call(nodes.Name(_JOIN, "load"), node.nodes, [], None, None, lineno=node.lineno)

    def _stepping(self, node: nodes.For | nodes.Macro | nodes.CallBlock, weight: int) -> nodes.Node:
        self.generic_visit(node)
        # A filter, since the sandbox looks closely at each call but not at filters: ten times faster.
        step = nodes.Filter(nodes.Name(_STEPS, "load"), _ADVANCE, [nodes.Const(weight)], [], None, None)
        node.body.insert(0, nodes.ExprStmt(step).set_lineno(node.lineno))
        return node


class Endless(SecurityError):
    """A render that took more steps than it may."""


class _Steps:
    """How far one render has come."""

    __slots__ = ("_allowed", "_look_at", "_taken", "_until_ns")

    def __init__(self, allowed: int) -> None:
        self._taken = 0
        self._allowed = allowed
        self._look_at = 0
        self._until_ns = time.thread_time_ns() + int(MAX_CPU_S * 1e9)

    def advance(self, weight: int) -> None:
        self._taken += weight
        if self._taken < self._look_at:
            return
        if self._taken > self._allowed:
            raise Endless(f"the template ran for more than {self._allowed} steps")
        if time.thread_time_ns() > self._until_ns:
            raise Endless(f"the template computed for more than {MAX_CPU_S:g} seconds")
        self._look_at = min(self._taken + _STEPS_BETWEEN_LOOKS, self._allowed + 1)


def _allowed(variables: Mapping[str, Any]) -> int:
    """How many steps a render may take: so many that no conversation is refused, so few that a probe's end soon."""
    messages = cast("list[dict[str, object]]", variables.get("messages") or [])
    texts = [message.get("content") for message in messages]
    said = sum(len(text) for text in texts if isinstance(text, str))
    items = len(messages) + ITEMS_OF_TOOL * len(variables.get("tools") or ())
    return min(MAX_STEPS, LEAST_STEPS + STEPS_OF_PAIR * items**2 + said)


def _count_size(context: Context, size: int) -> None:
    """Refuse what is huge, and count what is large as steps."""
    refuse_size(size)
    steps = context.get(_STEPS)
    if size > FREE_SIZE and isinstance(steps, _Steps):
        steps.advance(size // SIZE_OF_STEP)


def _join(*parts: object) -> str:
    texts = [str(part) for part in parts]
    refuse_size(sum(map(len, texts)))
    return "".join(texts)


def _length(value: object) -> int:
    return len(cast("Sized", value)) if isinstance(value, str | bytes | list | tuple) else 0


def _number(value: object) -> int:
    return abs(value) if isinstance(value, int) else 0
