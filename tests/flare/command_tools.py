"""Commands of parties on this machine, each a process of its own, for tests."""

import os
import signal
import socket
import subprocess
import sys
import time

PATIENCE = 180.0


def command(*words):
    call = "from eigenveil.cli.app import main; main()"
    return [sys.executable, "-c", call, *(str(word) for word in words)]


def until(check, *, seconds=PATIENCE, what=""):
    """Wait until something is so."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := check():
            return found
        time.sleep(0.2)
    raise AssertionError(f"not within {seconds:g} s: {what}")


class Place:
    """A folder with kits, rows and ledgers, and the processes that were started in it."""

    def __init__(self, folder):
        self.folder = folder
        (folder / "home").mkdir()
        self.environment = {**os.environ, "HOME": str(folder / "home"), "COLUMNS": "200"}
        self.started, self.parties = [], []

    def run(self, *words, seconds=PATIENCE):
        """A command to its end: status, standard output, standard error."""
        done = subprocess.run(
            command(*words),
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=seconds,
        )
        return done.returncode, done.stdout, done.stderr

    def ok(self, *words):
        status, out, err = self.run(*words)
        assert status == 0, (words, out, err)
        return out

    def start(self, name, *words):
        """A command in the background; its lines go to NAME.txt."""
        with (self.folder / f"{name}.txt").open("wb") as log:
            process = subprocess.Popen(
                command(*words),
                cwd=self.folder,
                env=self.environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.started.append(process)
        return process

    def party(self, name, *words):
        """The same of what stays until the end."""
        self.parties.append(self.start(name, *words))

    def said(self, name):
        return (self.folder / f"{name}.txt").read_text()

    def heard(self, name, words, seconds=PATIENCE):
        """Wait until a party said something."""

        def check():
            assert all(party.poll() is None for party in self.parties), self.said(name)
            return words in self.said(name)

        until(check, seconds=seconds, what=f"{name}: {words}")

    def stop(self):
        for process in reversed(self.started):
            if process.poll() is None:
                process.terminate()
        for process in self.started:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
