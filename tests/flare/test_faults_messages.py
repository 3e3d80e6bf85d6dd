"""Messages that are damaged on the way or come from the wrong party: real processes."""

import json
import selectors
import socket
import threading

import pytest

pytest.importorskip("nvflare", reason="NVIDIA FLARE is not installed: pip install '.[flare]'")

from fault_tools import PATIENCE, SITES, FaultyFederation, pca_study, until


class Damaging:
    """Stands between one site and the aggregator, and changes one byte when it is told to."""

    def __init__(self, target):
        self.target, self.wrong, self.changed = target, threading.Event(), 0
        self.over = threading.Event()
        self.door = socket.create_server(("127.0.0.1", 0))
        self.port = self.door.getsockname()[1]
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while not self.over.is_set():
            try:
                near, _ = self.door.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                near.close()
                continue
            threading.Thread(target=self.carry, args=(near, far), daemon=True).start()

    def carry(self, near, far):
        with near, far, selectors.DefaultSelector() as ready:
            ready.register(near, selectors.EVENT_READ, far)
            ready.register(far, selectors.EVENT_READ, near)
            while not self.over.is_set():
                for key, _ in ready.select(timeout=0.5):
                    try:
                        data = bytearray(key.fileobj.recv(1 << 16))
                        outward = key.fileobj is near and len(data) > 1000
                        if outward and self.wrong.is_set():
                            self.wrong.clear()
                            self.changed += 1
                            data[len(data) // 2] ^= 1
                        if not data:
                            return
                        key.data.sendall(data)
                    except OSError:
                        return

    def close(self):
        self.over.set()
        self.door.close()


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    with FaultyFederation(tmp_path_factory.mktemp("messages")) as found:
        between = Damaging(found.port)
        description = found.kits["north"] / "eigenveil-kit.json"
        fields = json.loads(description.read_text()) | {"port": between.port}
        description.write_text(json.dumps(fields))
        found.between = between
        found.start("aggregator", *SITES)
        found.wait_connected(*SITES)
        yield found
        between.close()


@pytest.fixture(autouse=True)
def in_order(federation):
    yield
    federation.between.wrong.clear()
    federation.honest()


@pytest.mark.parametrize("place", ["header", "end"])
@pytest.mark.parametrize("which", ["request", "reply"])
def test_a_damaged_message_is_asked_for_again(federation, which, place):
    """One bit is changed where TLS does not protect it: nothing wrong is computed from it."""
    study = pca_study(f"bit-{which}-{place}")
    federation.notify("aggregator", flip=which, place=place, step="round 2", site="north")
    status = federation.run(study, timeout=10.0)
    assert status.state == "finished", status.error
    first, _ = federation.tapped(status.job, "north", "round 2")
    assert first[1] == b"unsigned"
    assert federation.same_as_in_process(status.job, study)
    until(federation.all_free)
    federation.check_books()


def test_a_damaged_connection(federation):
    """One bit is changed on the wire: TLS ends the connection, the study goes on over another."""
    study = pca_study("wire", dropouts=1)
    federation.notify("north", step="round 2", seconds=2.0)
    reported = federation.said("north").count("mischief in round 2")
    job = federation.run(study, timeout=6.0, wait=False)
    until(lambda: federation.said("north").count("mischief in round 2") > reported)
    federation.between.wrong.set()
    with federation.session() as session:
        status = federation.wait(session, job, timeout=PATIENCE)
        assert federation.between.changed == 1
        assert status.state == "finished", status.error
        found = federation.fetch(session, job)
    assert set(found.missing_) <= {"north"}
    until(federation.all_free)
    federation.check_books()
