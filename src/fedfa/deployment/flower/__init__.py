"""fedfa on Flower: the simulator's strategies on real clients. See docs/deploy.md."""

from fedfa.deployment.flower.client import client_app as client_app
from fedfa.deployment.flower.client import digits as digits
from fedfa.deployment.flower.server import serve as serve
from fedfa.deployment.flower.server import server_app as server_app
from fedfa.deployment.transport import TrainRequest as TrainRequest
from fedfa.executors.base import Trained as Trained
