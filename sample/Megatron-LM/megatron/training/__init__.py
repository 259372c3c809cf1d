"""A stand-in for Megatron's training loop."""
