"""Nothing of ours: the other `pytube` imports a module of this name first, whatever starts.

Its `python -m pytube` makes a class and ends, with exit code 0, whatever it is asked for; installed over us,
it would do so in place of a worker. Python prefers this package to their `streams.py`: this ends here.
"""

from pytube.collision import refuse_collision

refuse_collision()
