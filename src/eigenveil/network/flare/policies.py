"""FLARE's settings in a kit: where the aggregator is, and what FLARE may do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from eigenveil.network.roles import Role

STARTUP_FILE: dict[Role, str] = {
    "site": "fed_client.json",
    "helper": "fed_client.json",
    "aggregator": "fed_server.json",
    "lead": "fed_admin.json",
}
# Mutual TLS over one port. FLARE's "tcp" shakes hands while it accepts: one silent connection would
# keep all others out.
SCHEME = "http"
_SECURITY = "mtls"


def startup(role: Role, name: str, host: str, port: int, project: str) -> dict[str, Any]:
    """Contents of the startup file of a party that is no registrar."""
    service = {"target": f"{host}:{port}", "scheme": SCHEME}
    if role == "aggregator":
        server = {
            "name": project,
            "service": service,
            "admin_server": host,
            "admin_port": port,
            **_files("ssl_private_key", "ssl_cert", "ssl_root_cert", of="server"),
            "connection_security": _SECURITY,
        }
        return {"format_version": 2, "require_signed_jobs": True, "servers": [server]}
    if role == "lead":
        admin = {
            "project_name": project,
            "username": name,
            "server_identity": host,
            "scheme": SCHEME,
            "host": host,
            "port": port,
            "connection_security": _SECURITY,
            "uid_source": "user_input",
            "with_file_transfer": True,
            "upload_dir": "transfer",
            "download_dir": "transfer",
            **_files("client_key", "client_cert", "ca_cert", of="client"),
        }
        return {"format_version": 1, "admin": admin}
    client = {
        **_files("ssl_private_key", "ssl_cert", "ssl_root_cert", of="client"),
        "fqsn": name,
        "is_leaf": True,
        "connection_security": _SECURITY,
    }
    return {
        "format_version": 2,
        "require_signed_jobs": True,
        "servers": [{"name": project, "service": service, "identity": host}],
        "client": client,
    }


def _files(key: str, certificate: str, root: str, *, of: str) -> dict[str, str]:
    return {key: f"{of}.key", certificate: f"{of}.crt", root: "rootCA.pem"}


# -- What a party's FLARE may do: eigenveil's own classes and nothing else.
#
# These files are written afresh whenever a party starts
# (:func:`eigenveil.network.kit.prepare`) so that they are always those of the installed
# software, and its folders those where the kit lies. A setting that is absent gets FLARE's own,
# far wider, default: so every setting is written.


_PACKAGE = "eigenveil.network.flare"
CONTROLLER = f"{_PACKAGE}.controller.StudyController"
EXECUTOR = f"{_PACKAGE}.executor.SiteExecutor"
RESIDENT_PARTY = f"{_PACKAGE}.party.ResidentParty"
LAUNCHER = f"{_PACKAGE}.launcher.NoProcessLauncher"
APPROVAL = f"{_PACKAGE}.approval.Approval"
JOB_LAUNCHER = f"{_PACKAGE}.job_process.JobProcessLauncher"
WHEREABOUTS = f"{_PACKAGE}.commands.Whereabouts"
RESUMPTION = f"{_PACKAGE}.resumption.Resumption"

RESOURCES = "resources.json"
AUTHORIZATION = "authorization.json"
LOGGING = "log_config.json"
CONNECTIONS = "comm_config.json"
# Seconds without a sign of life after which FLARE calls a site dead.
HEART_BEAT_TIMEOUT = 30
MOST_CLIENTS = 1000

_RIGHTS = (
    "submit_job",
    "clone_job",
    "manage_job",
    "download_job",
    "view",
    "operate",
    "shell_commands",
    "byoc",
    "server-predeployed-flwr",
    "app_command",
)
# Every role that FLARE knows; it refuses one that is not listed.
FLARE_ROLES = ("project_admin", "org_admin", "lead", "member")
# Jobs that bring code escape the list of classes, so byoc is nobody's.
# Progress and results are eigenveil's own commands, which look at who submitted the job.
_OF_LEAD = {"submit_job": "any", "manage_job": "n:submitter", "view": "any"}


def policies(role: Role, kit: Path) -> dict[str, dict[str, Any]]:
    """Contents of the files of a kit's folder ``local``, by file name.

    Parameters
    ----------
    role : Role
        A lead and a registrar run no FLARE service and have next to nothing.
    kit : Path
        Where the kit lies; FLARE's stores are put into it.
    """
    if role == "aggregator":
        return {
            RESOURCES: _aggregator_resources(kit.absolute()),
            AUTHORIZATION: _authorization(),
            LOGGING: _logging(),
            CONNECTIONS: _connections(),
        }
    if role in ("site", "helper"):
        return {
            RESOURCES: _site_resources(),
            AUTHORIZATION: _authorization(),
            LOGGING: _logging(),
        }
    if role == "lead":
        return {RESOURCES: _lead_resources()}
    return {}


def allowed_classes(role: Role) -> tuple[str, ...]:
    """Classes that a job may name at a party."""
    if role == "aggregator":
        return (CONTROLLER,)
    return (EXECUTOR,) if role in ("site", "helper") else ()


def _site_resources() -> dict[str, Any]:
    """Of a site and of the helper.

    FLARE sends unknown keys at the top level to the server: nothing of the site's own goes here.
    """
    return {
        "format_version": 2,
        "class_list_enforcement_mode": "enforce",
        "class_allow_list": list(allowed_classes("site")),
        "allow_log_streaming": False,
        "client": {"retry_timeout": 30, "compression": "Gzip"},
        "components": [
            _part(
                "resource_manager",
                "nvflare.app_common.resource_managers.gpu_resource_manager.GPUResourceManager",
                {"num_of_gpus": 0, "mem_per_gpu_in_GiB": 0, "expiration_period": 300},
            ),
            _part(
                "resource_consumer",
                "nvflare.app_common.resource_consumers.gpu_resource_consumer.GPUResourceConsumer",
            ),
            _part("process_launcher", LAUNCHER),
            _part("eigenveil_party", RESIDENT_PARTY),
            _part("eigenveil_approval", APPROVAL),
        ],
    }


def _aggregator_resources(kit: Path) -> dict[str, Any]:
    storage = "nvflare.app_common.storages.filesystem_storage.FilesystemStorage"
    return {
        "format_version": 2,
        "class_list_enforcement_mode": "enforce",
        "class_allow_list": list(allowed_classes("aggregator")),
        "servers": [
            {
                "admin_storage": "transfer",
                "max_num_clients": MOST_CLIENTS,
                "heart_beat_timeout": HEART_BEAT_TIMEOUT,
                "admin_timeout": 10.0,
                "download_job_url": "http://download.server.com/",
            }
        ],
        "snapshot_persistor": {
            "path": "nvflare.app_common.state_persistors.storage_state_persistor."
            "StorageStatePersistor",
            "args": {
                "uri_root": "/",
                "storage": {
                    "path": storage,
                    "args": {"root_dir": str(kit / "snapshots"), "uri_root": "/"},
                },
            },
        },
        "components": [
            _part(
                "job_scheduler",
                "nvflare.app_common.job_schedulers.job_scheduler.DefaultJobScheduler",
                {
                    "max_jobs": 1,
                    # an owner may take days to approve: FLARE gives up after 10 tries by default
                    "min_schedule_interval": 2.0,
                    "max_schedule_interval": 5.0,
                    "max_schedule_count": 1_000_000,
                },
            ),
            _part(
                "job_manager",
                "nvflare.apis.impl.job_def_manager.SimpleJobDefManager",
                {"uri_root": str(kit / "jobs"), "job_store_id": "job_store"},
            ),
            _part("job_store", storage),
            _part("process_launcher", JOB_LAUNCHER),
            _part("eigenveil_whereabouts", WHEREABOUTS),
            _part("eigenveil_resumption", RESUMPTION),
        ],
    }


def _lead_resources() -> dict[str, Any]:
    return {
        "format_version": 1,
        "admin": {
            "idle_timeout": 900.0,
            "login_timeout": 10.0,
            "with_debug": False,
            "authenticate_msg_timeout": 2.0,
            "prompt": "> ",
        },
    }


def _connections() -> dict[str, Any]:
    """Between the aggregator's processes: mutual TLS with its own certificate, on loopback."""
    resources = {"host": "localhost", "connection_security": "mtls"}
    return {"allow_adhoc_conns": False, "internal": {"scheme": SCHEME, "resources": resources}}


def _authorization() -> dict[str, Any]:
    none = dict.fromkeys(_RIGHTS, "none")
    return {
        "format_version": "1.0",
        "permissions": {role: none | (_OF_LEAD if role == "lead" else {}) for role in FLARE_ROLES},
    }


def _logging() -> dict[str, Any]:
    """One file for everything, and the screen."""
    text = "%(asctime)s - %(name)s - %(levelname)s - %(fl_ctx)s - %(message)s"
    formatter = {"()": "nvflare.fuel.utils.log_utils.BaseFormatter", "fmt": text}
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"plain": formatter},
        "handlers": {
            "screen": {
                "class": "logging.StreamHandler",
                "level": "CRITICAL",  # of what concerns people, eigenveil speaks itself
                "formatter": "plain",
                "stream": "ext://sys.stderr",
            },
            "file": {
                "class": "logging.handlers.RotatingFileHandler",
                "level": "INFO",
                "formatter": "plain",
                "filename": "log.txt",
                "mode": "a",
                "maxBytes": 20_000_000,
                "backupCount": 3,
            },
        },
        "loggers": {"root": {"level": "INFO", "handlers": ["screen", "file"]}},
    }


def _part(name: str, path: str, arguments: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"id": name, "path": path, "args": arguments or {}}
