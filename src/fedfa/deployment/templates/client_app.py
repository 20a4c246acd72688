"""A site: trains the model on its own data."""

from task import task

from fedfa.deployment.flower import client_app

app = client_app(task)
