"""The conformance suite: a class of tests that the author of a sink inherits from."""

from __future__ import annotations

from pytube.testing.lifetime import LifetimeChecks
from pytube.testing.scans import ScanChecks
from pytube.testing.writes import WriteChecks


class SinkContract(WriteChecks, LifetimeChecks, ScanChecks):
    """Inherit in a class `Test…` and give `make_sink` and `read_back`; pytest finds the tests.

    The other methods of `SinkHarness` make some checks sharper; give those that the store allows.
    """
