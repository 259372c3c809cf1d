"""The CI and release control plane of Miles."""
