"""cluster-configs for Docker and Kubernetes: held against schemas, and their commands run."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from pathlib import Path
from urllib.request import urlopen

import pytest
import yaml
from config_inputs import CONFIGS, Job, environment, finish, points

from silchunk.cli import base

ROOT = CONFIGS.parent
SCHEMAS = Path(__file__).parent / "schemas"
COMPOSE = yaml.safe_load((CONFIGS / "docker" / "compose.yaml").read_text())
MANIFESTS = {
    document["kind"]: document
    for file in sorted((CONFIGS / "kubernetes").glob("*.yaml"))
    for document in yaml.safe_load_all(file.read_text())
}
WANTED = {
    "memory": r"\d+(Mi|Gi)",
    "cpu": r"\d+m?",
}


def closed(schema):
    """The same schema with no other properties than those it names, as kubectl has it."""
    if isinstance(schema, list):
        return [closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {key: closed(value) for key, value in schema.items()}
    if isinstance(schema.get("properties"), dict) and schema.get("type") == "object":
        inner.setdefault("additionalProperties", False)
    return inner


def kubernetes_schema(kind):
    if kind == "DaskCluster":
        schema = closed(json.loads((SCHEMAS / "daskcluster.json").read_text()))
        schema["properties"] |= {"apiVersion": {}, "kind": {}, "metadata": {"type": "object"}}
        return schema
    package = {"Job": "batch", "NetworkPolicy": "networking"}.get(kind, "core")
    schemas = json.loads((SCHEMAS / "kubernetes.json").read_text())
    return {**schemas, "$ref": f"#/$defs/io.k8s.api.{package}.v1.{kind}"}


def errors(document, schema):
    jsonschema = pytest.importorskip("jsonschema", reason="pip install jsonschema")
    kind = jsonschema.validators.validator_for(schema, jsonschema.Draft202012Validator)
    return [f"{error.json_path}: {error.message}" for error in kind(schema).iter_errors(document)]


@pytest.mark.parametrize("kind", MANIFESTS)
def test_kubernetes_manifests_are_as_the_api_has_them(kind):
    assert errors(MANIFESTS[kind], kubernetes_schema(kind)) == []


@pytest.mark.parametrize("kind", ["DaskCluster", "Job"])
def test_the_schemas_see_a_misspelt_key(kind):
    spec = MANIFESTS[kind]["spec"]
    spec = spec["worker"]["spec"] if kind == "DaskCluster" else spec["template"]["spec"]
    container = spec["containers"][0]
    container["resource"] = {}
    try:
        found = errors(MANIFESTS[kind], kubernetes_schema(kind))
    finally:
        del container["resource"]
    assert len(found) == 1
    assert "'resource' was unexpected" in found[0]


def test_the_compose_file_is_as_the_specification_has_it():
    schema = json.loads((SCHEMAS / "compose.json").read_text())
    assert errors(COMPOSE, schema) == []
    assert errors(COMPOSE | {"service": {}}, schema) != []


CLUSTER = MANIFESTS["DaskCluster"]["spec"]
PODS = {
    "scheduler": CLUSTER["scheduler"]["spec"],
    "worker": CLUSTER["worker"]["spec"],
    "job": MANIFESTS["Job"]["spec"]["template"]["spec"],
}


@pytest.mark.parametrize("name", PODS)
def test_pods_are_bounded_and_nobody_is_root(name):
    pod = PODS[name]
    assert pod["securityContext"]["runAsNonRoot"] is True
    [container] = pod["containers"]
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    for kind, pattern in WANTED.items():
        assert re.fullmatch(pattern, container["resources"]["limits"][kind])
    claims = [volume["persistentVolumeClaim"]["claimName"] for volume in pod.get("volumes", [])]
    assert claims == ([] if name == "scheduler" else [own_name("PersistentVolumeClaim")])
    assert len({pod["containers"][0]["image"] for pod in PODS.values()}) == 1


def own_name(kind):
    return MANIFESTS[kind]["metadata"]["name"]


def test_the_job_goes_on_after_a_pause_and_ends_at_what_no_retry_mends():
    spec = MANIFESTS["Job"]["spec"]
    assert spec["template"]["spec"]["restartPolicy"] == "Never"
    [container] = spec["template"]["spec"]["containers"]
    by_action = {}
    for rule in spec["podFailurePolicy"]["rules"]:
        if "onExitCodes" in rule:
            assert rule["onExitCodes"]["containerName"] == container["name"]
            by_action[rule["action"]] = rule["onExitCodes"]["values"]
    lasting = {base.BAD_INPUT, base.OVER_BUDGET, base.CANNOT_WRITE, base.DAMAGED}
    assert by_action == {"Ignore": [base.PAUSED], "FailJob": sorted({2} | lasting)}


def test_the_scheduler_is_reached_by_its_own_pods_alone():
    service = CLUSTER["scheduler"]["service"]
    name = own_name("DaskCluster")
    assert service["type"] == "ClusterIP"
    assert service["selector"]["dask.org/cluster-name"] == name
    policy = MANIFESTS["NetworkPolicy"]["spec"]
    assert policy["podSelector"]["matchLabels"] == {"dask.org/cluster-name": name}
    [rule] = policy["ingress"]
    allowed = [one["podSelector"]["matchLabels"] for one in rule["from"] if "podSelector" in one]
    assert MANIFESTS["Job"]["spec"]["template"]["metadata"]["labels"] in allowed
    assert f"tcp://{name}-scheduler:8786" in PODS["job"]["containers"][0]["args"]


def megabytes(text):
    number, unit = re.fullmatch(r"(\d+)(\w+)", text).groups()
    return int(number) * {"MiB": 1, "Mi": 1, "GiB": 1024, "Gi": 1024, "g": 1024}[unit]


def test_workers_stay_below_the_limits_of_their_containers():
    worker = COMPOSE["services"]["worker"]
    limits = [(worker["command"], worker["mem_limit"])]
    container = PODS["worker"]["containers"][0]
    limits.append((container["args"], container["resources"]["limits"]["memory"]))
    for command, limit in limits:
        given = megabytes(command[command.index("--memory-limit") + 1])
        assert 0.8 * megabytes(limit) <= given < megabytes(limit)


def test_the_compose_file_opens_no_door():
    for service in COMPOSE["services"].values():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))
        assert "privileged" not in service
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert not service["user"].endswith(("-0}", ":0}", "root}"))
    assert sum(len(service.get("ports", [])) for service in COMPOSE["services"].values()) == 1


def instructions():
    """(instruction, value) of the Dockerfile."""
    text = (CONFIGS / "docker" / "Dockerfile").read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [tuple(line.split(maxsplit=1)) for line in lines]


def test_the_dockerfile_copies_what_the_package_is_built_from():
    assert instructions()[0] == ("FROM", "python:3.12-slim")
    sources = [
        source
        for name, value in instructions()
        if name == "COPY"
        for source in shlex.split(value)[:-1]
    ]
    for source in sources:
        assert (ROOT / source).exists()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    needed = {"pyproject.toml", project["project"]["readme"]}
    needed |= {*project["project"]["license-files"]}
    needed |= {name.split(".")[0] for name in project["tool"]["setuptools"]["packages"]}
    assert set(sources) == needed


def test_the_image_runs_as_a_number_that_is_not_root():
    names = [name for name, _ in instructions()]
    users = [value for name, value in instructions() if name == "USER"]
    assert len(users) == 1
    assert int(users[0].partition(":")[0]) > 1000
    assert "RUN" not in names[names.index("USER") :]
    assert not re.search("(?i)password|secret|token", str(instructions()))
    for pod in PODS.values():
        assert pod["securityContext"]["runAsUser"] == int(users[0].partition(":")[0])
    assert COMPOSE["x-common"]["user"] == f"${{SILCHUNK_USER:-{users[0]}}}"


def container_commands(kind):
    """What the containers of scheduler, worker and silchunk run."""
    if kind == "docker":
        return [
            COMPOSE["services"][name]["command"] for name in ("scheduler", "worker", "silchunk")
        ]
    commands = [PODS[name]["containers"][0]["args"] for name in ("scheduler", "worker", "job")]
    named = [arg.replace("$(DASK_WORKER_NAME)", "silchunk-default-1") for arg in commands[1]]
    return [commands[0], named, commands[2]]


@pytest.mark.slow
@pytest.mark.cluster
@pytest.mark.parametrize("kind", ["docker", "kubernetes"])
def test_the_commands_of_the_containers_work_together(kind, tmp_path):
    scheduler, worker, silchunk = container_commands(kind)
    expected = points(tmp_path)
    file = tmp_path / "scheduler.json"
    # A container's ports and networks are its own; here, any free port of loopback stands for them.
    ports = {"8786": "0", ":8787": "127.0.0.1:0"}
    first = Job(
        *[ports.get(argument, argument) for argument in scheduler],
        *("--host", "127.0.0.1", "--scheduler-file", file),
        cwd=tmp_path,
        env=environment(),
        log="scheduler.log",
    )
    others = []
    try:
        assert first.wait(lambda: file.exists() and file.read_text().endswith("}")) is None
        told = json.loads(file.read_text())
        where = told["address"]
        health = f"http://127.0.0.1:{told['services']['dashboard']}/health"  # what probes ask
        with urlopen(health, timeout=30) as answer:
            assert answer.read() == b"ok"

        def here(command):
            local = [re.sub(r"^tcp://[\w-]*scheduler:8786$", where, part) for part in command]
            return [part.replace("/data/", f"{tmp_path}/") for part in local]

        env = environment(DASK_SCHEDULER_ADDRESS=where)  # as the operator sets it
        others = [
            Job(*here(worker), "--host", "127.0.0.1", cwd=tmp_path, env=env, log="worker.log"),
            Job(*here(silchunk), "--json", cwd=tmp_path, env=environment()),
        ]
        assert finish(others[1]).bound() == pytest.approx(expected, rel=1e-12)
        for job in (first, others[0]):
            job.look()
        first.process.terminate()
        for job in (first, others[0]):
            assert finish(job).listening == {"127.0.0.1"}
    finally:
        for job in [first, *others]:
            job.kill()
