"""An aggregator's process of a job that writes down all it sees, and does what it is told.

``mischief.json`` in the aggregator's kit, read at every question of the protocol, tells it one of:

- {"die": "job" | "tree", "step", "site", "when": "before" | "after"}: kill -9 of this process, or
  of the aggregator's whole tree, before the question to the site or after its answer;
- {"flip": "request" | "reply", "step", "site", "place"}: change one bit on the way;
- {"greedy": seconds, "step", "site"}: keep listening for an answer that is late;
- {"attack": name, "step", "site"}: ask more than the protocol does, before that step.

The tap, a folder beside the kits, has every question and every answer. It is not of eigenveil: it
stands for what an aggregator could have kept.
"""

import json
import os
import signal
import threading
import time
from copy import copy
from dataclasses import replace

from eigenveil.errors import ProtocolError
from eigenveil.federation.protocol import payloads
from eigenveil.federation.protocol.messages import AGGREGATOR, REFUSED, decode, encode
from eigenveil.network import runner
from eigenveil.network.channel import BYE, HELLO, NO_ANSWER, Answer, Stop


def install():
    """Put the dishonest wire in the place of the honest one."""
    run = runner.StudyRunner.run

    def run_dishonestly(conductor):
        wire = DishonestWire(conductor.wire, conductor.folder)
        return run(replace(conductor, wire=wire))

    runner.StudyRunner.run = run_dishonestly


class Damaging:
    """Carries envelopes with a bit changed."""

    def __init__(self, carrier, which, place):
        self.carrier, self.which, self.place = carrier, which, place

    def carry(self, name, data, timeout, stop):
        data = flipped(data, self.place) if self.which == "request" else data
        came = self.carrier.carry(name, data, timeout, stop)
        return flipped(came, self.place) if self.which == "reply" else came


