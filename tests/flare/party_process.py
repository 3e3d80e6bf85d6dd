"""A party of a test's federation: KIT, and of a site ROWS LEDGER SEED APPROVE.

``mischief.json`` in a site's kit says what it is to do wrong: {"step", "seconds"} to be slow once,
{"step", "until": file} to wait for a file, {"forge": target, "job"} to ask another site in the
aggregator's place.
"""

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

import numpy as np

import disk_tools
from eigenveil.federation.ledger.ledger import Ledger
from eigenveil.federation.protocol.messages import AGGREGATOR, decode
from eigenveil.moments.source import ArrayRows
from eigenveil.network import health
from eigenveil.network.flare import party as party_module
from eigenveil.network.flare.entry import run_aggregator, run_site
from eigenveil.network.flare.party import HelperParty, SiteParty
from eigenveil.network.kit import open_kit
from eigenveil.network.metrics import Party as Watched
from eigenveil.noise.source import SeededSource


def say(text):
    print(text, flush=True)


class Reseeded:
    """Seeded words that begin anew with every study, so that studies can be compared."""

    secure = False

    def __init__(self, seed):
        self.seed = seed
        self.begin()

    def begin(self):
        self.own = SeededSource(self.seed)

    def words(self, count):
        return self.own.words(count)


class TestParty(SiteParty):
    count = 0

    def answer(self, data):
        """Note every question, as an attacker on the way could have."""
        seen = self.kit.folder.parents[1] / "seen" / self.kit.name
        seen.mkdir(parents=True, exist_ok=True)
        self.count += 1
        (seen / f"{os.getpid()}-{self.count:04}").write_bytes(bytes(data)[: 1 << 20])
        return super().answer(data)

    def _step(self, admission, payload):
        wrong = mischief(self.kit.folder)
        step = decode(payload, sender=AGGREGATOR, limit=len(payload)).step
        if wrong.get("step") == step:
            if wrong.get("once", True):
                (self.kit.folder / "mischief.json").unlink()
            say(f"mischief in {step}")
            if wrong.get("die") == "before":
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(wrong.get("seconds", 0.0))
            end = time.monotonic() + 400.0
            while "until" in wrong and time.monotonic() < end and not Path(wrong["until"]).exists():
                time.sleep(0.1)
        answer = super()._step(admission, payload)
        say(f"answered {step}" if not answer.code else f"refused {step}: {answer.code}")
        if wrong.get("step") == step and wrong.get("die") == "after":
            os.kill(os.getpid(), signal.SIGKILL)
        return answer


def mischief(folder):
    try:
        return json.loads((folder / "mischief.json").read_text())
    except FileNotFoundError:
        return {}


def forger(cell, folder):
    """Asks another party in the aggregator's place, and FLARE's shell for its key."""
    from nvflare.fuel.f3.cellnet.defs import CellChannel, MessageHeaderKey
    from nvflare.fuel.f3.cellnet.utils import new_cell_message
    from nvflare.private.admin_defs import Message
    from nvflare.private.defs import SysCommandTopic

    while True:
        time.sleep(0.2)
        wrong = mischief(folder)
        if "forge" not in wrong:
            continue
        (folder / "mischief.json").unlink()
        found = []
        for origin in (f"server.{wrong['job']}", "server", folder.name):
            reply = cell.send_request(
                channel="eigenveil",
                topic="ask",
                target=wrong["forge"],
                timeout=3,
                request=new_cell_message({MessageHeaderKey.ORIGIN: origin}, b"EVE1 forged"),
            )
            found.append(str(reply.payload))
        shell = Message(topic=SysCommandTopic.SHELL, body="cat startup/client.key")
        reply = cell.send_request(
            channel=CellChannel.CLIENT_MAIN,
            topic=SysCommandTopic.SHELL,
            target=wrong["forge"],
            timeout=3,
            request=new_cell_message({MessageHeaderKey.ORIGIN: "server"}, shell),
        )
        found.append(str(getattr(reply.payload, "body", reply.payload)))
        (folder / "forged.json").write_text(json.dumps(found))


def site(kit, rows, ledger, seed, approve):
    source = Reseeded(int(seed))

    def open_rows(study):
        source.begin()
        values = np.load(Path(rows) / f"{study.name}.npy")
        return ArrayRows(values, names=None, origin=f"site {kit.name}")

    inner = party_module.ResidentParty.handle_event

    def handle_event(self, event_type, fl_ctx):
        inner(self, event_type, fl_ctx)
        if event_type == "_system_start":
            cell = fl_ctx.get_engine().get_cell()
            threading.Thread(target=forger, args=(cell, kit.folder), daemon=True).start()

    party_module.ResidentParty.handle_event = handle_event
    return TestParty(kit, open_rows, Ledger(ledger), source=source, approve=approve, say=say)


def main(folder, *rest):
    disk_tools.wait_for_no_disk()
    kit = open_kit(folder)
    if kit.role == "aggregator":
        return run_aggregator(kit, say=say)
    party = HelperParty(kit, say=say) if kit.role == "helper" else site(kit, *rest)
    if "PROBED_AT" in os.environ:
        health.LONGEST_SILENCE = 14.0  # a heartbeat comes every 10 s
        health.serve(os.environ["PROBED_AT"], Watched(kit, party.activity))
    return run_site(kit, party, say=say)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
