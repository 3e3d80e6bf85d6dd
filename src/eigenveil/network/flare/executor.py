"""The one class that a job may name at a site; it exists because FLARE wants a name there."""

from __future__ import annotations

from nvflare.apis.executor import Executor
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import ReturnCode, Shareable, make_reply
from nvflare.apis.signal import Signal


class SiteExecutor(Executor):  # type: ignore[misc]
    """Knows no task: studies are answered by the party in the site's own process."""

    def execute(
        self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal
    ) -> Shareable:
        """Refuse."""
        del task_name, shareable, fl_ctx, abort_signal
        return make_reply(ReturnCode.TASK_UNKNOWN)
