"""``python -m ci.suite``: the suite runner alone; see ``ci/suite_command.py``."""
