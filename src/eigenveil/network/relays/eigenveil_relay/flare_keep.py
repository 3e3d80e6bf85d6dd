"""Keeps the relay's job running in a FLARE network: ``python flare_keep.py KIT USER JOB``.

A FLARE job ends with the process of one client, and a client that comes later is not in it: then
the job is submitted anew. KIT is the startup kit of a user who may submit jobs.
"""

from __future__ import annotations

import sys
import time
from contextlib import suppress

from nvflare.fuel.flare_api.api_spec import JobNotFound
from nvflare.fuel.flare_api.flare_api import Session, new_secure_session


def keep(kit: str, user: str, job: str) -> None:
    """Submits the job whenever it does not run, and once more when a client came."""
    session, running = None, ""
    inside: set[str] = set()  # clients that the job was submitted for
    before: set[str] = set()
    while True:
        try:
            session = session or new_secure_session(username=user, startup_kit_location=kit)
            now = {client.name for client in session.get_system_info().client_info}
            inside &= now
            if running and _ended(session, running):
                running = ""
            if now and now == before and (not running or now - inside):
                if running:
                    with suppress(Exception):  # it is over already
                        session.abort_job(running)
                running, inside = session.submit_job(job), now
                _say(f"job {running} for {', '.join(sorted(now))}")
            before = now
        except Exception as error:  # the network is away: it comes back
            _say(f"{type(error).__name__}: {error}")
            session = None
        time.sleep(1)


def _ended(session: Session, job: str) -> bool:
    try:
        return str(session.get_job_meta(job).get("status", "")).startswith("FINISHED")
    except JobNotFound:
        return True


def _say(text: str) -> None:
    print(time.strftime("%FT%T"), text, flush=True)


if __name__ == "__main__":
    keep(*sys.argv[1:4])
