"""What containers/ has: units, a compose file and manifests that name only what there is."""

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
import typer

from eigenveil.cli.app import COMMANDS

FOLDER = Path(__file__).parents[1] / "containers"
UNITS = sorted((FOLDER / "systemd").glob("*.service"))
ANALYZE = shutil.which("systemd-analyze")
MOST_EXPOSED = 2.0  # of 10; systemd calls all below 2.5 "OK"


def commands():
    """Every command line of eigenveil that the files have, as words."""
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    for unit in UNITS:
        line = next(x for x in unit.read_text().splitlines() if x.startswith("ExecStart="))
        yield unit.name, shlex.split(line)[1:]
    compose = yaml.safe_load((FOLDER / "compose.yaml").read_text())
    for name, service in compose["services"].items():
        yield name, service["command"]
    for document in manifests(yaml):
        if document["kind"] == "StatefulSet":
            for container in document["spec"]["template"]["spec"]["containers"]:
                yield document["metadata"]["name"], container["args"]


def manifests(yaml):
    return list(yaml.safe_load_all((FOLDER / "kubernetes/eigenveil.yaml").read_text()))


def test_every_command_and_option_exists():
    found = list(commands())
    assert len(found) >= 8
    for where, words in found:
        made = COMMANDS[words[0]].load(words[0])
        command = typer.main.get_command(made) if isinstance(made, typer.Typer) else made
        for step in words[1:2]:
            if hasattr(command, "commands") and not step.startswith("--"):
                command = command.commands[step]
        known = {option for each in command.params for option in (*each.opts, *each.secondary_opts)}
        assert {word for word in words if word.startswith("--")} <= known, where


def test_the_compose_file_has_a_whole_federation_and_no_rights():
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    services = yaml.safe_load((FOLDER / "compose.yaml").read_text())["services"]
    assert set(services) == {"aggregator", "north", "south", "west", "console"}
    for service in services.values():
        assert service["cap_drop"] == ["ALL"]
        assert service["read_only"]
        assert service["security_opt"] == ["no-new-privileges:true"]
    # the lead's console is on the host's network, and finds the aggregator by its name
    assert services["console"]["extra_hosts"] == ["aggregator:127.0.0.1"]
    assert "127.0.0.1:8443:8443" in services["aggregator"]["ports"]


def test_the_manifests_are_of_the_restricted_profile():
    """Of Kubernetes' Pod Security Standards, as the namespace enforces."""
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    sets = [each for each in manifests(yaml) if each["kind"] == "StatefulSet"]
    assert len(sets) == 2
    for each in sets:
        assert each["spec"]["replicas"] == 1  # a party runs once
        pod = each["spec"]["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"]
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert set(each["spec"]["selector"]["matchLabels"].items()) <= set(
            each["spec"]["template"]["metadata"]["labels"].items()
        )
        volumes = {volume["name"] for volume in pod["volumes"]} | {"state"}
        for container in pod["initContainers"] + pod["containers"]:
            rights = container["securityContext"]
            assert rights["capabilities"] == {"drop": ["ALL"]}
            assert not rights["allowPrivilegeEscalation"]
            assert {mount["name"] for mount in container["volumeMounts"]} <= volumes


def test_the_image_runs_as_nobody_in_particular():
    text = (FOLDER / "Containerfile").read_text()
    assert "\nUSER 10001:10001\n" in text
    assert "ENTRYPOINT" in text


@pytest.mark.skipif(ANALYZE is None, reason="systemd-analyze is not installed")
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_units_are_valid_and_confined(unit, tmp_path):
    lines = unit.read_text().splitlines()
    # the program is not installed where this runs
    lines = ["ExecStart=/bin/true" if x.startswith("ExecStart=") else x for x in lines]
    copy = tmp_path / unit.name
    copy.write_text("\n".join(lines) + "\n")
    found = subprocess.run([ANALYZE, "verify", copy], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    assert not [line for line in found.stderr.splitlines() if unit.name in line], found.stderr
    found = subprocess.run(
        [ANALYZE, "security", "--offline=true", copy], capture_output=True, text=True, check=False
    )
    if "Overall exposure level" not in found.stdout:
        pytest.skip("this systemd-analyze cannot look at files")
    level = found.stdout.rpartition("service: ")[2].split()[0]
    assert float(level) <= MOST_EXPOSED
