"""The same store in a directory of its own as the tests of room ``store`` have."""

from store.conftest import home, store

__all__ = ["home", "store"]
