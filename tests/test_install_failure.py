"""What installers print, as they printed it (uv 0.13, pip 24 to 26)."""

import pytest

from ci.install_failure import read_failure

UNSATISFIABLE = "we can conclude that your requirements are unsatisfiable."


@pytest.mark.parametrize(
    ("output", "requirement", "final"),
    [
        ("ERROR: No matching distribution found for nowhere>=1 (from tau)\n", "nowhere", False),
        (
            f"  cause: Because Nowhere was not found in the package registry and you require nowhere, {UNSATISFIABLE}",
            "nowhere",
            False,
        ),
        (f"  cause: Because there is no version of alpha==9 and you require alpha==9, {UNSATISFIABLE}", "alpha", False),
        (
            (
                "  cause: Because only beta==1.0 is available and all versions of uses depend on beta>=2, we can conclude "
                f"that all versions of uses cannot be used.\n         And because you require uses, {UNSATISFIABLE}"
            ),
            "beta",
            False,
        ),
        (
            (
                "  cause: Because plat==1.0 has no wheels with a matching platform tag (e.g., `manylinux_2_36_x86_64`) and "
                "all versions of usesplat depend on plat==1.0, we can conclude that all versions of usesplat cannot be used."
            ),
            "plat",
            False,
        ),
        (
            (
                "  cause: Because all versions of alpha depend on beta>=2 and you require alpha==1.0, we can conclude that "
                f"you require beta>=2.\n         And because you require beta==1.0, {UNSATISFIABLE}"
            ),
            "beta",
            True,
        ),
        ("  cause: you require beta<2 and beta>3, which are incompatible", "beta", True),
        (
            (
                "ERROR: Cannot install -r r.txt (line 1) and beta==1.0 because these package versions have conflicting "
                "dependencies.\nERROR: ResolutionImpossible: for help visit"
            ),
            "beta",
            True,
        ),
        ("error: Failed to build `gamma==3.0`\n  cause: The build backend returned an error", "gamma", True),
        ("error: Failed to download `beta==1.0`\n  cause: Hash mismatch for `beta==1.0`\n", "beta", True),
        (
            (
                "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE. If you have\n"
                "    beta==1.0 from file:///w/beta-1.0-py3-none-any.whl (from -r r.txt (line 1)):\n"
                "        Expected sha256 00\n             Got        42\n"
            ),
            "beta",
            True,
        ),
        (
            (
                "ERROR: Hashes are required in --require-hashes mode, but they are missing from some requirements. Here is\n"
                "    alpha==1.0 --hash=sha256:ed5b\n"
            ),
            "alpha",
            True,
        ),
        (
            (
                "ERROR: In --require-hashes mode, all requirements must have their versions pinned with ==. These do not:\n"
                "    beta from https://index.invalid/beta-1.0-py3-none-any.whl (from alpha==1.0->-r r.txt (line 1))\n"
            ),
            "beta",
            True,
        ),
        (
            "ERROR: Invalid requirement: 'alpha=1.0': Expected semicolon\n    alpha=1.0\n         ^ (line 1)\n",
            "alpha",
            True,
        ),
        (
            (
                "error: Couldn't parse requirement in `r.txt` at position 0\n  cause: no such comparison operator\n"
                "         alpha=1.0\n              ^^^^\n"
            ),
            "alpha",
            True,
        ),
        (
            (
                "WARNING: Retrying after connection broken by 'NewConnectionError: Connection refused'\n"
                "ERROR: No matching distribution found for alpha==1.0\n"
            ),
            None,
            False,
        ),
        ("error: Failed to fetch: `https://index.invalid/simple/alpha/`\n  cause: dns error\n", None, False),
        ("error: unexpected argument '--excludes' found\n\n", None, False),
        ("", None, False),
    ],
)
def test_the_requirement_at_fault_is_found(output: str, requirement: str | None, final: bool) -> None:  # noqa: FBT001
    failure = read_failure(f"Resolving\n{output}", 1)
    assert (failure.requirement, failure.final) == (requirement, final), failure
    assert failure.reason
    assert failure.reason.isprintable()


def test_a_network_that_is_away_is_said_as_such() -> None:
    assert "does not answer" in read_failure("error: dns error: failed to lookup address", 1).reason


def test_what_nothing_is_known_about_is_the_last_line() -> None:
    assert read_failure("a\n\x1b[31mno space left on device\n\n", 1).reason == r"\x1b[31mno space left on device"
    assert read_failure("\n", 137).reason == "exit code 137"
