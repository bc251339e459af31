"""The wheel has a shared object that no interpreter links: one for every Python 3, on one platform."""

import os

from setuptools import setup
from setuptools.dist import Distribution

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:
    from wheel.bdist_wheel import bdist_wheel


class Wheel(bdist_wheel):
    def get_tag(self):
        return ("py3", "none", super().get_tag()[2])


class WithLibrary(Distribution):
    def has_ext_modules(self):
        return True


setup(version=os.environ["TRUNKLINE_VERSION"], cmdclass={"bdist_wheel": Wheel}, distclass=WithLibrary)
