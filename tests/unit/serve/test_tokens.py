"""Bearer tokens: what is checked, and what their callers see."""

from __future__ import annotations

import json
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization

from lakewake.api.limited import LimitedIndex
from lakewake.config.settings import ServeSettings, TokenSettings
from lakewake.errors import ConfigError, FilterError
from lakewake.model.where import And, Compare, Contains, In
from lakewake.net.deadline import TooLate
from lakewake.search.where import parse_where
from lakewake.serve.keys import KeyRing, add_key
from lakewake.serve.opening import ServeOptions, check_exposure
from lakewake.serve.refusals import Refused
from lakewake.serve.run import load_tokens
from lakewake.serve.tokens import TRUSTED, Tokens, check_tokens, read_keys
from support.http_server import listening
from support.serving import asking
from support.tenants import THEIRS, index_of
from support.tokens import AUDIENCE, CURVE, ISSUER, OTHER, RSA, WEAK, public, token

WHERE = "tenant = :tenant AND acl CONTAINS ANY :groups"


class Provider:
    """Publishes keys, counts who reads them, and may fail."""

    def __init__(self, *keys: dict[str, Any]) -> None:
        self.keys, self.reads, self.fails, self.now = list(keys), 0, False, 1000.0
        self.tokens = Tokens(
            TokenSettings("https://login.example/keys", ISSUER, AUDIENCE, WHERE),
            read=self._read,
            clock=lambda: self.now,
        )

    def _read(self) -> bytes:
        self.reads += 1
        if self.fails:
            raise OSError("down")
        return json.dumps({"keys": self.keys}).encode()

    def check(self, given: str) -> Any:
        """As the server checks it."""
        found = self.tokens.check(given)
        if found is None:
            self.tokens.refresh()
            found = self.tokens.check(given, again=False)
        return found

    def refused(self, given: str) -> str:
        with pytest.raises(Refused) as refused:
            self.check(given)
        assert refused.value.status == 401
        assert given not in refused.value.fact
        return refused.value.fact


@pytest.fixture
def provider() -> Provider:
    return Provider(public(RSA, "one"))


def test_a_valid_token_becomes_a_caller_with_its_claims_in_the_filter(provider: Provider) -> None:
    caller = provider.check(token())
    assert caller.name == "token ana"
    assert caller.where == And(
        (Compare("tenant", "=", "acme"), Contains("acl", ("sales", "press")))
    )


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"exp": time.time() - 60}, "expired"),
        ({"exp": None}, "not valid"),
        ({"aud": "another"}, "audience"),
        ({"aud": None}, "not valid"),
        ({"iss": "https://evil.example/"}, "issuer"),
        ({"iss": None}, "not valid"),
        ({"sub": None}, "not valid"),
        ({"nbf": time.time() + 100_000}, "not valid"),
    ],
)
def test_times_audience_and_issuer_are_checked(
    provider: Provider, more: dict[str, Any], why: str
) -> None:
    assert why in provider.refused(token(**more))


def test_clocks_may_differ_by_the_leeway_and_no_more(provider: Provider) -> None:
    assert provider.check(token(exp=time.time() - 20)) is not None
    assert provider.check(token(nbf=time.time() + 20)) is not None
    assert "expired" in provider.refused(token(exp=time.time() - 40))


def test_only_the_configured_algorithms_are_accepted(provider: Provider) -> None:
    provider.keys.append(public(CURVE, "curve"))
    assert "algorithm" in provider.refused(token(algorithm="RS512"))
    assert "algorithm" in provider.refused(token(CURVE, "curve", "ES256"))
    unsigned = jwt.encode({"sub": "ana", "iss": ISSUER, "aud": AUDIENCE}, None, "none")
    provider.refused(unsigned)
    # A key for everybody to read must not be taken for a shared secret.
    pem = RSA.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    parts = token().split(".")
    header = jwt.utils.base64url_encode(b'{"alg":"HS256","kid":"one"}').decode()
    import hashlib
    import hmac

    body = f"{header}.{parts[1]}".encode()
    signed = jwt.utils.base64url_encode(hmac.new(pem, body, hashlib.sha256).digest()).decode()
    assert "algorithm" in provider.refused(f"{body.decode()}.{signed}")


