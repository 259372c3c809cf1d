"""A stand-in for SGLang."""
