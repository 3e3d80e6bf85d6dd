"""FLARE's programs, made narrower before they start: in whichever process they run.

FLARE 2.9 as it comes lets the aggregator, and through it any other site, read any file of a site
(its shell commands are checked only if the sender requests it), and cleans a folder of the kit that
a message names. Here only the few requests that a study needs are known, jobs have one folder of
their own, agents that answer anybody are gone, and every cell has a guard
(:mod:`eigenveil.network.flare.guard`).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from weakref import WeakSet

from nvflare.apis.job_launcher_spec import JobReturnCode
from nvflare.apis.workspace import Workspace
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey
from nvflare.fuel.f3.cellnet.fqcn import FQCN
from nvflare.fuel.f3.cellnet.utils import new_cell_message
from nvflare.fuel.f3.drivers import aio_http_driver
from nvflare.fuel.hci.reg import CommandModule, CommandModuleSpec
from nvflare.private.admin_defs import error_reply
from nvflare.private.defs import JobFailureMsgKey

from eigenveil.network.channel import MOST_OF_FLARE
from eigenveil.network.flare.connections import Connections
from eigenveil.network.flare.guard import AggregatorGuard, Guard, JobGuard, Limit, SiteGuard
from eigenveil.network.flare.job import is_job
from eigenveil.network.kit import RUNS, Kit
from eigenveil.network.signed import known_members

_log = logging.getLogger(__name__)
# What a site answers of FLARE's own requests; everything else is unknown there.
SITE_REQUESTS = (
    "AbortAppProcessor",
    "CancelResourceProcessor",
    "CheckResourceProcessor",
    "ClientStatusProcessor",
    "DeployProcessor",
    "NotifyJobStatusProcessor",
    "ScopeInfoProcessor",
    "StartJobProcessor",
)
# What a lead's session can ask of FLARE's own commands: to submit, and to look. None ends a job.
SERVER_COMMANDS = ("submit_job", "list_jobs", "get_job_meta", "check_status")


class NoAgent:
    """In the place of FLARE's agents: it registers nothing."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def close(self) -> None:
        """Nothing is open."""


class FewCommands(CommandModule):  # type: ignore[misc]
    """A module of FLARE's, with those of its commands that a lead needs."""

    def __init__(self, inner: CommandModule) -> None:
        self._inner = inner

    def get_spec(self) -> CommandModuleSpec:
        """Their names."""
        spec = self._inner.get_spec()
        spec.cmd_specs = [each for each in spec.cmd_specs if each.name in SERVER_COMMANDS]
        return spec


