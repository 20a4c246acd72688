"""The server: aggregates, evaluates, keeps the records. Its settings are in pyproject.toml."""

from task import task

from fedfa.deployment.flower import server_app

app = server_app(task)
