"""From a call to the prompt that it would be sampled from; nothing is recorded here, so a question may ask it too."""

from __future__ import annotations

import msgspec

from turnstile.conversation import Call
from turnstile.exchange.draws import reading_of, refuse_images, refuse_lost_tools
from turnstile.exchange.images import Shown, images_of, refuse_beyond, shown_in, shown_messages, with_media
from turnstile.exchange.world import World
from turnstile.generation import Head, Match, Prompt
from turnstile.history.forest import Forest
from turnstile.history.match import match
from turnstile.journal import RolloutOpened
from turnstile.templates.late_system import seat_late_system
from turnstile.templates.plan import head_of_call, plan


class PlannedPrompt(msgspec.Struct, frozen=True):
    """A prompt and what it was planned on."""

    head: Head
    held: Match
    prompt: Prompt
    shown: Shown
    """The images in it."""


async def prompt_for(world: World, forest: Forest, opened: RolloutOpened, call: Call) -> PlannedPrompt:
    """What the engine would be asked to run for a call.

    Args:
        world: the served model.
        forest: what is held; it does not grow.
        opened: the rollout's first record: its clock and policy.
        call: the request.

    Raises: CallerError for what this model or engine cannot be given, and as `plan` does; StoreError if the bytes of an
        image that the request only names are gone.
    """
    seated = seat_late_system(world.served, call)
    call = seated.call
    refuse_images(call, world.engine.capabilities)
    refuse_beyond(world.image_limits, call)
    refuse_lost_tools(call, world.served)
    head = head_of_call(world.served, call, call.messages)
    held = match(forest, head, call)
    prompt = await world.off_loop(lambda: plan(world.served, call, held, opened.opened_at, opened.retention))
    reads = reading_of(call, world.answer_format, world.engine.capabilities)
    prompt = msgspec.structs.replace(prompt, notes=(*seated.notes, *prompt.notes), read_with=reads)
    prompt = await _with_images(world, call, held, prompt)
    return PlannedPrompt(head, held, prompt, shown_in(prompt, forest))


async def _with_images(world: World, call: Call, held: Match, prompt: Prompt) -> Prompt:
    images = images_of(shown_messages(held))
    facts = world.served.for_tools(tuple(tool.declaration for tool in call.tools)).facts.images
    if not images or facts is None:
        return prompt
    prompt = msgspec.structs.replace(prompt, placeholder_id=facts.placeholder_id)
    return await with_media(prompt, images, call.media, world.gallery)
