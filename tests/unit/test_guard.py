"""Nothing credentialed leaves the machine: what counts as local, who is asked, and a client against a real server."""

import asyncio
import inspect
import logging
import os
import signal
from dataclasses import replace
from types import SimpleNamespace

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from served import Server, answering

from cdpr.environment.opening import check_models
from cdpr.llm import ModelFailure, ModelSpec, ModelUnavailable, Sampling, open_model
from cdpr.llm.guard import GovernanceError, check_disclosure, host_of, is_local
from cdpr.llm.types import unanswered
from cdpr.pipeline.cli import explain
from cdpr.seeding import derive_seed
from cdpr.settings import parse_settings
from cdpr.settings.datasets import Governance

CLOSED, AGREED = Governance(), Governance(remote_agreement="DUA 17")
SECRET = "zqsecret complaint"
ASK = [{"role": "user", "content": SECRET}]


@pytest.fixture(scope="module", params=["openai", "anthropic"])
def server(request, tmp_path_factory):
    """The server, asked by one of the protocols (``where``)."""
    with Server(tmp_path_factory.mktemp("server")) as running:
        running.where = where(running.url, request.param)
        yield running


def where(url: str, protocol: str) -> str:
    return url if protocol == "openai" else "anthropic:" + url.removesuffix("/v1")


def spec_of(place: str, kind: str, governance=CLOSED, credentialed: bool = True, **options) -> ModelSpec:
    patience = 2 if kind in ("hangs", "drips") else 60  # a busy machine answers late, and that is not the point
    options = {"timeout": patience, "retries": 2, "pause": 0.01} | options
    return ModelSpec(where=place, name=kind, governance=governance, credentialed=credentialed, **options)


def ask(place: str, kind: str, governance=CLOSED, *, messages=ASK, **options) -> str:
    model = open_model(spec_of(place, kind, governance, **options))
    [answer] = asyncio.run(model.chat(messages, (0,), Sampling(7, temperature=0.0), 3))
    return answer.text


# What is local

LOCAL = ["http://127.0.0.1:8000/v1", "http://127.9.8.7/v1", "https://localhost/v1", "http://LOCALHOST:80/v1",
         "http://[::1]:8000/v1", "http://[0:0:0:0:0:0:0:1]/v1", "unix:/run/model.sock", "unix:///run/model.sock",
         "http://127.0.0.1:80#@evil.example/", "http://127.0.0.1?@evil.example"]  # fmt: skip
REMOTE = ["http://127.0.0.1.evil.example/v1", "http://localhost.evil.example", "http://evil.example/127.0.0.1",
          "http://evil.example#127.0.0.1", "http://192.168.0.2:8000/v1", "http://10.0.0.1", "http://169.254.1.1",
          "http://hospital-server:8000/v1", "http://0.0.0.0:8000", "http://[::]/v1", "http://[fe80::1]/v1",
          "http://2130706433/", "http://0x7f000001/", "http://127.1/", "http://localhost./",
          "http://127.0.0.1./", "http://127.0.0.1%2eevil.example", "http://[::ffff:10.0.0.1]/v1",
          "http://[::ffff:127.0.0.1]/v1", "http://a.localhost/"]  # fmt: skip
NO_ADDRESS = ["http://127.0.0.1@evil.example/v1", "http://user:zqkey@127.0.0.1/v1", "http://127.0.0.1\\@evil.example/",
              "127.0.0.1:8000", "//127.0.0.1/v1", "http:///127.0.0.1", "ftp://127.0.0.1", "unix:relative",
    "http://0177.0.0.1/",
              "unix://host/run/s", "http://127.0.0.1\t.evil.example", "", "file:///etc", "http://[::1"]  # fmt: skip


@pytest.mark.parametrize("endpoint", LOCAL)
def test_loopback_is_local(endpoint):
    assert is_local(endpoint) and check_disclosure(endpoint, True, CLOSED) is None


@pytest.mark.parametrize("endpoint", REMOTE)
def test_everything_else_is_another_machine(endpoint):
    assert not is_local(endpoint)
    assert check_disclosure(endpoint, False, CLOSED) is None
    with pytest.raises(GovernanceError):
        check_disclosure(endpoint, True, CLOSED)


@pytest.mark.parametrize("endpoint", NO_ADDRESS)
def test_what_is_no_address_is_refused_without_repeating_it(endpoint):
    for governance in (CLOSED, AGREED):
        with pytest.raises(GovernanceError) as caught:
            check_disclosure(endpoint, True, governance)
        assert "zqkey" not in str(caught.value) and "evil" not in str(caught.value)


@given(
    st.text(alphabet="localhost127.0:@/\\#?%[]xev ", max_size=30), st.sampled_from(["http://", "https://", "//", ""])
)
def test_what_is_local_connects_to_loopback(rest, scheme):
    """Whatever the spelling: the host that the client would connect to is a loopback one."""
    try:
        local = is_local(scheme + rest)
    except GovernanceError:
        return
    host = httpx2.Request("POST", scheme + rest).url.raw_host.decode()
    numbers = host.split(".")
    loopback = len(numbers) == 4 and numbers[0] == "127" and all(n.isdigit() and int(n) < 256 for n in numbers)
    assert local == (host in ("localhost", "::1") or loopback)


