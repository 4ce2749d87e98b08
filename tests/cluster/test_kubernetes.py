"""What ``spark-submit`` asks Kubernetes for with the guide's command and template. No pod runs."""

from __future__ import annotations

import re
import shlex
import subprocess

import pytest
import yaml
from kubernetes_api import kubernetes_api
from submitting import HOME, ROOT, bare_environment

pytestmark = [pytest.mark.slow, pytest.mark.in_turn]
GUIDE = (ROOT / "docs/guides/cluster.md").read_text()
MASTER = "k8s://https://kubernetes.example.org:6443"


def _block(language, word):
    """The one block of code of the guide that has a word."""
    (found,) = [text for text in re.findall(rf"```{language}\n(.*?)```", GUIDE, re.DOTALL) if word in text]
    return found


TEMPLATE = _block("yaml", "kind: Pod")


def _submitted(folder, *more):
    """What the API server was asked to make by the guide's command."""
    (folder / "pod.yaml").write_text(TEMPLATE)
    program, *options = shlex.split(_block("bash", MASTER).replace("\\\n", " "))
    assert program == "spark-submit"
    with kubernetes_api() as (api, address):
        own = ["--conf", "spark.kubernetes.submission.waitAppCompletion=false", *more]
        given = [option.replace(MASTER, f"k8s://{address}") for option in options]
        command = [str(HOME / "bin/spark-submit"), *own, *given]
        done = subprocess.run(command, env=bare_environment(), capture_output=True, text=True, cwd=folder, check=False)
        assert done.returncode == 0, done.stderr[-6000:]
    return api


@pytest.fixture(scope="module")
def api(tmp_path_factory):
    return _submitted(tmp_path_factory.mktemp("submitted"))


def _container(api):
    (driver,) = api.of_kind("Pod")
    (container,) = driver["spec"]["containers"]
    return container


def _variables(container):
    return {entry["name"]: entry.get("value") for entry in container["env"]}


def _properties(api):
    """The settings that the driver in the cluster starts with."""
    (text,) = [found["data"]["spark.properties"] for found in _maps(api) if "spark.properties" in found["data"]]
    lines = [line.partition("=") for line in text.splitlines() if not line.startswith("#")]
    return {name: value.replace("\\", "") for name, _, value in lines}


def _maps(api):
    return api.of_kind("ConfigMap")


def test_the_driver_s_pod_has_the_image_the_job_and_the_template(api):
    (driver,) = api.of_kind("Pod")
    container, template = _container(api), yaml.safe_load(TEMPLATE)["spec"]
    assert api.asked[0][:2] == ("POST", "/api/v1/namespaces/lake/pods")
    assert driver["metadata"]["labels"]["spark-role"] == "driver"
    assert driver["spec"]["serviceAccountName"] == "spark"
    assert driver["spec"]["securityContext"] == template["securityContext"]
    assert container["image"] == "registry.example.org/lake/spark:1"
    assert container["args"][0] == "driver"
    assert container["args"][-2:] == ["local:///opt/jobs/my_job.py", "2024-05-31"]
    assert container["envFrom"] == template["containers"][0]["envFrom"]
    assert container["securityContext"] == template["containers"][0]["securityContext"]
    assert _variables(container)["PYDELTA_FS_S3A_ENDPOINT"] == "https://store.example.org"


def test_the_driver_starts_with_the_settings_of_its_executors(api):
    properties = _properties(api)
    assert properties["spark.kubernetes.container.image"] == "registry.example.org/lake/spark:1"
    assert properties["spark.executorEnv.PYDELTA_FS_S3A_ENDPOINT"] == "https://store.example.org"
    assert properties["spark.hadoop.fs.s3a.endpoint"] == "https://store.example.org"
    file = properties["spark.kubernetes.executor.podTemplateFile"].rpartition("/")[2]
    (driver,) = api.of_kind("Pod")
    mounted = [volume["configMap"] for volume in driver["spec"]["volumes"] if "configMap" in volume]
    ((name, key),) = [(of["name"], item["key"]) for of in mounted for item in of["items"] if item["path"] == file]
    (text,) = [found["data"][key] for found in _maps(api) if found["metadata"]["name"] == name]
    assert yaml.safe_load(text) == yaml.safe_load(TEMPLATE)


def test_executors_find_the_driver_by_a_service_and_what_is_made_goes_with_the_driver(api):
    (driver,) = api.of_kind("Pod")
    (service,) = api.of_kind("Service")
    host = f"{service['metadata']['name']}.lake.svc"
    assert _properties(api)["spark.driver.host"] == host
    assert service["spec"]["selector"].items() <= driver["metadata"]["labels"].items()
    made = [found for found in api.objects.values() if found["kind"] != "Pod"]
    assert {found["kind"] for found in made} >= {"Service", "ConfigMap"}
    for found in made:
        (owner,) = found["metadata"]["ownerReferences"]
        assert owner["name"] == driver["metadata"]["name"]


def test_an_archive_goes_to_the_driver_with_its_python(tmp_path):
    python = "./environment/bin/python"
    archive = "https://files.example.org/environment.tar.gz#environment"
    api = _submitted(tmp_path, "--archives", archive, "--conf", f"spark.pyspark.python={python}")
    assert _properties(api)["spark.archives"] == archive
    assert _properties(api)["spark.pyspark.python"] == python
    assert _variables(_container(api))["PYSPARK_PYTHON"] == python


def test_the_stack_s_image_is_not_for_kubernetes_as_the_guide_says():
    removed = (ROOT / "images/spark/slim").read_text()
    assert "kubernetes" in removed
    assert "The stack's image is not for Kubernetes" in GUIDE
