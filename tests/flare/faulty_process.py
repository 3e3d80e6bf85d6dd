"""A party that dies, stumbles over a full disk, or is careless where a test says.

Beside what party_process.py knows, ``mischief.json`` in a site's kit has {"step", "die": "during"}
(while its noise is drawn, in the middle of the ledger's transaction) and {"step", "full"}: the
ledger has no room from then on, or a folder is filled until the disk is full. A file ``careless``
in the aggregator's kit makes it bring jobs without asking sites whether they are allowed, and a
file ``stop`` with a job's name makes FLARE stop it there.

What a site computed and must not be known is written beside its rows, for tests to search for.
"""

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

import numpy as np
import party_process
from party_process import mischief, say

from eigenveil.errors import EigenveilError
from eigenveil.federation.ledger import store
from eigenveil.federation.ledger.ledger import SessionKey
from eigenveil.federation.protocol import site as site_module
from eigenveil.federation.protocol.messages import AGGREGATOR, decode

HonestParty = party_process.SiteParty


class FaultyParty(party_process.TestParty):
    def __init__(self, kit, open_rows, *rest, **named):
        super().__init__(kit, open_rows, *rest, **named)
        self.secrets = kit.folder.parents[1] / "secrets"
        self.secrets.mkdir(exist_ok=True)

    def _step(self, admission, payload):
        wrong = mischief(self.kit.folder)
        step = step_of(payload)
        if wrong.get("step") == step and wrong.get("die") == "during":
            (self.kit.folder / "mischief.json").unlink()
            say(f"mischief in {step}")
            self._source.words = suicide
        if wrong.get("step") == step and "full" in wrong:
            fill(self.kit.folder, wrong["full"])
            say(f"mischief in {step}")
        if step == "no message":
            return HonestParty._step(self, admission, payload)
        answer = super()._step(admission, payload)
        try:
            state = self._ledger.state(SessionKey(admission.study, admission.session))
            (self.secrets / f"{self.kit.name}-{admission.session}.state").write_bytes(state)
        except EigenveilError:
            pass  # it has ended, or never began
        return answer


def step_of(payload):
    try:
        return decode(payload, sender=AGGREGATOR, limit=len(payload)).step
    except EigenveilError:
        return "no message"


def suicide(count):
    del count
    os.kill(os.getpid(), signal.SIGKILL)


def fill(kit, folder):
    """No room: in the ledger's file, or on the disk of a folder."""
    (kit / "full").touch()
    if folder is True:
        return
    with (Path(folder) / "filler").open("wb", buffering=0) as filler:
        for size in (4096, 1):
            try:
                while filler.write(bytes(size)) == size:
                    pass
            except OSError:
                pass


def note_what_is_secret(folder, name):
    """Write a site's sums down, without noise and before masks, one file a round."""
    inner = site_module.noisy_arrays

    def noisy(sums, terms, source):
        arrays = inner(sums, terms, source)
        exact = {f"exact {i}": each.accumulator.integers() for i, each in enumerate(sums)}
        grids = [each.record.noise.grid for each in sums]
        values = {f"value {i}": as_values(arrays[f"sum {i}"], g) for i, g in enumerate(grids)}
        count = len(list(folder.glob(f"{name}-*.npz")))
        np.savez(folder / f"{name}-{count:04}-{terms.study.name}.npz", **arrays, **exact, **values)
        return arrays

    site_module.noisy_arrays = noisy


def as_values(integers, grid):
    return np.ldexp(integers.view(np.int64).astype(float), grid)


def no_room(kit):
    """Databases of this process that grow no more, once the kit says so."""
    inner = store._open_file

    def open_file():
        connection = inner()
        if (kit / "full").exists():
            connection.execute("PRAGMA max_page_count = 1")  # no more than there are
        return connection

    store._open_file = open_file


def careless(kit):
    """Jobs are brought without what makes sites look whether they are allowed."""
    from nvflare.private.defs import RequestHeader
    from nvflare.private.fed.server.job_runner import JobRunner
    from nvflare.private.fed.server.server_engine import ServerEngine

    def strip(message):
        if (kit / "careless").exists():
            message.set_header(RequestHeader.ADMIN_COMMAND, None)
            message.set_header(RequestHeader.REQUIRE_AUTHZ, "false")
        return message

    check, deploy = ServerEngine._make_message_for_check_resource, JobRunner._make_deploy_message
    ServerEngine._make_message_for_check_resource = lambda *rest: strip(check(*rest))
    JobRunner._make_deploy_message = staticmethod(lambda *rest: strip(deploy(*rest)))


def stopping(kit):
    """FLARE's own job runner stops the job that a file ``stop`` names, for whatever reason."""
    from nvflare.private.fed.server.server_engine import ServerEngine

    begin = ServerEngine.__init__

    def watched(engine, *rest, **named):
        begin(engine, *rest, **named)
        threading.Thread(target=watch, args=(engine,), daemon=True).start()

    def watch(engine):
        while True:
            time.sleep(0.2)
            if (kit / "stop").exists():
                with engine.new_context() as fl_ctx:
                    engine.job_runner.stop_run((kit / "stop").read_text(), fl_ctx)
                (kit / "stop").rename(kit / "stopped")

    ServerEngine.__init__ = watched


def main(folder, *rest):
    kit = Path(folder)
    role = json.loads((kit / "eigenveil-kit.json").read_text())["role"]
    if role == "aggregator":
        careless(kit)
        stopping(kit)
    if role == "site":
        no_room(kit)
        secrets = kit.parents[1] / "secrets"
        secrets.mkdir(exist_ok=True)
        note_what_is_secret(secrets, kit.name)
        party_process.TestParty = FaultyParty
    return party_process.main(folder, *rest)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
