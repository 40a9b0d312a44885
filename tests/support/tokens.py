"""Tokens as an identity provider makes them, and its keys."""

from __future__ import annotations

import json
import time
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa

ISSUER, AUDIENCE = "https://login.example/", "lakewake"
RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
OTHER = rsa.generate_private_key(public_exponent=65537, key_size=2048)
WEAK = rsa.generate_private_key(public_exponent=65537, key_size=1024)
CURVE = ec.generate_private_key(ec.SECP256R1())


def public(key: Any, name: str, **more: Any) -> dict[str, Any]:
    of = "RSAAlgorithm" if isinstance(key, rsa.RSAPrivateKey) else "ECAlgorithm"
    found = json.loads(getattr(jwt.algorithms, of).to_jwk(key.public_key()))
    return {**found, "kid": name, "use": "sig", **more}


def token(key: Any = RSA, name: str | None = "one", algorithm: str = "RS256", **more: Any) -> str:
    claims = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": "ana",
        "exp": time.time() + 60,
        "tenant": "acme",
        "groups": ["sales", "press"],
        **more,
    }
    claims = {name: value for name, value in claims.items() if value is not None}
    headers = {} if name is None else {"kid": name}
    return jwt.encode(claims, key, algorithm, headers=headers)
