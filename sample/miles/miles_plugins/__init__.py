"""A stand-in for miles_plugins."""

OPTIMIZERS = ("adam", "muon")
