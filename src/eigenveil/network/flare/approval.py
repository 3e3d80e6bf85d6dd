"""Keeps jobs waiting at the aggregator while a site's owner has not approved their study.

This hook depends on what the aggregator sends along, so it is a convenience: the study waits
instead of failing, and its owner can read it. The decision is made by the party itself.
"""

from __future__ import annotations

from nvflare.apis.event_type import EventType
from nvflare.apis.fl_component import FLComponent
from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContext

from eigenveil.errors import EigenveilError
from eigenveil.network.flare.job import read_proposal
from eigenveil.network.parties import current_party

# When FLARE checks whether a job can be run here, and when it brings one.
_COMMANDS = ("check_resources", "submit_job")


class Approval(FLComponent):  # type: ignore[misc]
    """Says no to jobs about studies that are not approved."""

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """When FLARE checks whether a command is allowed."""
        if event_type != EventType.AUTHORIZE_COMMAND_CHECK:
            return
        if fl_ctx.get_prop(FLContextKey.COMMAND_NAME) not in _COMMANDS:
            return
        items = fl_ctx.get_prop(FLContextKey.SECURITY_ITEMS) or {}
        if why := self._refusal(items.get(FLContextKey.JOB_META)):
            fl_ctx.set_prop(FLContextKey.AUTHORIZATION_RESULT, False, sticky=False)
            fl_ctx.set_prop(FLContextKey.AUTHORIZATION_REASON, why, sticky=False)

    def _refusal(self, meta: object) -> str:
        study = read_proposal(meta)
        if study is None:
            return "not a study of eigenveil"
        party = current_party()
        try:
            return party.propose(study)
        except EigenveilError as error:
            party.say(str(error))
            return "this site cannot take part"
