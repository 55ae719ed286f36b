"""Packages: the top-level folders are sub-packages of `adjudge` through the links adjudge/<part> -> ../<part>."""

from setuptools import find_packages, setup

setup(
    packages=find_packages(include=["adjudge", "adjudge.*"]),
    package_data={
        "adjudge": ["py.typed"],
        "adjudge.engine": ["house/*"],
        "adjudge.rewards": ["judges/prompts/**/*.jinja", "judges/prompts/**/*.toml", "guards/*.jsonl"],
        "adjudge.training": ["presets/*.toml", "*/prompts/**/*.jinja"],
        "adjudge.bench": ["reports/templates/*"],
    },
    include_package_data=False,
)
