"""What pyproject.toml cannot say: the extension modules, and the description and links for a package index."""

from setuptools import setup

from build_backend import ROOT, description, extensions, project_urls, repository

setup(
    ext_modules=extensions(),
    long_description=description((ROOT / "README.md").read_text(encoding="utf-8"), repository()),
    long_description_content_type="text/markdown",
    project_urls=project_urls(repository()),
)
