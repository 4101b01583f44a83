"""Keys are compared in constant time everywhere, told by the code's own structure: a stopwatch would flake."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import turnstile

SOURCE = Path(turnstile.__file__).parent
MODULES = sorted(SOURCE.rglob("*.py"))
_KEYS = re.compile(r"(admin|read|agent|api|presented|engine)_keys?|agent_key_sha256|_admin|_readers|authorization")
"""Names of what holds a key, or a key's hash."""
_EMPTY = (None, "", b"", (), 0)


def _names(node: ast.expr) -> Iterator[str]:
    for part in ast.walk(node):
        match part:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.Constant(value=str(name)):
                yield name
            case _:
                pass


def _compares_a_key(node: ast.Compare) -> bool:
    sides = (node.left, *node.comparators)
    by_content = any(isinstance(each, (ast.Eq, ast.NotEq, ast.In, ast.NotIn)) for each in node.ops)
    with_nothing = any(isinstance(side, ast.Constant) and side.value in _EMPTY for side in sides)
    return by_content and not with_nothing and any(_KEYS.fullmatch(name) for side in sides for name in _names(side))


def leaks(source: str) -> list[str]:
    """Comparisons of keys that end at the first byte that differs."""
    found = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Compare)]
    return [ast.unparse(node) for node in found if _compares_a_key(node)]


def test_no_key_is_compared_but_by_compare_digest() -> None:
    found = {str(each.relative_to(SOURCE)): leaks(each.read_text(encoding="utf-8")) for each in MODULES}
    assert {name: leaking for name, leaking in found.items() if leaking} == {}


def test_a_comparison_that_tells_by_its_time_would_be_found() -> None:
    assert len(leaks("presented_key(headers) == self._admin\nkey in self._readers\nx != rollout.agent_key_sha256")) == 3
    assert leaks("headers['authorization'] == wanted") == ["headers['authorization'] == wanted"]
    assert leaks("hmac.compare_digest(a, self._admin) > 0\nif admin_key == '': pass\nkey is None") == []


def test_every_place_that_lets_somebody_in_goes_through_compare_digest() -> None:
    used = {
        str(module.relative_to(SOURCE)): [
            function.name
            for function in ast.walk(ast.parse(module.read_text(encoding="utf-8")))
            if isinstance(function, ast.FunctionDef) and "compare_digest" in ast.unparse(function)
        ]
        for module in MODULES
        if "compare_digest" in module.read_text(encoding="utf-8")
    }
    assert used == {"server/keys.py": ["_is_among"], "exchange/open_rollout.py": ["admits"]}


def test_of_several_keys_each_is_compared_whichever_is_right() -> None:
    source = (SOURCE / "server" / "keys.py").read_text(encoding="utf-8")
    (compare,) = [
        node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef) and node.name == "_is_among"
    ]
    called = {
        node.func.id for node in ast.walk(compare) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    assert called & {"any", "next", "all"} == set(), "these stop at the first key that is right"
    assert not any(isinstance(node, (ast.If, ast.For, ast.BoolOp)) for node in ast.walk(compare))
