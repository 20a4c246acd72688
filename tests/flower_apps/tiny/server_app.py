from task import task

from fedfa.flower import server_app

app = server_app(task)
