"""``fedfa watch``: a page on this machine that shows runs in progress and finished runs.

runs.py     what a folder holds: live.json of runs under way, records of finished ones
view.py     one run as numbers and tables; figures.py: its figures; words.py: numbers as text
metrics.py  all runs as text for Prometheus
assets/     the page that asks for the view once a second
server.py   access control and answers
"""

from fedfa.watch.server import Watch

__all__ = ["Watch"]
