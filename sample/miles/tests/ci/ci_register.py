"""Registrations do nothing when a test runs: the CI reads the calls from the source."""


def register_cpu_ci(est_time, suite, *, labels=None, nightly=False, disabled=None):
    """Declare a CPU test."""


def register_cuda_ci(est_time, suite, *, labels=None, nightly=False, disabled=None):
    """Declare a CUDA test."""


def register_rocm_ci(est_time, suite, *, labels=None, nightly=False, disabled=None):
    """Declare a ROCm test."""
