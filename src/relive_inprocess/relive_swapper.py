"""What gives a living Python process other code, in a branch: functions are changed in place, so that all who hold them see it;
or other values, by a statement that is run there.

Its text is compiled in that process (``inspection.python.asking``), so it uses the standard library only and runs on CPython 3.8
to 3.14. ``answer`` takes and gives JSON. Nothing is changed before all files compile.

1. Of each file the new text is compiled. Its functions are found by their qualified names; so are the living ones, wherever
   they are held: methods, closures, what a decorator wraps.
2. A living function gets the new ``__code__``, if it takes the same free variables, and new defaults if these are literals.
3. Functions, classes and imports that are new in a module, and methods that are new in a class, are executed there.
4. All else that stands in a module or a class is not run again: it is told, as far as the old text is known.
"""

import ast
import copy
import gc
import importlib
import json
import os
import sys
import traceback
import types

_MADE_BY_DEF = (ast.FunctionDef, ast.AsyncFunctionDef)
_MADE_BY_NAME = (*_MADE_BY_DEF, ast.ClassDef)
_SUSPENDED = {
    types.CoroutineType: "cr_frame",
    types.GeneratorType: "gi_frame",
    types.AsyncGeneratorType: "ag_frame",
}
_OPTIMIZED = 0x1  # CO_OPTIMIZED: of functions, not of the bodies of classes
_NO_LITERAL = object()
_SHOWN = 100


def answer(question):
    """The answer to a question, bytes of JSON; it never raises."""
    try:
        wanted = json.loads(question)
        return json.dumps(_KINDS[wanted["kind"]](wanted)).encode()
    except BaseException as error:  # whoever asks wants to know
        return json.dumps({"failed": "{}: {}".format(type(error).__name__, error)}).encode()


def _files(wanted):
    """The files of the modules that are loaded."""
    found = {}
    for module in list(sys.modules.values()):
        path = _file_of(module)
        if path is not None and path.endswith(".py"):
            found[path] = getattr(module, "__name__", "")
    return {"files": found, "version": list(sys.version_info[:3])}


def _swap(wanted):
    """Files are {"path", "old" (or None), "new"}."""
    plans = []
    for file in wanted["files"]:
        try:
            # Without the future features of this program; with the optimisation of this process.
            code = compile(file["new"], file["path"], "exec", dont_inherit=True)
        except (SyntaxError, ValueError) as error:
            return {"refused": "{}: {}".format(file["path"], error)}
        plans.append((file, code))
    importlib.invalidate_caches()  # the change may have made modules
    answers = [_File(file, code).swap() for file, code in plans]
    return {"files": answers, "version": list(sys.version_info[:3])}


def _set(wanted):
    """Run statements; names are those of the module (None: of the program), and all modules by theirs."""
    module = sys.modules.get(wanted["module"] or "__main__")
    if module is None:
        return {"raised": "there is no module {!r} in the process".format(wanted["module"])}
    names = vars(module)
    try:
        for statement in wanted["statements"]:
            code = compile(statement, "<set>", "exec", dont_inherit=True)
            exec(code, names, _Reach(names))
    except BaseException as error:
        return {"raised": "".join(traceback.format_exception_only(type(error), error)).strip()}
    return {}


class _Reach(dict):
    """What a statement sees beside its module's names: other modules. What it assigns must be there, else it was misspelt."""

    def __init__(self, names):
        super().__init__()
        self._names = names

    def __getitem__(self, name):
        if name not in self._names and name in sys.modules:
            return sys.modules[name]
        raise KeyError(name)

    def __setitem__(self, name, value):
        if name not in self._names:
            raise NameError("there is no name {!r} that could be set".format(name))
        self._names[name] = value

    def __delitem__(self, name):
        del self._names[name]


_KINDS = {"files": _files, "swap": _swap, "set": _set}


def _file_of(module):
    try:
        path = module.__file__
    except Exception:
        return None
    return os.path.realpath(path) if isinstance(path, str) else None


