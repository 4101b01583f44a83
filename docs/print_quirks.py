"""Prints docs/reference/quirks.md from `turnstile.protocols.quirks`: run it after a change there.

python docs/print_quirks.py > docs/reference/quirks.md
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence

import msgspec

from turnstile.protocols.quirks.entry import (
    TABLE_VERSION,
    MarkAuxiliary,
    NameAgent,
    Quirk,
    RemoveSystemLine,
    ToldOnly,
)
from turnstile.protocols.quirks.known import KNOWN

INTRO = """# Quirks

Printed from `turnstile.protocols.quirks`. Harnesses send things of their own beside an agent's turns. This is the table
of those that are known: whose habit it is, what a request looks like, what is done about it.

Whatever is done is noted: the call has the note `quirk` with the entry's name, `GET /rollouts/ID` counts them in
`quirks`, and calls by whose they are in `kinds`. `turnstile serve --no-quirk NAME` switches one off, `--quirks FILE`
adds own ones.

An auxiliary call is recorded and spliced like any other. Its `kind` in a [trajectory](trajectory.md) is `auxiliary`,
its tokens are masked (`auxiliary`), and the turns of the agent keep a sequence without it. A request that goes on with
an auxiliary call's answer still stands behind that answer's ids: they are what the model saw.
"""

OWN = """## Own entries

`--quirks FILE` is TOML, or JSON of the same form if its name ends in `.json`. Own entries come before those that are
known; of several that mark a call as auxiliary the first one counts.

```toml
version = {version}

[[quirks]]
name = "clock"
who = "my agent"
action = {{ type = "remove_system_line", starts_with = "Current time:", place = "any_line" }}

[[quirks]]
name = "my_judge"
when = {{ tools = "none", system_has = ["You judge the agent's last step"] }}
action = {{ type = "mark_auxiliary", purpose = "judge" }}

[[quirks]]
name = "my_sub_agent"
action = {{ type = "name_agent", from_headers = ["x-my-agent"], parent_header = "x-my-parent" }}
```

Every test in `when` must hold:

| test | holds if |
| --- | --- |
| `dialects` | the call's dialect is one of these |
| `headers` | each `{{ name, value }}` is among the request's headers; without `value`, with any value |
| `tools` | `none`: the request offers no tools; `some`: it does |
| `answers` | `none`: the request holds no answer of the model |
| `output_fields` | the answer must be JSON of a schema with exactly these members |
| `max_tokens` | the limit is exactly this |
| `user_is` | this is the whole text of the only user message |
| `last_user_has` | one of these stands in the first 2000 characters of the last message, which is a user's |
| `system_has` | one of these stands in the first 2000 characters of the leading system text |

| `action` | does |
| --- | --- |
| `remove_system_line` | takes the line that begins with `starts_with` out of the first system message: \
its very first line, or with `place = "any_line"` every such line. \
Prompt and head are without it, and so is the comparison of retries |
| `mark_auxiliary` | makes the call auxiliary; `purpose` is the `kind_reason` |
| `name_agent` | puts the values of `from_headers` together as `agent_name`; `parent_header` is kept as `parent_agent` |

Texts of `when` are compared without regard to case. `who`, `since`, `sends`, `effect` and `reference` are for people.
"""


def page() -> str:
    """The page as Markdown."""
    acting = (
        ("Lines that change by themselves", RemoveSystemLine),
        ("Calls that are the harness's own", MarkAuxiliary),
        ("Sub-agents", NameAgent),
    )
    lines = [INTRO]
    for title, kind in acting:
        found = [quirk for quirk in KNOWN if isinstance(quirk.action, kind)]
        lines += [f"## {title}", "", *_table(found, (*_TOLD, ("rule", _rule), _REFERENCE)), ""]
    told = [quirk for quirk in KNOWN if isinstance(quirk.action, ToldOnly)]
    lines += [
        "## Told only",
        "",
        "Nothing is switched by these: what is done holds for every client, or it is an edit like any other.",
        "",
        *_table(told, (*_TOLD, _REFERENCE)),
        "",
        OWN.format(version=TABLE_VERSION),
    ]
    return "\n".join(lines)


def _table(quirks: Iterable[Quirk], columns: Sequence[tuple[str, Callable[[Quirk], str]]]) -> list[str]:
    cells = [[title for title, _ in columns], ["---"] * len(columns)]
    cells += [[tell(quirk) for _, tell in columns] for quirk in quirks]
    return [f"| {' | '.join(row)} |" for row in cells]


def _rule(quirk: Quirk) -> str:
    rule = {"when": msgspec.to_builtins(quirk.when), "action": msgspec.to_builtins(quirk.action)}
    shown = {name: value for name, value in rule.items() if value}
    return f"`{msgspec.json.encode(shown).decode()}`"


_TOLD = (
    ("name", lambda quirk: f"`{quirk.name}`"),
    ("who", lambda quirk: quirk.who),
    ("since", lambda quirk: quirk.since),
    ("what a request looks like", lambda quirk: quirk.sends),
    ("what is done", lambda quirk: quirk.effect),
)
_REFERENCE = ("reference", lambda quirk: quirk.reference)


if __name__ == "__main__":
    sys.stdout.write(page())
