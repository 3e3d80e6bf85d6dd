"""Real processes of a FLARE or Flower network on the loopback interface; all are stopped."""

import json
import os
import shutil
import signal
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import psutil

from eigenveil.network import relays

ROOT = Path(__file__).parents[2]
CLIENTS = ("north", "south", "west", "lead")
ADMIN = "admin@eigenveil.org"
VERSION = os.environ.get("EIGENVEIL_FLARE", "2.9.0")
KINDS = os.environ.get("EIGENVEIL_CARRIERS", "flare flower").split()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Network:
    """A network with a spool beside each of its processes; use it in a ``with`` block."""

    server = ""
    relay = ("", "")  # what a relay's process has in its command line, at a client and the server

    def __init__(self, folder, environment, spools=None):
        """``spools`` are folders by party; by default new ones."""
        self.folder = folder
        self.bin = Path(os.environ.get("EIGENVEIL_NETWORKS", ROOT)) / f".venv-{environment}/bin"
        assert self.bin.is_dir(), f"make {self.bin.parent.name}"
        self.environment = {
            "PATH": f"{self.bin}:/usr/bin:/bin",
            "HOME": str(folder),
            "OMP_NUM_THREADS": "1",
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_HOME": str(folder / "flwr"),
            "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.1",
        }
        self.processes = {}
        usual = {name: folder / "spools" / name for name in ("aggregator", *CLIENTS)}
        self.spools = {name: relays.make_spool(at) for name, at in (spools or usual).items()}

    def __enter__(self):
        self.start(self.server, *CLIENTS)
        self.keep()
        return self

    def __exit__(self, *_):
        for name in list(self.processes):
            self.kill(name)
        for process in psutil.process_iter():  # of older FLARE's scripts, which end before them
            with suppress(psutil.Error):
                if any(str(self.folder) in word for word in process.cmdline()):
                    process.kill()

    def run(self, name, *words):
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [self.bin / words[0], *map(str, words[1:])] if "/" not in words[0] else words,
                env=self.environment,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                start_new_session=True,
            )

    def said(self, name):
        log = self.folder / f"{name}.log"
        return log.read_text(errors="replace") if log.exists() else ""

    def tree(self, name):
        try:
            process = psutil.Process(self.processes[name].pid)
            return [process, *process.children(recursive=True)]
        except (KeyError, psutil.NoSuchProcess):
            return []

    def kill(self, name):
        """kill -9 of all processes of one of the network's parties."""
        for process in self.tree(name):
            with suppress(psutil.NoSuchProcess):
                process.kill()
        started = self.processes.pop(name)
        with suppress(ProcessLookupError):  # what its first process left behind
            os.killpg(started.pid, signal.SIGKILL)
        started.wait()

    def kill_relay(self, name):
        """kill -9 of the relay's process alone; whether there was one."""
        word, there = self.relay[name == self.server], False
        for process in self.tree(name):
            with suppress(psutil.NoSuchProcess):
                if word in " ".join(process.cmdline()):
                    process.kill()
                    there = True
        return there


PROJECT = """\
api_version: 3
name: net
participants:
  - {{name: localhost, type: server, org: eigenveil, fed_learn_port: {port}, admin_port: {admin}}}
{clients}  - {{name: {user}, type: admin, org: eigenveil, role: project_admin}}
builders:
  - path: nvflare.lighter.impl.workspace.WorkspaceBuilder
    args: {{template_file: [master_template.yml]}}
  - path: nvflare.lighter.impl.static_file.StaticFileBuilder
    args:
      config_folder: config
      scheme: http
      overseer_agent:
        path: nvflare.ha.dummy_overseer_agent.DummyOverseerAgent
        overseer_exists: false
        args: {{sp_end_point: "localhost:{port}:{admin}"}}
  - path: nvflare.lighter.impl.cert.CertBuilder
  - path: nvflare.lighter.impl.signature.SignatureBuilder
"""


class Flare(Network):
    """``nvflare provision``, and each kit's own start script."""

    server = "localhost"
    relay = ("worker_process", "runner_process")

    def __init__(self, folder, version=VERSION, *, spools=None, allowed=True, carry=False):
        super().__init__(folder, f"flare-{version}", spools)
        clients = "".join(
            f"  - {{name: {name}, type: client, org: eigenveil}}\n" for name in CLIENTS
        )
        text = PROJECT.format(port=free_port(), admin=free_port(), clients=clients, user=ADMIN)
        (folder / "project.yml").write_text(text)
        subprocess.run(
            [self.bin / "nvflare", "provision", "-p", "project.yml", "-w", "made"],
            cwd=folder,
            env=self.environment,
            check=True,
            capture_output=True,
        )
        self.kits = next((folder / "made" / "net").glob("prod_*"))
        for name in (self.server, *CLIENTS):
            spool = self.spools["aggregator" if name == self.server else name]
            if allowed:
                relays.allow_in_flare(self.kits / name, spool)
            if carry or not allowed:
                shutil.rmtree(self.kits / name / "local" / "custom", ignore_errors=True)
                (self.kits / name / "local" / "eigenveil.spool").write_text(f"{spool}\n")
        relays.write_flare_job(folder / "job", members={}, carry=carry)

    def start(self, *names):
        for name in names:
            self.run(name, "/bin/bash", self.kits / name / "startup" / "sub_start.sh")

    def keep(self):
        words = (self.folder / "job-keep.py", self.kits / ADMIN, ADMIN, self.folder / "job")
        self.run("keep", "python", *words)


class Flower(Network):
    """A SuperLink and SuperNodes."""

    server = "superlink"
    relay = ("flwr-clientapp", "flwr-serverapp")

    def __init__(self, folder, *, spools=None):
        super().__init__(folder, "flower", spools)
        self.port = free_port()
        self.ports = {name: free_port() for name in CLIENTS}
        (folder / "flwr").mkdir()
        (folder / "flwr" / "config.toml").write_text(
            '[superlink]\ndefault = "here"\n[superlink.here]\n'
            f'address = "127.0.0.1:{self.port}"\ninsecure = true\n'
        )
        relays.write_flower_app(folder / "app", spool=self.spools["aggregator"])

    def start(self, *names):
        for name in names:
            if name == self.server:
                words = ["--port", self.port, "--disable-runtime-dependency-installation"]
                self.run(name, "flower-superlink", "--insecure", *words)
                end = time.monotonic() + 60
                while not self._answers():
                    assert time.monotonic() < end, self.said(name)[-2000:]
                    time.sleep(0.1)
                continue
            config = {"eigenveil-name": name, "eigenveil-spool": str(self.spools[name])}
            words = ["--superlink", f"127.0.0.1:{self.port}", "--port", self.ports[name]]
            words += ["--node-config", " ".join(f"{k}={json.dumps(v)}" for k, v in config.items())]
            self.run(name, "flower-supernode", "--insecure", *words)

    def _answers(self):
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def keep(self):
        words = (self.folder / "app-keep.py", self.spools["aggregator"], self.folder / "app")
        self.run("keep", "python", *words, "here")
