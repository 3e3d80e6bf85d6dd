"""Keeps the relay's job running in a FLARE network: ``python flare_keep.py KIT USER JOB``.

A FLARE job ends with the process of one client, and a client that comes later is not in it: then
the job is submitted anew. KIT is the startup kit of a user who may submit jobs.
"""

from __future__ import annotations

import sys
import time
from contextlib import suppress

from nvflare.fuel.flare_api.flare_api import new_secure_session

GRACE = 10.0  # seconds in which a job starts


def keep(kit: str, user: str, job: str) -> None:
    """Submits the job whenever it does not run at a client that is there."""
    session, running = None, ""
    without: set[str] = set()  # clients where it did not run at the last look
    again, pause = 0.0, GRACE  # when it may be submitted anew, and how much later then
    while True:
        try:
            session = session or new_secure_session(username=user, startup_kit_location=kit)
            clients = {client.name for client in session.get_system_info().client_info}
            jobs = session.get_client_job_status() or []
            found = clients - {
                each["client_name"] for each in jobs if each.get("job_id") == running
            }
            if found != without:  # somebody came or went; FLARE needs a while to see it, too
                without, pause = found, GRACE
                again = time.monotonic() + (GRACE if running else 1)
            elif found and time.monotonic() > again:
                if running:
                    _say(
                        f"the job does not run at {', '.join(sorted(found))}: if it never does, say"
                        " 'eigenveil relay flare-kit' there and at the server, or submit a job made"
                        " with --carry-code, which needs the right BYOC"
                    )
                    with suppress(Exception):  # it is over already
                        session.abort_job(running)
                running = session.submit_job(job)
                _say(f"job {running} for {', '.join(sorted(clients))}")
                again, pause = time.monotonic() + pause, min(2 * pause, 600.0)
        except Exception as error:  # the network is away: it comes back
            _say(f"{type(error).__name__}: {error}")
            with suppress(Exception):
                if session:
                    session.close()
            session = None
        time.sleep(1)


def _say(text: str) -> None:
    print(time.strftime("%FT%T"), text, flush=True)


if __name__ == "__main__":
    keep(*sys.argv[1:4])
