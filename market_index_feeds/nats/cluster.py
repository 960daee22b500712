"""The servers of a bucket, and the connection to one of them."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from typing import Final

from market_index_feeds.nats.address import Address
from market_index_feeds.nats.connection import Connection
from market_index_feeds.nats.errors import Unreachable

ROUND_SECONDS: Final = 5.0
"""Timeout of trying all servers, one after the other."""


class Cluster:
    """The servers of an address, those that they report, and the connection to one of them.

    `max_value_bytes` is that of the last connection.
    """

    def __init__(self, address: Address) -> None:
        self._address = address
        # With the name on the certificate of a server, if that is not its own.
        self._servers: dict[str, str | None] = dict.fromkeys(address.servers)
        self._last = ""
        # The last failure of each server, until one is connected. They are kept between rounds, so that the message of
        # an outage does not depend on the order in which the servers are tried.
        self._failures: dict[str, str] = {}
        self.connection: Connection | None = None
        self.max_value_bytes: int = 0

    async def connect(self) -> Connection:
        """Return the connection to one of the servers, a new one if the last has ended.

        Raises `Unreachable` if no server is reachable, `PermissionError` if one rejects the credentials, and `OSError`
        if a file that the address names cannot be used.
        """
        if self.connection is None or self.connection.ended.is_set():
            await self.disconnect()
            self.connection = await self._connect_again()
            self.max_value_bytes = self.connection.max_value_bytes
        return self.connection

    async def disconnect(self) -> None:
        """Close the connection."""
        connection, self.connection = self.connection, None
        if connection is not None:
            await connection.close()

    async def _connect_again(self) -> Connection:
        """Connect to any server, last to the one that was connected last."""
        tls = self._address.tls()
        others = list(self._servers)
        random.shuffle(others)
        with suppress(TimeoutError):
            async with asyncio.timeout(ROUND_SECONDS):
                for server in sorted(others, key=lambda server: server == self._last):
                    connection = Connection(self._address)
                    try:
                        await connection.open(server, tls, self._servers[server])
                    except Unreachable as error:
                        self._failures[server] = str(error)
                    else:
                        self._last = server
                        self._failures.clear()
                        # Servers that were reported before may be gone.
                        self._servers = connection.discovered | dict.fromkeys(self._address.servers)
                        return connection
        raise Unreachable("; ".join(self._failures[server] for server in sorted(self._failures)))
