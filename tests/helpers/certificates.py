"""A certificate for loopback and the authority that has signed it, made by openssl."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import NamedTuple


class Certificate(NamedTuple):
    """Files in PEM."""

    authority: Path
    certificate: Path
    key: Path


def make_certificate(folder: Path, names: str) -> Certificate:
    """A certificate for `names`, as `DNS:hook.test,IP:127.0.0.1`, and a new authority."""
    folder.mkdir(parents=True, exist_ok=True)
    authority, certificate, key = folder / "ca.pem", folder / "cert.pem", folder / "key.pem"
    new = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    new += ["-nodes", "-days", "2"]
    signed = f"-CA {authority} -CAkey {folder}/ca.key -addext subjectAltName={names}".split()
    _run(*new, "-subj", "/CN=tests", "-keyout", f"{folder}/ca.key", "-out", str(authority))
    _run(*new, "-subj", "/CN=server", *signed, "-keyout", str(key), "-out", str(certificate))
    return Certificate(authority, certificate, key)


def _run(*command: str) -> None:
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
