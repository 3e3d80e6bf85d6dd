"""Mailboxes, and keys of sessions, of parties in one process."""

import threading
import time
from collections import defaultdict

from eigenveil.network.mailbox import CarrierError, check_recipient, digest_of


class MemoryKeys:
    """Keys of a process that is not started again."""

    def __init__(self):
        self._keys = {}

    def all(self):
        return dict(self._keys)

    def put(self, session, name, key):
        self._keys[session, name] = key

    def end(self, session):
        self._keys = {each: key for each, key in self._keys.items() if each[0] != session}


class MemoryMailboxes:
    """The mailboxes of parties in one process."""

    def __init__(self):
        self.changed = threading.Condition()
        self.mail = defaultdict(dict)

    def of(self, name):
        return _Memory(self, check_recipient(name))


class _Memory:
    def __init__(self, boxes, name):
        self._boxes, self._name, self._closed = boxes, name, False

    def put(self, recipient, envelope):
        if self._closed:
            raise CarrierError.relayed(
                f"The mailbox of {self._name} is closed.", hint="Open it.", code="no-mailbox"
            )
        with self._boxes.changed:
            self._boxes.mail[check_recipient(recipient)].setdefault(digest_of(envelope), envelope)
            self._boxes.changed.notify_all()

    def take(self, wait, known=()):
        end = time.monotonic() + wait
        with self._boxes.changed:
            while True:
                mail = self._boxes.mail[self._name]
                found = [each for digest, each in mail.items() if digest not in known]
                left = end - time.monotonic()
                if found or left <= 0 or self._closed:
                    return found
                self._boxes.changed.wait(left)

    def forget(self, digests):
        with self._boxes.changed:
            for digest in digests:
                self._boxes.mail[self._name].pop(digest, None)

    def close(self):
        with self._boxes.changed:
            self._closed = True
            self._boxes.changed.notify_all()
