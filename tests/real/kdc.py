"""A Kerberos realm of its own: MIT's KDC on a loopback port, with its database and settings in one directory.

Debian's packages krb5-kdc and krb5-admin-server have the programs. They read no file of the system.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

from aiokafka_lite.testing.ports import free_port

REALM = "TEST.EXAMPLE"

_PROGRAMS = ("krb5kdc", "kdb5_util", "kadmin.local")
_START_TIMEOUT = 60.0


def kdc_problem() -> str | None:
    """Return why no KDC can run here, or None."""
    lacking = [name for name in _PROGRAMS if _program(name) is None]
    return f"install krb5-kdc and krb5-admin-server: this machine has no {lacking[0]}" if lacking else None


def _program(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")


class Kdc:
    """The realm. ``environment`` is what programs need to find it, and ``krb5_conf`` is the file that Java reads."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.port = free_port()
        self.krb5_conf = directory / "krb5.conf"
        self._process: subprocess.Popen[bytes] | None = None
        self._write_settings()
        self.environment = {
            "KRB5_CONFIG": str(self.krb5_conf),
            "KRB5_KDC_PROFILE": str(directory / "kdc.conf"),
            "KRB5CCNAME": f"FILE:{directory}/tickets",
            "KRB5_TRACE": "/dev/null",
        }
        self._run("kdb5_util", "create", "-s", "-r", REALM, "-P", "master")

    def _write_settings(self) -> None:
        self.krb5_conf.write_text(
            f"""[libdefaults]
default_realm = {REALM}
dns_lookup_kdc = false
dns_lookup_realm = false
dns_canonicalize_hostname = false
rdns = false
udp_preference_limit = 1
[realms]
{REALM} = {{
  kdc = 127.0.0.1:{self.port}
}}
"""
        )
        (self._directory / "kdc.conf").write_text(
            f"""[kdcdefaults]
kdc_listen = 127.0.0.1:{self.port}
kdc_tcp_listen = 127.0.0.1:{self.port}
[realms]
{REALM} = {{
  database_name = {self._directory}/principal
  key_stash_file = {self._directory}/stash
  acl_file = {self._directory}/kadm5.acl
  max_life = 1h
  max_renewable_life = 2h
}}
[logging]
kdc = FILE:{self._directory}/kdc.log
"""
        )

    def start(self) -> None:
        """Start the KDC, on the same port as before, and wait until it accepts connections."""
        command = [self._path("krb5kdc"), "-n", "-P", str(self._directory / "kdc.pid")]
        output = (self._directory / "output").open("ab")
        with output:
            self._process = subprocess.Popen(
                command, env={**os.environ, **self.environment}, stdout=output, stderr=output, stdin=subprocess.DEVNULL
            )
        deadline = time.monotonic() + _START_TIMEOUT
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1.0).close()
                return
            except OSError:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    self.stop()
                    said = (self._directory / "output").read_text()
                    raise RuntimeError(f"the KDC did not start: {said}") from None
                time.sleep(0.05)

    def stop(self) -> None:
        """Stop the KDC. Does nothing if it does not run."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def add(self, principal: str, *options: str) -> Path:
        """Add a principal with a random key. Returns a keytab with the key."""
        self._kadmin(f"addprinc -randkey {' '.join(options)} {principal}")
        return self.keytab(principal)

    def keytab(self, principal: str) -> Path:
        """Return a keytab with the present key of a principal."""
        path = self._directory / f"{principal.replace('/', '-')}.keytab"
        path.unlink(missing_ok=True)
        self._kadmin(f"ktadd -norandkey -k {path} {principal}")
        return path

    def change_key(self, principal: str) -> None:
        """Give the principal a new random key, so that its keytabs do not work any more."""
        self._kadmin(f"cpw -randkey {principal}")

    def _kadmin(self, query: str) -> None:
        said = self._run("kadmin.local", "-r", REALM, "-q", query)
        if "while" in said:  # it ends with 0 after a failed query
            raise RuntimeError(f"kadmin.local {query!r}: {said}")

    def _run(self, program: str, *arguments: str) -> str:
        done = subprocess.run(
            [self._path(program), *arguments],
            env={**os.environ, **self.environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=True,
        )
        return done.stdout

    def _path(self, program: str) -> str:
        path = _program(program)
        assert path is not None, kdc_problem()
        return path
