"""What containers/ must be: the image is built, and compose.yaml's services run a study in it.

    sudo python packaging/image_check.py [--base IMAGE] [--image IMAGE] [--mount PATH[:PLACE]]

Builds the image with podman; without ``--base`` first makes a Debian base by debootstrap, since not
every machine reaches a registry. Each service then runs as compose would start it, in a mount and
a network namespace of its own: read-only root, its own volumes and ``tmpfs``, account 10001, no
capabilities, no new privileges, on a bridge where services find each other by name. It needs no
running containers inside containers, which many build machines refuse. Takes minutes; Linux, root.
"""

from __future__ import annotations

import argparse
import os
import random
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]
COMPOSE = ROOT / "containers/compose.yaml"
ACCOUNT = "10001"
BRIDGE = "ev-check"
CONSOLE_PORT = 8450  # of eigenveil console --port
SUITE, PACKAGES = "bookworm", "python3,python3-venv,ca-certificates"
SECONDS_TO_CONNECT, SECONDS_TO_RUN = 90.0, 180.0
SITES = ("north", "south", "west")
TOOL: dict[str, object] = {"network_mode": "host", "volumes": [".:/trial:Z"]}


def main(argv: list[str]) -> None:
    """Build, start, run a study, stop everything."""
    wanted = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    wanted.add_argument("--base", help="a base image that is here; made by debootstrap without it")
    wanted.add_argument("--image", help="an image that was built before; built without it")
    building = "what building needs to read, such as pip.conf and a folder of wheels"
    wanted.add_argument(
        "--mount", action="append", default=[], metavar="PATH[:PLACE]", help=building
    )
    options = wanted.parse_args(argv)
    if os.geteuid():
        sys.exit("This needs root: it makes network namespaces.")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        image = options.image or build(options.base or base(folder), options.mount)
        root = Path(output("podman", "image", "mount", image))
        stack.callback(run, "podman", "image", "unmount", image)
        trial = Trial(root, folder, yaml.safe_load(COMPOSE.read_text())["services"])
        stack.callback(trial.stop)
        trial.study()
    print(f"{image}: {len(trial.services)} services of compose.yaml ran a study")


def base(folder: Path) -> str:
    """A Debian with Python and nothing else."""
    place, name = folder / "debian", "localhost/debian-python"
    run("debootstrap", "--variant=minbase", f"--include={PACKAGES}", SUITE, place)
    archive = folder / "debian.tar"
    run("tar", "-C", place, "-cf", archive, ".")
    run("podman", "import", "--quiet", archive, name)
    return name


def build(base: str, mounts: list[str]) -> str:
    """The image of the Containerfile, in docker's format: the other knows no HEALTHCHECK."""
    places = [path if ":" in path else f"{path}:{path}" for path in mounts]
    volumes = [word for place in places for word in ("--volume", f"{place}:ro")]
    run(
        "podman", "build", "--isolation=chroot", "--format=docker", f"--build-arg=BASE={base}",
        *volumes, "--file", ROOT / "containers/Containerfile", "--tag", "localhost/eigenveil", ROOT,
    )  # fmt: skip
    return "localhost/eigenveil"


