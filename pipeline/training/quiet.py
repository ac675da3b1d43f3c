"""What libraries say, kept from the screen."""

import logging
import warnings


def quiet_libraries() -> None:
    """Lightning and DeepSpeed announce what Farsight reports in its own words."""
    for name in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.ERROR)
    for module in (r"lightning\..*", r"deepspeed\..*", r"torch\.distributed\..*"):
        warnings.filterwarnings("ignore", module=module)
