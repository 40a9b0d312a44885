"""Where S3 is, by AWS's variables and files, and the options for Lance, Hadoop and Arrow."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakewake.errors import ConfigError
from lakewake.net.s3 import (
    S3,
    filesystem,
    find_s3,
    lance_options,
    object_store_options,
    spark_options,
)
from lakewake.store.location import location_at

CONFIG = """
[default]
region = eu-north-1

[profile lake]
region = eu-west-3
endpoint_url = https://s3.example.com/
"""
OURS = S3("http://127.0.0.1:9000", "eu-west-3")


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """An environment that names only a configuration file."""
    (tmp_path / "config").write_text(CONFIG)
    return {"AWS_CONFIG_FILE": str(tmp_path / "config")}


def test_amazons_s3_is_the_default() -> None:
    assert find_s3({"AWS_CONFIG_FILE": "/no/such/file"}) == S3("", "")


def test_the_variables_win_over_the_profile(env: dict[str, str]) -> None:
    named = env | {"AWS_PROFILE": "lake", "AWS_ENDPOINT_URL": "http://127.0.0.1:9000"}
    assert find_s3(named) == OURS
    assert find_s3(named | {"AWS_REGION": "x"}).region == "x"
    assert find_s3(env | {"AWS_DEFAULT_REGION": "y"}).region == "y"


def test_an_endpoint_for_s3_wins_over_one_for_all_services(env: dict[str, str]) -> None:
    both = {"AWS_ENDPOINT_URL": "https://all", "AWS_ENDPOINT_URL_S3": "https://s3"}
    assert find_s3(env | both).endpoint == "https://s3"


def test_the_named_profile_is_used_or_else_the_default(env: dict[str, str]) -> None:
    assert find_s3(env) == S3("", "eu-north-1")
    assert find_s3(env | {"AWS_PROFILE": "lake"}) == S3("https://s3.example.com", "eu-west-3")
    assert find_s3(env | {"AWS_PROFILE": "other"}) == S3()


def test_a_custom_endpoint_defaults_to_https_and_us_east_1() -> None:
    found = find_s3({"AWS_CONFIG_FILE": "/no/such/file", "AWS_ENDPOINT_URL": "minio.example.com"})
    assert found == S3("https://minio.example.com", "us-east-1")


def test_a_configuration_file_that_does_not_parse_is_named(env: dict[str, str]) -> None:
    Path(env["AWS_CONFIG_FILE"]).write_text("region = eu\n")
    with pytest.raises(ConfigError, match="config cannot be read"):
        find_s3(env)


def test_lance_gets_the_endpoint_and_whether_http_is_allowed() -> None:
    where = {"aws_endpoint": "http://127.0.0.1:9000", "aws_region": "eu-west-3"}
    assert lance_options(OURS) == where | {"allow_http": "true"}
    assert lance_options(S3("https://h", "")) == {"aws_endpoint": "https://h"}
    assert lance_options(S3()) == {}


def test_hadoop_gets_the_endpoint_and_the_region() -> None:
    options = spark_options(OURS)
    assert options["spark.hadoop.fs.s3a.endpoint"] == "http://127.0.0.1:9000"
    assert options["spark.hadoop.fs.s3a.endpoint.region"] == "eu-west-3"
    assert options["spark.hadoop.fs.s3a.connection.ssl.enabled"] == "false"
    assert options["spark.hadoop.fs.s3a.path.style.access"] == "true"


def test_for_amazons_s3_hadoop_gets_only_the_credentials_provider() -> None:
    assert list(spark_options(S3())) == ["spark.hadoop.fs.s3a.aws.credentials.provider"]


def test_arrow_gets_the_region() -> None:
    assert filesystem(OURS).region == "eu-west-3"


def test_no_option_holds_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "the-key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "the-secret")
    options = {**lance_options(find_s3()), **spark_options(find_s3())}
    assert not {"the-key", "the-secret"} & {*options.values()}


def test_hudi_rs_gets_the_endpoint_under_each_of_its_names(env: dict[str, str]) -> None:
    assert object_store_options(OURS, env) == {
        "aws_endpoint": "http://127.0.0.1:9000",
        "aws_endpoint_url": "http://127.0.0.1:9000",
        "aws_endpoint_url_s3": "http://127.0.0.1:9000",
        "aws_region": "eu-west-3",
        "allow_http": "true",
    }
    assert object_store_options(S3(), env) == {}


def test_hudi_rs_gets_the_keys_of_a_profile_unless_the_environment_has_some(
    env: dict[str, str], tmp_path: Path
) -> None:
    keys = {"aws_access_key_id": "the-key", "aws_secret_access_key": "the-secret"}
    lines = "\n".join(f"{name} = {value}" for name, value in keys.items())
    (tmp_path / "credentials").write_text(f"[lake]\n{lines}\n")
    named = env | {
        "AWS_PROFILE": "lake",
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "credentials"),
    }
    assert object_store_options(S3(), named) == keys
    assert object_store_options(S3(), named | {"AWS_ACCESS_KEY_ID": "another"}) == {}


def test_a_profile_without_keys_is_refused_with_the_command_that_exports_them(
    env: dict[str, str], tmp_path: Path
) -> None:
    named = env | {"AWS_PROFILE": "lake", "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "none")}
    with pytest.raises(ConfigError, match="profile 'lake' has no keys of its own") as caught:
        object_store_options(S3(), named)
    assert "aws configure export-credentials" in caught.value.hint


def test_an_address_in_s3_is_written_as_a_uri(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_REGION", "eu-west-3")
    location = location_at("s3://bucket/my index/")
    assert location.address("wines.json") == "s3://bucket/my%20index/wines.json"
    assert location.address() == "s3://bucket/my%20index"
    assert location.spark("wines.json") == "s3a://bucket/my index/wines.json"


def test_a_location_on_another_file_system_is_refused() -> None:
    with pytest.raises(ConfigError, match="neither on a local file system nor in S3"):
        location_at("gs://bucket/index")