class _File:
    """One file: what it is to hold, and what became of it."""

    def __init__(self, file, code):
        self.path, self.code = file["path"], code
        self.tree = ast.parse(file["new"])
        self.old = _parsed(file["old"])
        self.future = [
            one for one in self.tree.body if isinstance(one, ast.ImportFrom) and one.module == "__future__"
        ]
        self.real = os.path.realpath(self.path)
        self.known = {}  # names of files to whether they are this one: a service has many functions, and few files
        self.names = {os.path.basename(self.path), os.path.basename(self.real)}
        self.modules = [one for one in list(sys.modules.values()) if self._is_of(one)]
        self.swapped, self.added, self.left, self.notes = [], [], [], []

    def swap(self):
        if self.modules:
            new = _codes_of(self.code)
            self._swap_functions(new)
            self._report_running(new)
            for module in self.modules:
                self._bring_in(module)
            self._report_rest()
        return {
            "path": self.path,
            "loaded": bool(self.modules),
            "swapped": sorted(set(self.swapped)),
            "added": self.added,
            "left": self.left,
            "notes": self.notes,
        }

    def _is_of(self, module):
        path = getattr(module, "__dict__", {}).get("__file__")
        return (
            isinstance(path, str) and os.path.basename(path) in self.names and _file_of(module) == self.real
        )

    def _is_here(self, code):
        name = code.co_filename
        if name not in self.known:
            # By the last part first: links are only followed for the few that can be it.
            self.known[name] = os.path.basename(name) in self.names and os.path.realpath(name) == self.real
        return self.known[name]

    # -- functions that are there

    def _swap_functions(self, new):
        living = {}
        for function in _functions(self.modules):
            if self._is_here(function.__code__):
                living.setdefault(_name(function), []).append(function)
        defaults = _defaults_of(self.tree)
        for name, functions in sorted(living.items()):
            codes = new.get(name)
            if codes is None:
                # <lambda>, <module> of what was read by runpy.
                if self.old is not None and not name.endswith(">"):
                    self.notes.append("{} is gone from the file; who holds it can still call it".format(name))
                continue
            olds = sorted({one.__code__.co_firstlineno for one in functions})
            if len(codes) != len(olds):
                if not all(any(_same(one.__code__, code) for code in codes) for one in functions):
                    self._leave(name, "there are several of that name, and which is which cannot be told")
                continue
            moved = {
                one.__code__.co_firstlineno
                for one in functions
                if not _same(one.__code__, codes[olds.index(one.__code__.co_firstlineno)])
            }
            if name.endswith("<lambda>") and len(moved) > 1:
                self._leave(name, "there are several of that name, and which is which cannot be told")
                continue
            for function in functions:
                place = olds.index(function.__code__.co_firstlineno)
                self._give(name, function, codes[place], defaults.get(name, [])[place:][:1])

    def _give(self, name, function, code, defaults):
        before = function.__code__
        if before.co_freevars != code.co_freevars:
            self._leave(
                name,
                "it takes {} from around it, and took {}; it becomes so when it is defined anew".format(
                    ", ".join(code.co_freevars) or "nothing", ", ".join(before.co_freevars) or "nothing"
                ),
            )
            return
        is_other = not _same(before, code)
        if _kind(before) != _kind(code):
            self.notes.append("{} is {} now and was {}".format(name, _kind(code), _kind(before)))
        changed = self._give_defaults(name, function, defaults) if defaults else False
        if changed is None:
            return
        function.__code__ = code  # also where only lines moved, so that tracebacks name the new ones
        if is_other or changed:
            self.swapped.append(name)

    def _give_defaults(self, name, function, defaults):
        """Whether they changed; None where the function is left as it was."""
        positional, by_name = defaults[0]
        has = function.__defaults__ or ()
        has_named = function.__kwdefaults__ or {}
        values = [_literal(node) for node in positional]
        named = {key: _literal(node) for key, node in by_name.items()}
        if _NO_LITERAL in values or _NO_LITERAL in named.values():
            if len(values) != len(has) or set(named) != set(has_named):
                self._leave(
                    name, "it has other parameters with defaults, which are computed when it is defined"
                )
                return None
            values = [one if new is _NO_LITERAL else new for one, new in zip(has, values)]
            named = {key: has_named[key] if new is _NO_LITERAL else new for key, new in named.items()}
        if repr(tuple(values)) == repr(has) and repr(named) == repr(has_named):
            return False
        # What was given instead of the text's own (a mutable one that has changed) goes: the text says so.
        if not _is_state(values, has) and not _is_state(list(named.values()), list(has_named.values())):
            function.__defaults__ = tuple(values) or None
            function.__kwdefaults__ = named or None
            return True
        return False

    def _leave(self, name, why):
        entry = {"name": name, "why": why}
        if entry not in self.left:
            self.left.append(entry)

    def _report_running(self, new):
        """Frames keep the code that they began with."""
        own = {code for codes in new.values() for code in codes}
        running = set()
        for last in sys._current_frames().values():
            frame = last
            while frame is not None:
                running.add(frame.f_code)
                frame = frame.f_back
        for one in gc.get_objects():
            attribute = _SUSPENDED.get(type(one))
            frame = getattr(one, attribute) if attribute is not None else None
            if frame is not None:
                running.add(frame.f_code)
        names = set(self.swapped)
        for code in running:
            if code in own or not self._is_here(code):
                continue
            name = getattr(code, "co_qualname", code.co_name)
            if any(one == name or one.rsplit(".", 1)[-1] == name for one in names):
                self.notes.append("{} is being run: that call goes on with the old code".format(name))

    # -- what is new in a module or a class

    def _bring_in(self, module):
        self._add(
            self.tree.body,
            vars(module),
            vars(module),
            lambda name, value: vars(module).__setitem__(name, value),
        )
        for node in self.tree.body:
            owner = vars(module).get(node.name) if isinstance(node, ast.ClassDef) else None
            if _is_class(owner):
                self._add_to_class(node, owner, vars(module))

    def _add_to_class(self, node, owner, names):
        body = [one for one in node.body if not isinstance(one, ast.ClassDef)]

        def put(name, value):
            function = getattr(value, "__func__", None) or getattr(value, "fget", None) or value
            if isinstance(function, types.FunctionType):
                function.__qualname__ = "{}.{}".format(owner.__qualname__, name)
                function.__module__ = names.get("__name__", function.__module__)
                if "super" in function.__code__.co_names and "__class__" not in function.__code__.co_freevars:
                    self._leave(
                        "{}.{}".format(node.name, name),
                        "it is new and calls super(), which needs its class's definition",
                    )
                    return False
            setattr(owner, name, value)
            return True

        # What else stands in the body of these has been worked into other things: fields, slots, members.
        if type(owner) is not type or "__slots__" in vars(owner) or "__dataclass_fields__" in vars(owner):
            body = [one for one in body if isinstance(one, _MADE_BY_DEF)]
        self._add(body, vars(owner), names, put, within=node.name + ".")

    def _add(self, body, there, names, put, within=""):
        for node in body:
            if within:  # as the compiler would do in the class
                node = _mangled(node, within.rstrip("."))  # noqa: PLW2901 - from here on it is that
            for name in _new_names(node):
                if name in there or within + name in self.added:
                    continue
                found = dict(there) if within else names
                try:
                    exec(
                        compile(ast.Module([*self.future, node], []), self.path, "exec", dont_inherit=True),
                        names,
                        found,
                    )
                except Exception as error:
                    self._leave(
                        within + name, "its definition failed: {}: {}".format(type(error).__name__, error)
                    )
                    break
                if within and not put(name, found[name]):
                    continue
                self.added.append(within + name)

    # -- what is not run again

    def _report_rest(self):
        if self.old is None:
            return
        self._compare(self.old.body, self.tree.body, "", set(self.added))

    def _compare(self, old, new, within, added):
        before = {}
        for node in old:
            before.setdefault(_key(node), []).append(node)
        for node in new:
            same = before.get(_key(node), [])
            if isinstance(node, _MADE_BY_NAME):
                # Several of a name in their order: a property and its setter.
                earlier = same.pop(0) if same else None
                if isinstance(node, ast.ClassDef) and isinstance(earlier, ast.ClassDef):
                    self._compare(earlier.body, node.body, within + node.name + ".", added)
                if earlier is not None and _around(earlier) != _around(node):
                    self._leave(
                        within + node.name,
                        "its decorators, bases or signature changed; these count when it is defined anew",
                    )
                continue
            if any(ast.dump(one) == ast.dump(node) for one in same) or _is_text(node):
                continue
            names = _new_names(node)
            if names and all(within + name in added for name in names):
                continue
            if not within and self._set_constant(node, same):
                continue
            self._leave(
                "{}line {}".format(within, node.lineno),
                "{} is not run again".format(_source(node)),
            )

        keys = {_key(node) for node in new}
        for node in old:
            quiet = (*_MADE_BY_NAME, ast.Import, ast.ImportFrom, ast.Pass)
            if not isinstance(node, quiet) and not _is_text(node) and _key(node) not in keys:
                self._leave(
                    "{}old line {}".format(within, node.lineno),
                    "{} is gone from the file; what it did stays".format(_source(node)),
                )

    def _set_constant(self, node, same):
        """A literal that a module's name was given, and has still, becomes the new one."""
        if not (
            isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name)
        ):
            return False
        name, value = node.targets[0].id, _literal(node.value)
        before = _literal(same[0].value) if same and isinstance(same[0], ast.Assign) else _NO_LITERAL
        if value is _NO_LITERAL or before is _NO_LITERAL:
            return False
        changed = False
        for module in self.modules:
            if repr(vars(module).get(name, _NO_LITERAL)) == repr(before):
                vars(module)[name] = value
                changed = True
        if changed:
            self.swapped.append(name)
        return changed


