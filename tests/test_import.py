"""Importing Bristle talks to nobody."""

from __future__ import annotations

import subprocess
import sys

IMPORT_ALL = """
import importlib, pkgutil, socket, sys

def forbid(event, args):
    if event in ("socket.connect", "socket.sendto", "socket.sendmsg", "socket.getaddrinfo", "socket.bind"):
        raise PermissionError(f"{event} {args[1:]}")

sys.addaudithook(forbid)
try:
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", 9))
except PermissionError:
    print("watched")
import bristle
names = [module.name for module in pkgutil.walk_packages(bristle.__path__, "bristle.")]
for name in names:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name not in ("triton", "flwr", "p2pfl"):  # With torch for a GPU alone; other libraries of their users.
            raise
print(len(names))
"""


def test_no_module_uses_the_network_when_it_is_imported() -> None:
    done = subprocess.run([sys.executable, "-c", IMPORT_ALL], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    watched, count = done.stdout.split()
    assert watched == "watched"
    assert int(count) > 150
