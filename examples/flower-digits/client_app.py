"""A site: trains on the part of the digits that its --node-config names."""

from fedfa.flower import client_app

app = client_app("digits")