def _mangled(node, owner):
    """A copy with private names as they are in the class."""
    prefix, node = "_" + owner.lstrip("_"), copy.deepcopy(node)
    for one in ast.walk(node):
        for field in ("attr", "id", "arg", "name"):
            name = getattr(one, field, None)
            if isinstance(name, str) and name.startswith("__") and not name.endswith("__") and prefix != "_":
                setattr(one, field, prefix + name)
    return node


def _parsed(text):
    try:
        return ast.parse(text) if text is not None else None
    except (SyntaxError, ValueError):
        return None


def _name(function):
    """Its qualified name by its own definition. Before 3.11 that is not kept; a wrapper may bear another's: then only its name."""
    code = function.__code__
    if hasattr(code, "co_qualname"):
        return code.co_qualname
    name = function.__qualname__
    return name if name.rsplit(".", 1)[-1] == code.co_name else code.co_name


_AROUND_FUNCTIONS = (staticmethod, classmethod, types.MethodType)


def _is_class(value):
    """By its type alone: attributes of a proxy (flask's ``request``) are another object's, or raise where there is none."""
    return issubclass(type(value), type)


def _functions(modules):
    """All living ones that can be found: those that the collector knows, and those in modules, which may be hidden from it."""
    found = {id(one): one for one in gc.get_objects() if type(one) is types.FunctionType}
    for module in modules:
        for value in list(vars(module).values()):
            members = list(vars(value).values()) if _is_class(value) else [value]
            for member in members:
                one = member.__func__ if type(member) in _AROUND_FUNCTIONS else member
                if type(one) is types.FunctionType:
                    found.setdefault(id(one), one)
    return list(found.values())


