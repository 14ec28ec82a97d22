"""Elections: who may lead which partition. `base` says what one is; `neli` and `lease` are the two.

`neli` needs the Kafka client, so its users import it, not this package.
"""

from pytube.election.base import Claim, Election

__all__ = ["Claim", "Election"]
