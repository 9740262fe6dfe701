"""What pyproject.toml cannot say: the extension modules of a compiled build. See build_backend.py."""

from setuptools import setup

from build_backend import extensions

setup(ext_modules=extensions())
