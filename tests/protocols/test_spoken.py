from __future__ import annotations

from turnstile.conversation import Image, Text
from turnstile.protocols.spoken import spoken


def test_nothing_but_empty_texts_is_nothing():
    assert (spoken([]), spoken([Text("")]), spoken((Text(""), Text("")))) == ((), (), ())


def test_an_empty_text_beside_anything_else_stays():
    image = Image("0" * 64, "image/png")
    assert spoken([Text(""), Text("a")]) == (Text(""), Text("a"))
    assert spoken([image, Text("")]) == (image, Text(""))
