"""The server: aggregates, evaluates, keeps the records."""

from fedfa.flower import server_app

app = server_app("digits")
