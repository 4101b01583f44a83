"""Google's official SDK, unmodified, through the whole server to an engine that answers scripted ids.

The public cases that need its own shapes are here under their names; others in `test_cases_in_every_dialect.py`.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from google import genai
from google.genai import errors, types

LS = {
    "name": "ls",
    "description": "Lists a folder.",
    "parameters_json_schema": {"type": "object", "properties": {"p": {"type": "string"}}, "required": ["p"]},
}
EDIT = {
    "name": "Edit",
    "parameters_json_schema": {
        "type": "object",
        "properties": {"file": {"type": "string"}, "replace_all": {"type": "boolean", "default": False}},
    },
}
THINKING = {"thinking_config": {"include_thoughts": True}}
PNG = b"\x89PNG\r\n\x1a\n" + b"0" * 8
DUCK = "\N{DUCK}"
DUMMY = b"skip_thought_signature_validator"


def calling(path: str, name: str = "ls", key: str = "p") -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {{"{key}": "{path}"}}}}\n</tool_call>'


def offering(*functions: Any) -> list[Any]:
    return [{"function_declarations": list(functions)}]


class Asker:
    """A client with one rollout, whose history is a list of contents."""

    def __init__(self, room: Any, agent: Any, version: str = "v1beta") -> None:
        self.room = room
        self.agent = agent
        self.prompts: list[list[int]] = []
        """Ids of each prompt that the engine was given, first to last."""
        self.client = genai.Client(
            api_key=agent.handle.agent_key,
            http_options=types.HttpOptions(
                base_url=agent.handle.base_url,
                api_version=version,
                retry_options=types.HttpRetryOptions(attempts=1),
            ),
        )

    def ask(self, *contents: Any, stream: bool = False, **config: Any) -> types.GenerateContentResponse:
        """Ask whole, or streamed; a stream's chunks are put together as Google's guides do."""
        sent = [{"role": "user", "parts": [{"text": each}]} if isinstance(each, str) else each for each in contents]
        heard = self.room.fake.requests
        before = len(heard)
        if stream:
            chunks = list(self.client.models.generate_content_stream(model="m", contents=sent, config=config))
            answer = chunks[-1]
            assert answer.candidates
            parts = [part for chunk in chunks for part in said(chunk).parts or [] if part != types.Part(text="")]
            answer.candidates[0].content = types.Content(role="model", parts=parts)
        else:
            answer = self.client.models.generate_content(model="m", contents=sent, config=config)
        self.prompts += [request["prompt"] for request in heard[before : before + 1]]
        return answer

    def post(self, method: str, body: Any, **more: Any) -> httpx.Response:
        """Any body."""
        url = f"{self.agent.handle.base_url}/v1beta/models/m:{method}"
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"x-goog-api-key": self.agent.handle.agent_key, **more.pop("headers", {})}
        return self.room.http.post(url, content=content, headers=headers, **more)

    @property
    def history(self) -> dict[str, int]:
        return self.agent.summary["history"]

    @property
    def notes(self) -> dict[str, int]:
        return self.agent.summary["notes"]


@pytest.fixture
def talk(wired: Callable[..., Any]) -> Iterator[Callable[..., Asker]]:
    """`talk()`: a fresh rollout of a Qwen3, asked by the SDK."""
    made: list[Asker] = []

    def talk(version: str = "v1beta") -> Asker:
        room = wired("qwen3")
        made.append(Asker(room, room.agent(), version))
        return made[-1]

    yield talk
    for each in made:
        each.client.close()


def said(answer: types.GenerateContentResponse) -> types.Content:
    assert answer.candidates
    content = answer.candidates[0].content
    assert content is not None
    return content


def texts(content: types.Content) -> str:
    return "".join(part.text or "" for part in content.parts or [] if not part.thought)


def thoughts(content: types.Content) -> str:
    return "".join(part.text or "" for part in content.parts or [] if part.thought)


def calls(content: types.Content) -> list[types.FunctionCall]:
    return [part.function_call for part in content.parts or [] if part.function_call]


def result(call: Any, output: Any = "b", **changes: Any) -> dict[str, Any]:
    return {"function_response": {"id": call.id, "name": call.name, "response": {"output": output}, **changes}}


def results(*parts: Any) -> dict[str, Any]:
    return {"role": "user", "parts": list(parts)}


STREAMS = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


@STREAMS
def test_a_turn_has_thinking_text_and_calls_and_comes_back_as_the_same_ids(talk: Any, stream: bool) -> None:
    it = talk()
    answer_ids, _ = it.room.script(f"<think>\nR\n</think>\n\nHi{calling('/a')}<|im_end|>", "Done<|im_end|>")
    asked = {"tools": offering(LS), **THINKING}
    first = it.ask("go", stream=stream, **asked)
    second = it.ask("go", said(first), results(result(calls(said(first))[0])), stream=stream, **asked)

    (call,) = calls(said(first))
    assert (thoughts(said(first)), texts(said(first)), call.name, call.args) == ("R", "Hi", "ls", {"p": "/a"})
    assert first.candidates[0].finish_reason is types.FinishReason.STOP
    assert (texts(said(second)), second.model_version) == ("Done", "m")
    one, two = it.prompts
    assert two[: len(one) + len(answer_ids)] == one + answer_ids
    assert it.history == {"root": 1, "spliced": 1}
    usage = first.usage_metadata
    assert (usage.prompt_token_count, usage.candidates_token_count) == (len(one), len(answer_ids))
    assert usage.total_token_count == len(one) + len(answer_ids)


@STREAMS
@pytest.mark.parametrize("version", ["v1", "v1beta"])
def test_six_turns_with_tools_are_one_root_without_a_fork(
    talk: Any, wires: Any, stream: bool, version: str, tmp_path: Path
) -> None:
    it = talk(version)
    written = [f"<think>\nstep {at}\n</think>\n\nLook {at}{calling(f'/{at}')}<|im_end|>" for at in range(5)]
    scripted = it.room.script(*written, "All done.\n<|im_end|>")
    history: list[Any] = ["Fix it."]
    for at in range(6):
        answer = it.ask(*history, stream=stream, tools=offering(LS), system_instruction="Be brief.", temperature=1.0)
        if at < 5:
            # As gemini-cli does: thoughts are not brought back.
            kept = [part for part in said(answer).parts or [] if not part.thought]
            history += [types.Content(role="model", parts=kept), results(result(calls(said(answer))[0], f"{at}: ok"))]

    assert it.history == {"root": 1, "spliced": 5}
    rollout = it.agent.exported(tmp_path)
    (sequence,) = rollout.sequences
    assert wires.sampled(sequence) == scripted
    assert sequence.token_ids.tolist() == it.prompts[-1] + scripted[-1]
    assert {call.dialect for call in rollout.calls} == {"google.gemini"}


@pytest.mark.parametrize("mark", ["as it came", "none", "dummy"])
def test_case_j5_two_calls_of_one_tool_without_ids_come_back_by_name_and_order(talk: Any, mark: str) -> None:
    it = talk()
    answer_ids, _ = it.room.script(f"{calling('a')}\n{calling('b')}<|im_end|>", "Done<|im_end|>")
    chunks = list(it.client.models.generate_content_stream(model="m", contents="go", config={"tools": offering(LS)}))
    streamed = [[part for part in said(chunk).parts if part.function_call] for chunk in chunks]
    parts = [part for each in streamed for part in each]
    assert [len(each) for each in streamed if each] == [1, 1]
    assert [part.function_call.args for part in parts] == [{"p": "a"}, {"p": "b"}]
    assert len({part.function_call.id for part in parts}) == 2 and all(part.function_call.id for part in parts)
    assert all(part.thought_signature for part in parts)

    signature = {"as it came": parts[0].thought_signature, "none": None, "dummy": DUMMY}[mark]
    again = [
        types.Part(
            function_call=types.FunctionCall(name="ls", args=part.function_call.args), thought_signature=signature
        )
        for part in parts
    ]
    answers = [{"function_response": {"name": "ls", "response": {"output": each}}} for each in ("A", "B")]
    it.ask("go", types.Content(role="model", parts=again), results(*answers), tools=offering(LS))
    assert it.history == {"root": 1, "spliced": 1}
    (two,) = it.prompts
    text = it.room.text(two)
    assert text.index("<tool_response>\nA\n") < text.index("<tool_response>\nB\n")
    assert "turnstile" not in text and "skip_thought" not in text
    assert [two[at : at + len(answer_ids)] for at in range(len(two))].count(answer_ids) == 1


def test_responses_by_name_find_their_calls_whatever_their_order(talk: Any) -> None:
    it = talk()
    it.room.script(f"{calling('a')}\n{calling('f', 'Edit', 'file')}<|im_end|>", "Done<|im_end|>")
    first = it.ask("go", tools=offering(LS, EDIT))
    answers = [{"function_response": {"name": name, "response": {"output": name}}} for name in ("Edit", "ls")]
    it.ask("go", said(first), results(*answers), tools=offering(LS, EDIT))
    assert it.history == {"root": 1, "spliced": 1}
    text = it.room.text(it.prompts[-1])
    assert text.index("<tool_response>\nEdit\n") < text.index("<tool_response>\nls\n")


def test_a_streamed_answer_that_comes_back_as_one_content_a_chunk_is_one(talk: Any) -> None:
    it = talk()
    it.room.script("One two three four.<|im_end|>", "Five<|im_end|>")
    chat = it.client.chats.create(model="m")
    assert "".join(chunk.text or "" for chunk in chat.send_message_stream("count")) == "One two three four."
    assert len(chat.get_history(curated=True)) > 2
    assert chat.send_message("on").text == "Five"
    assert it.history == {"root": 1, "spliced": 1}


def test_the_sdk_calls_python_functions_by_itself(talk: Any) -> None:
    def weather(city: str) -> str:
        """The weather of a city."""
        return f"mild in {city}"

    it = talk()
    it.room.script(f"{calling('Rome', 'weather', 'city')}<|im_end|>", "It is mild.<|im_end|>")
    chat = it.client.chats.create(model="m", config={"tools": [weather]})
    assert chat.send_message("Rome?").text == "It is mild."
    assert it.history == {"root": 1, "spliced": 1}


def test_a_count_is_the_prompt_of_the_next_call_and_leaves_no_trace(talk: Any) -> None:
    it = talk()
    it.room.script(f"{calling('/a')}<|im_end|>", "Done<|im_end|>")
    first = it.ask("go", tools=offering(LS))
    history = [
        {"role": "user", "parts": [{"text": "go"}]},
        said(first).model_dump(mode="json", exclude_none=True, by_alias=True),
        results({"functionResponse": {"id": calls(said(first))[0].id, "name": "ls", "response": {"output": "b"}}}),
    ]
    asked = {
        "contents": history,
        "tools": [{"functionDeclarations": [{"name": "ls", "description": "Lists a folder.",
                                             "parametersJsonSchema": LS["parameters_json_schema"]}]}],
    }  # fmt: skip
    inner = it.post("countTokens", {"generateContentRequest": {"model": "models/m", **asked}}).json()
    assert inner == it.post("countTokens", asked).json()
    answer = it.post("generateContent", asked).json()
    assert inner == {"totalTokens": answer["usageMetadata"]["promptTokenCount"]}
    assert it.history == {"root": 1, "spliced": 1}
    assert it.agent.summary["calls"] == 2


def test_a_count_of_no_rollout_begins_none(talk: Any) -> None:
    it = talk()
    url = f"{it.room.client.url}/r/never-begun/v1beta/models/m:countTokens"
    counted = it.room.http.post(url, json={"contents": [{"parts": [{"text": "hi"}]}]})
    assert counted.json()["totalTokens"] > 0
    assert it.room.http.get(f"{it.room.client.url}/rollouts/never-begun").status_code == 404


def test_candidates_are_turns_of_their_own(talk: Any) -> None:
    it = talk()
    it.room.script("A<|im_end|>", "B<|im_end|>", "C<|im_end|>", "D<|im_end|>")
    whole = it.ask("go", candidate_count=2)
    assert sorted(texts(each.content) for each in whole.candidates) == ["A", "B"]
    chunks = list(it.client.models.generate_content_stream(model="m", contents="on", config={"candidate_count": 2}))
    by_index: dict[int, str] = {}
    for chunk in chunks:
        for each in chunk.candidates or []:
            by_index[each.index] = by_index.get(each.index, "") + texts(each.content)
    assert sorted(by_index.values()) == ["C", "D"]
    assert [chunk.usage_metadata is not None for chunk in chunks].count(True) == 1


def test_log_probabilities_are_shown_to_who_asks_for_them(talk: Any) -> None:
    it = talk()
    (ids, _) = it.room.script("Hi there<|im_end|>", "Hi<|im_end|>")
    answer = it.ask("go", response_logprobs=True, logprobs=2)
    shown = answer.candidates[0].logprobs_result
    assert len(shown.chosen_candidates) == len(ids) == len(shown.top_candidates)
    assert "".join(each.token for each in shown.chosen_candidates).startswith("Hi there")
    assert it.ask("go on").candidates[0].logprobs_result is None


def test_thoughts_are_hidden_unless_they_are_asked_for(talk: Any) -> None:
    it = talk()
    it.room.script("<think>\nR\n</think>\n\nHi<|im_end|>", "On<|im_end|>")
    first = it.ask("go")
    assert said(first).parts == [types.Part(text="Hi")]
    it.ask("go", said(first), "on")
    assert it.history == {"root": 1, "spliced": 1}


def test_the_stream_without_sse_is_one_json_array(talk: Any) -> None:
    it = talk()
    it.room.script("One two three.<|im_end|>")
    answer = it.post("streamGenerateContent", {"contents": [{"parts": [{"text": "go"}]}]})
    assert answer.headers["content-type"] == "application/json"
    chunks = answer.json()
    assert len(chunks) > 1
    assert "".join(chunk["candidates"][0]["content"]["parts"][0]["text"] for chunk in chunks) == "One two three."
    assert chunks[-1]["candidates"][0]["finishReason"] == "STOP"


def test_errors_are_the_sdks_own(talk: Any) -> None:
    it = talk()
    with pytest.raises(errors.ClientError) as caught:
        it.client.models.generate_content(model="gemini-9", contents="go")
    assert (caught.value.code, caught.value.status) == (404, "NOT_FOUND")
    with pytest.raises(errors.ClientError, match="googleSearch") as caught:
        it.client.models.generate_content(model="m", contents="go", config={"tools": [{"google_search": {}}]})
    assert (caught.value.code, caught.value.status) == (400, "INVALID_ARGUMENT")


def test_an_image_is_refused_by_name_where_the_engine_takes_none(talk: Any) -> None:
    it = talk()
    with pytest.raises(errors.ClientError, match="image") as caught:
        it.ask({"role": "user", "parts": [{"inline_data": {"mime_type": "image/png", "data": PNG}}, {"text": "what?"}]})
    assert caught.value.code == 400
    by_address = {"contents": [{"parts": [{"fileData": {"fileUri": "https://x/y.png"}}]}]}
    refused = it.post("generateContent", by_address).json()["error"]
    assert "fileData" in refused["message"]
    assert refused["details"][0]["reason"] == "unsupported_value"


def test_a_key_may_stand_in_the_address_and_name_the_rollout(talk: Any) -> None:
    it = talk()
    it.room.script("Hi<|im_end|>")
    url = f"{it.room.client.url}/v1beta/models/m:generateContent"
    answer = it.room.http.post(
        url, params={"key": it.agent.handle.agent_key}, json={"contents": [{"parts": [{"text": "go"}]}]}
    )
    assert answer.headers["x-turnstile-rollout"] == it.agent.handle.rollout_id


def test_models_are_listed_in_googles_shape(talk: Any) -> None:
    it = talk()
    assert [model.name for model in it.client.models.list()] == ["models/m"]
    assert it.client.models.get(model="m").name == "models/m"
    listed = it.room.http.get(f"{it.room.client.url}/v1/models", headers={"x-goog-api-key": "k"}).json()
    assert listed["models"][0]["name"] == "models/m"


@STREAMS
@pytest.mark.parametrize("text", ["\n\nI will look.\n\n", "a\tb\r\nc", f"{DUCK} \u2028\u0085 \u200b e\u0301", "  "])
def test_odd_text_comes_back_as_the_same_ids(talk: Any, text: str, stream: bool) -> None:
    it = talk()
    it.room.script(f"{text}{calling('/a')}<|im_end|>", "Done<|im_end|>")
    first = it.ask("go", tools=offering(LS), stream=stream)
    it.ask("go", said(first), results(result(calls(said(first))[0])), tools=offering(LS), stream=stream)
    assert it.history == {"root": 1, "spliced": 1}


@pytest.fixture
def silent(wire_up: Callable[..., Any], tools_folder: Path) -> Iterator[Asker]:
    """A room whose clients hear a keep-alive every 50 milliseconds."""
    with wire_up(tools_folder, ("<|im_end|>",), keep_alive_s=0.05, grace_s=0.1) as room:
        it = Asker(room, room.agent())
        yield it
        it.client.close()


def late_answer(it: Asker) -> bytes:
    """A raw stream whose engine is silent until some blank lines have come; to its end, whatever that is."""
    it.agent.path = f"{it.agent.handle.base_url}/v1beta/models/m:streamGenerateContent"
    it.room.fake.held = True
    with it.agent.calling(json.dumps({"contents": [{"parts": [{"text": "Hi"}]}]}).encode()) as line:
        heard = b""
        while heard.count(b"1\r\n\n\r\n") < 3:
            heard += line.recv(65536)
        it.room.fake.held = False
        while not heard.endswith(b"\r\n0\r\n\r\n") and (more := line.recv(65536)):
            heard += more
    return heard


def test_case_e4_blank_lines_bridge_a_silent_engine_and_the_stream_ends_well(silent: Asker) -> None:
    silent.room.script("A<|im_end|>")
    heard = late_answer(silent)
    assert heard.endswith(b"\r\n0\r\n\r\n")
    assert b'"finishReason":"STOP"' in heard


def test_case_e2_a_failure_behind_the_first_bytes_is_told_bare_and_the_body_has_no_end(
    silent: Asker, fakes: Any
) -> None:
    silent.room.fake.faults.append(fakes.Fault.HALF_BODY)
    heard = late_answer(silent)
    assert heard.endswith(b"\n\r\n") and not heard.endswith(b"0\r\n\r\n")
    assert b'{"error":{"code":' in heard and b"finishReason" not in heard
    assert silent.agent.summary["failed_calls"] == {"engine_unreachable": 1}


def test_the_sdk_bears_blank_lines_and_raises_on_a_stream_without_an_end(silent: Asker, fakes: Any) -> None:
    room = silent.room
    room.fake.faults.append(fakes.Fault.HALF_BODY)
    for _ in range(2):
        room.fake.held = True
        timer = threading.Timer(0.3, lambda: setattr(room.fake, "held", False))
        timer.start()
        if room.fake.faults:
            with pytest.raises(Exception, match=r"incomplete|closed|peer|payload"):
                silent.ask("Hi", stream=True)
            room.script("A<|im_end|>")
        else:
            assert texts(said(silent.ask("Hi", stream=True))) == "A"
        timer.join()


def test_a_failure_before_the_first_byte_has_its_status(talk: Any, fakes: Any) -> None:
    it = talk()
    it.room.fake.faults.append(fakes.Fault.HALF_BODY)
    with pytest.raises(errors.ServerError) as caught:
        it.ask("Hi", stream=True)
    assert (caught.value.code, caught.value.status) == (502, "UNAVAILABLE")
