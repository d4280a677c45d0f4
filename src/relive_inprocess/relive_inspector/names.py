"""Which modules are the service's own, and which names an expression may use."""

import builtins
import os
import sys
import types

from .texts import TEXT_LENGTH, text_of

SKIPPED = (
    types.ModuleType,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodType,
    type,
)


def usable_names(module):
    """The names that an expression may use: those of a module; else of the program, all modules by their names, and beside these
    what only one of the service's own modules calls so.
    """
    if module is not None:
        found = sys.modules.get(module)
        return dict(vars(found)) if found is not None else None
    names = {name: modules[0][1] for name, modules in _owners().items() if len(modules) == 1}
    names.update((name, one) for name, one in list(sys.modules.items()) if "." not in name)
    names.update(vars(sys.modules["__main__"]))
    return names


def where_named(name):
    """The service's own modules that have something of this name."""
    return [module for module, _ in _owners().get(name, ())]


def _owners():
    """By name, [(own module, value)] of the different things that are called so."""
    found = {}
    for module, one in own_modules():
        for name, value in list(vars(one).items()):
            if not str(name).startswith("__") and not hasattr(builtins, str(name)):
                known = found.setdefault(name, [])
                if not any(value is other for _, other in known):
                    known.append((module, value))
    return found


def own_globals(most):
    found = {}
    for name, module in own_modules():
        values = {
            str(key): text_of(value, TEXT_LENGTH)
            for key, value in list(vars(module).items())
            if not is_dull(key, value)
        }
        if values:
            found[name] = dict(list(values.items())[:most])
    return found


def modules(_wanted):
    """How many of the service's own modules have anything in them that could be told; whether it only looks after others."""
    own = (vars(module) for _, module in own_modules())
    count = sum(any(not is_dull(*item) for item in list(names.items())) for names in own)
    return {"count": count, "is_master": _is_master()}


def _is_master():
    """Of gunicorn: a worker was forked within the same loop, and went on from there."""
    files = set()
    for innermost in sys._current_frames().values():
        frame = innermost
        while frame is not None:
            files.add(frame.f_code.co_filename)
            frame = frame.f_back
    is_within = any(file.endswith("/gunicorn/arbiter.py") for file in files)
    return is_within and not any("/gunicorn/workers/" in file for file in files)


def own_modules():
    """The service's own: no part of Python, none that was installed."""
    import sysconfig

    paths = sysconfig.get_paths()
    foreign = tuple(paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib") if name in paths)
    found, installed = [], _installed_elsewhere()
    for name, module in sorted(dict(sys.modules).items(), key=by_name):
        path = getattr(module, "__file__", None)
        if path is None and name == "__main__":  # of `python -c`
            found.append((name, module))
            continue
        if not isinstance(path, str) or path.startswith(foreign) or name.startswith("relive_"):
            continue
        if path.startswith(installed):
            continue
        if "/site-packages/" in path or "/dist-packages/" in path or name == "sitecustomize":
            continue
        if name != "__main__" and module is sys.modules.get("__main__"):
            continue
        found.append((name, module))
    return found


def _installed_elsewhere():
    """Where packages lie that were installed into other directories of the path (``pip install --target``)."""
    found = []
    for directory in sys.path:
        try:
            distributions = [one for one in os.listdir(directory) if one.endswith(".dist-info")]
        except OSError:
            continue
        for one in distributions:
            found.extend(os.path.join(directory, name) for name in _recorded_names(directory, one))
    return tuple(found)


def _recorded_names(directory, distribution):
    """The modules and packages that a distribution has installed: ``shop.py``, ``shop/``."""
    try:
        with open(os.path.join(directory, distribution, "RECORD"), encoding="utf-8") as record:
            files = [line.split(",")[0].split("/") for line in record]
    except (OSError, ValueError):
        return set()
    return {steps[0] + "/" if len(steps) > 1 else steps[0] for steps in files}


def by_name(item):
    return str(item[0])


def roots():
    """(name, value) of the globals of the service's own modules."""
    for name, module in own_modules():
        prefix = "" if name == "__main__" else name + "."
        for key, value in sorted(dict(vars(module)).items(), key=by_name):
            if not is_dull(key, value):
                yield prefix + key, value


def is_dull(name, value):
    return (str(name).startswith("__") and str(name).endswith("__")) or isinstance(value, SKIPPED)
