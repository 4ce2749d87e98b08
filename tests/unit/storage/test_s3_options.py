"""Hadoop's settings to a connection: precedence, endpoints, credential providers, and no secret shown."""

from __future__ import annotations

import pytest
from leaks import secret

from pydelta.errors import DeltaEnvironmentError, InvalidArgumentError
from pydelta.storage.cloud_options import azure_options, gcs_options
from pydelta.storage.options import HadoopOptions, Secret, s3_options

KEYS = {"fs.s3a.access.key": "AK", "fs.s3a.secret.key": "SK"}
ENV = {"AWS_ACCESS_KEY_ID": "EK", "AWS_SECRET_ACCESS_KEY": "ES", "AWS_SESSION_TOKEN": "ET"}
HADOOP = "org.apache.hadoop.fs.s3a."
PROVIDER = "fs.s3a.aws.credentials.provider"


def revealed(connection):
    held = connection.credential
    if held is None:
        return None
    return held.access_key.reveal(), held.secret_key.reveal(), held.token.reveal() if held.token else None


def test_call_options_go_before_session_settings_before_the_environment():
    options = {"fs.s3a.endpoint.region": "r1", "spark.hadoop.fs.s3a.endpoint.region": "r2"}
    env = {"PYDELTA_FS_S3A_ENDPOINT_REGION": "r3", "AWS_REGION": "r4"}
    assert s3_options("b", options, env).get("region") == "r1"
    del options["fs.s3a.endpoint.region"]
    assert s3_options("b", options, env).get("region") == "r2"
    assert s3_options("b", {}, env).get("region") == "r3"
    assert s3_options("b", {}, {"AWS_REGION": "r4"}).get("region") == "r4"
    assert s3_options("b", {}, {}).get("region") == "us-east-1"


def test_an_empty_setting_counts_as_unset():
    assert s3_options("b", {"fs.s3a.endpoint": " ", PROVIDER: ""}, ENV).get("endpoint") is None


@pytest.mark.parametrize(
    ("bucket", "options", "endpoint", "virtual", "plain"),
    [
        ("bkt", {}, None, True, False),
        ("my.bkt", {}, None, False, False),
        ("bkt", {"path.style.access": "true"}, None, False, False),
        ("bkt", {"endpoint": "s3.amazonaws.com"}, None, True, False),
        ("bkt", {"endpoint": "https://s3.amazonaws.com/"}, None, True, False),
        ("bkt", {"endpoint": "minio:9000", "path.style.access": "TRUE"}, "https://minio:9000", False, False),
        ("bkt", {"endpoint": "http://minio:9000", "path.style.access": "true"}, "http://minio:9000", False, True),
        ("bkt", {"endpoint": "minio:9000", "connection.ssl.enabled": "false"}, "http://bkt.minio:9000", True, True),
        ("bkt", {"endpoint": "http://127.0.0.1:9000"}, "http://127.0.0.1:9000", False, True),
        ("bkt", {"endpoint": "http://localhost:9000"}, "http://localhost:9000", False, True),
        ("my_bkt", {"endpoint": "http://minio:9000"}, "http://minio:9000", False, True),
    ],
)
def test_endpoints(bucket, options, endpoint, virtual, plain):
    found = s3_options(bucket, {f"fs.s3a.{name}": value for name, value in options.items()}, {})
    assert found.get("endpoint") == found.get("aws_endpoint_url_s3") == endpoint
    assert found.get("virtual_hosted_style_request") is virtual
    assert found.allow_http is plain


def test_an_endpoint_of_the_environment_is_used_with_paths_unless_it_says_otherwise():
    env = {"AWS_ENDPOINT_URL": "http://minio:9000"}
    found = s3_options("bkt", {"fs.s3a.path.style.access": "false"}, env)
    assert (found.get("endpoint"), found.get("virtual_hosted_style_request")) == ("http://minio:9000", False)
    assert s3_options("bkt", {"fs.s3a.endpoint": "http://other:1"}, env).get("endpoint") == "http://bkt.other:1"


def test_the_region_is_read_from_an_endpoint_that_names_one():
    assert s3_options("bkt", {"fs.s3a.endpoint": "s3.eu-central-1.amazonaws.com"}, {}).get("region") == "eu-central-1"
    assert s3_options("bkt", {"fs.s3a.endpoint": "s3.us-gov-west-1.amazonaws.com"}, {}).get("region") == "us-gov-west-1"


@pytest.mark.parametrize(
    "text",
    [
        "http://",
        f"http://user:{secret('url')}@minio",
        "ftp://minio",
        f"http://[{secret('url')}",
        "minio:port",
        "http://h:99999",
    ],
)
def test_an_endpoint_that_is_none_is_refused_without_repeating_it(text):
    with pytest.raises(InvalidArgumentError, match="endpoint") as caught:
        s3_options("b", {"fs.s3a.endpoint": text}, {})
    assert secret("options") not in str(caught.value)


