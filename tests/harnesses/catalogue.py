"""The harnesses: where each comes from, how it is started, and how its tools are called.

To add one: a `Harness` in `HARNESSES`. Nothing else knows a harness by name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from played import BY_ANSWERS, Hands, ToolUse

AGENTS = Path(__file__).parent / "agents"
TASK = "Fix the bug in calc.py so that python3 test_calc.py passes."
MODEL = "policy"


@dataclass(frozen=True)
class Package:
    """What is installed for a harness, in a folder of its own."""

    folder: str
    manager: str
    """`npm` or `pip`."""
    requirements: tuple[str, ...]
    size_mb: int
    """With everything it needs."""


@dataclass(frozen=True)
class Place:
    """Where a harness runs, and what it is to talk to."""

    installed: Path
    home: Path
    repository: Path
    base_url: str
    """The rollout's, `http://HOST:PORT/r/ID`."""
    key: str


@dataclass(frozen=True)
class Command:
    """How it is started: in the repository, with this environment and nothing else, with closed stdin."""

    words: list[str]
    environment: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    """Text by path below the home."""


@dataclass(frozen=True)
class Harness:
    """One way of running a harness."""

    name: str
    dialect: str
    package: Package
    command: Callable[[Place], Command]
    hands: Callable[[Path], Hands]
    """By the repository."""
    model: str = MODEL
    """What the served model is called."""
    has_tools: bool = True
    """Whether its requests declare tools; calls without are then its own, for titles and the like."""
    auxiliary: int = 0
    """Calls that it makes for itself in a run."""
    limit_s: float = 240.0
    forks: frozenset[str] = frozenset()
    """Forks that are real: it does rewrite what the model said."""
    repairs: frozenset[str] = frozenset()
    """Those that are real behind an answer that broke off."""
    survives: frozenset[str] = frozenset({"429", "500", "cut", "clean end", "error event"})
    """Troubles at the engine after which it goes on and finishes the task. After others it gives up."""


def _npm(name: str, package: str, version: str, size_mb: int) -> Package:
    return Package(f"{name}-{version}", "npm", (f"{package}@{version}",), size_mb)


def _pip(name: str, version: str, size_mb: int, requirement: str = "") -> Package:
    return Package(f"{name}-{version}", "pip", (f"{requirement or name}=={version}",), size_mb)


def _bin(place: Place, name: str) -> str:
    return str(place.installed / "node_modules" / ".bin" / name)


def _python(place: Place) -> str:
    return str(place.installed / "bin" / "python")


BEFORE_THE_FIRST_BYTE = frozenset({"429", "500"})
"""What the official SDKs send again by themselves; a stream that breaks is an exception of the agent's own program."""
SED = "sed -i 's/a - b/a + b/' calc.py"


def _shell_only(name: str, argument: str = "command", done: str = "") -> Callable[[Path], Hands]:
    def shell(command: str) -> ToolUse:
        return ToolUse(name, {argument: command})

    return lambda repository: Hands(
        shell=shell,
        read=lambda file: shell(f"cat {file}"),
        edit=lambda file, old, new: shell(SED),
        done=(lambda: shell(done)) if done else None,
    )


# --- Claude Code ------------------------------------------------------------------------------------------------------


def _claude_hands(repository: Path) -> Hands:
    return Hands(
        shell=lambda command: ToolUse("Bash", {"command": command, "description": "run a command"}),
        read=lambda file: ToolUse("Read", {"file_path": f"{repository}/{file}"}),
        edit=lambda file, old, new: ToolUse(
            "Edit", {"file_path": f"{repository}/{file}", "old_string": old, "new_string": new}
        ),
    )


def _claude_environment(place: Place) -> dict[str, str]:
    return {
        "ANTHROPIC_BASE_URL": place.base_url,
        "ANTHROPIC_API_KEY": place.key,
        "ANTHROPIC_MODEL": MODEL,
        "ANTHROPIC_DEFAULT_HAIKU_MODEL": MODEL,
    }


def _claude_command(place: Place) -> Command:
    words = [_bin(place, "claude"), "-p", TASK, "--permission-mode", "acceptEdits"]
    words += ["--allowedTools", "Bash Edit Read", "--output-format", "stream-json", "--verbose"]
    return Command(words, _claude_environment(place))


def _claude_sdk_command(place: Place) -> Command:
    return Command([_python(place), str(AGENTS / "claude_sdk.py"), TASK], _claude_environment(place))


# --- Codex ------------------------------------------------------------------------------------------------------------

PATCH = """*** Begin Patch
*** Update File: {file}
@@
-{old}
+{new}
*** End Patch
"""
KNOWN_MODEL = "gpt-5.5"
"""A name under which Codex offers `apply_patch` as a free-form tool, with a grammar."""


def _codex_hands(repository: Path) -> Hands:
    def shell(command: str) -> ToolUse:
        return ToolUse("exec_command", {"cmd": command})

    def edit(file: str, old: str, new: str) -> ToolUse:
        return shell(f"apply_patch <<'EOF'\n{PATCH.format(file=file, old=old, new=new)}EOF")

    return Hands(shell=shell, read=lambda file: shell(f"cat {file}"), edit=edit)


