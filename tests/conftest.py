"""What all tests share."""

from hypothesis import settings

# A shared or slow machine must not fail a test that is right.
settings.register_profile("verifylab", deadline=None)
settings.load_profile("verifylab")