def test_a_refusal_says_which_data_which_host_and_what_to_set():
    with pytest.raises(GovernanceError) as caught:
        check_disclosure("https://api.example.org:8443/v1?api-key=zqkey", True, CLOSED, "mimic_iv")
    message = explain(caught.value)
    assert message is not None and all(
        part in message for part in ("data.mimic_iv", "api.example.org:8443", "governance.remote_agreement")
    )
    assert "zqkey" not in message


def test_an_agreement_opens_the_way_and_is_recorded():
    assert check_disclosure("https://api.example.org/v1", True, AGREED) == "api.example.org"
    judge, agreement = {"model": "wise", "second": "wise"}, {"remote_agreement": " DUA 17 "}
    wise = {"wise": {"id": "wise", "at": "https://api.example.org/v1"}}
    settings = parse_settings({"judge": judge, "governance": agreement, "models": wise})
    acting = spec_of("https://model.invalid/v1", "m", AGREED)
    for judging, hosts in (((), "model.invalid"), (("judge.model", "judge.second"), "model.invalid, api.example.org")):
        tags = check_models(settings, "private", acting, judging, credentialed=True)
        assert tags == {"remote_agreement": "DUA 17", "remote_host": hosts}
    open_acting = spec_of("https://model.invalid/v1", "m", AGREED, credentialed=False)
    assert check_models(settings, "private", open_acting, ("judge.model",), credentialed=False) == {}
    assert check_disclosure("https://api.example.org/v1", False, AGREED) is None, "open cases: nothing to record"
    with pytest.raises(GovernanceError):
        check_disclosure("https://api.example.org/v1", True, Governance(remote_agreement="  "))
    assert host_of("https://api.example.org/v1/secret-path") == "api.example.org"


# The client


def test_every_model_must_be_told_whether_cases_are_credentialed():
    parameter = inspect.signature(ModelSpec).parameters["credentialed"]
    assert parameter.kind is parameter.KEYWORD_ONLY and parameter.default is parameter.empty


def test_an_answer_comes_back(server):
    told = ask(server.where, "echo").split("|")
    asked_for = ["0.0", str(derive_seed(3, 0))] if server.where == server.url else ["None", "None"]
    assert told == [SECRET, "7", *asked_for]


def test_a_unix_socket_serves(tmp_path):
    with Server(tmp_path, unix=True) as running:
        assert ask(running.url, "echo").startswith(SECRET)


@pytest.mark.parametrize(
    ("kind", "error", "times"),
    [("status500", ModelUnavailable, 4), ("status503", ModelUnavailable, 3), ("status429", ModelUnavailable, 3),
     ("hangs", ModelUnavailable, 1), ("drips", ModelUnavailable, 1), ("status404", ModelUnavailable, 1),
     ("redirect", ModelUnavailable, 1), ("status400", ModelFailure, 2), ("garbage", ModelUnavailable, 4),
     ("nested", ModelUnavailable, 4), ("shapeless", ModelUnavailable, 4)],
)  # fmt: skip
def test_a_server_in_trouble(server, kind, error, times):
    """Tried again where that may help, at last with harmless words; the message names model and host, never question
    or answer."""
    with pytest.raises(ModelFailure) as caught:
        ask(server.where, kind)
    assert type(caught.value) is error and server.count(kind) == times and server.count("elsewhere") == 0
    message = explain(caught.value)
    assert kind in message and "127.0.0.1" in message and "zqsecret" not in message
    chained = caught.value.__cause__ or caught.value.__context__
    assert "zqsecret" not in repr(chained)


@pytest.mark.parametrize("who", ["vllm", "openai", "llama", "sglang", "gemini", "claude", "proxy"])
def test_a_conversation_too_long_for_the_server_is_no_error(server, who):
    model = open_model(ModelSpec(where=server.where, name=f"full_{who}", credentialed=True, retries=2, pause=0.01))
    assert asyncio.run(model.chat(ASK, (0, 1), Sampling(7, 0.0), 3)) == [unanswered("too_long")] * 2
    assert server.count(f"full_{who}") == 2, "nothing that trying again would help"


def test_trouble_that_passes(server):
    assert ask(server.where, "recovers") == "well again"
    assert server.count("recovers") == 3


def test_a_server_that_dies_and_one_that_is_not_there(tmp_path):
    with Server(tmp_path) as running:
        for kind in ("dies", "echo"):
            with pytest.raises(ModelUnavailable, match="no connection"):
                ask(running.url, kind)


def test_a_server_that_is_stopped_and_goes_on(tmp_path):
    """A frozen process keeps its connections open: only the time-out ends the wait."""
    with Server(tmp_path) as running:
        os.kill(running.process.pid, signal.SIGSTOP)
        with pytest.raises(ModelUnavailable, match="no answer within"):
            ask(running.url, "echo", timeout=0.2, retries=1)
        os.kill(running.process.pid, signal.SIGCONT)
        assert ask(running.url, "echo", timeout=5).startswith(SECRET)


