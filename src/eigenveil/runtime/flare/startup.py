"""FLARE's file of the start: where the aggregator is, and that everything is authenticated."""

from __future__ import annotations

from typing import Any

from eigenveil.runtime.flare.roles import Role

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
