"""Networks that can be partitioned: Linux network namespaces, connected by a bridge in another namespace.

Each node has one link to the bridge. Two faults are possible: a link is closed, which both its ends detect; or it loses
all packets silently.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from threading import Thread
from typing import Final, TypeVar

T = TypeVar("T")

_BRIDGE: Final = "bridge0"
_LINK: Final = "link0"
_CLONE_NEWNET: Final = 0x40000000
_networks = count()


class Unavailable(Exception):
    """Network namespaces cannot be created on this machine, or by this user."""


class Node:
    """A namespace with one address."""

    def __init__(self, network: Network, name: str, address: str) -> None:
        self.name = name
        self.address = address
        self.namespace = f"{network.name}-{name}"
        self._network = network

    @property
    def prefix(self) -> tuple[str, ...]:
        """The prefix of a command that runs in this namespace."""
        return ("ip", "netns", "exec", self.namespace)

    def enter(self) -> None:
        """Move this thread into the namespace. Threads that it starts inherit the namespace."""
        descriptor = os.open(f"/run/netns/{self.namespace}", os.O_RDONLY)
        try:
            # `os.setns` is new in Python 3.12.
            if ctypes.CDLL(None, use_errno=True).setns(descriptor, _CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "cannot enter the namespace", self.namespace)
        finally:
            os.close(descriptor)

    def inside(self, work: Callable[[], T]) -> T:
        """Run the work in a thread in the namespace, and return its result."""
        results: list[T] = []
        errors: list[BaseException] = []

        def run() -> None:
            try:
                self.enter()
                results.append(work())
            except BaseException as error:  # noqa: BLE001  # raised again in the waiting thread
                errors.append(error)

        thread = Thread(target=run)
        thread.start()
        thread.join()
        if errors:
            raise errors[0]
        return results[0]

    @contextmanager
    def closed_link(self) -> Iterator[None]:
        """Close the link, which both ends detect."""
        self._network.at_bridge("set", "dev", self.name, "down")
        try:
            yield
        finally:
            self._network.at_bridge("set", "dev", self.name, "up")

    @contextmanager
    def silent_loss(self) -> Iterator[None]:
        """Lose all packets in both directions; neither end detects it."""
        self._network.at_bridge("set", "dev", self.name, "nomaster")
        try:
            yield
        finally:
            self._network.at_bridge("set", "dev", self.name, "master", _BRIDGE)


class Network:
    """Nodes by name. The names of the namespaces are unique per test process."""

    def __init__(self, names: list[str]) -> None:
        self.name = f"market-index-{os.getpid()}-{next(_networks)}"
        self.bridge = f"{self.name}-bridge"
        self.nodes = {name: Node(self, name, f"10.77.0.{number}") for number, name in enumerate(names, 1)}

    def at_bridge(self, *arguments: str) -> None:
        """Run `ip link` in the namespace of the bridge."""
        _ip("-n", self.bridge, "link", *arguments)

    def make(self, stack: ExitStack) -> None:
        """Create the namespaces and links. The stack removes them."""
        _make_namespace(self.bridge, stack)
        self.at_bridge("add", _BRIDGE, "type", "bridge")
        self.at_bridge("set", "dev", _BRIDGE, "up")
        for node in self.nodes.values():
            _make_namespace(node.namespace, stack)
            self.at_bridge("add", node.name, "type", "veth", "peer", "name", _LINK, "netns", node.namespace)
            self.at_bridge("set", "dev", node.name, "master", _BRIDGE, "up")
            _ip("-n", node.namespace, "addr", "add", f"{node.address}/24", "dev", _LINK)
            _ip("-n", node.namespace, "link", "set", "dev", _LINK, "up")


@contextmanager
def network(names: list[str]) -> Iterator[dict[str, Node]]:
    """Create a network of nodes. Raises `Unavailable`."""
    _require_support()
    made = Network(names)
    with ExitStack() as stack:
        made.make(stack)
        yield made.nodes


def _require_support() -> None:
    """Create and remove one namespace with the required devices. Raises `Unavailable`."""
    if shutil.which("ip") is None:
        raise Unavailable("the command `ip` (iproute2) is not installed")
    name = f"market-index-{os.getpid()}-probe"
    with ExitStack() as stack:
        try:
            _make_namespace(name, stack)
            _ip("-n", name, "link", "add", _BRIDGE, "type", "bridge")
            _ip("-n", name, "link", "add", _LINK, "type", "veth")
        except subprocess.CalledProcessError as error:
            raise Unavailable(f"network namespaces cannot be created: {error.stderr.strip()}") from None


def _make_namespace(name: str, stack: ExitStack) -> None:
    _ip("netns", "add", name)
    stack.callback(_ip, "netns", "del", name)
    _ip("-n", name, "link", "set", "dev", "lo", "up")


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)