def _codex_free_form_hands(repository: Path) -> Hands:
    def edit(file: str, old: str, new: str) -> ToolUse:
        return ToolUse("apply_patch", {"input": PATCH.format(file=file, old=old, new=new)})

    return replace(_codex_hands(repository), edit=edit)


def _codex_with(model: str) -> Callable[[Place], Command]:
    return lambda place: _codex_command(place, model)


def _codex_command(place: Place, model: str) -> Command:
    config = f"""
model = "{model}"
model_provider = "turn"
[model_providers.turn]
name = "turn"
base_url = "{place.base_url}/v1"
wire_api = "responses"
env_key = "TURN_KEY"
[analytics]
enabled = false
"""
    words = [_bin(place, "codex"), "exec", "--json", "--sandbox", "workspace-write", TASK]
    return Command(words, {"TURN_KEY": place.key}, {".codex/config.toml": config})


# --- qwen-code and gemini-cli -----------------------------------------------------------------------------------------


def _gemini_like(edit: str) -> Callable[[Path], Hands]:
    def shell(command: str) -> ToolUse:
        arguments = {"command": command, "description": "run a command", "is_background": False}
        return ToolUse("run_shell_command", arguments)

    return lambda repository: Hands(
        shell=shell,
        read=lambda file: ToolUse("read_file", {"file_path": f"{repository}/{file}"}),
        edit=lambda file, old, new: ToolUse(
            edit,
            {"file_path": f"{repository}/{file}", "old_string": old, "new_string": new}
            | ({"instruction": "Add, do not subtract."} if edit == "replace" else {}),
        ),
    )


def _qwen_command(place: Place) -> Command:
    environment = {"OPENAI_BASE_URL": f"{place.base_url}/v1", "OPENAI_API_KEY": place.key, "OPENAI_MODEL": MODEL}
    words = [_bin(place, "qwen"), "--auth-type", "openai", "--yolo", "-p", TASK, "--output-format", "json"]
    return Command(words, environment)


def _gemini_command(place: Place) -> Command:
    settings = {
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "telemetry": {"enabled": False},
        "privacy": {"usageStatisticsEnabled": False},
    }
    environment = {
        "GOOGLE_GEMINI_BASE_URL": place.base_url,
        "GEMINI_API_KEY": place.key,
        "GEMINI_CLI_TRUST_WORKSPACE": "true",
    }
    words = [_bin(place, "gemini"), "--yolo", "-p", TASK, "-m", MODEL, "--output-format", "json"]
    return Command(words, environment, {".gemini/settings.json": json.dumps(settings)})


# --- opencode ---------------------------------------------------------------------------------------------------------


def _opencode_hands(repository: Path) -> Hands:
    return Hands(
        shell=lambda command: ToolUse("bash", {"command": command, "description": "run a command"}),
        read=lambda file: ToolUse("read", {"filePath": f"{repository}/{file}"}),
        edit=lambda file, old, new: ToolUse(
            "edit", {"filePath": f"{repository}/{file}", "oldString": old, "newString": new}
        ),
    )


def _opencode_command(place: Place) -> Command:
    model = {"name": MODEL, "reasoning": True, "tool_call": True, "limit": {"context": 200000, "output": 8000}}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "turn",
        "options": {"baseURL": f"{place.base_url}/v1", "apiKey": place.key},
        "models": {MODEL: model},
    }
    config = {
        "autoupdate": False,
        "share": "disabled",
        "model": f"turn/{MODEL}",
        "small_model": f"turn/{MODEL}",
        "permission": {"edit": "allow", "bash": "allow"},
        "provider": {"turn": provider},
    }
    switches = ("OPENCODE_DISABLE_MODELS_FETCH", "OPENCODE_DISABLE_AUTOUPDATE", "OPENCODE_DISABLE_LSP_DOWNLOAD")
    words = [_bin(place, "opencode"), "run", "--format", "json", TASK]
    return Command(words, dict.fromkeys(switches, "1"), {".config/opencode/opencode.json": json.dumps(config)})


# --- Python -----------------------------------------------------------------------------------------------------------


def _mini_command(place: Place) -> Command:
    environment = {
        "MSWEA_CONFIGURED": "true",
        "MSWEA_GLOBAL_CONFIG_DIR": str(place.home / "mswea"),
        "MSWEA_COST_TRACKING": "ignore_errors",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "OPENAI_API_BASE": f"{place.base_url}/v1",
        "OPENAI_API_KEY": place.key,
    }
    words = [str(place.installed / "bin" / "mini"), "-m", f"openai/{MODEL}", "-y", "--exit-immediately", "-t", TASK]
    return Command([*words, "-o", str(place.home / "traj.json")], environment)


