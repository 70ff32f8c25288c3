"""What the tests of this room share."""

from tests.harness.chat_server import server  # noqa: F401  # a fixture
