"""A network namespace for one side of a partition, joined to this machine by one link.

The link has two ends. Whoever is at the end that stays up notices nothing: what it sends vanishes,
and its connections neither end nor answer. So the end of the others is taken down.
"""

import ctypes
import os
import shutil
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from ipaddress import IPv4Network
from pathlib import Path

# Each has so many networks of four addresses that a process id chooses one for itself.
PRIVATE_RANGES = tuple(map(IPv4Network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16")))
DEVICE_INSIDE = "eth0"
# Nobody else is on the link.
HARDWARE_OUTSIDE, HARDWARE_INSIDE = "02:00:00:00:00:01", "02:00:00:00:00:02"
CLONE_NEWNET = 0x4000_0000


class NamespaceRefusedError(Exception):
    """This machine gives us no network namespace; the text says why."""


class NetworkNamespace:
    """Named after this process, so that no other running test has its name or its addresses.

    It has no way to anywhere but this machine, and nothing outside this machine has one to it.
    """

    def __init__(self) -> None:
        self.name = f"durable-{os.getpid()}"
        self._device = f"dur{os.getpid()}"
        # Known while it exists.
        self.address_inside = self._address_outside = ""

    def make(self) -> None:
        _refuse_without_rights()
        self.remove()  # left behind by a process that had this id before us
        try:
            self._make()
        except BaseException:
            self.remove()
            raise

    def remove(self) -> None:
        """Also while something inside still runs: it has no network then."""
        for kind, name in (("link", self._device), ("netns", self.name)):
            subprocess.run(["ip", kind, "delete", name], capture_output=True, check=False)

    # ── what is inside ──────────────────────────────────────────────────────────────────────────

    def command(self, *command: str) -> tuple[str, ...]:
        """The command, run with this namespace as its only network."""
        return ("ip", "netns", "exec", self.name, *command)

    def contains(self, pid: int) -> bool:
        return Path(f"/proc/{pid}/ns/net").samefile(self._path)

    def listen_inside(self, address: str) -> socket.socket:
        """A socket belongs to the namespace of the thread that makes it, whoever uses it then."""

        def listen() -> socket.socket:
            libc = ctypes.CDLL(None, use_errno=True)
            with self._path.open() as file:
                if libc.setns(file.fileno(), CLONE_NEWNET) != 0:
                    raise OSError(ctypes.get_errno(), "cannot enter the namespace")
            return socket.create_server((address, 0))

        with ThreadPoolExecutor(1) as thread:  # which ends, and never comes back to our network
            return thread.submit(listen).result()

    def listen_outside(self) -> socket.socket:
        """Listens at our end of the link, to what comes over the link alone."""
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, self._device.encode())
        listener.bind((self._address_outside, 0))
        return listener

    # ── the link ────────────────────────────────────────────────────────────────────────────────

    def silence_outside(self) -> None:
        """For those inside, everything outside falls silent."""
        _ip("link", "set", self._device, "down")

    def silence_inside(self) -> None:
        """For those outside, everything inside falls silent."""
        _ip("-n", self.name, "link", "set", DEVICE_INSIDE, "down")

    def mend(self) -> None:
        _ip("link", "set", self._device, "up")
        _ip("-n", self.name, "link", "set", DEVICE_INSIDE, "up")
        # Each knows the other's hardware: a question for it without an answer would be an answer.
        inside = (self.address_inside, "lladdr", HARDWARE_INSIDE, "dev", self._device)
        outside = (self._address_outside, "lladdr", HARDWARE_OUTSIDE, "dev", DEVICE_INSIDE)
        _ip("neighbour", "replace", *inside, "nud", "permanent")
        _ip("-n", self.name, "neighbour", "replace", *outside, "nud", "permanent")

    @property
    def _path(self) -> Path:
        return Path("/run/netns", self.name)

    def _make(self) -> None:
        self._address_outside, self.address_inside = map(str, _unused_network().hosts())
        outside = (self._device, "address", HARDWARE_OUTSIDE)
        inside = (DEVICE_INSIDE, "address", HARDWARE_INSIDE, "netns", self.name)
        try:
            _ip("netns", "add", self.name)
            _ip("link", "add", *outside, "type", "veth", "peer", "name", *inside)
        except subprocess.CalledProcessError as error:
            raise NamespaceRefusedError(
                f"root may not make network namespaces here: {error.stderr.strip()}"
            ) from error
        _ip("address", "add", f"{self._address_outside}/30", "dev", self._device)
        _ip("-n", self.name, "address", "add", f"{self.address_inside}/30", "dev", DEVICE_INSIDE)
        _ip("-n", self.name, "link", "set", "lo", "up")
        self.mend()


def _refuse_without_rights() -> None:
    if sys.platform != "linux" or os.geteuid() != 0:
        raise NamespaceRefusedError("only root on Linux may make network namespaces")
    if shutil.which("ip") is None:
        raise NamespaceRefusedError("network namespaces need `ip`: install iproute2")


def _unused_network() -> IPv4Network:
    """The one that belongs to this process id, in the first range that has no route there."""
    for private in PRIVATE_RANGES:
        count = private.num_addresses // 4
        network = IPv4Network((private.network_address + 4 * (os.getpid() % count), 30))
        routes = _ip("-4", "route", "show", "match", str(network)).splitlines()
        if all(route.startswith("default") for route in routes):
            return network
    raise NamespaceRefusedError("every private range of addresses is in use on this machine")


def _ip(*arguments: str) -> str:
    run = subprocess.run(["ip", *arguments], capture_output=True, check=True, text=True)
    return run.stdout
