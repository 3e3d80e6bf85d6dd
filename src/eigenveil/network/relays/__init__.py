"""Relays: what moves a party's envelopes through the FLARE or Flower network that people have.

Here is what sets one up and checks it; what runs in the network's processes is the folder
``eigenveil_relay``, which imports nothing of this package.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
from pathlib import Path

from eigenveil.errors import DataError, OutputError

SOURCE = Path(__file__).with_name("eigenveil_relay")
FLARE_CLASSES = ("eigenveil_relay.flare.Server", "eigenveil_relay.flare.PartyEnd")


def make_spool(spool: Path, group: str = "") -> Path:
    """A spool folder: ``in`` and ``out``, for its owner and, where one is named, for a group."""
    try:
        for folder in (spool, spool / "in", spool / "out"):
            folder.mkdir(parents=True, exist_ok=True)
            if group:
                shutil.chown(folder, group=group)
            folder.chmod(0o2770 if group else 0o700)
    except (OSError, LookupError) as problem:
        raise OutputError("bad-spool", spool=spool, problem=problem) from None
    return spool


SAME_USER = "EIGENVEIL_SAME_USER"
"""Set for trials on one machine, where the network and the parties are one user's."""


def readable_by_others(folder: Path, spool: Path) -> str:
    """Why the network's user could read a party's keys; empty where it cannot.

    The network's user is the owner of what a relay made in the spool; before it has made
    something, any user but this one. Leads of such networks may send code.
    """
    if spool.resolve().is_relative_to(folder.resolve()):
        return f"the spool {spool} lies in the folder that holds them"
    for key in folder.rglob("*.pem"):
        if key.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            return f"{key} is open to others than its owner"
    relay = spool / ".relay"
    if relay.exists() and relay.stat().st_uid in (0, folder.stat().st_uid):
        return f"the network's relay runs as {'root' if not relay.stat().st_uid else 'this user'}"
    return ""


def check_apart(folder: Path, spool: Path) -> None:
    """Refuses to go on where the network's user could read the party's keys."""
    why = readable_by_others(folder, spool)
    if why and not os.environ.get(SAME_USER):
        raise DataError("keys-readable", folder=folder, why=why)


def _copy_code(target: Path) -> None:
    shutil.copytree(
        SOURCE, target, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True
    )


def _new(folder: Path) -> Path:
    if folder.exists():
        raise OutputError("output-exists", path=folder)
    return folder


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def write_flare_job(folder: Path, *, members: dict[str, str], carry: bool) -> Path:
    """A job for ``nvflare job submit``; with ``carry`` it brings the relay's code (BYOC)."""
    app = _new(folder) / "app"
    meta = {
        "name": "eigenveil",
        "resource_spec": {},
        "min_clients": 1,
        "deploy_map": {"app": ["@ALL"]},
    }
    filters = {"format_version": 2, "task_data_filters": [], "task_result_filters": []}
    server = {"id": "relay", "path": FLARE_CLASSES[0], "args": {"members": members}}
    party = {"tasks": ["eigenveil"], "executor": {"path": FLARE_CLASSES[1], "args": {}}}
    faster = {"server": {"task_request_interval": 0.2}}
    for name, content in {
        "../meta.json": meta,
        "config/config_fed_server.json": filters | faster | {"workflows": [server]},
        "config/config_fed_client.json": filters | {"executors": [party]},
    }.items():
        _write(app / name, json.dumps(content, indent=2) + "\n")
    if carry:
        _copy_code(app / "custom" / "eigenveil_relay")
    shutil.copy(SOURCE / "flare_keep.py", folder.with_name(f"{folder.name}-keep.py"))
    return folder


def allow_in_flare(kit: Path, spool: Path) -> list[str]:
    """In a FLARE startup kit: the relay's code, its classes allowed, the spool; what was written.

    The code goes to ``local/custom``, which FLARE puts on its own path; nothing that is signed
    (``startup``) is touched.
    """
    local = kit / "local"
    resources = local / "resources.json"
    from_file = resources if resources.exists() else local / "resources.json.default"
    try:
        content = json.loads(from_file.read_text())
        written = [local / "custom" / "eigenveil_relay", local / "eigenveil.spool"]
        _copy_code(written[0])
        _write(written[1], f"{spool.absolute()}\n")
        if "class_allow_list" in content:  # FLARE 2.8 and later
            allowed = content["class_allow_list"]
            content["class_allow_list"] = [
                *allowed,
                *(c for c in FLARE_CLASSES if c not in allowed),
            ]
            _write(resources, json.dumps(content, indent=2) + "\n")
            written.append(resources)
    except (OSError, ValueError, TypeError) as problem:
        raise DataError("bad-file", kit=kit, problem=problem) from None
    return [str(path) for path in written]


FLOWER_PROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "eigenveil-relay"
version = "1.0.0"
dependencies = []

[tool.hatch.build.targets.wheel]
packages = ["."]

[tool.flwr.app]
publisher = "eigenveil"

[tool.flwr.app.components]
serverapp = "eigenveil_relay.flower:server"
clientapp = "eigenveil_relay.flower:client"

[tool.flwr.app.config]
spool = {spool}
patience = 5.0
idle = 5.0
"""


def write_flower_app(folder: Path, *, spool: Path) -> Path:
    """An app for ``flwr run``; ``spool`` is the aggregator's, on the SuperLink's machine."""
    _write(
        _new(folder) / "pyproject.toml",
        FLOWER_PROJECT.format(spool=json.dumps(str(spool.absolute()))),
    )
    _copy_code(folder / "eigenveil_relay")
    shutil.copy(SOURCE / "flower_keep.py", folder.with_name(f"{folder.name}-keep.py"))
    return folder
