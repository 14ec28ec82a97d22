"""Compares what the sink of a tube holds with its source, and explains where a key is."""

from pytube.verify.explain import explain
from pytube.verify.explanation import Explanation
from pytube.verify.report import Report
from pytube.verify.run import verify

__all__ = ["Explanation", "Report", "explain", "verify"]
