from __future__ import annotations

import hashlib
import json
import struct
import zlib

import msgspec
import pytest

from turnstile.conversation import Media
from turnstile.engines import LlamaServer
from turnstile.engines.llamacpp_images import Showing
from turnstile.engines.llamacpp_sight import ImageCounts, Sight, Spellings
from turnstile.engines.wire import WireAnswer
from turnstile.errors import CallerError, EchoMismatch, EngineError
from turnstile.expansion import ImageRange
from turnstile.generation import Draw, Finish, LogprobsMode
from turnstile.tokens import IdRun

IMAGE = "<|vision_start|><|image_pad|><|vision_end|>"
PAD = 0


def png(width, height, colour):
    """A picture of one colour."""

    def part(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = zlib.compress((b"\x00" + bytes(colour) * width) * height)
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + part(b"IHDR", head) + part(b"IDAT", rows) + part(b"IEND", b"")


def media(data):
    return Media(hashlib.sha256(data).hexdigest(), "image/png", data)


def talk(*turns):
    return "".join(f"<|im_start|>user\n{turn}<|im_end|>\n<|im_start|>assistant\n" for turn in turns)


class Told:
    """llama.cpp's helper routes over the byte vocabulary: control tokens in their names, each image of 3 tokens."""

    def __init__(self, vocabulary):
        self.vocabulary = vocabulary
        self.asked = []

    async def __call__(self, path, body):
        asked = json.loads(body)
        self.asked.append(path)
        if path == "/tokenize":
            tokens = [
                token
                for at, piece in enumerate(asked["content"].replace("</s>", "<s>").split("<s>"))
                for token in ([1] if at else []) + self.vocabulary.spell(piece)
            ]
            return WireAnswer(200, json.dumps({"tokens": tokens}).encode())
        return WireAnswer(200, b'{"input_tokens":13}')


@pytest.fixture
def showing(vocabulary):
    """What shows prompts to a server with some habits."""

    def _showing(around="", leading=""):
        told = Told(vocabulary)
        sight = Sight(leading, around, 10)
        made = Showing(sight, vocabulary, ImageCounts(told, sight), Spellings(told))
        made.told = told
        return made

    return _showing


@pytest.fixture
def seen(prompt, vocabulary):
    """A prompt with images: text, and None for an image."""

    def _seen(*pieces, images=None):
        ids = [token for piece in pieces for token in ([PAD] if piece is None else vocabulary.spell(piece))]
        count = pieces.count(None) if images is None else images
        return msgspec.structs.replace(
            prompt(ids), media=tuple(media(bytes([at])) for at in range(count)), placeholder_id=PAD
        )

    return _seen


async def test_text_stands_between_markers_and_every_image_is_counted(showing, seen):
    prompt = seen("Look: ", None, " and ", None)
    shown = await showing().of(prompt, PAD, "<M>")
    assert json.loads(shown.json) == {"prompt_string": "Look: <M> and <M>", "multimodal_data": ["AA==", "AQ=="]}
    assert (shown.length, shown.echo) == (len(prompt) - 2 + 6, "Look:  and ")
    assert shown.expanded.ranges == (ImageRange(6, 3, 3), ImageRange(14, 3, 3))
    assert shown.expanded.collapsed(PAD) == prompt.ids_T


async def test_what_the_server_puts_around_an_image_is_left_to_it(showing, seen):
    shown = await showing(around="[]").of(seen("a[", None, "]b[", None, "]c"), PAD, "<M>")
    assert json.loads(shown.json)["prompt_string"] == "a<M>b<M>c"
    assert (shown.echo, shown.length) == ("a[]b[]c", 7 + 6)


async def test_what_the_server_puts_in_front_is_left_to_it(showing, seen):
    shown = await showing(leading="^").of(seen("^a", None, "b"), PAD, "<M>")
    assert (json.loads(shown.json)["prompt_string"], shown.echo) == ("a<M>b", "^ab")


@pytest.mark.parametrize(
    ("habits", "pieces", "told"),
    [
        ({"around": "[]"}, ["a", None, "b"], "puts `[]` around an image"),
        ({"around": "[]"}, ["a[", None, "b"], "puts `[]` around an image"),
        ({"around": "[]"}, ["a[", None, "][", None], "puts `[]` around an image"),
        ({"around": "[]"}, [None], "puts `[]` around an image"),
        ({"leading": "^"}, ["a", None], "begins prompts with `^`"),
    ],
)
async def test_a_template_that_frames_images_otherwise_is_refused(showing, seen, habits, pieces, told):
    with pytest.raises(CallerError) as caught:
        await showing(**habits).of(seen(*pieces), PAD, "<M>")
    assert told in caught.value.problem
    assert caught.value.code == "images_not_supported"


async def test_two_images_that_share_one_frame_are_refused(showing, seen):
    with pytest.raises(CallerError, match="around an image"):
        await showing(around="[]").of(seen("[", None, "]", None, "]"), PAD, "<M>")


async def test_placeholders_without_images_are_refused(showing, seen):
    with pytest.raises(CallerError, match="2 placeholders for 1 images"):
        await showing().of(seen("a", None, "b", None, images=1), PAD, "<M>")


async def test_ids_that_are_not_how_their_text_is_spelled_are_refused(showing, prompt):
    # Id 259 is "ha ", which the tokenizer would spell in three bytes.
    ids = [259, PAD]
    asked = msgspec.structs.replace(prompt(ids), media=(media(b"1"),), placeholder_id=PAD)
    with pytest.raises(CallerError, match="reads `ha ` as other ids") as caught:
        await showing().of(asked, PAD, "<M>")
    assert (caught.value.code, caught.value.status) == ("prompt_not_exact", 400)


async def test_half_a_character_in_front_of_an_image_is_refused(showing, prompt):
    asked = msgspec.structs.replace(prompt([258, PAD]), media=(media(b"1"),), placeholder_id=PAD)
    with pytest.raises(CallerError, match="has half a character there"):
        await showing().of(asked, PAD, "<M>")


async def test_text_that_spells_the_servers_mark_is_refused(showing, seen):
    with pytest.raises(CallerError, match="mark of an image in its text"):
        await showing().of(seen("say <M> ", None), PAD, "<M>")


async def test_what_was_found_to_be_exact_is_not_asked_again(showing, seen):
    made = showing()
    await made.of(seen("Look: ", None, " one"), PAD, "<M>")
    before = len(made.told.asked)
    await made.of(seen("Look: ", None, " one", None, " two"), PAD, "<M>")
    assert made.told.asked[before:] == ["/tokenize", "/v1/chat/completions/input_tokens"]


@pytest.mark.engine
async def test_a_real_server_is_seen_to_take_images(seeing_engine):
    assert (seeing_engine.sight.leading, seeing_engine.sight.around) == ("", "<|vision_start|><|vision_end|>")
    assert (seeing_engine.capabilities.images, seeing_engine.capabilities.missing) == ("collapsed", ())


@pytest.fixture
def look(seeing_engine, family, tokenizers_of, prompt):
    """Shows text and pictures to the real engine."""
    tokenizer = tokenizers_of(family("qwen2.5-vl"))

    async def _look(text, *pictures, ids=None, **draw):
        asked = msgspec.structs.replace(
            prompt(tokenizer.encode(text).tolist() if ids is None else ids),
            media=tuple(map(media, pictures)),
            placeholder_id=tokenizer.id_of("<|image_pad|>"),
        )
        deltas = []

        async def emit(delta):
            deltas.append(delta)

        told = await seeing_engine.generate(asked, Draw(**{"max_tokens": 6, "temperature": 0.0, **draw}), emit)
        assert IdRun.of([token for delta in deltas for token in delta.ids_S]) == told.ids_S
        return asked, told

    _look.tokenizer = tokenizer
    return _look


@pytest.mark.engine
async def test_a_real_server_runs_the_image_in_its_place(look):
    asked, told = await look(talk(f"{IMAGE}What is it?"), png(112, 84, (220, 30, 30)))
    pad = asked.placeholder_id
    # 112 by 84 pixels are 8 by 6 patches, of which 2 by 2 make a token.
    assert told.expanded.ranges == (ImageRange(asked.ids_T.tolist().index(pad), 12, 12),)
    assert told.expanded.collapsed(pad) == asked.ids_T
    assert told.usage.prompt_tokens == len(told.expanded) == len(asked) + 11
    assert (told.finish, len(told.ids_S), len(told.logprobs_S)) == (Finish.LENGTH, 6, 6)
    assert told.logprobs_mode is LogprobsMode.RAW


@pytest.mark.engine
async def test_the_answer_of_a_real_server_depends_on_the_image(look):
    numbers = [
        (await look(talk(f"{IMAGE}What is it?"), png(112, 84, colour)))[1].logprobs_S.tolist()
        for colour in ((220, 30, 30), (30, 30, 220), (220, 30, 30))
    ]
    assert numbers[0] != numbers[1]
    assert numbers[0][0] == pytest.approx(numbers[2][0], abs=1e-3)


@pytest.mark.engine
async def test_a_second_turn_finds_the_first_one_and_its_image_in_a_real_servers_cache(look):
    first = talk(f"{IMAGE}What is it?")
    asked, _ = await look(first, png(112, 84, (220, 30, 30)), affinity="one")
    both, told = await look(
        f"{first}A bar.<|im_end|>\n{talk(f'{IMAGE}And this?')}",
        png(112, 84, (220, 30, 30)),
        png(140, 84, (30, 220, 30)),
        affinity="one",
    )
    assert both.ids_T.startswith(asked.ids_T)
    assert [each.length for each in told.expanded.ranges] == [12, 15]
    assert told.usage.cached_tokens >= len(asked) + 11


@pytest.mark.engine
async def test_a_stop_ends_an_answer_about_an_image(look):
    _, whole = await look(talk(f"{IMAGE}What is it?"), png(56, 84, (220, 30, 30)))
    stop = whole.ids_S.tolist()[2]
    _, told = await look(talk(f"{IMAGE}What is it?"), png(56, 84, (220, 30, 30)), stop_ids=frozenset({stop}))
    at = whole.ids_S.tolist().index(stop)
    assert (told.ids_S.tolist(), told.finish) == (whole.ids_S.tolist()[: at + 1], Finish.STOP)


@pytest.mark.engine
async def test_held_ids_that_a_real_server_would_spell_otherwise_are_refused(look):
    ids = look.tokenizer.encode(talk(f"{IMAGE}What is it?")).tolist()
    at = ids.index(look.tokenizer.encode("What").tolist()[0])
    split = [*ids[:at], *look.tokenizer.encode("Wh").tolist(), *look.tokenizer.encode("at").tolist(), *ids[at + 1 :]]
    with pytest.raises(CallerError, match="reads `What is it") as caught:
        await look("", png(56, 84, (1, 2, 3)), ids=split)
    assert caught.value.code == "prompt_not_exact"


@pytest.mark.engine
async def test_an_image_that_a_real_server_cannot_read_is_refused(look):
    with pytest.raises(EngineError, match="Failed to load image"):
        await look(talk(f"{IMAGE}What is it?"), b"no picture")


@pytest.mark.engine
async def test_a_prompt_that_its_images_make_too_long_is_the_callers(look):
    with pytest.raises(CallerError) as caught:
        await look(talk(f"{IMAGE * 3}What is it?"), *[png(1000, 800, (at, at, at)) for at in range(3)])
    assert caught.value.code == "context_length_exceeded"


@pytest.fixture
async def faked(fakes, vocabulary):
    """An engine on a fake server that takes images, and the fake."""
    fake = fakes.LlamaFake(vocabulary.rows, special=frozenset({0, 1}), eos=frozenset({1}), encode=vocabulary.spell)
    async with fake.serving() as url:
        server = await LlamaServer.open(url)
        engine = server.speaking(vocabulary, seeds=lambda: 7)
        fake.requests.clear()
        yield engine, fake
        await engine.close()


async def keep_quiet(_delta):
    pass


async def test_an_answer_about_an_image_is_sampled_in_one_request_of_text_and_pictures(faked, fakes, seen, vocabulary):
    engine, fake = faked
    fake.script([*vocabulary.spell("Yes"), 1])
    prompt = seen("a", None, "b")
    told = await engine.generate(prompt, Draw(max_tokens=9, seed=3), keep_quiet)
    (body,) = fake.requests
    assert body["prompt"] == {"prompt_string": f"a{fakes.MEDIA_MARKER}b", "multimodal_data": ["AA=="]}
    assert (body["n_predict"], body["stream"], body["response_fields"][-1]) == (9, False, "prompt")
    assert (told.ids_S.tolist(), told.finish) == ([*vocabulary.spell("Yes"), 1], Finish.STOP)
    assert (told.usage.prompt_tokens, told.prompt_echo_T) == (2 + fakes.IMAGE_TOKENS, None)
    assert told.expanded.ranges == (ImageRange(1, 3, 3),)


async def test_numbers_that_are_missing_behind_an_image_stay_unknown(faked, fakes, seen, vocabulary):
    # To ask again for the number of half an emoji, the ids before it would have to follow the image.
    engine, fake = faked
    fake.script([*vocabulary.spell("a🙂"), 1])
    told = await engine.generate(seen("a", None), Draw(max_tokens=9), keep_quiet)
    assert [value is None for value in told.logprobs_S.tolist()] == [False, True, True, True, False, False]
    assert [(note.code.value, note.detail) for note in told.notes] == [("logprob_missing", "n=3")]
    assert len(fake.requests) == 1


@pytest.mark.parametrize(
    ("fault", "told"), [("OTHER_TEXT", "image_in_wrong_place"), ("WRONG_PROMPT_LENGTH", "5 prompt tokens, and 4 were")]
)
async def test_a_server_that_ran_something_else_around_the_images_is_found(faked, fakes, seen, fault, told):
    engine, fake = faked
    fake.faults.append(fakes.Fault[fault])
    with pytest.raises(EchoMismatch, match=told):
        await engine.generate(seen("a", None), Draw(max_tokens=3), keep_quiet)


async def test_a_server_that_was_started_again_is_asked_for_its_new_marker(faked, fakes, seen, monkeypatch):
    engine, fake = faked
    monkeypatch.setattr(fakes, "MEDIA_MARKER", "<__media_second__>")
    told = await engine.generate(seen("a", None), Draw(max_tokens=3), keep_quiet)
    assert fake.requests[0]["prompt"]["prompt_string"] == "a<__media_second__>"
    assert told.expanded.ranges == (ImageRange(1, 3, 3),)


async def test_a_prompt_without_images_goes_as_ids_to_a_server_that_takes_them(faked, prompt):
    engine, fake = faked
    told = await engine.generate(prompt([10, PAD]), Draw(max_tokens=3), keep_quiet)
    assert (fake.requests[0]["prompt"], told.expanded) == ([10, PAD], None)
