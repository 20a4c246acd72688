from task import task

from fedfa.deployment.flower import server_app

app = server_app(task)