@pytest.mark.parametrize(
    ("classes", "options", "env", "expected"),
    [
        ("", KEYS, ENV, ("AK", "SK", None)),
        ("", {**KEYS, "fs.s3a.session.token": "T"}, ENV, ("AK", "SK", "T")),
        ("", {}, ENV, ("EK", "ES", "ET")),
        ("", {}, {}, None),
        (HADOOP + "SimpleAWSCredentialsProvider", {**KEYS, "fs.s3a.session.token": "T"}, {}, ("AK", "SK", None)),
        (HADOOP + "TemporaryAWSCredentialsProvider", {**KEYS, "fs.s3a.session.token": "T"}, {}, ("AK", "SK", "T")),
        ("com.amazonaws.auth.EnvironmentVariableCredentialsProvider", KEYS, ENV, ("EK", "ES", "ET")),
        ("software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider", KEYS, ENV, ("EK", "ES", "ET")),
        ("software.amazon.awssdk.auth.credentials.InstanceProfileCredentialsProvider", KEYS, ENV, None),
        (
            f"\n {HADOOP}TemporaryAWSCredentialsProvider,\n {HADOOP}SimpleAWSCredentialsProvider,\n"
            " software.amazon.awssdk.auth.credentials.EnvironmentVariableCredentialsProvider,\n"
            f" {HADOOP}auth.IAMInstanceCredentialsProvider\n",
            {},
            {},
            None,
        ),
        (f"{HADOOP}SimpleAWSCredentialsProvider, com.example.Vault", KEYS, {}, ("AK", "SK", None)),
    ],
)
def test_the_first_provider_that_finds_keys_is_the_one(classes, options, env, expected):
    assert revealed(s3_options("b", {**options, PROVIDER: classes}, env)) == expected


def test_the_environment_cannot_switch_conditional_puts_off():
    assert s3_options("b", KEYS, {"AWS_CONDITIONAL_PUT": "disabled"}).get("conditional_put") == "etag"


def test_anonymous_signs_nothing():
    found = s3_options("b", {**KEYS, PROVIDER: HADOOP + "AnonymousAWSCredentialsProvider"}, ENV)
    assert (found.credential, found.get("skip_signature")) == (None, True)
    assert s3_options("b", KEYS, {"AWS_SKIP_SIGNATURE": "true"}).get("skip_signature") is False
    assert s3_options("b", {}, {"AWS_SKIP_SIGNATURE": "true"}).get("skip_signature") is True


@pytest.mark.parametrize(
    "name",
    [
        HADOOP + "auth.AssumedRoleCredentialProvider",
        "com.amazonaws.auth.profile.ProfileCredentialsProvider",
        "com.example.SimpleAWSCredentialsProvider",
    ],
)
def test_a_provider_that_only_hadoop_can_run_is_refused_by_its_class(name):
    with pytest.raises(DeltaEnvironmentError) as caught:
        s3_options("b", {**KEYS, PROVIDER: name}, ENV)
    assert name in str(caught.value)
    assert "SimpleAWSCredentialsProvider" in str(caught.value.hint)
    assert "SK" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"hadoop.security.credential.provider.path": "jceks://x"}, "credential store"),
        ({"fs.s3a.security.credential.provider.path": "jceks://x"}, "credential store"),
        ({"fs.s3a.delegation.token.binding": "org.example.Tokens"}, "org.example.Tokens"),
        ({"fs.s3a.encryption.algorithm": "SSE-C"}, "SSE-C"),
        ({PROVIDER: HADOOP + "TemporaryAWSCredentialsProvider", **KEYS}, "found no keys"),
        ({"fs.s3a.secret.key": "SK"}, "fs.s3a.access.key is missing"),
    ],
)
def test_what_cannot_be_carried_over_is_refused(options, text):
    with pytest.raises(DeltaEnvironmentError, match=text) as caught:
        s3_options("b", options, {})
    assert caught.value.hint


@pytest.mark.parametrize("name", ["path.style.access", "connection.ssl.enabled", "attempts.maximum"])
def test_a_value_that_cannot_be_right_is_named(name):
    options = {f"fs.s3a.{name}": "maybe", "fs.s3a.endpoint": "minio:9000"}
    with pytest.raises(InvalidArgumentError, match="maybe") as caught:
        s3_options("b", options, {})
    assert name in str(caught.value)