def _codes_of(code):
    """Qualified name to the code of all functions of that name, in the order of their lines."""
    found = {}

    def walk(outer, prefix):
        for one in outer.co_consts:
            if isinstance(one, types.CodeType):
                name = prefix + one.co_name
                is_function = bool(one.co_flags & _OPTIMIZED)
                if is_function:
                    found.setdefault(name, []).append(one)
                walk(one, name + (".<locals>." if is_function else "."))

    walk(code, "")
    for codes in found.values():
        codes.sort(key=lambda one: one.co_firstlineno)
    return found


def _same(one, other):
    """Equal but for lines."""
    facts = "co_code co_names co_varnames co_freevars co_cellvars co_flags co_argcount co_posonlyargcount co_kwonlyargcount"
    if any(getattr(one, fact) != getattr(other, fact) for fact in facts.split()):
        return False
    return len(one.co_consts) == len(other.co_consts) and all(
        map(_same_constant, one.co_consts, other.co_consts)
    )


def _same_constant(one, other):
    if isinstance(one, types.CodeType) and isinstance(other, types.CodeType):
        return _same(one, other)
    return type(one) is type(other) and repr(one) == repr(other)


def _kind(code):
    for flag, name in ((0x200, "an async generator"), (0x80, "a coroutine"), (0x20, "a generator")):
        if code.co_flags & flag:
            return name
    return "a plain function"


def _defaults_of(tree):
    """Qualified name to (positional defaults, those by name) of each function of that name, in the order of their lines."""
    found = {}

    def walk(nodes, prefix):
        for node in nodes:
            if isinstance(node, _MADE_BY_DEF):
                line = min([node.lineno, *(one.lineno for one in node.decorator_list)])
                by_name = zip(node.args.kwonlyargs, node.args.kw_defaults)
                named = {argument.arg: value for argument, value in by_name if value is not None}
                found.setdefault(prefix + node.name, []).append((line, (node.args.defaults, named)))
                walk(ast.iter_child_nodes(node), prefix + node.name + ".<locals>.")
            elif isinstance(node, ast.ClassDef):
                walk(ast.iter_child_nodes(node), prefix + node.name + ".")
            else:
                walk(ast.iter_child_nodes(node), prefix)

    walk(tree.body, "")
    return {name: [one for _, one in sorted(both, key=lambda pair: pair[0])] for name, both in found.items()}


def _literal(node):
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return _NO_LITERAL


def _is_state(values, has):
    """What the process has there now was changed by it: a list that was filled."""
    return len(values) == len(has) and any(
        isinstance(one, (list, dict, set)) and type(one) is type(new) and one and not new
        for new, one in zip(values, has)
    )


def _new_names(node):
    """The names that a statement makes, of those that can be executed alone."""
    if isinstance(node, _MADE_BY_NAME):
        return [node.name]
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return [(one.asname or one.name.split(".")[0]) for one in node.names if one.name != "*"]
    if isinstance(node, ast.Assign) and all(isinstance(one, ast.Name) for one in node.targets):
        return [one.id for one in node.targets]
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
        return [node.target.id]
    return []


def _key(node):
    if isinstance(node, _MADE_BY_NAME):
        return "def", node.name
    names = _new_names(node)
    if isinstance(node, (ast.Assign, ast.AnnAssign)) and names:
        return "name", names[0]
    return "statement", ast.dump(node)


def _around(node):
    """What of a definition counts only when it is executed."""
    parts = [*node.decorator_list, *getattr(node, "bases", [])]
    return [ast.dump(one) for one in parts]


def _is_text(node):
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _source(node):
    try:
        text = ast.unparse(node).splitlines()[0]
    except AttributeError:  # before 3.9
        text = type(node).__name__
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."
