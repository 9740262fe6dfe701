"""What pyproject.toml cannot say: the extension modules (build_backend.py) and absolute links (public_links.py)."""

from setuptools import setup

from build_backend import extensions
from public_links import metadata

setup(ext_modules=extensions(), **metadata())
