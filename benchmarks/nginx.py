"""The configuration of nginx that all parts share."""

from __future__ import annotations

from getpass import getuser
from pathlib import Path
from typing import Final

CONFIGURATION: Final = """
user {user};
worker_processes 1;
daemon off;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
{http}}}
"""


def configuration(folder: Path, http: str) -> str:
    """Return the configuration of one nginx that writes only into a folder; `http` is its `http` block."""
    return CONFIGURATION.format(user=getuser(), folder=folder, http=http)
