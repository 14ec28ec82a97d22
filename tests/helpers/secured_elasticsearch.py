"""An Elasticsearch with security on: TLS under an authority of the test's own, users and API keys.

Its distribution lacks the module without which the server can't make the index of users and API keys. A
module of our own, compiled here, stands in for it. Security itself is Elastic's.
"""

from __future__ import annotations

import base64
import os
import shutil
import ssl
import subprocess
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pytube.embedded import java
from tests.helpers.certificates import Certificate
from tests.helpers.elasticsearch import VERSION, Elasticsearch
from tests.helpers.opensearch import request

ADMIN, PASSWORD = "elastic", "0nly-f0r-tests"
_COMPILER = "org.eclipse.jdt:ecj:3.37.0"
_SOURCE = Path(__file__).with_name("Words.java")
_MODULE = f"""
name=words
description=analysis of the addresses of users
version={VERSION}
elasticsearch.version={VERSION}
java.version=17
classname=pytube.tests.Words
"""
_SETTINGS = """
xpack.security.enabled: true
xpack.security.enrollment.enabled: false
xpack.security.http.ssl:
  enabled: true
  certificate: http.pem
  key: http.key
"""


def basic(user: str, password: str) -> dict[str, str]:
    """The header of a login."""
    return {"authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


class SecuredElasticsearch(Elasticsearch):
    """A node that serves by TLS only, and whoever has a login only."""

    def __init__(self, directory: Path | str, certificate: Certificate) -> None:
        """`certificate`: the server's."""
        super().__init__(directory)
        self._certificate = certificate
        self.tls = ssl.create_default_context(cafile=certificate.authority)
        self.headers = basic(ADMIN, PASSWORD)

    def _secure(self, config: Path) -> str:
        shutil.copy(self._certificate.certificate, config / "http.pem")
        shutil.copy(self._certificate.key, config / "http.key")
        program = str(self._home / "bin" / "elasticsearch-keystore")
        for command, text in (("create", ""), ("add --stdin bootstrap.password", PASSWORD)):
            subprocess.run(
                ["/bin/bash", program, *command.split()],
                input=text,
                text=True,
                check=True,
                capture_output=True,
                env=self._environment(),
            )
        _compile(self._home)
        return _SETTINGS

    def ask(self, path: str, method: str = "GET", body: Mapping[str, Any] | None = None) -> Any:
        """One request of the administrator; the decoded answer."""
        answer = request(f"{self.url}{path}", method, body, headers=self.headers, tls=self.tls)
        assert "error" not in answer, (method, path, answer)
        return answer


def _compile(home: Path) -> None:
    """Put the module beside those of the server in `home`."""
    module, classes = home / "modules" / "words", home.parent / "classes"
    module.mkdir()
    (module / "plugin-descriptor.properties").write_text(_MODULE)
    (compiler,) = java.jars(_COMPILER)
    server = os.pathsep.join(str(jar) for jar in (home / "lib").glob("*.jar"))
    command = [java.find(), "-jar", compiler, "-17", "-proc:none", "-nowarn", "-cp", server]
    done = subprocess.run(
        [*map(str, command), "-d", str(classes), str(_SOURCE)], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    with zipfile.ZipFile(module / "words.jar", "w") as jar:
        for file in classes.rglob("*.class"):
            jar.write(file, file.relative_to(classes))
