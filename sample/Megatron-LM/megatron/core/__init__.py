"""A stand-in for Megatron Core. `megatron` itself has no __init__.py, as in the real repository."""

# the pull request of the sample repository changes this line
PULL_REQUEST = None
