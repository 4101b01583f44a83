"""Images in a client's body: the same bytes are one image, however they were written."""

from __future__ import annotations

import base64
import hashlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnstile.conversation import Image, Media
from turnstile.errors import CallerError
from turnstile.protocols.media import (
    MAX_IMAGE_BYTES,
    distinct_media,
    image_from_base64,
    image_from_bytes,
    image_from_url,
    refuse_remote,
)

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256))
KINDS = {
    "image/png": PNG,
    "image/jpeg": b"\xff\xd8\xff\xe0" + b"j" * 9,
    "image/gif": b"GIF89a" + b"g" * 9,
    "image/webp": b"RIFF\x10\x00\x00\x00WEBP" + b"w" * 9,
}


def refusal(url: str) -> tuple[int, str, str, str]:
    with pytest.raises(CallerError) as caught:
        image_from_url(url, "at")
    error = caught.value
    assert error.remedy
    return error.status, error.code, error.param, error.problem


@pytest.mark.parametrize(("media_type", "data"), KINDS.items())
def test_a_data_url_is_its_bytes_their_hash_and_their_kind(media_type, data):
    url = f"data:{media_type};base64,{base64.b64encode(data).decode()}"
    media = image_from_url(url, "at")
    assert media == Media(hashlib.sha256(data).hexdigest(), media_type, data)
    assert media.image == Image(media.sha256, media_type)


def test_case_i2_one_image_as_data_url_and_as_raw_base64_is_one_image():
    encoded = base64.b64encode(PNG).decode()
    as_url = image_from_url(f"DATA:image/png;charset=x;base64,{encoded}", "at")
    assert distinct_media([as_url, image_from_base64(encoded, "", "at")]) == (as_url,)


def test_case_i2_images_that_differ_late_are_two_images():
    head = KINDS["image/jpeg"] + bytes(1500)
    first, second = (image_from_base64(base64.b64encode(head + end).decode(), "", "at") for end in (b"a", b"b"))
    assert distinct_media([first, second, first]) == (first, second)


@given(st.binary(max_size=64), st.booleans(), st.booleans())
def test_both_alphabets_line_breaks_and_missing_padding_never_change_the_bytes(tail, is_url_safe, is_padded):
    data = PNG + tail
    encoded = (base64.urlsafe_b64encode(data) if is_url_safe else base64.encodebytes(data)).decode()
    sent = encoded if is_padded else encoded.rstrip().rstrip("=")
    assert image_from_base64(sent, "image/png", "at").data == data


def test_a_jpeg_may_be_declared_by_its_other_name():
    encoded = base64.b64encode(KINDS["image/jpeg"]).decode()
    assert image_from_base64(encoded, "image/jpg", "at").media_type == "image/jpeg"


@pytest.mark.parametrize(
    ("url", "code", "problem"),
    [
        (
            "file:///etc/passwd",
            "invalid_value",
            "`at`: expected a data URL, `data:image/png;base64,...`, got file:///etc/passwd",
        ),
        ("", "invalid_value", '`at`: expected a data URL, `data:image/png;base64,...`, got ""'),
        ("data:image/png;base64,iVBO*w0K", "invalid_value", "`at`: expected an image in base64, got iVBO*w0K"),
        ("data:image/png;base64,iVBOé", "invalid_value", "`at`: expected an image in base64, got iVBOé"),
        ("data:image/png;base64,iVBOR", "invalid_value", "`at`: expected an image in base64, got iVBOR"),
        (
            "data:image/png;base64,aGVsbG8=",
            "invalid_value",
            "`at`: expected a PNG, JPEG, GIF or WebP image, got 5 bytes that are none",
        ),
        (
            "data:image/jpeg;base64," + base64.b64encode(PNG).decode(),
            "invalid_value",
            "`at`: the image is declared as image/jpeg, but its bytes are image/png",
        ),
    ],
)
def test_what_is_no_image_that_can_be_served_is_refused_by_name(url, code, problem):
    assert refusal(url) == (400, code, "at", problem)


@pytest.mark.parametrize("encoded", ["A" * (2 * MAX_IMAGE_BYTES + 1), "A" * (4 * MAX_IMAGE_BYTES // 3 + 4)])
def test_an_image_above_the_bound_is_refused(encoded):
    assert refusal("data:image/png;base64," + encoded)[1:] == (
        "invalid_value",
        "at",
        f"`at`: the image has more than {MAX_IMAGE_BYTES} bytes",
    )


def test_an_image_at_an_address_is_known_by_it_until_it_is_fetched_or_refused():
    named = image_from_url("HTTPS://example.org/a.png?sig=secret", "at")
    assert (named.url, named.field, named.data) == ("HTTPS://example.org/a.png?sig=secret", "at", b"")
    assert named.image == Image(named.address_sha256, "")
    assert image_from_url("https://example.org/a.png", "at").sha256 != named.sha256
    with pytest.raises(CallerError) as caught:
        refuse_remote([image_from_bytes(PNG), named])
    error = caught.value
    assert (error.status, error.code, error.param, error.problem) == (
        400,
        "unsupported_value",
        "at",
        "`at`: the image at HTTPS://example.org/a.png would have to be fetched, which is not done here",
    )


def test_an_image_that_was_fetched_is_not_refused():
    refuse_remote([msgspec.structs.replace(image_from_bytes(PNG), url="https://example.org/a.png")])


def test_bytes_of_no_known_kind_are_no_image():
    assert image_from_bytes(b"<svg/>") is None
