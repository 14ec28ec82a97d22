"""A guard: the other `pytube` imports a module of this name first, whatever starts.

Its `python -m pytube` makes a class and ends, with exit code 0, whatever the arguments; installed over this
package, it would do so in place of a worker. Python prefers this package to its `streams.py`: this ends here.
"""

from pytube.collision import refuse_collision

refuse_collision()