def test_a_request_without_an_answer_is_tried_again_only_where_the_server_answers_others(caplog, monkeypatch):
    """A hanging server costs one time-out, not one for every attempt; and the log says what is waited for."""
    monkeypatch.setattr("cdpr.llm.server._SILENCE", 0.1)

    async def answer(request, served):
        text = (await request.json())["messages"][0]["content"]
        served.requests.append(text)
        await asyncio.sleep(0 if text == "other" else 4)
        return {"choices": [{"message": {"content": "yes"}, "finish_reason": "stop"}]}

    async def both(model, others):
        lost = asyncio.create_task(model.chat([{"role": "user", "content": "lost"}], (0,), Sampling(7), 3))
        while "waiting for an answer, at most 2 seconds" not in caplog.text:
            await asyncio.sleep(0.01)
        if others:
            await model.chat([{"role": "user", "content": "other"}], (0,), Sampling(7), 3)
        await lost

    for others, attempts in ((False, 1), (True, 2)):
        caplog.clear()
        with answering(answer) as served:
            model = open_model(spec_of(served.url, "m", timeout=2, retries=8))
            with pytest.raises(ModelUnavailable, match=r"no answer within 2 seconds; it hangs"):
                asyncio.run(both(model, others))
            assert served.requests.count("lost") == attempts
    assert caplog.text.count("answers again") == 1


def test_the_key_comes_from_the_environment_and_is_shown_nowhere(server, monkeypatch, caplog):
    general = "OPENAI_API_KEY" if server.where == server.url else "ANTHROPIC_API_KEY"
    assert ask(server.where, "key") == "none"
    monkeypatch.setenv(general, "zqkey-general")
    assert ask(server.where, "key") == "Bearer zqkey-general"
    monkeypatch.setenv("CDPR_API_KEY", "zqkey-own")
    with caplog.at_level(logging.DEBUG):
        assert ask(server.where, "key") == "Bearer zqkey-own"
        with pytest.raises(ModelFailure) as caught:
            ask(server.where, "status404")
    model = open_model(spec_of(server.where, "key"))
    asyncio.run(model.chat(ASK, (0,), Sampling(7), 3))
    for text in (repr(model), str(vars(model)), str(caught.value), caplog.text):
        assert "zqkey" not in text and "zqsecret" not in text


def test_a_server_that_the_run_started_itself_gets_no_key_of_the_user(server, monkeypatch):
    for name in ("CDPR_API_KEY", "OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.setenv(name, "zqkey")
    started = SimpleNamespace(ensure_ready=lambda: None)
    model = open_model(replace(spec_of(server.where, "key"), server=started))
    [answer] = asyncio.run(model.chat(ASK, (0,), Sampling(7), 3))
    assert answer.text == "none"


@pytest.fixture
def proxy(monkeypatch, server):
    """The environment names a server that would see whatever passes a proxy."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, server.url.removesuffix("/v1"))
        monkeypatch.setenv(name.lower(), server.url.removesuffix("/v1"))
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    return server


def test_no_proxy_sees_what_stays_here(proxy, tmp_path):
    """A proxy would make any request a remote one."""
    before = proxy.count("requests")
    with Server(tmp_path) as other:
        for credentialed in (True, False):
            place = where(other.url, "openai" if proxy.where == proxy.url else "anthropic")
            assert ask(place, "echo", credentialed=credentialed).startswith(SECRET)
        assert other.count("requests") == 2 and proxy.count("requests") == before


def test_no_proxy_sees_credentialed_text(proxy):
    """Open cases may pass the proxy to another machine; credentialed ones go to the agreed host itself or nowhere."""
    remote = where("http://model.invalid/v1", "openai" if proxy.where == proxy.url else "anthropic")
    before = proxy.count("requests")
    with pytest.raises(ModelUnavailable, match="404"):  # the test's server does not pass requests on
        ask(remote, "echo", credentialed=False)
    assert proxy.count("requests") == before + 1
    with pytest.raises(ModelUnavailable, match="no connection"):
        ask(remote, "echo", AGREED)
    with pytest.raises(GovernanceError):
        ask(remote, "echo")
    assert proxy.count("requests") == before + 1


def test_leave_can_be_asked_before_any_work():
    for place in ("http://model.invalid/v1", "anthropic:http://model.invalid"):
        assert spec_of(place, "m", AGREED, credentialed=False).check() is None
        assert spec_of(place, "m", AGREED).check() == "model.invalid"
        for refused in (lambda spec: spec.check("private"), open_model):
            with pytest.raises(GovernanceError, match="another machine"):
                refused(spec_of(place, "m"))
    with pytest.raises(GovernanceError, match=r"data\.private\) must not be sent to api\.anthropic\.com"):
        spec_of("anthropic", "claude").check("private")
