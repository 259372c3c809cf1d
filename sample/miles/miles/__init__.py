"""A stand-in for Miles: enough of it to tell which trees a test sees."""
