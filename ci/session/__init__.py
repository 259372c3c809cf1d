"""``python -m ci.session``: one stage as CI runs it; see ``ci/session_command.py``."""
