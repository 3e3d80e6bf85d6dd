"""What a site's probe says while its aggregator is there, hangs, is killed and comes back."""

import signal
import time
import urllib.error
import urllib.request

import pytest

pytest.importorskip("nvflare", reason="NVIDIA FLARE is not installed: pip install '.[flare]'")

from federation_tools import Federation, free_port


class Probed(Federation):
    def environment(self, name):
        return {"PROBED_AT": f"127.0.0.1:{self.probe}"} if name == "north" else {}


def test_a_site_is_ready_while_its_aggregator_answers(tmp_path):
    with Probed(tmp_path) as federation:
        federation.probe = free_port()

        def status():
            try:
                page = f"http://127.0.0.1:{federation.probe}/readyz"
                return urllib.request.urlopen(page, timeout=10).status
            except urllib.error.HTTPError as answer:
                return answer.code
            except urllib.error.URLError:
                return 0  # it does not listen yet

        def becomes(expected, seconds):
            end = time.monotonic() + seconds
            while (found := status()) != expected:
                assert time.monotonic() < end, (found, federation.said("north")[-2000:])
                time.sleep(0.2)

        federation.start("north")
        becomes(503, 60)  # the aggregator was never there
        federation.start("aggregator")
        federation.wait_connected("north")
        assert status() == 200
        federation.processes["aggregator"].send_signal(signal.SIGSTOP)  # no connection is closed
        becomes(503, 60)
        federation.processes["aggregator"].send_signal(signal.SIGCONT)
        becomes(200, 60)
        federation.kill("aggregator")
        becomes(503, 5)
        time.sleep(15)
        assert status() == 503  # whatever heartbeats were sent meanwhile
        federation.start("aggregator")
        becomes(200, 90)
        # the log says what lasts for a second: the kill, and the stop where it was noticed late
        end = time.monotonic() + 30
        while True:
            said = federation.said("north")
            lost, again = said.count("lost its connection"), said.count("has its connection to")
            if 1 <= lost == again <= 2:
                break
            assert time.monotonic() < end, said
            time.sleep(0.2)
