"""Starts Relive's recorder in a Python service, then hands on to the sitecustomize that was here without it.

Python imports a module of this name when it starts (site(5) of its manual); Relive puts this directory first in
``PYTHONPATH`` of the services it starts. Nothing here may raise, and nothing of Relive itself is imported.
"""

import sys


def _start():
    try:
        from relive_recorder import bootstrap

        bootstrap.start()
    except BaseException as fault:
        sys.stderr.write(f"relive: not recording this process: {type(fault).__name__}: {fault}\n")


def _hand_on():
    # The frozen parts of importlib, which are there already: importlib.util would take milliseconds.
    import _frozen_importlib
    import _frozen_importlib_external

    here = __file__.rpartition("/")[0]
    # The service sees the path it would have seen; our own modules are found through their package.
    sys.path[:] = [entry for entry in sys.path if entry != here]
    spec = _frozen_importlib_external.PathFinder.find_spec("sitecustomize", sys.path)
    if spec is None or spec.loader is None:
        return
    module = _frozen_importlib.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


_start()
_hand_on()
