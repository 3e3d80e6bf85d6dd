"""What a site does when FLARE wants to start a job there: check it, admit it, start nothing."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from nvflare.apis.event_type import EventType
from nvflare.apis.fl_context import FLContext
from nvflare.apis.job_launcher_spec import JobHandleSpec, JobLauncherSpec, add_launcher

from eigenveil.errors import EigenveilError, ProtocolError
from eigenveil.network.flare.job import is_job, read_signed_job
from eigenveil.network.parties import Party, current_party


class NoProcessLauncher(JobLauncherSpec):  # type: ignore[misc]
    """Admits jobs that a lead signed about studies that the owner approved."""

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Offer to launch every job."""
        if event_type == EventType.BEFORE_JOB_LAUNCH:
            add_launcher(self, fl_ctx)

    def launch_job(self, job_meta: dict[str, Any], fl_ctx: FLContext) -> JobHandleSpec:
        """Admit the job; one that is refused is over at once, and its questions are refused."""
        del fl_ctx
        party, job = current_party(), str(job_meta.get("job_id", ""))
        handle, session = _Handle(party), ""
        try:
            signed_job = read_signed_job(_deployed(party, job), party.identity)
            session = signed_job.session
            party.admit(job, signed_job, handle.over)
        except EigenveilError as error:
            # not raised: FLARE would end the job at all sites, and the reason is the owner's
            party.refuse(session, error)
            handle.over()
        return handle


class _Handle(JobHandleSpec):  # type: ignore[misc]
    """A job as FLARE sees it: something that ends, always well."""

    def __init__(self, party: Party) -> None:
        self._party = party
        self._over = threading.Event()

    def over(self) -> None:
        """It is over."""
        self._over.set()

    def terminate(self, **how: object) -> None:
        """FLARE states that the job was stopped: anybody could, so the aggregator is consulted."""
        del how
        self._party.doubt()

    def poll(self) -> int | None:
        """The return code, if there is one."""
        return 0 if self._over.is_set() else None

    def wait(self) -> None:
        """Return when it is over."""
        self._over.wait()


def _deployed(party: Party, job: str) -> Path:
    """Where FLARE put the job's application."""
    if is_job(job):
        return party.kit.runs / job / f"app_{party.kit.name}"
    raise ProtocolError("A job has a name that is not valid.", code="job-refused")
