"""Elections: who may lead which partition. `base` says what one is; `neli` and `lease` are the two.

`neli` needs the Kafka client, so it is imported by those who use it, not here.
"""

from pytube.election.base import Claim, Election

__all__ = ["Claim", "Election"]
