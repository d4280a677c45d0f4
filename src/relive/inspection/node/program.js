// What looks at values within a Node.js process of a throw-away branch; its text is evaluated there by the inspector.
// It gets two modules, util and v8, and gives an object of functions. Nothing here calls a getter of the service's.
(util, v8) => {
  "use strict";
  const TEXT = 400, NAMES = 200, PATH = 300;
  const OPTIONS = { depth: 1, breakLength: Infinity, maxStringLength: 200, maxArrayLength: 20, getters: false };
  const WRAPPER = new Set(["exports", "require", "module", "__filename", "__dirname", "this"]);

  function text(value) {
    let told;
    try {
      told = util.inspect(value, OPTIONS);
    } catch (error) {
      told = "<cannot be shown>";
    }
    return told.length > TEXT ? told.slice(0, TEXT) + "..." : told;
  }

  function type(value) {
    if (value === null) return "null";
    if (typeof value !== "object") return typeof value;
    try {
      const proto = Object.getPrototypeOf(value);
      const made = proto && Object.getOwnPropertyDescriptor(proto, "constructor");
      return made && typeof made.value === "function" && made.value.name || "Object";
    } catch (error) {
      return "Object";
    }
  }

  function length(value) {
    if (typeof value === "string" || Array.isArray(value) || ArrayBuffer.isView(value)) return value.length ?? value.byteLength;
    if (util.types.isMap(value)) return Reflect.get(Map.prototype, "size", value);
    if (util.types.isSet(value)) return Reflect.get(Set.prototype, "size", value);
    return null;
  }

  // Pairs of (path, value) of what is right in a value: entries, elements, own properties.
  function* within(value) {
    if (value === null || typeof value !== "object" && typeof value !== "function" || util.types.isProxy(value)) return;
    if (util.types.isMap(value)) {
      for (const [key, held] of Map.prototype.entries.call(value)) yield [`.get(${text(key)})`, held];
    } else if (util.types.isSet(value)) {
      for (const held of Set.prototype.values.call(value)) yield [`.has(${text(held)})`, held];
    }
    for (const [name, one] of Object.entries(Object.getOwnPropertyDescriptors(value))) {
      if (typeof value === "function" && ["length", "name", "prototype", "arguments", "caller"].includes(name)) continue;
      if (Array.isArray(value) && name === "length") continue;
      const path = /^\d+$/.test(name) ? `[${name}]` : /^[\w$]+$/.test(name) ? `.${name}` : `[${text(name)}]`;
      if ("value" in one) yield [path, one.value];
    }
  }

  return {
    describe: (value) => ({ type: type(value), text: text(value), length: length(value) }),

    // Level by level, each object once.
    parts(value, depth, most) {
      const found = [], seen = new Set([value]);
      let level = [["", value]];
      for (let number = 0; number < depth && level.length; number++) {
        const next = [];
        for (const [path, holder] of level) {
          for (const [step, held] of within(holder)) {
            if (found.length === most) return { parts: found, cut: true };
            found.push([(path + step).slice(0, PATH), text(held)]);
            if (held !== null && typeof held === "object" && !seen.has(held)) {
              seen.add(held);
              next.push([path + step, held]);
            }
          }
        }
        level = next;
      }
      return { parts: found, cut: false };
    },

    // Texts by name of what stands in a scope, or is exported.
    names(object) {
      const found = Object.create(null);
      for (const [name, one] of Object.entries(Object.getOwnPropertyDescriptors(object)).slice(0, NAMES)) {
        if (!WRAPPER.has(name)) found[name] = "value" in one ? text(one.value) : "<computed when it is read>";
      }
      return found;
    },

    // Some functions of each script: a function's own text stands in that of its script. The longest first, since a short one, such
    // as () => {}, stands in many.
    functionsOf(functions, sources, most) {
      const texts = functions.map((one) => {
        try {
          return Function.prototype.toString.call(one);
        } catch (error) {
          return "";
        }
      });
      const order = [...texts.keys()].filter((one) => texts[one].length > 0).sort((a, b) => texts[b].length - texts[a].length);
      const found = new Set();
      for (const source of sources) {
        let count = 0;
        for (const number of order) {
          if (count === most) break;
          if (texts[number].length <= source.length && source.includes(texts[number])) {
            found.add(functions[number]);
            count++;
          }
        }
      }
      return [...found];
    },

    // One object with the names of all, the first first.
    merged(...objects) {
      const names = Object.create(null);
      for (const one of objects) {
        for (const [name, held] of Object.entries(Object.getOwnPropertyDescriptors(one))) {
          if (!(name in names)) Object.defineProperty(names, name, { ...held, configurable: true });
        }
      }
      return names;
    },

    // Modules by their names: first what they hold, then what they export. A variable of a module that only holds what another
    // exports gives way to that one, which has all of its names.
    named(names, own, ...rest) {
      const modules = Object.create(null);
      names.forEach((name, at) => {
        const exported = rest[names.length + at];
        modules[name] ??= rest[at];
        if (exported !== undefined && Object.getOwnPropertyDescriptor(own, name)?.value === exported) delete own[name];
      });
      return modules;
    },

    state() {
      const active = Object.create(null);
      for (const one of process.getActiveResourcesInfo()) active[one] = (active[one] ?? 0) + 1;
      const heap = v8.getHeapStatistics(), used = process.memoryUsage();
      return {
        version: process.version, active,
        handles: process._getActiveHandles().slice(0, NAMES).map(handle),
        heap: {
          used: heap.used_heap_size, total: heap.total_heap_size, limit: heap.heap_size_limit, external: used.external,
          array_buffers: used.arrayBuffers, resident: used.rss,
          spaces: Object.fromEntries(v8.getHeapSpaceStatistics().map((one) => [one.space_name, one.space_used_size])),
        },
      };
    },
  };

  function handle(one) {
    const at = (address, port) => (address === undefined ? "" : `${address}:${port}`);
    let about = "";
    if (typeof one.remoteAddress === "string") about = `${at(one.localAddress, one.localPort)} - ${at(one.remoteAddress, one.remotePort)}`;
    else if (typeof one.address === "function") {
      const found = one.address();
      about = typeof found === "string" ? found : found && found.port !== undefined ? `listens on ${at(found.address, found.port)}` : "";
    } else if (typeof one.spawnfile === "string") about = `${one.spawnfile}, process ${one.pid}`;
    else if (typeof one.fd === "number") about = `descriptor ${one.fd}`;
    return { kind: type(one), about };
  }
}
