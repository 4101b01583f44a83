"""What reports make of a rollout with images, and what people are shown of it."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from turnstile.cli.timeline import show_timeline
from turnstile.conversation import Message, Role, Text
from turnstile.exchange.rollouts import Opening, Rollouts
from turnstile.exchange.world import World
from turnstile.generation import Head
from turnstile.reports.drift_sources import drift_of_forest, drift_of_trajectory
from turnstile.reports.replay import ReplayModel, Setting, replay
from turnstile.reports.replay_outcome import outcome
from turnstile.store import Reader
from turnstile.templates.served import Served

pytestmark = pytest.mark.families


class Shelf:
    """Has the one model."""

    def __init__(self, served: Served) -> None:
        self._served = served

    def served(self, _: Head) -> Served:
        return self._served


@pytest.fixture
async def agent(seeing: Any, sighted: World, rollouts: Rollouts) -> Any:
    """Four turns with a screenshot each, a window of two, answers that are spelled as the tokenizer would."""
    agent = seeing.Agent(sighted, await rollouts.create(Opening("r"), ""))
    for turn in range(4):
        agent.say(f"step {turn}", seeing.picture(56 + 28 * turn, 84, turn))
        if turn >= 2:
            agent.messages[2 * (turn - 2)] = Message(Role.USER, (Text(f"step {turn - 2}"), Text("[omitted]")))
        await agent.ask(f"It is {turn}.")
    return agent


async def test_nothing_drifts_where_the_model_spells_as_the_tokenizer_does(agent: Any, tmp_path: Path) -> None:
    served = agent.world.served
    live = drift_of_forest(agent.rollout.forest, Shelf(served))  # type: ignore[arg-type]
    filed = drift_of_trajectory(agent.exported(tmp_path), served)
    assert [(each.differences, each.problem) for each in (live, filed)] == [((), "")] * 2
    assert live.calls == 4


async def test_drift_is_found_behind_an_image_at_the_index_that_the_splice_knows(
    agent: Any, seeing: Any, tmp_path: Path
) -> None:
    tokenizer = agent.world.served.tokenizer
    odd = [*tokenizer.encode(" Pl").tolist()[:1], *tokenizer.encode("or").tolist()]
    agent.engine.answers.append([*tokenizer.encode("x").tolist(), *tokenizer.encode("\n").tolist() * 2, *odd, 151645])
    agent.say("last", seeing.picture(112, 112, 9))
    media = {each.sha256: each for each in agent.media}
    shown = {image.sha256 for message in agent.messages for image in message.images}
    call = seeing.Call(
        "openai.chat", "m", tuple(agent.messages), media=tuple(media[sha256] for sha256 in media if sha256 in shown)
    )  # fmt: skip
    await agent.fly(call)
    served = agent.world.served
    live = drift_of_forest(agent.rollout.forest, Shelf(served))  # type: ignore[arg-type]
    filed = drift_of_trajectory(agent.exported(tmp_path), served)
    assert len(live.differences) == 1
    assert [(each.index, each.held_ids) for each in filed.differences] == [
        (each.index, each.held_ids) for each in live.differences
    ]


async def test_a_replay_gives_the_same_ids(agent: Any, tmp_path: Path) -> None:
    with Reader.open(tmp_path) as reader:
        records = list(reader.records("r"))
    model = ReplayModel(agent.world.served, agent.world.answer_format)
    replayed = await replay(records, Setting(lambda _: model, None, lambda _done, _all: None))
    report = outcome(replayed, lambda _head, ids: agent.world.served.tokenizer.decode(ids))
    assert (report.differing, len(report.calls)) == (0, 4)
    assert [call.then for call in report.calls] == [call.now for call in report.calls]


async def test_people_are_shown_a_word_for_each_image(agent: Any, tmp_path: Path) -> None:
    console = Console(file=io.StringIO(), width=200)
    show_timeline(agent.exported(tmp_path), agent.world.served.tokenizer.decode, console)
    assert isinstance(console.file, io.StringIO)
    told = console.file.getvalue()
    sha256 = agent.media[-1].sha256
    assert f"[image {sha256[:8]} 140x84: 15 tokens]" in told
    assert "<|image_pad|>" not in told
