"""What pyproject.toml cannot say: the extension modules, which build_backend.py lists."""

from setuptools import setup

from build_backend import extensions

setup(ext_modules=extensions())