def test_a_token_signed_by_another_key_or_changed_is_refused(provider: Provider) -> None:
    assert "not valid" in provider.refused(token(OTHER))
    head, _, signature = token().split(".")
    claims = jwt.utils.base64url_encode(b'{"sub":"root","tenant":"zeta"}').decode()
    assert "not valid" in provider.refused(f"{head}.{claims}.{signature}")
    for broken in ("..", "a.b.c", "x" * 20_000 + "..", token()[:-4] + "\u00e9\n.", "e30.e30.e30"):
        provider.refused(broken)


def test_a_key_for_encryption_a_weak_or_a_shared_key_is_never_used() -> None:
    shared = {"kty": "oct", "kid": "shared", "k": "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0"}
    found = Provider(public(RSA, "one", use="enc"), public(WEAK, "weak"), shared)
    for given in (token(), token(WEAK, "weak"), token(name="shared")):
        assert "key is unknown" in found.refused(given)
    pinned = Provider(public(RSA, "one", alg="RS512"))
    assert "algorithm" in pinned.refused(token())


def test_a_private_key_or_one_for_other_uses_is_left_out() -> None:
    private = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(RSA))
    for key in ({**private, "kid": "one"}, public(RSA, "one", key_ops=["encrypt"])):
        assert "key is unknown" in Provider(key).refused(token())
    odd = public(OTHER, "odd", key_ops=5)
    assert Provider(odd, public(RSA, "one", key_ops=["verify"])).check(token()) is not None


def test_a_key_set_that_nests_too_deep_is_not_read(provider: Provider) -> None:
    provider.check(token())
    provider.tokens._read = lambda: b'{"keys":' + b"[" * 100_000
    provider.now += 400
    assert provider.check(token()) is not None


def test_a_file_of_keys_is_not_read_for_each_unknown_key(tmp_path: Path) -> None:
    file, now, reads = tmp_path / "jwks.json", [1000.0], 0
    file.write_text(json.dumps({"keys": [public(RSA, "one")]}))

    def read() -> bytes:
        nonlocal reads
        reads += 1
        return file.read_bytes()

    settings = TokenSettings(str(file), ISSUER, AUDIENCE, WHERE)
    tokens = Tokens(settings, read=read, clock=lambda: now[0])
    for name in ("two", "three", "../one"):
        if tokens.check(token(name="one")) is None:
            tokens.refresh()
        with pytest.raises(Refused):
            tokens.check(token(name=name))
    assert reads == 1
    now[0] += 1
    assert tokens.check(token(name="two")) is None


