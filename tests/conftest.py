"""What all tests share."""

from hypothesis import settings

# A shared or slow machine must not fail a test that is right.
settings.register_profile("verifylab", deadline=None)
settings.load_profile("verifylab")

#: Files that take longest: they start first, so that no core waits for one of them at the end.
LONG = (
    "test_engine_faults.py",
    "test_browser.py",
    "test_notebooks.py",
    "test_gpu_check.py",
    "test_sweep.py",
    "test_executors.py",
    "test_experiment.py",
)


def pytest_collection_modifyitems(items):
    """Put the long files first, the order within a file kept."""
    rank = {name: place for place, name in enumerate(LONG)}
    items.sort(key=lambda item: rank.get(item.path.name, len(LONG)))
