import json
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http import HTTPStatus
from typing import Any

import pytest
from tests.demo.conftest import Running

from samecommit.demo.errors import ModelBusy, ModelError, NoAnswer
from samecommit.demo.intake import SAMPLE, read_leads
from samecommit.demo.model_client import PROMPT_VERSION, ModelClient, retry_after_seconds
from samecommit.demo.model_stub import ModelStub, opinion
from samecommit.demo.stub import Answer, Request

WANTS_TO_BUY = {"name": "Ann", "message": "Please send a quote"}


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def ask(text: str = "Please send a quote") -> Request:
    body = {"model": "m", "messages": [{"role": "user", "content": text}]}
    return Request(method="POST", path="/v1/chat/completions", body=body)


def client(url: str) -> ModelClient:
    return ModelClient(base_url=f"{url}/v1", api_key="k", model="m")


def test_a_clear_message_is_judged_alike_every_time_and_a_mixed_one_is_doubtful() -> None:
    assert opinion("Please send a quote") == opinion("Please send a quote")
    assert opinion("Please send a quote").label == "hot"
    assert opinion("Please send a quote").confidence >= 0.7
    assert opinion("I can't log in, please send a quote").confidence < 0.7


def test_a_small_part_of_the_sample_is_doubtful() -> None:
    doubtful = sum(opinion(lead.message).confidence < 0.7 for lead in read_leads(SAMPLE).leads)
    assert 15 <= doubtful <= 80


def test_after_so_many_answers_everything_is_refused_for_a_while() -> None:
    clock = Clock()
    stub = ModelStub(burst_every=3, burst_seconds=1.5, clock=clock)
    assert [stub(ask()).status for _ in range(3)] == [HTTPStatus.OK] * 3
    refused = stub(ask())
    assert (refused.status, refused.headers["Retry-After"]) == (HTTPStatus.TOO_MANY_REQUESTS, "2")
    clock.now = 1.0
    assert stub(ask()).headers["Retry-After"] == "1"
    clock.now = 1.6
    assert [stub(ask()).status for _ in range(3)] == [HTTPStatus.OK] * 3
    assert stub(ask()).status == HTTPStatus.TOO_MANY_REQUESTS


def test_a_message_that_makes_it_babble_is_answered_well_the_second_time() -> None:
    stub = ModelStub(burst_every=10_000)
    texts = [f"text {number}" for number in range(500)]

    def contents() -> list[str]:
        return [stub(ask(text)).body["choices"][0]["message"]["content"] for text in texts]

    assert any("Happy to help" in content for content in contents())
    assert not any("Happy to help" in content for content in contents())


def test_a_request_without_messages_is_refused() -> None:
    assert ModelStub()(Request(method="POST", path="/v1/chat/completions", body={})).status == HTTPStatus.BAD_REQUEST


def test_the_client_brings_label_confidence_model_prompt_version_and_tokens(serving: Running) -> None:
    judged = client(serving(ModelStub(latency_seconds=0))).classify(WANTS_TO_BUY)
    assert (judged.label, judged.model, judged.prompt_version) == ("hot", "m", PROMPT_VERSION)
    assert 0.7 <= judged.confidence <= 1
    assert judged.tokens == judged.prompt_tokens + judged.completion_tokens > judged.completion_tokens > 0


def test_the_client_says_how_long_a_busy_model_asks_to_wait(serving: Running) -> None:
    url = serving(ModelStub(burst_every=1, burst_seconds=30, latency_seconds=0))
    client(url).classify(WANTS_TO_BUY)
    with pytest.raises(ModelBusy) as caught:
        client(url).classify(WANTS_TO_BUY)
    assert 29 <= caught.value.retry_after <= 30


def completion(content: str, **more: Any) -> dict[str, Any]:
    usage = {"prompt_tokens": 7, "completion_tokens": 3}
    return {"model": "real", "choices": [{"message": {"content": content}}], "usage": usage, **more}


def test_an_answer_in_a_code_fence_is_read(serving: Running) -> None:
    url = serving(lambda _: Answer(body=completion('```json\n{"label": "warm", "confidence": 0.9}\n```')))
    assert client(url).classify({}).label == "warm"


@pytest.mark.parametrize(
    "body",
    [
        completion("Sure!"),
        completion('{"label": "warm"}'),
        completion('{"label": "lukewarm", "confidence": 1}'),
        completion("[]"),
        completion('{"label": "warm", "confidence": 1}', usage=None),
        {"choices": []},
        "not even an object",
    ],
)
def test_an_answer_that_is_no_classification_is_an_error(serving: Running, body: Any) -> None:
    with pytest.raises(ModelError):
        client(serving(lambda _: Answer(body=body))).classify({})


def test_another_status_is_an_error_with_its_text(serving: Running) -> None:
    url = serving(lambda _: Answer(status=HTTPStatus.UNAUTHORIZED, body={"error": "bad key"}))
    with pytest.raises(ModelError, match=r"401.*bad key"):
        client(url).classify({})


def test_a_dropped_connection_is_no_answer(serving: Running) -> None:
    with pytest.raises(NoAnswer):
        client(serving(lambda _: Answer(is_dropped=True))).classify({})


def test_nobody_listening_is_no_answer() -> None:
    with pytest.raises(NoAnswer):
        client("http://127.0.0.1:9").classify({})


def test_the_lead_reaches_the_model_as_it_was_written(serving: Running) -> None:
    seen: list[Any] = []

    def service(request: Request) -> Answer:
        seen.append(request.body)
        return Answer(body=completion('{"label": "warm", "confidence": 1}'))

    client(serving(service)).classify({"name": "李小龙"})
    assert json.loads(seen[0]["messages"][-1]["content"]) == {"name": "李小龙"}


@pytest.mark.parametrize(
    ("value", "seconds"), [("3", 3), ("0.5", 0.5), ("", 1), ("soon", 1), ("-5", 0), ("nan", 1), ("inf", 300)]
)
def test_retry_after_is_read_whatever_it_holds(value: str, seconds: float) -> None:
    assert retry_after_seconds({"retry-after": value}) == seconds


def test_retry_after_may_be_a_date() -> None:
    value = format_datetime(datetime.now(UTC) + timedelta(seconds=60), usegmt=True)
    assert 55 < retry_after_seconds({"retry-after": value}) <= 60