def test_the_rest_of_the_settings_is_carried_over():
    options = {
        "fs.s3a.encryption.algorithm": "SSE-KMS",
        "fs.s3a.encryption.key": "arn:key",
        "fs.s3a.requester.pays.enabled": "true",
        "fs.s3a.attempts.maximum": "3",
        "fs.s3a.proxy.host": "proxy",
        "fs.s3a.proxy.port": "3128",
        "fs.s3a.proxy.username": "me",
        "fs.s3a.proxy.password": secret("options"),
    }
    found = s3_options("b", options, {})
    assert (found.get("server_side_encryption"), found.get("sse_kms_key_id")) == ("aws:kms", "arn:key")
    assert (found.get("request_payer"), found.max_retries) == (True, 3)
    assert found.proxy.reveal() == f"http://me:{secret('options')}@proxy:3128"


def test_no_repr_shows_a_secret_and_equal_settings_are_equal():
    options = {**KEYS, "fs.s3a.session.token": "TOKEN", "fs.s3a.proxy.host": "h"}
    found = s3_options("b", options, {})
    for shown in (repr(found), str(found), repr(HadoopOptions(options, {})), f"{Secret('SK')}"):
        assert not any(text in shown for text in ("'SK'", "TOKEN", "'AK'"))
    assert found == s3_options("b", dict(reversed(options.items())), {})
    assert hash(found) == hash(s3_options("b", options, {}))
    assert {"SK", "TOKEN"} <= set(found.secrets())


def test_google_settings():
    keyfile = "fs.gs.auth.service.account.json.keyfile"
    assert gcs_options("b", {keyfile: "/k.json"}, {}).get("service_account") == "/k.json"
    assert gcs_options("b", {"fs.gs.auth.type": "UNAUTHENTICATED"}, {}).get("skip_signature") is True
    found = gcs_options("b", {"fs.gs.storage.root.url": "http://localhost:4443/"}, {})
    assert (found.get("base_url"), found.allow_http) == ("http://localhost:4443", True)
    with pytest.raises(DeltaEnvironmentError, match="USER_CREDENTIALS"):
        gcs_options("b", {"fs.gs.auth.type": "USER_CREDENTIALS"}, {})
    with pytest.raises(InvalidArgumentError, match="key file"):
        gcs_options("b", {"fs.gs.auth.type": "SERVICE_ACCOUNT_JSON_KEYFILE"}, {})


AZURE = "box@acct.dfs.core.windows.net"
OAUTH = {
    "fs.azure.account.auth.type": "OAuth",
    "fs.azure.account.oauth.provider.type": "org.apache.hadoop.fs.azurebfs.oauth2.ClientCredsTokenProvider",
    "fs.azure.account.oauth2.client.id": "id",
    "fs.azure.account.oauth2.client.secret": secret("options"),
    "fs.azure.account.oauth2.client.endpoint": "https://login.microsoftonline.com/tenant-1/oauth2/token",
}


def test_azure_settings():
    found = azure_options(AZURE, {"fs.azure.account.key.acct.dfs.core.windows.net": secret("options")}, {})
    assert (found.bucket, found.get("account_name"), found.get("account_key")) == ("box", "acct", secret("options"))
    assert secret("options") not in repr(found)
    found = azure_options(AZURE, OAUTH, {})
    assert (found.get("tenant_id"), found.get("client_secret")) == ("tenant-1", secret("options"))
    assert found.get("authority_host") == "https://login.microsoftonline.com"
    sas = {"fs.azure.account.auth.type": "SAS", "fs.azure.sas.fixed.token.acct.dfs.core.windows.net": "sig=1"}
    assert azure_options(AZURE, sas, {}).get("sas_key") == "sig=1"
    assert azure_options("box", {}, {"AZURE_STORAGE_ACCOUNT_NAME": "acct"}).get("account_name") == "acct"
    managed = {**OAUTH, "fs.azure.account.oauth.provider.type": "x.MsiTokenProvider"}
    assert azure_options(AZURE, managed, {}).get("client_secret") is None


@pytest.mark.parametrize(
    ("host", "options", "expected", "text"),
    [
        ("box", {}, InvalidArgumentError, "container"),
        (AZURE, {"fs.azure.account.auth.type": "Custom"}, DeltaEnvironmentError, "custom"),
        (AZURE, {**OAUTH, "fs.azure.account.oauth.provider.type": "x.Mine"}, DeltaEnvironmentError, r"x\.Mine"),
        (AZURE, {**OAUTH, "fs.azure.account.oauth2.client.endpoint": "x"}, InvalidArgumentError, "tenant"),
        (AZURE, {"fs.azure.account.auth.type": "SAS"}, InvalidArgumentError, "fixed.token"),
    ],
)
def test_azure_settings_that_cannot_be_carried_over(host, options, expected, text):
    with pytest.raises(expected, match=text):
        azure_options(host, options, {})