def _agent(script: str, *words: str) -> Callable[[Place], Command]:
    """A program of ours around a library: it is told everything by its arguments."""
    return lambda place: Command(
        [_python(place), str(AGENTS / script), *words, place.base_url, place.key, MODEL, TASK],
    )


def _smol_hands(repository: Path) -> Hands:
    hands = _shell_only("shell")(repository)
    return replace(
        hands,
        done=lambda: ToolUse("final_answer", {"answer": "`add` adds now."}),
        # Whole answers: of one that is fetched in pieces, the beginning stands in the prompt.
        result=re.compile(r"<\|im_start\|>assistant\n(?:(?!<\|im_end\|>).)*<\|im_end\|>", re.DOTALL),
        turns=BY_ANSWERS,
    )


def _smol_code_hands(repository: Path) -> Hands:
    return replace(
        _smol_hands(repository),
        main=re.compile(r"\A<\|im_start\|>system\nYou are an expert assistant who can solve any task using code"),
        in_code=True,
    )


OPENAI_AGENTS = _pip("openai-agents", "0.24.0", 84)
CODEX = _npm("codex", "@openai/codex", "0.171.0", 424)
PYDANTIC_AI = _pip("pydantic-ai", "2.62.0", 122, "pydantic-ai-slim[openai,anthropic,google]")
SMOLAGENTS = _pip("smolagents", "1.26.0", 142, "smolagents[openai]")

HARNESSES = (
    Harness(
        "mini-swe-agent 2.4.6",
        "chat",
        _pip("mini-swe-agent", "2.4.6", 754),
        _mini_command,
        _shell_only("bash", done="echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"),
    ),
    Harness(
        "claude-code 2.1.332",
        "anthropic",
        _npm("claude-code", "@anthropic-ai/claude-code", "2.1.332", 384),
        _claude_command,
        _claude_hands,
    ),
    Harness(
        "claude-code 2.1.197",
        "anthropic",
        _npm("claude-code", "@anthropic-ai/claude-code", "2.1.197", 235),
        _claude_command,
        _claude_hands,
        auxiliary=1,
        # "The response above may be incomplete", and it ends: behind an error event, and behind a broken connection.
        survives=BEFORE_THE_FIRST_BYTE,
    ),
    Harness(
        "claude-agent-sdk 0.2.189",
        "anthropic",
        _pip("claude-agent-sdk", "0.2.189", 455),
        _claude_sdk_command,
        _claude_hands,
        auxiliary=1,
    ),
    Harness(
        "codex 0.171.0",
        "responses",
        CODEX,
        _codex_with(MODEL),
        _codex_hands,
    ),
    Harness(
        "codex 0.171.0 free-form tool",
        "responses",
        CODEX,
        _codex_with(KNOWN_MODEL),
        _codex_free_form_hands,
        model=KNOWN_MODEL,
    ),
    Harness(
        "qwen-code 0.24.4",
        "chat",
        _npm("qwen-code", "@qwen-code/qwen-code", "0.24.4", 144),
        _qwen_command,
        _gemini_like("edit"),
        # It sends the text that had come with the request to go on from there, and both vanish when the rest is there.
        repairs=frozenset({"forked:assistant_turn_omitted"}),
    ),
    Harness(
        "opencode 1.18.33",
        "chat",
        _npm("opencode", "opencode-ai", "1.18.33", 354),
        _opencode_command,
        _opencode_hands,
        auxiliary=1,
    ),
    *(
        Harness(
            f"openai-agents 0.24.0 {dialect}",
            dialect,
            OPENAI_AGENTS,
            _agent("openai_agents.py", dialect),
            _shell_only("shell"),
            survives=BEFORE_THE_FIRST_BYTE,
        )
        for dialect in ("chat", "responses")
    ),
    Harness(
        "smolagents 1.26.0",
        "chat",
        SMOLAGENTS,
        _agent("smol.py", "tools"),
        _smol_hands,
        # It writes each call as a Python literal behind the text that was sampled: the model reads another history.
        forks=frozenset({"forked:assistant_edited"}),
    ),
    Harness(
        "smolagents 1.26.0 code",
        "chat",
        SMOLAGENTS,
        _agent("smol.py", "code"),
        _smol_code_hands,
        has_tools=False,
        forks=frozenset({"forked:assistant_edited"}),
    ),
    *(
        Harness(
            f"pydantic-ai 2.62.0 {dialect}",
            dialect,
            PYDANTIC_AI,
            _agent("pydantic_ai_agent.py", dialect),
            _shell_only("shell"),
            survives=frozenset() if dialect == "gemini" else BEFORE_THE_FIRST_BYTE,
        )
        for dialect in ("chat", "responses", "anthropic", "gemini")
    ),
    Harness(
        "gemini-cli 0.61.0",
        "gemini",
        _npm("gemini-cli", "@google/gemini-cli", "0.61.0", 100),
        _gemini_command,
        _gemini_like("replace"),
    ),
)


def named(name: str) -> Harness:
    """By its whole name. Raises: KeyError."""
    return {each.name: each for each in HARNESSES}[name]
