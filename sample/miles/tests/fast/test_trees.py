"""A wrong PYTHONPATH fails these: every tree must be the one that the run chose."""

import os

import megatron.core
import megatron.training
import miles
import miles_plugins
import sglang


def under(module, root):
    return os.path.realpath(module.__file__).startswith(os.path.realpath(root) + os.sep)


def test_sglang_is_the_chosen_tree():
    assert under(sglang, os.environ["SGLANG_SOURCE_ROOT"])


def test_megatron_is_the_chosen_tree():
    assert under(megatron.core, os.environ["MEGATRON_SOURCE_ROOT"])
    assert under(megatron.training, os.environ["MEGATRON_SOURCE_ROOT"])


def test_miles_is_the_workspace():
    workspace = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    assert under(miles, workspace)
    assert under(miles_plugins, workspace)
