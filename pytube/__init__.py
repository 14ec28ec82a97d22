"""pytube keeps copies of Postgres data equal to their source, and proves it."""

from pytube.collision import DISTRIBUTION as DISTRIBUTION
from pytube.collision import refuse_collision

__version__ = "0.1.0"

refuse_collision()
