"""Which blobs a record names."""

from __future__ import annotations

import msgspec

from turnstile.conversation import Image, Message, Role, Text
from turnstile.store.blob_names import named_blobs


def test_a_call_names_the_images_of_its_messages_and_of_the_answer_as_it_came_back(make):
    started = msgspec.structs.replace(
        make.started("a", "c0"),
        new_M=(Message(Role.USER, (Text("?"), Image("1" * 64, "image/png"))),),
        echoed=Message(Role.ASSISTANT, (Image("2" * 64, "image/png"),)),
    )
    assert named_blobs(started) == {"1" * 64, "2" * 64}


def test_other_records_name_none(make):
    assert named_blobs(make.opened("a")) == frozenset()
