"""The run config of a deployment."""

import pytest

from fedfa.deployment.settings import settings_of
from fedfa.errors import ConfigError


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"out": ""}, "out = ''"),
        ({"out": "x", "ttl-seconds": 0.0}, "ttl_seconds = 0.0: must be above 0"),
        ({"out": "x", "wire": "zip"}, "must be one of flat, named"),
        ({"out": "x", "keep-updates": 3}, "must be true or false"),
    ],
)
def test_a_wrong_run_config_is_refused_in_one_line(config: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        settings_of(config)
