"""Another package's hand-written bridges beside a server's own: which package, and whether it may be asked.

Source: docs/decisions/0017.
"""

from __future__ import annotations

from collections.abc import Iterable

from turnstile.errors import CallerError
from turnstile.templates.certificate import Certificate, PluginOutcome
from turnstile.templates.checks_plugins import check_plugins, second_opinion
from turnstile.templates.plugins import PLUGINS
from turnstile.templates.plugins.base import Plugin
from turnstile.templates.served import Served


def plugin_named(name: str, plugins: Iterable[Plugin] = PLUGINS) -> Plugin | None:
    """The plug-in that --plugin-bridges names; None for an empty name.

    Raises: CallerError if there is none of that name, or it is not installed.
    """
    if not name:
        return None
    known = {plugin.name: plugin for plugin in plugins}
    if name not in known:
        raise CallerError(
            f"There are no bridges of a package `{name}`",
            f"Give one of {', '.join(sorted(known))}, or leave --plugin-bridges out",
            code="plugin_unknown",
        )
    if not known[name].is_installed():
        raise CallerError(
            f"The package `{name}` is not installed, or something that it needs",
            f"pip install {name} httpx, or leave --plugin-bridges out",
            code="plugin_missing",
        )
    return known[name]


def with_plugin(served: Served, plugin: Plugin, certificate: Certificate | None) -> tuple[Served, str]:
    """The model with a plug-in to ask where it agrees with our bridge, and what an operator has to know of that.

    Takes seconds: imports the package and compares both in every shape that it can be asked.
    """
    if certificate is None or certificate.problem:
        return served, f"Bridges of `{plugin.name}` are not asked: without a certificate nothing is known of them"
    (check,) = check_plugins(served, certificate.kwargs, (plugin,))
    opinion = second_opinion(served, plugin, check, certificate.kwargs)
    if opinion is not None:
        count = len(check.same) + len(check.refused)
        figures = f"same ids in {len(check.same)} of {count} shapes, refused in {len(check.refused)}"
        notice = f"`{plugin.name}` ({check.variant}) is asked to confirm our bridges: {figures}"
        return served.with_second_opinion(opinion), notice
    if check.outcome is PluginOutcome.DIFFERS:
        shapes = ", ".join(check.different)
        return served, f"`{plugin.name}` ({check.variant}) is not asked: it gives other ids than our bridge in {shapes}"
    return served, f"`{plugin.name}` is not asked: it has no bridge for this template"
