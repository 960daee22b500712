"""What the URL of a bucket says, and what messages show of it."""

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
    """What a URL says, and what it does not show."""

    def test_credentials_are_taken_from_where_others_look_for_them(self, tmp_path: Path):
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

    def test_replicas_and_several_servers_can_be_said(self):
        address = Address.parse("TLS://a,[::1]:4333/b_-1?replicas=5", {})
        assert (address.servers, address.is_secure, address.replicas) == (("tls://a:4222", "tls://[::1]:4333"), True, 5)

    @pytest.mark.parametrize(
        ("url", "reason"),
        [
            ("nats://h", "a bucket is named behind the servers"),
            ("nats://h/", "a bucket is named behind the servers"),
            ("nats://h/a/b", "not 'a/b'"),
            ("nats://h/a.b", "not 'a.b'"),
            ("nats:///b", "'' is not a server"),
            ("nats://h,/b", "'' is not a server"),
            ("nats://h:x/b", "'x' is not a port"),
            ("nats://h:0/b", "'0' is not a port"),
            ("nats://h:99999/b", "'99999' is not a port"),
            ("nats://h:²/b", "'²' is not a port"),
            ("nats://[::1/b", "it is not a URL"),
            ("nats://h/b?user=me", "'user' is not an option"),
            ("nats://h/b?replicas=6", "replicas is a number from 1 to 5, not '6'"),
            ("nats://h/b?replicas=", "replicas is a number from 1 to 5, not ''"),
            ("nats://h/b#c", "nothing is meant by #'c'"),
            ("nats://me:s3/cret@h/b", "are written %2F"),
            ("nats://me:s3?cret@h/b", "are written %2F"),
            ("nats://me:s3#cret@h/b", "are written %2F"),
            ("nats://me:s3cret@h:s3cret/b", "is not a port"),
            (" nats://me:s3cret@h/b", "' nats' is not a known kind of"),
            ("\ufeffnats://me:s3cret@h/b", "is not a known kind of"),
            ("nats:me:s3cret@h/b", "cannot be opened"),
            ("nats//me:s3cret@h/b", "cannot be opened"),
            ("nats://h/b?password=s3cret", "'password' is not an option"),
        ],
    )
    def test_what_is_no_address_is_one_clear_error_without_credentials(self, url: str, reason: str):
        for work, kind in ((open_feed, FeedError), (open_store, StoreError)):
            with pytest.raises(kind, match=re.escape(reason)) as raised:
                work(url)
            assert "me:" not in str(raised.value)
            assert reason == "is not a port" or "cret" not in str(raised.value)
