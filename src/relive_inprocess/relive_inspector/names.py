"""Which modules are the service's own, and which names an expression may use."""

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
    """The names that an expression may use: those of a module; else of the program, and all modules by their names."""
    if module is not None:
        found = sys.modules.get(module)
        return dict(vars(found)) if found is not None else None
    names = {name: one for name, one in list(sys.modules.items()) if "." not in name}
    names.update(vars(sys.modules["__main__"]))
    return names


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
    """How many of the service's own modules have anything in them that could be told."""
    own = (vars(module) for _, module in own_modules())
    return {"count": sum(any(not is_dull(*item) for item in list(names.items())) for names in own)}


def own_modules():
    """The service's own: no part of Python, none that was installed."""
    import sysconfig

    paths = sysconfig.get_paths()
    foreign = tuple(paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib") if name in paths)
    found = []
    for name, module in sorted(dict(sys.modules).items(), key=by_name):
        path = getattr(module, "__file__", None)
        if not isinstance(path, str) or path.startswith(foreign) or name.startswith("relive_"):
            continue
        if "/site-packages/" in path or "/dist-packages/" in path or name == "sitecustomize":
            continue
        if name != "__main__" and module is sys.modules.get("__main__"):
            continue
        found.append((name, module))
    return found


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
