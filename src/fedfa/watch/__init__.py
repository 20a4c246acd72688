"""``fedfa watch``: a page on this machine that shows runs while they go, and finished ones as they ended.

runs.py     what a folder holds: live.json of runs under way, records of finished ones
view.py     one run as numbers and tables; figures.py: its figures; words.py: numbers as text
metrics.py  all runs as text for Prometheus
assets/     the page that asks for the view once a second
server.py   who may ask, and what is answered
"""

from fedfa.watch.server import Watch

__all__ = ["Watch"]
