"""placeholder"""

import logging


def say_once(text: str) -> None:
    logging.getLogger("fedfa").warning(text)
