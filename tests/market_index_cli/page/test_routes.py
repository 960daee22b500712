"""The files of the web page: routes, headers, and what they never contain. Axe checks the contrast of colours."""

from __future__ import annotations

import re
from contextlib import closing
from http.client import HTTPConnection

import pytest

from market_index import LiveIndex
from market_index.display import Tokens
from market_index_cli.page.routes import page_routes
from tests.page import PAGE
from tests.service import Client, Service


def test_exactly_the_files_of_the_page_are_served(sent: Service):
    files = {f"/{file.name}" for file in PAGE.iterdir()} - {"/index.html"}
    assert {route.path for route in page_routes(LiveIndex(), Tokens())} == {"/", "/summary", "/tokens"} | files
    for path in {"/"} | files:
        assert sent.request(path).body == (PAGE / (path[1:] or "index.html")).read_bytes()
    for path in ("/index.html", "/page/page.css", "/page.css/", "//", "/main.js%0A", "/../page.py"):
        assert sent.request(path).status == 404


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/", "text/html; charset=utf-8"),
        ("/main.js", "text/javascript; charset=utf-8"),
        ("/page.css", "text/css; charset=utf-8"),
        ("/client.d.ts", "text/plain; charset=utf-8"),
        ("/summary", "application/json"),
        ("/tokens", "application/json"),
    ],
)
def test_files_have_a_type_a_tag_and_a_security_policy(sent: Service, path: str, kind: str):
    with closing(HTTPConnection("127.0.0.1", sent.port)) as connection:
        connection.request("GET", path)
        fields = [(name.lower(), value) for name, value in connection.getresponse().getheaders()]
        headers = dict(fields)
        assert len(headers) == len(fields), "no field is sent twice"
    assert headers["content-type"] == kind
    assert (headers["cache-control"], headers["referrer-policy"]) == ("no-cache", "no-referrer")
    assert headers["content-security-policy"] == (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    with closing(Client(sent.port)) as client:
        assert client.request(path, headers=f"If-None-Match: {headers['etag']}\r\n").status == 304


def test_the_page_contains_no_other_host_and_no_inline_script_or_style():
    for file in PAGE.iterdir():
        text = file.read_text()
        assert set(re.findall(r"https?://[^\s'\"]+", text)) <= {"http://www.w3.org/2000/svg"}, file.name
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function", text)
        assert not re.search(r"parseFloat|toFixed\((?!1\))|toPrecision|toLocaleString\(", text)
    html = (PAGE / "index.html").read_text()
    assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?![^>]*\ssrc=)", html)
    # Addresses are relative, so the page works below any path of a proxy.
    assert not re.search(r"(?:src|href)=\"/", html)


def test_every_imported_module_exists_and_is_preloaded():
    html = (PAGE / "index.html").read_text()
    for file in PAGE.glob("*.js"):
        for name in re.findall(r'from "\./([^"]+)"', file.read_text()):
            assert (PAGE / name).exists()
            assert f'<link rel="modulepreload" href="{name}">' in html