class DishonestWire:
    """The wire of a job, which does what ``mischief.json`` says."""

    def __init__(self, wire, folder):
        self.wire, self.kit = wire, folder.parents[1]
        self.tap = self.kit.parents[1] / "tap" / folder.name
        self.tap.mkdir(parents=True)
        self.spec, self.done, self.count = {}, set(), 0
        self.guard = threading.Lock()

    def query(self, name, step, payload, timeout, stop):
        if step in (HELLO, BYE):
            return self.wire.query(name, step, payload, timeout, stop)
        self.spec[name, step] = payload
        wrong = self.wrong(name, step)
        if wrong.get("when") == "before":
            self.die(wrong["die"])
        if "attack" in wrong:
            self.attack(wrong["attack"], name, step, payload)
        if "greedy" in wrong:
            return self.greedy(name, step, payload, timeout, stop, wrong["greedy"])
        if "flip" in wrong:
            damaged = (wrong["flip"], wrong["place"])
            answer = self.damaged(name, step, payload, timeout, stop, *damaged)
        else:
            answer = self.wire.query(name, step, payload, timeout, stop)
        self.note(name, step, payload, answer)
        if wrong.get("when") == "after":
            self.die(wrong["die"])
        return answer

    def wrong(self, name, step):
        """What is to be done about this question, once a job."""
        try:
            wrong = json.loads((self.kit / "mischief.json").read_text())
        except FileNotFoundError:
            return {}
        with self.guard:
            request_digest = json.dumps(wrong)
            if (wrong["step"], wrong["site"]) != (step, name) or request_digest in self.done:
                return {}
            self.done.add(request_digest)
        return wrong

    def damaged(self, name, step, payload, timeout, stop, which, place):
        """Ask with a bit changed between the two ends of the channel."""
        wire = copy(self.wire)
        wire._carrier = Damaging(self.wire._carrier, which, place)
        return wire.query(name, step, payload, timeout, stop)

    def note(self, name, step, request, answer):
        with self.guard:
            self.count += 1
            place = self.tap / f"{self.count:03}-{name}-{step}"
        place.with_suffix(".request").write_bytes(request)
        place.with_suffix(".reply").write_bytes(answer.payload or answer.code.encode())

    def die(self, who):
        if who == "tree":
            os.kill(os.getppid(), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)

    def greedy(self, name, step, payload, timeout, stop, longer):
        def listen():
            answer = self.wire.query(name, step, payload, longer, Stop())
            self.note(name, f"{step} late", payload, answer)

        threading.Thread(target=listen, daemon=True).start()
        until = time.monotonic() + timeout
        while time.monotonic() < until and not stop.triggered:
            time.sleep(0.05)
        return Answer(NO_ANSWER)

    # -- asking more than the protocol does

    def attack(self, which, name, step, payload):
        found = {}
        for what, request in getattr(self, f"attack_{which}")(name, payload):
            answer = self.wire.query(name, step_of(request, step), request, 20.0, Stop())
            self.note(name, f"attack {what}", request, answer)
            found[what] = outcome(answer, name)
        (self.tap / f"attack-{which}.json").write_text(json.dumps(found))

    def attack_early(self, name, payload):
        """Before the keys are agreed: a round, as it was asked in an earlier run."""
        now = decode(payload, sender=AGGREGATOR, limit=len(payload))
        for file in self.tap.parent.glob(f"*/*-{name}-round 1.request"):
            earlier = file.read_bytes()
            message = decode(earlier, sender=AGGREGATOR, limit=len(earlier))
            if message.study == now.study:
                break
        yield "round before keys", encode(replace(message, session=now.session))
        yield "replayed from another run", earlier

    def attack_late(self, name, payload):
        """When all rounds are answered and nothing is finished."""
        turns = [int(step.split()[1]) for _, step in self.spec if step.startswith("round")]
        last = max(turns)
        final = self.spec[name, f"round {last}"]
        message = decode(final, sender=AGGREGATOR, limit=len(final))
        body = message.read(payloads.RoundRequest)

        def changed(round_number, scale=1.0, **fields):
            queries = [
                each.model_copy(update={"scale": scale * each.scale}) for each in body.queries
            ]
            reported = body.model_copy(
                update={"round_number": round_number, "queries": tuple(queries)}
            )
            plain = reported.model_dump(mode="json")
            return encode(replace(message, step=f"round {round_number}", body=plain, **fields))

        yield "same round again", final
        yield "same round, less noise", changed(last, 0.5)
        yield "earlier round again", self.spec[name, "round 1"]
        yield "earlier round, less noise", changed(1, 0.5)
        yield "one round more", changed(last + 1)
        yield "one round more, little noise", changed(last + 1, 1e-3)
        yield "much later round", changed(payloads.MOST_ROUNDS, 1e-3)
        yield "other study", changed(last + 1, study="0" * 64)
        yield "other session", changed(last + 1, session="0" * 24)
        join = self.spec[name, "join"]
        again = decode(join, sender=AGGREGATOR, limit=len(join))
        yield "join in another session", encode(replace(again, session="1" * 24))
        yield "keys of others", self.other_keys(name)
        if (name, f"unmask {last}") in self.spec:
            yield from self.unmaskings(name, last)
        yield "no message", b"\x00" * 100
        yield "a shell", encode(replace(again, step="shell", body={"cmd": "cat client.key"}))

    def other_keys(self, name):
        asked = self.spec[name, "keys"]
        message = decode(asked, sender=AGGREGATOR, limit=len(asked))
        body = message.read(payloads.KeysRequest)
        own = next(iter(body.neighbours.values()))
        reported = body.model_copy(update={"neighbours": dict.fromkeys(body.neighbours, own)})
        return encode(replace(message, body=reported.model_dump(mode="json")))

    def unmaskings(self, name, last):
        """Of two further tries for each step: the same again, another set, another round."""
        for kind in ("survivors", "unmask"):
            asked = self.spec[name, f"{kind} {last}"]
            message = decode(asked, sender=AGGREGATOR, limit=len(asked))
            field = {"survivors": "survivors", "unmask": "signed"}[kind]

            def changed(round_number, members, kind=kind, message=message, field=field):
                body = {**message.body, "round_number": round_number, field: members}
                return encode(replace(message, step=f"{kind} {round_number}", body=body))

            yield f"{kind} again", asked
            yield f"{kind} of another set", changed(last, "60")
            yield f"{kind} of an earlier round", changed(1, "60")
            yield f"{kind} of a round to come", changed(last + 1, message.body[field])


def step_of(request, otherwise):
    """The step that a message says, so that the aggregator signs what it asks."""
    try:
        return decode(request, sender=AGGREGATOR, limit=len(request)).step
    except ProtocolError:
        return otherwise


def outcome(answer, name):
    """What came of it: a code, or "answered"."""
    if answer.code:
        return answer.code
    message = decode(answer.payload, sender=name, limit=len(answer.payload))
    return message.body["code"] if message.step == REFUSED else "answered"


def flipped(payload, place):
    """One bit of it changed: in the "magic", the "header", or the "end"."""
    changed = bytearray(payload)
    changed[{"magic": 0, "header": 20, "end": -1}[place]] ^= 4
    return bytes(changed)
