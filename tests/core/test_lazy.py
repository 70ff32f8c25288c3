"""Names of packages that load when they are asked for."""

import importlib
import subprocess
import sys

import pytest

from sally_anne import hooks


@pytest.mark.integration
def test_importing_the_room_takes_no_torch():
    code = (
        "import sys; from sally_anne import hooks; assert 'torch' not in sys.modules; hooks.Capture"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_lazy_name_is_the_name_of_its_module():
    from sally_anne.hooks import Capture

    assert Capture is importlib.import_module("sally_anne.hooks.capture").Capture
    assert "Capture" in dir(hooks) and "Capture" in hooks.__all__


def test_an_unknown_name_is_an_attribute_error_that_names_the_package():
    with pytest.raises(AttributeError, match="'sally_anne.hooks' has no attribute 'Captain'"):
        hooks.Captain  # noqa: B018