def test_a_provider_that_answers_byte_by_byte_times_out(monkeypatch: Any) -> None:
    monkeypatch.setattr("lakewake.serve.tokens._TIMEOUT", 0.2)
    ended = threading.Event()

    class Slow(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            with suppress(OSError):
                while not ended.wait(0.02):
                    self.wfile.write(b" ")
                    self.wfile.flush()

        def log_message(self, *_: Any) -> None:
            pass

    with listening(Slow) as port:
        try:
            with pytest.raises(TooLate):
                read_keys(f"http://127.0.0.1:{port}/keys")
        finally:
            ended.set()


def test_the_first_requests_do_not_wait_for_the_keys(tmp_path: Path) -> None:
    file = tmp_path / "jwks.json"
    file.write_text(json.dumps({"keys": [public(RSA, "one")]}))
    found = load_tokens(ServeSettings(tokens=TokenSettings(str(file), ISSUER, AUDIENCE, WHERE)))
    assert found is not None
    assert found.check(token(), again=False) is not None


def test_a_new_key_is_read_when_it_is_needed_and_an_old_one_is_forgotten(
    provider: Provider,
) -> None:
    provider.check(token())
    assert provider.reads == 1
    provider.keys = [public(OTHER, "two")]
    # Not more often than every few seconds, however many unknown keys are named.
    for _ in range(5):
        provider.refused(token(OTHER, "two"))
    assert provider.reads == 1
    provider.now += 11
    assert provider.check(token(OTHER, "two")) is not None
    assert "key is unknown" in provider.refused(token())
    assert provider.reads == 2


def test_keys_are_trusted_for_an_hour_if_the_provider_is_down(provider: Provider) -> None:
    provider.check(token())
    provider.fails = True
    provider.now += TRUSTED - 1
    assert provider.check(token()) is not None
    provider.now += 2
    assert "key is unknown" in provider.refused(token())
    provider.fails = False
    provider.now += 11
    assert provider.check(token()) is not None


@pytest.mark.parametrize(
    "claims",
    [
        {"tenant": None},
        {"groups": None},
        {"tenant": ["acme"]},
        {"tenant": {"a": 1}},
        {"tenant": "a\nb"},
        {"groups": [["sales"]]},
        {"groups": {"sales": True}},
        {"groups": ["x"] * 1001},
    ],
)
def test_a_claim_that_is_missing_or_of_no_use_shows_nothing_and_is_logged(
    provider: Provider, claims: dict[str, Any], caplog: Any
) -> None:
    caller = provider.check(token(**claims))
    found = LimitedIndex(index_of(THEIRS[1]), caller.where)
    assert found.search("wine", k=9).hits == ()
    assert "sees no row" in caplog.text


def test_a_claim_is_a_value_whatever_it_holds() -> None:
    claims = {"t": "x' OR 1 = 1 --", "n": 7, "s": "one", "b": True, "odd:name": "y"}
    assert parse_where("a = :t", claims) == Compare("a", "=", "x' OR 1 = 1 --")
    assert parse_where("a IN :s", claims) == In("a", ("one",))
    assert parse_where("a IN (:s, :n)", claims) == In("a", ("one", 7))
    assert parse_where('a = :"odd:name"', claims) == Compare("a", "=", "y")
    assert parse_where("a = :b", claims).value is True  # type: ignore[union-attr]
    with pytest.raises(FilterError, match="wildcard"):
        parse_where("a LIKE :t", claims)
    with pytest.raises(FilterError, match="only the filter of a token"):
        parse_where("a = :t")


def test_callers_see_the_rows_of_their_tokens(tmp_path: Path) -> None:
    file = tmp_path / "jwks.json"
    file.write_text(json.dumps({"keys": [public(RSA, "one")]}))
    settings = TokenSettings(str(file), ISSUER, AUDIENCE, WHERE)
    key = add_key(tmp_path / "keys.json", "all", "read")
    ring = KeyRing(tmp_path / "keys.json")
    found = {}
    with asking(index_of(THEIRS[1]), keys=ring, app={"tokens": Tokens(settings)}) as client:
        bearers = {
            "acme": token(),
            "press": token(groups="press"),
            "zeta": token(tenant="zeta"),
            "none": token(groups=[]),
            "all": key,
        }
        for name, bearer in bearers.items():
            client.headers["Authorization"] = f"Bearer {bearer}"
            answer = client.post("/indexes/sample/search", json={"text": "wine", "k": 9})
            found[name] = sorted(hit["key"] for hit in answer.json()["hits"])
        client.headers["Authorization"] = f"Bearer {token(aud='other')}"
        refused = client.post("/indexes/sample/search", json={"text": "wine"})
        client.headers["Authorization"] = f"Bearer {token()}"
        assert client.get("/metrics").status_code == 403
    assert found["acme"] == ["ours 1", "ours 2", "ours 3"]
    assert found["press"] == ["ours 2"]
    assert found["zeta"] == ["theirs 1"]
    assert found["none"] == []
    assert len(found["all"]) == 8
    assert refused.status_code == 401
    assert "invalid_token" in refused.headers["WWW-Authenticate"]


def test_a_server_with_tokens_alone_may_listen_elsewhere(tmp_path: Path) -> None:
    settings = TokenSettings("https://login.example/keys", ISSUER, AUDIENCE, WHERE)
    check_exposure(ServeSettings(host="0.0.0.0", tokens=settings), ServeOptions())
    with pytest.raises(ConfigError, match="combined"):
        check_exposure(ServeSettings(tokens=settings), ServeOptions(insecure=True))
    assert load_tokens(ServeSettings()) is None


def test_a_file_without_keys_or_a_filter_that_does_not_parse_stops_the_start(
    tmp_path: Path,
) -> None:
    file = tmp_path / "jwks.json"
    file.write_text('{"keys": []}')
    with pytest.raises(ConfigError, match="no public key"):
        check_tokens(TokenSettings(str(file), ISSUER, AUDIENCE, WHERE))
    with pytest.raises(ConfigError, match="FileNotFound"):
        check_tokens(TokenSettings(str(file) + "x", ISSUER, AUDIENCE, WHERE))
    with pytest.raises(FilterError):
        check_tokens(TokenSettings("https://a/b", ISSUER, AUDIENCE, "tenant :tenant"))