class Trial:
    """The services of a compose file on this machine, and what they were given."""

    def __init__(self, root: Path, folder: Path, services: dict[str, dict[str, object]]) -> None:
        self.root, self.services = root, services
        self.folder = folder / "trial"
        self.folder.mkdir(mode=0o711)
        folder.chmod(0o711)
        self.hosts = self.folder / "hosts"
        self.started: dict[str, subprocess.Popen[bytes]] = {}
        self.spaces: list[str] = []
        self.links: list[str] = []

    def study(self) -> None:
        """From an empty folder to the lead's result, by the commands that compose.yaml names."""
        self.network()
        for site in SITES:
            (self.folder / "rows" / site).mkdir(parents=True)
            (self.folder / "ledgers" / site).mkdir(parents=True)
            (self.folder / "rows" / site / "rows.csv").write_text(table())
        (self.folder / "console").mkdir()
        run("chown", "-R", f"{ACCOUNT}:{ACCOUNT}", self.folder)  # as compose.yaml's head says
        sites = [word for site in SITES for word in ("--site", site)]
        self.tool("study", "new", "study.toml", *sites, "--columns", "a,b,c,d", "--components", "2",
                  "--epsilon", "1", "--delta", "1e-6", "--one-row-per-person")  # fmt: skip
        self.tool("federation", "new", "--all", "study.toml", "--out", "parties",
                  "--address", "https://aggregator:8443")  # fmt: skip
        for name in self.services:
            self.start(name)
        for site in SITES:
            self.wait_for(site, "/readyz")
        self.wait_for("console", "/", port=CONSOLE_PORT)
        lead = self.begin(
            "lead", TOOL, "study", "run", "study.toml", "--party", "parties/lead", "--out", "result"
        )
        for site in SITES:
            self.approve(site)
        if lead.wait(SECONDS_TO_RUN):
            sys.exit(f"The study failed:\n{(self.folder / 'lead.log').read_text()}")
        self.tool("certify", "result")
        for site in SITES:
            self.tool("ledger", "verify", f"ledgers/{site}/{site}.ledger")

    def approve(self, site: str) -> None:
        """As its owner does: read what waits, and agree to it."""
        service = self.services[site]
        party = ("site", "approve", "--party", "/party")
        until = time.monotonic() + SECONDS_TO_RUN
        while "epsilon" not in output(*self.inside(site, [*party, "--list"], service)):
            if time.monotonic() > until:
                sys.exit(f"No study came to {site}.")
            time.sleep(1)
        print(output(*self.inside(site, [*party, "--all"], service)))

    def network(self) -> None:
        """A bridge, and a namespace on it for each service that does not use the host's."""
        self.links.append(BRIDGE)
        run("ip", "link", "add", BRIDGE, "type", "bridge")
        run("ip", "address", "add", "10.88.77.1/24", "dev", BRIDGE)
        run("ip", "link", "set", BRIDGE, "up")
        lines = ["127.0.0.1 localhost"]
        for number, (name, service) in enumerate(self.services.items(), 2):
            if service.get("network_mode") == "host":
                continue
            space, address = f"{BRIDGE}-{name}", f"10.88.77.{number}"
            self.spaces.append(space)
            lines.append(f"{address} {name}")
            self.links.append(f"ev{number}")
            run("ip", "netns", "add", space)
            run("ip", "link", "add", f"ev{number}", "type", "veth",
                "peer", "name", "eth0", "netns", space)  # fmt: skip
            run("ip", "link", "set", f"ev{number}", "master", BRIDGE, "up")
            run("ip", "-n", space, "address", "add", f"{address}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                run("ip", "-n", space, "link", "set", device, "up")
        self.hosts.write_text("\n".join(lines) + "\n")
        self.hosts.chmod(0o644)

    def inside(self, name: str, words: list[str], service: dict[str, object]) -> list[str]:
        """The command line that runs words in the image as this service."""
        root = shlex.quote(str(self.root))
        script = [
            "set -e",
            f"mount --bind {root} {root}",
            f"mount --bind {self.hosts} {root}/etc/hosts",
        ]
        volumes = [str(each) for each in service.get("volumes", [])]  # type: ignore[attr-defined]
        points = [tuple(each.split(":")) for each in volumes]
        if missing := [
            point[1] for point in points if not (self.root / point[1].lstrip("/")).is_dir()
        ]:
            script.append(f"mount -t tmpfs none {root}/mnt")  # a read-only root has no such folders
            script += [f"mkdir -p {root}/mnt{each}" for each in missing]
        for point in points:
            place = f"{root}/mnt{point[1]}" if point[1] in missing else f"{root}{point[1]}"
            script.append(f"mount --bind {self.folder / point[0]} {place}")
            if "ro" in ",".join(point[2:]).split(","):
                script.append(f"mount -o remount,bind,ro {place}")
            words = [f"/mnt{word}" if word.startswith(tuple(missing)) else word for word in words]
        script += [
            f"mount -t tmpfs none {root}/tmp", f"mount -t proc proc {root}/proc",
            f"mount --bind /dev {root}/dev", f"mount -t tmpfs -o mode=1777 none {root}/dev/shm",
            f"mount -o remount,bind,ro {root}",
        ]  # fmt: skip
        drop = [
            "setpriv", f"--reuid={ACCOUNT}", f"--regid={ACCOUNT}", "--clear-groups",
            "--no-new-privs", "--bounding-set=-all", "--inh-caps=-all",
        ]  # fmt: skip
        clean = [
            "env", "-i", "PATH=/opt/eigenveil/bin:/usr/local/bin:/usr/bin:/bin",
            "HOME=/var/lib/eigenveil", "PYTHONUNBUFFERED=1", "PYTHONDONTWRITEBYTECODE=1",
        ]  # fmt: skip
        place = "/mnt/trial" if "/trial" in missing else "/"
        last = [*drop, *clean, "env", f"--chdir={place}", "eigenveil", *words]
        script.append(f"exec chroot {root} {shlex.join(last)}")
        space = (
            []
            if service.get("network_mode") == "host"
            else ["ip", "netns", "exec", f"{BRIDGE}-{name}"]
        )
        return [
            *space,
            "unshare",
            "--mount",
            "--pid",
            "--fork",
            "--kill-child",
            "sh",
            "-c",
            "\n".join(script),
        ]

    def start(self, name: str) -> None:
        """One service, as compose.yaml has it."""
        service = self.services[name]
        self.begin(name, service, *[str(each) for each in service["command"]])  # type: ignore[attr-defined]

    def begin(self, name: str, service: dict[str, object], *words: str) -> subprocess.Popen[bytes]:
        """A command whose lines go to a file, and which is ended with the trial."""
        with (self.folder / f"{name}.log").open("wb") as log:
            self.started[name] = subprocess.Popen(
                self.inside(name, list(words), service),
                stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        return self.started[name]

    def tool(self, *words: str) -> None:
        """A command of the image in the trial's folder, beside the aggregator's host."""
        print("$ eigenveil", *words, flush=True)
        subprocess.run(self.inside("tool", list(words), TOOL), check=True, timeout=SECONDS_TO_RUN)

    def wait_for(self, name: str, path: str, port: int = 9102) -> None:
        """Until the service answers 200 at this address, seen from its own namespace."""
        ask = f"import urllib.request as u; u.urlopen('http://127.0.0.1:{port}{path}', timeout=2)"
        space = [] if port == CONSOLE_PORT else ["ip", "netns", "exec", f"{BRIDGE}-{name}"]
        until = time.monotonic() + SECONDS_TO_CONNECT
        while subprocess.run(
            [*space, sys.executable, "-c", ask], capture_output=True, check=False
        ).returncode:
            if time.monotonic() > until or self.started[name].poll() is not None:
                sys.exit(f"{name} is not ready:\n{(self.folder / f'{name}.log').read_text()}")
            time.sleep(0.5)
        print(f"{name} is ready")

    def stop(self) -> None:
        """End what was started, by its id, and take the network away."""
        for process in self.started.values():
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        for link in self.links:
            subprocess.run(["ip", "link", "delete", link], check=False)
        for space in self.spaces:
            subprocess.run(["ip", "netns", "delete", space], check=False)


def table() -> str:
    """400 made-up rows of four columns."""
    rows = [[random.gauss(0, scale) for scale in (3, 2, 1, 1)] for _ in range(400)]
    return "\n".join(["a,b,c,d", *(",".join(map(str, row)) for row in rows)]) + "\n"


def output(*words: str | Path) -> str:
    """What a command printed."""
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()


def run(*words: str | Path) -> None:
    """Run a command to its end."""
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main(sys.argv[1:])
