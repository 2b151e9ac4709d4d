"""Option classes of C++: structs of C that calls read, with members of C++ types and the defaults of C."""
import re
import api

# Structs that head.hpp has, and structs that stay C's although calls read them.
HAND = {"clt_array": "array", "clt_feed": "feed", "clt_fetch": "fetch"}
PLAIN = {"clt_tensor", "clt_setting", "clt_attribute", "clt_world", "clt_section", "clt_model_field"}
APART = ("cltrain/comm.h", "cltrain/mpi.h", "cltrain/unstable.h")


class Options:
    def __init__(self, described):
        self.api = described
        # Handles, and structs that the library makes, are classes.
        made = [s for s in described.structs if s["destroy"] and not s["name"].endswith("world")]
        self.owned = [h for h in described.handles + made if h["destroy"] and h["header"] not in APART]
        self.classes = {h["name"] for h in self.owned}
        self.destroyers = {h["destroy"] for h in self.owned} | {h["destroy_array"] for h in described.handles}
        self.problems = []
        read = {item["type"] for f in described.stable() for item in f["params"]
                if item["kind"] == "struct" and item["direction"] == "in" and item["depth"] == 1
                and f["header"] not in APART}
        self.structs = [s for s in described.structs if s["name"] in read and s["name"] not in HAND
                        and s["name"] not in PLAIN | self.classes and (s["init"] or any(self._pointer(m) for m in s["members"]))]
        self.names = {s["name"] for s in self.structs}
        self.creates = {}

    @staticmethod
    def _pointer(member):
        return member["depth"] or member["kind"] in ("string", "handle", "opencl", "memory", "callback")

    # --- types -----------------------------------------------------------------------------------

    def cpp(self, struct):
        """Returns the name of a struct in C++."""
        if struct in HAND:
            return "clt::" + HAND[struct]
        return "clt::" + api.short(struct) if struct in self.names else struct

    @staticmethod
    def scalar(item):
        return {"int64_t": "std::int64_t", "uint64_t": "std::uint64_t", "size_t": "std::size_t",
                "int32_t": "std::int32_t"}.get(item["type"], item["type"])

    def _callback(self, item):
        """Returns the type of a callback without its user pointer, and its parameters."""
        signature = api.signature(item, self.api)
        params = [p for p in signature["params"] if p["kind"] != "user"]
        return f"{self._c_type(signature['returns'])}({', '.join(self.callback_param(p) for p in params)})", signature

    def callback_param(self, item):
        if item["kind"] == "string" and not item["depth"]:
            return "const char *"
        if item["kind"] == "struct" and item["depth"] == 1 and item["const"]:
            return f"const {item['type']} &"
        return self._c_type(item)

    def _c_type(self, item):
        c = item["c"]
        if item["name"]:
            c = re.sub(rf"\b{item['name']}\b", "", c, count=1) if not c.endswith("]") else c
        return c.strip().replace(" *", " *")

    def _member(self, struct, m):
        """Returns the declaration of a member, or None if C++ does not need it."""
        name, kind, count = m["name"], m["kind"], m["count"]
        if name == "struct_size" or kind == "user" or self._counts(struct, m):
            return None
        if kind == "callback":
            return f"std::function<{self._callback(m)[0]}> {name}"
        if kind == "string" and not m["depth"]:
            return f"std::optional<std::string> {name}"
        if kind == "string" and m["depth"] == 1 and isinstance(count, str):
            return f"std::vector<const char *> {name}"
        if kind in ("scalar", "enum"):
            if m["depth"]:
                return f"std::vector<{self.scalar(m)}> {name}"
            if isinstance(count, int):
                return f"std::array<{self.scalar(m)}, {count}> {name}{{}}"
            return f"{self.scalar(m)} {name}{{}}"
        if kind == "struct":
            if not m["depth"]:
                return f"{self.cpp(m['type'])} {name}{{}}"
            if count is None:
                return f"detail::ref<const {m['type']}> {name}"
            if m["depth"] == 2:
                return f"std::vector<detail::ref<{m['type']}>> {name}"
            return f"std::vector<{self.cpp(m['type']) if m['type'] in HAND else m['type']}> {name}"
        if kind == "handle":
            base = "clt::value" if m["type"] == "clt_value" else f"detail::ref<{m['type']}>"
            if isinstance(count, int):
                return f"std::array<{base}, {count}> {name}{{}}"
            if not m["depth"]:
                return f"{base} {name}"
        if kind == "opencl" and m["depth"] == 1:
            return f"std::vector<detail::cl_object<struct _{m['type']}>> {name}"
        if kind == "memory":
            return f"{'const ' if m['const'] else ''}void *{name} = nullptr"
        problem = f"{struct['name']}.{name}: runtime/bindings/cpp/structs.py has no type for it"
        if problem not in self.problems:
            self.problems.append(problem)
        return None

    @staticmethod
    def _counts(struct, m):
        """Whether the member is the number of elements of a vector, which knows it."""
        counted = [o["name"] for o in struct["members"] if o["count"] == m["name"]]
        return counted and (m["name"].startswith("n_") or m["name"].endswith(("_count", "_pairs"))
                            or m["name"] in ("count", "channels"))

    # --- text ------------------------------------------------------------------------------------

    def text(self, comment):
        parts = []
        for struct in self.structs:
            parts.append(self._class(struct, comment))
        return "".join(parts)

    def _class(self, struct, comment):
        name, c = api.short(struct["name"]), struct["name"]
        lines = [comment(struct["doc"]), f"struct {name} {{\n"]
        for m in struct["members"]:
            declaration = self._member(struct, m)
            if declaration:
                lines.append(comment(m["doc"], "    ") + f"    {declaration};\n")
        init = f"        {struct['init']}(&c);\n" if struct["init"] else ""
        lines.append(f"\n    {name}()\n    {{\n        {c} c{{}};\n{init}        take(c);\n    }}\n")
        lines.append(f"    explicit {name}(const {c} &c)\n    {{\n        take(c);\n    }}\n")
        lines.append(f"    void take([[maybe_unused]] const {c} &c)\n    {{\n{self._take(struct)}    }}\n}};\n\n")
        lines.append(self._reader(struct))
        return "".join(lines)

    def _take(self, struct):
        """Copies the members of C that hold no memory of others."""
        lines = []
        for m in struct["members"]:
            name, kind = m["name"], m["kind"]
            if not self._member(struct, m):
                continue
            if kind == "string" and not m["depth"]:
                lines.append(f"        {name} = c.{name} ? std::optional<std::string>(c.{name}) : std::nullopt;\n")
            elif kind in ("scalar", "enum") and not m["depth"]:
                if isinstance(m["count"], int):
                    lines.append(f"        std::copy(std::begin(c.{name}), std::end(c.{name}), {name}.begin());\n")
                else:
                    lines.append(f"        {name} = c.{name};\n")
            elif kind == "struct" and not m["depth"]:
                lines.append(f"        {name} = c.{name};\n")
        return "".join(lines)

    def _reader(self, struct):
        """Writes what a call makes of an option class: the struct of C, which points into the class."""
        c, name = struct["name"], api.short(struct["name"])
        init = f"        {struct['init']}(&c);\n" if struct["init"] else ""
        scratch, fill, after, checks, keeps = [], [], [], [], []
        callbacks = [m for m in struct["members"] if m["kind"] == "callback"]
        for m in struct["members"]:
            member, kind, count = m["name"], m["kind"], m["count"]
            if not self._member(struct, m):
                if self._counts(struct, m):
                    counted = [o["name"] for o in struct["members"] if o["count"] == member]
                    fill.append(f"        c.{member} = static_cast<decltype(c.{member})>({self._longest(counted)});\n")
                    for one in counted if len(counted) > 1 else []:
                        checks.append((one, f"static_cast<std::size_t>(c.{member})", member))
                continue
            if kind == "callback":
                fill.append(self._trampoline(struct, m, callbacks))
            elif kind == "string" and not m["depth"]:
                fill.append(f"        c.{member} = o.{member} ? o.{member}->c_str() : nullptr;\n")
            elif kind == "struct" and m["depth"] == 2:
                scratch.append(f"    std::vector<{m['type']} *> {member}_;\n")
                fill.append(f"        for (const auto &item : o.{member})\n"
                            f"            {member}_.push_back(item.get());\n"
                            f"        c.{member} = {member}_.empty() ? nullptr : {member}_.data();\n")
                if m["type"] == "clt_policy":
                    after.append(f"        for (const auto &item : o.{member})\n            rethrow_of(item.get());\n")
            elif (c, member) in api.GUARDED:
                scratch.append(f"    std::vector<{self.scalar(m)}> {member}_;\n")
                fill.append(f"        c.{member} = guarded(o.{member}, {api.GUARDED[c, member]}, {member}_);\n")
            elif m["depth"] and kind in ("scalar", "enum", "struct", "string") and count is not None:
                fill.append(f"        c.{member} = o.{member}.empty() ? nullptr : o.{member}.data();\n")
                if isinstance(count, str) and count != "?" and self._member(struct, self._named(struct, count)):
                    checks.append((member, f"static_cast<std::size_t>(o.{count})", count))
                elif m.get("count_doc") == "parts + 1":
                    checks.append((member, "(static_cast<std::size_t>(o.parts) + 1)", "parts + 1"))
            elif kind == "opencl":
                scratch.append(f"    std::vector<struct _{m['type']} *> {member}_;\n")
                fill.append(f"        for (const auto &item : o.{member})\n"
                            f"            {member}_.push_back(item.get());\n"
                            f"        c.{member} = {member}_.empty() ? nullptr : {member}_.data();\n")
            elif kind == "struct" and m["depth"]:
                fill.append(f"        c.{member} = o.{member}.get();\n")
                keeps.append(f"        others.push_back(o.{member}.shared());\n")
            elif kind == "handle" and isinstance(count, int):
                fill.append(f"        for (std::size_t i = 0; i < {count}; i++)\n"
                            f"            c.{member}[i] = o.{member}[i].c();\n")
            elif kind == "handle":
                get = "c" if m["type"] == "clt_value" else "get"
                fill.append(f"        c.{member} = o.{member}.{get}();\n")
                if m["type"] != "clt_value":
                    keeps.append(f"        others.push_back(o.{member}.shared());\n")
            elif isinstance(count, int):
                fill.append(f"        std::copy(o.{member}.begin(), o.{member}.end(), c.{member});\n")
            else:
                fill.append(f"        c.{member} = o.{member};\n")
        users = [m["name"] for m in struct["members"] if m["kind"] == "user"]
        wanted = " || ".join(f"o.{m['name']}" for m in callbacks)
        fill += [f"        if ({wanted})\n            c.{user} = this;\n" for user in users]
        check = "".join(f"        if (!o.{one}.empty() && o.{one}.size() != {number})\n"
                        f'            return fail(CLT_INVALID_ARGUMENT, "{name}.{one} has " +\n'
                        f'                        std::to_string(o.{one}.size()) + '
                        f'" elements, but {what} is " + std::to_string({number}));\n' for one, number, what in checks)
        for m in struct["members"]:
            if m["kind"] == "string" and not m["depth"] and self._member(struct, m):
                check += (f"        if (is_cut(o.{m['name']}))\n"
                          f'            return fail(CLT_INVALID_ARGUMENT, cut_text("{name}.{m["name"]}"));\n')
        exception = "    kept_exception kept;\n" if callbacks else ""
        rethrow = ("        kept.rethrow();\n" if callbacks else "") + "".join(after)
        return (f"namespace detail\n{{\n/* {c} for a call. It points into the options. */\n"
                f"struct in_{name} {{\n    {c} c{{}};\n    const {name} &o;\n{''.join(scratch)}{exception}"
                f"    explicit in_{name}(const {name} &options) : o(options)\n    {{\n{init}{''.join(fill)}    }}\n"
                f"    in_{name}(const in_{name} &) = delete;\n"
                f"    std::error_code check() const\n    {{\n{check}        return std::error_code();\n    }}\n"
                f"    void rethrow()\n    {{\n{rethrow}    }}\n"
                f"    void keep_all([[maybe_unused]] keep &others) const\n    {{\n{''.join(keeps)}    }}\n"
                f"}};\n}} /* namespace detail */\n\n")

    @staticmethod
    def _named(struct, name):
        return next(m for m in struct["members"] if m["name"] == name)

    @staticmethod
    def _longest(vectors):
        sizes = [f"o.{one}.size()" for one in vectors]
        return sizes[0] if len(sizes) == 1 else f"std::max({{{', '.join(sizes)}}})"

    def _trampoline(self, struct, m, callbacks):
        """A function of C that calls the std::function and lets no exception pass."""
        _, signature = self._callback(m)
        params, arguments = [], []
        for p in signature["params"]:
            params.append(p["c"] if p["kind"] != "user" else "void *user")
            if p["kind"] != "user":
                arguments.append("*" + p["name"] if self.callback_param(p).endswith("&") else p["name"])
        returns = self._c_type(signature["returns"])
        call = f"self.o.{m['name']}({', '.join(arguments)})"
        name = f"in_{api.short(struct['name'])}"
        stops = m["name"].endswith("stop")
        if returns == "void":
            body = f"self.kept.run([&] {{ {call}; }});"
        elif returns == "clt_status":
            body = (f"clt_status result = CLT_ABORTED;\n            self.kept.run([&] {{ result = {call}; }});\n"
                    "            return self.kept.thrown()\n"
                    "                       ? clt_error_set(CLT_ABORTED, \"a callback threw an exception\")\n"
                    "                       : result;")
        else:
            body = (f"{returns} result{{}};\n            if (self.o.{m['name']})\n"
                    f"                self.kept.run([&] {{ result = {call}; }});\n"
                    f"            return {'self.kept.thrown() ? 1 : ' if stops else ''}result;")
        # Once a callback threw, the call ends as if it had been asked to stop.
        wanted = f"o.{m['name']}"
        if stops and len(callbacks) > 1:
            wanted = " || ".join(f"o.{one['name']}" for one in callbacks)
        function = (f"[]({', '.join(params)}) -> {returns} {{\n            auto &self = *static_cast<{name} *>(user);\n"
                    f"            {body}\n        }}")
        return f"        if ({wanted})\n            c.{m['name']} = {function};\n"
