"""The URL of a bucket: its parts, and the part of it that messages show."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from market_index_feeds import (
    FeedError,
    StoreError,
    open_feed,
    open_store,
)
from market_index_feeds.nats.address import Address


class TestAddresses:
    def test_credentials_come_from_the_url_or_the_usual_variables(self, tmp_path: Path):
        url = "nats://h/b"
        creds = str(tmp_path / "x.creds")
        for given_url, environment, expected in [
            (url, {}, (None, None, None, None)),
            ("nats://me:p%40ss@h/b", {"NATS_USER": "you", "NATS_CREDS": creds}, ("me", "p@ss", None, None)),
            ("nats://s3cret@h/b", {}, (None, None, "s3cret", None)),
            ("nats://me:0ne-pass@h,me:0ne-pass@i:5/b", {}, ("me", "0ne-pass", None, None)),
            (url, {"NATS_USER": "me", "NATS_PASSWORD": "pass"}, ("me", "pass", None, None)),
            (url, {"NATS_USER": "token"}, (None, None, "token", None)),
            (url, {"NATS_TOKEN": "token", "NATS_USER": "me", "NATS_PASSWORD": "x"}, (None, None, "token", None)),
            (url, {"NATS_CREDS": creds}, (None, None, None, Path(creds))),
            (f"{url}?creds={creds}", {"NATS_CREDS": "other"}, (None, None, None, Path(creds))),
        ]:
            address = Address.parse(given_url, environment)
            assert (address.user, address.password, address.token, address.creds) == expected
            assert address.servers[0] == "nats://h:4222"
            assert not re.search("p@ss|p%40ss|s3cret|0ne-pass", repr(address) + address.shown)

    def test_several_servers_and_replicas(self):
        address = Address.parse("TLS://a,[::1]:4333/b_-1?replicas=5", {})
        assert (address.servers, address.is_secure, address.replicas) == (("tls://a:4222", "tls://[::1]:4333"), True, 5)

    @pytest.mark.parametrize(
        ("url", "reason"),
        [
            ("nats://h", "a bucket must follow the servers"),
            ("nats://h/", "a bucket must follow the servers"),
            ("nats://h/a/b", "got 'a/b'"),
            ("nats://h/a.b", "got 'a.b'"),
            ("nats:///b", "a server must be a host such as 127.0.0.1:4222, got ''"),
            ("nats://h,/b", "a server must be a host such as 127.0.0.1:4222, got ''"),
            ("nats://h:x/b", "a port must be a number from 1 to 65535, got 'x'"),
            ("nats://h:0/b", "a port must be a number from 1 to 65535, got '0'"),
            ("nats://h:99999/b", "a port must be a number from 1 to 65535, got '99999'"),
            ("nats://h:²/b", "a port must be a number from 1 to 65535, got '²'"),
            ("nats://[::1/b", "must be a URL"),
            ("nats://h/b?user=me", "options are creds and replicas, got 'user'"),
            ("nats://h/b?replicas=6", "replicas must be a number from 1 to 5, got '6'"),
            ("nats://h/b?replicas=", "replicas must be a number from 1 to 5, got ''"),
            ("nats://h/b#c", "the URL must not have a fragment: '#c'"),
            ("nats://me:s3/cret@h/b", "%2F %3F %23 %40"),
            ("nats://me:s3?cret@h/b", "%2F %3F %23 %40"),
            ("nats://me:s3#cret@h/b", "%2F %3F %23 %40"),
            ("nats://me:s3cret@h:s3cret/b", "a port must be"),
            (" nats://me:s3cret@h/b", "nats or tls, got ' nats'"),
            ("\ufeffnats://me:s3cret@h/b", "nats or tls, got '"),
            ("nats:me:s3cret@h/b", "cannot be opened"),
            ("nats//me:s3cret@h/b", "cannot be opened"),
            ("nats://h/b?password=s3cret", "options are creds and replicas, got 'password'"),
        ],
    )
    def test_an_invalid_url_is_one_error_without_credentials(self, url: str, reason: str):
        for work, kind in ((open_feed, FeedError), (open_store, StoreError)):
            with pytest.raises(kind, match=re.escape(reason)) as raised:
                work(url)
            assert "me:" not in str(raised.value)
            assert reason == "a port must be" or "cret" not in str(raised.value)