class NoCommands(CommandModule):  # type: ignore[misc]
    """In the place of FLARE's commands about its network: there are none."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def get_spec(self) -> CommandModuleSpec:
        """No command."""
        return CommandModuleSpec(name="no network commands", cmd_specs=[])

    def close(self) -> None:
        """Nothing is open."""


def harden_site(kit: Kit, limit: Limit) -> Connections:
    """Know only the requests that a study needs, from the aggregator alone; listen nowhere.

    Returns
    -------
    Connections
        Those that FLARE makes from now on, none of anybody who was put out.
    """
    from nvflare.private.fed.client import fed_client_base
    from nvflare.private.fed.client.admin import FedAdminAgent
    from nvflare.private.fed.client.client_req_processors import ClientRequestProcessors

    _everywhere()
    known = ClientRequestProcessors.request_processors
    known[:] = [each for each in known if type(each).__name__ in SITE_REQUESTS]
    answer = FedAdminAgent._dispatch_request

    def from_the_server_only(agent: Any, request: Any) -> Any:
        if request.get_header(MessageHeaderKey.ORIGIN) != FQCN.ROOT_SERVER:
            return new_cell_message({}, error_reply("refused"))
        return answer(agent, request)

    FedAdminAgent._dispatch_request = from_the_server_only
    fed_client_base.NetAgent = NoAgent
    # the internal listener is for a job's process, and a site starts none
    _guarded(fed_client_base, SiteGuard(kit.host, limit), create_internal_listener=False)
    return Connections(known_members(kit))


def harden_aggregator(kit: Kit, listen: str) -> Connections:
    """Take FLARE's shell and system commands away, and add those that a lead needs.

    Parameters
    ----------
    listen : str
        The one address that sites and lead can connect to.

    Returns
    -------
    Connections
        As of :func:`harden_site`.
    """
    from nvflare.private.fed.server import admin, cred_keeper, fed_server
    from nvflare.private.fed.server.server_cmd_modules import ServerCommandModules
    from nvflare.private.fed.server.server_engine import ServerEngine

    from eigenveil.network.flare.commands import StudyCommands, word_about

    _everywhere()
    known = ServerCommandModules.cmd_modules
    known[:] = [*map(FewCommands, known), StudyCommands(kit)]
    admin.NetAgent, admin.NetManager = NoAgent, NoCommands
    hear = fed_server.FederatedServer.process_job_failure

    def without_failing(server: Any, request: Any) -> Any:
        """A site states that it is done with a job; none ends a study by saying that it failed."""
        if isinstance(request.payload, dict):
            request.payload[JobFailureMsgKey.CODE] = JobReturnCode.SUCCESS
        return hear(server, request)

    fed_server.FederatedServer.process_job_failure = without_failing
    stop = ServerEngine.abort_app_on_server

    def if_signed(engine: Any, job_id: str, *rest: Any, **named: Any) -> Any:
        """Whatever in FLARE wants a job to stop: it stops if its lead has signed so."""
        word = word_about(kit, engine, job_id)
        if word is None or not word.is_signed():
            _log.warning("job %s goes on: its lead has not signed that it is to end", job_id)
            return ""
        return stop(engine, job_id, *rest, **named)

    ServerEngine.abort_app_on_server = if_signed
    show = cred_keeper.CredKeeper.get_id_asserter

    keepers: WeakSet[Any] = WeakSet()

    def remembered(keeper: Any, fl_ctx: Any) -> Any:
        keepers.add(keeper)
        return show(keeper, fl_ctx)

    def forget() -> None:
        """What the aggregator shows to who registers: FLARE would keep that of its start."""
        for keeper in list(keepers):
            with keeper._lock:
                keeper.id_asserter = None

    cred_keeper.CredKeeper.get_id_asserter = remembered
    guard = AggregatorGuard(kit.name, lambda: _MOST_FORWARDED)
    _guarded(fed_server, guard, listen=listen)
    return Connections(known_members(kit), forget)


def harden_job(kit: Kit, limit: Limit) -> None:
    """The same for the process of a job at the aggregator."""
    from nvflare.private.fed.server import fed_server

    _everywhere()
    fed_server.NetAgent = NoAgent
    _guarded(fed_server, JobGuard(kit.name, limit))


# The aggregator's own process passes messages on in pieces: it does not know of which study.
_MOST_FORWARDED = 1 << 32


def _everywhere() -> None:
    Workspace.get_run_dir = _run_folder
    aio_http_driver.MAX_FRAME_SIZE = 2 * MOST_OF_FLARE


def _run_folder(workspace: Any, job_id: Any) -> str:
    """Where FLARE puts a job, and what it deletes: never a folder of the kit's own."""
    if not is_job(str(job_id)):
        raise ValueError("a job has a name that is not valid")
    return str(Path(workspace.root_dir) / RUNS / str(job_id))


def _guarded(module: Any, guard: Guard, listen: str | None = None, **fields: Any) -> None:
    """Cells that a module of FLARE makes have a guard, from their start on."""
    inner = module.Cell

    def make(*rest: Any, **named: Any) -> Any:
        if listen is not None:
            named["root_url"] = _at(named["root_url"], listen)
        cell = inner(*rest, **(named | fields))
        guard.watch(cell)
        return cell

    module.Cell = make


def _at(urls: Sequence[str], listen: str) -> list[str]:
    """The same addresses of FLARE's, with another host."""
    found = []
    for url in urls:
        scheme, _, rest = url.partition("://")
        found.append(f"{scheme}://{listen}:{rest.rpartition(':')[2]}")
    return found
