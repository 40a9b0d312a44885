"""S3 settings for the libraries that use it: Arrow, Lance, Hadoop, hudi-rs and obstore.

The address comes from AWS's own variables and configuration file. Credentials are left to each
library: it finds keys by itself, in the environment, in a profile or by the machine's role. Only
hudi-rs and obstore do not know profiles: they get the keys of a profile from here.
"""

from __future__ import annotations

import configparser
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyarrow import fs

from lakewake.errors import ConfigError
from lakewake.net.address import AWS_KEYS, check_address

#: What to check if S3 does not answer as it should.
HINT = (
    "check the bucket, AWS_ENDPOINT_URL, AWS_REGION and the credentials"
    " (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE)"
)
#: The region of stores other than Amazon's, unless another is set.
USUAL_REGION = "us-east-1"
#: The names under which hudi-rs takes an endpoint, and the keys that a profile holds.
ENDPOINTS = ("aws_endpoint", "aws_endpoint_url", "aws_endpoint_url_s3")
KEYS = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")
#: The options that obstore takes as its configuration.
OBSTORE_KEYS = ("aws_endpoint", "aws_region", *KEYS)
#: Keys given as options come first, then those that Amazon's own tools would find.
HADOOP_CREDENTIALS = (
    "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider,"
    "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider,"
    "com.amazonaws.auth.DefaultAWSCredentialsProviderChain"
)


@dataclass(frozen=True)
class S3:
    """Where S3 is.

    Attributes:
        endpoint: address of a store other than Amazon's, with its scheme; empty: Amazon's.
        region: empty: each library finds it out.
    """

    endpoint: str = ""
    region: str = ""

    @property
    def plain(self) -> bool:
        """Whether the connection is not encrypted."""
        return self.endpoint.startswith("http://")


def find_s3(env: Mapping[str, str] = os.environ) -> S3:
    """Where S3 is: from the environment, else from the profile in AWS's configuration file.

    Raises:
        ConfigError: that file cannot be read, or the address has a key in it.
    """
    profile = _profile(env)
    named = {name: env.get(name, "") for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")}
    named["`endpoint_url` of the AWS profile"] = profile.get("endpoint_url", "")
    source, endpoint = next((found for found in named.items() if found[1]), ("", ""))
    check_address(endpoint, source, AWS_KEYS)
    if endpoint and "://" not in endpoint:
        endpoint = f"https://{endpoint}"
    region = env.get("AWS_REGION") or env.get("AWS_DEFAULT_REGION") or profile.get("region", "")
    return S3(endpoint.rstrip("/"), region or (USUAL_REGION if endpoint else ""))


def _profile(env: Mapping[str, str]) -> Mapping[str, str]:
    name = _profile_name(env)
    section = "default" if name == "default" else f"profile {name}"
    return _section(env, "AWS_CONFIG_FILE", "~/.aws/config", section)


def _profile_name(env: Mapping[str, str]) -> str:
    return env.get("AWS_PROFILE") or "default"


def _section(env: Mapping[str, str], variable: str, usual: str, section: str) -> Mapping[str, str]:
    """A section of the file that a variable names; empty if there is none."""
    file = Path(env.get(variable) or usual).expanduser()
    parser = configparser.RawConfigParser()
    try:
        parser.read(file, encoding="utf-8")
    except (configparser.Error, OSError, UnicodeDecodeError) as error:
        first = str(error).splitlines()[0]
        hint = f"correct it, or name another in {variable}"
        raise ConfigError(f"{file} cannot be read: {first}", hint=hint) from error
    return parser[section] if parser.has_section(section) else {}


#: A small file then takes one PUT; Arrow before 21 cannot do it.
_ONE_PUT = {"allow_delayed_open": True} if int(pa.__version__.partition(".")[0]) >= 21 else {}


def filesystem(s3: S3) -> fs.FileSystem:
    """S3 as Arrow reads and writes it; paths in it begin with the bucket."""
    scheme, _, host = s3.endpoint.partition("://")
    return fs.S3FileSystem(
        region=s3.region or None,
        endpoint_override=host or None,
        scheme=scheme or None,
        **_ONE_PUT,
    )


def lance_options(s3: S3) -> dict[str, str]:
    """The same for Lance: its storage options."""
    options = {"aws_endpoint": s3.endpoint, "aws_region": s3.region}
    return {k: v for k, v in options.items() if v} | ({"allow_http": "true"} if s3.plain else {})


def object_store_options(s3: S3, env: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The same for hudi-rs and obstore. They may hold a secret: pass them on, and forget them.

    Raises:
        ConfigError: the profile has no keys of its own.
    """
    # hudi-rs also takes AWS's variables as options, in any order: all names of one option agree.
    options = {name: s3.endpoint for name in ENDPOINTS if s3.endpoint} | _profile_keys(env)
    if s3.region:
        options["aws_region"] = s3.region
    return options | ({"allow_http": "true"} if s3.plain else {})


def _profile_keys(env: Mapping[str, str]) -> dict[str, str]:
    """The keys of the profile, unless the environment has keys."""
    if env.get("AWS_ACCESS_KEY_ID"):
        return {}
    name = _profile_name(env)
    usual = "~/.aws/credentials"
    found = {**_profile(env), **_section(env, "AWS_SHARED_CREDENTIALS_FILE", usual, name)}
    keys = {key: found[key] for key in KEYS if found.get(key)}
    if not keys and "AWS_PROFILE" in env:
        raise ConfigError(
            f"the AWS profile '{name}' has no keys of its own, and an index in the lake needs them",
            hint="export its keys: eval $(aws configure export-credentials --format env)",
        )
    return keys


def spark_options(s3: S3) -> dict[str, str]:
    """The same for Spark, whose s3a:// is Hadoop's."""
    options = {"aws.credentials.provider": HADOOP_CREDENTIALS}
    if s3.region:
        options["endpoint.region"] = s3.region
    if s3.endpoint:
        options |= {
            "endpoint": s3.endpoint,
            "connection.ssl.enabled": str(not s3.plain).lower(),
            "path.style.access": "true",
            # Some stores answer this in a way that makes Hadoop retry forever.
            "multiobjectdelete.enable": "false",
        }
    return {f"spark.hadoop.fs.s3a.{key}": value for key, value in options.items()}
