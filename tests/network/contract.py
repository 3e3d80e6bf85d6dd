"""What every carrier must do, the carriers, and a wrapper that carries as badly as one may."""

import functools
import random
import resource
import signal
import tempfile
import threading
from contextlib import contextmanager
from pathlib import Path

from eigenveil.network.carriers.connections import MailLimits
from eigenveil.network.carriers.folder import FolderCarrier, RelayCarrier
from eigenveil.network.carriers.https import HttpsCarrier, make_tls
from eigenveil.network.carriers.serving import MailboxServer
from eigenveil.network.endpoint import Post
from eigenveil.network.envelopes import Envelope
from eigenveil.network.folder import identity_of, sealing_of
from eigenveil.network.mailbox import CarrierError
from federation_tools import make_federation
from mailbox_tools import MemoryKeys, MemoryMailboxes


def opener(address):
    """What opens a party's mailbox at an address of a folder, or of https."""
    carrier = FolderCarrier() if address.startswith("folder:") else HttpsCarrier()
    return lambda party: carrier.open(party, address)


# -- Carriers: each gives, in an empty folder, what opens the mailbox of a party's folder.


@contextmanager
def memory(folder, aggregator=None):
    del folder, aggregator
    boxes = MemoryMailboxes()
    yield lambda party: boxes.of(party.name)


@contextmanager
def shared_folder(folder, aggregator=None):
    del aggregator
    yield lambda party: FolderCarrier().open(party, f"folder:{folder}")


@contextmanager
def https(folder, aggregator=None):
    pin, identity = (
        make_tls(folder, "localhost"),
        identity_of(aggregator or parties()["aggregator"]),
    )
    place = {"host": "127.0.0.1", "port": 0, "limits": MailLimits()}
    with MailboxServer(identity, folder / "mail", folder / "tls.crt", **place) as server:
        address = f"https://localhost:{server.port}#{pin}"

        def opened(party):
            own = party.role == "aggregator"
            return server.mailbox if own else HttpsCarrier().open(party, address)

        yield opened


@contextmanager
def relay(folder, aggregator=None):
    """Spools, and a relay that moves their files."""
    del aggregator
    over = threading.Event()

    def move():
        while not over.wait(0.01):
            for file in folder.glob("*/out/*/*.eve"):
                file.rename(folder / file.parent.name / "in" / file.name)

    thread = threading.Thread(target=move)
    for name in parties():
        (folder / name / "in").mkdir(parents=True)
    thread.start()
    try:
        yield lambda party: RelayCarrier().open(party, f"flare:{folder / party.name}")
    finally:
        over.set()
        thread.join()


CARRIERS = {"memory": memory, "folder": shared_folder, "https": https, "relay": relay}


@functools.cache
def parties():
    """Folders of the parties of one study of three sites, by name."""
    return make_federation(Path(tempfile.mkdtemp(prefix="eigenveil-carriers-")))


def post_of(name, store=None):
    """What a party seals and opens with; it knows everybody's sealing key."""
    party = parties()[name]
    post = Post(identity_of(party), sealing_of(party), store or MemoryKeys())
    for other in parties().values():
        if other.name != name:
            hello = Post(identity_of(other), sealing_of(other), MemoryKeys()).hello(name)
            assert post.learn(hello) == other.name
    return post


def letter(sender, recipient, payload=b"", **fields):
    """An envelope of a run, as it is before it is sealed."""
    usual = {"study": "5a" * 32, "session": "a1", "step": "round 1"}
    return Envelope(sender=sender, recipient=recipient, payload=payload, **(usual | fields))


@contextmanager
def small_files(size):
    """Files of this process grow no further, as on a disk that is full."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)


# -- A carrier that loses, doubles, delays, mixes and damages what it carries, and lies.


class Lossy:
    """Mailboxes over those of another carrier; ``part`` of all that it does goes wrong.

    It keeps all that was ever put, and gives it to whom it likes: others' mail, old mail, damaged
    mail. What it loses comes if it is put again.
    """

    def __init__(self, open_mailbox, seed, part=0.2, most=64):
        self._open, self.chance, self.part = open_mailbox, random.Random(seed), part
        self.seen, self.wrong, self.most = [], 0, most

    def __call__(self, party):
        return _LossyMailbox(self, self._open(party))

    def fails(self, seldom=1.0):
        """Whether something goes wrong now."""
        if self.chance.random() >= self.part * seldom:
            return False
        self.wrong += 1
        return True

    def damaged(self, data):
        """The same with a bit turned, cut short, or longer."""
        at, kind = self.chance.randrange(len(data)), self.chance.randrange(3)
        if kind == 0:
            return data[:at] + bytes([data[at] ^ 1 << self.chance.randrange(8)]) + data[at + 1 :]
        return data[:at] if kind == 1 else data + self.chance.randbytes(1 + at % 7)


class _LossyMailbox:
    def __init__(self, world, inner):
        self._world, self._inner, self._late = world, inner, []

    def put(self, recipient, envelope):
        world = self._world
        world.seen = [*world.seen[1 - world.most :], envelope]
        if world.fails(0.1):
            raise CarrierError.relayed("the carrier is away", code="no-mailbox")
        if world.fails():
            return
        if world.fails():
            self._inner.put(recipient, world.damaged(envelope))
        if world.fails():
            self._late.append((recipient, envelope))
            return
        self._inner.put(recipient, envelope)
        if world.fails():
            self._inner.put(recipient, envelope)

    def take(self, wait, known=()):
        world = self._world
        if world.fails(0.1):
            raise CarrierError.relayed("the carrier is away", code="no-mailbox")
        late, self._late = self._late, []
        for recipient, envelope in late:
            self._inner.put(recipient, envelope)
        found = [each for each in self._inner.take(min(wait, 0.2), known) if not world.fails()]
        if world.seen and world.fails():
            found.append(world.chance.choice(world.seen))
        if world.seen and world.fails():
            found.append(world.damaged(world.chance.choice(world.seen)))
        if found and world.fails():
            found.append(world.chance.choice(found))
        if world.fails():
            world.chance.shuffle(found)
        return found

    def forget(self, digests):
        if not self._world.fails():
            self._inner.forget(digests)

    def close(self):
        self._inner.close()
