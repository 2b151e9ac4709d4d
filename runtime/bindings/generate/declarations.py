"""Reads the preprocessed public headers into functions, structs, enums, handles and callbacks, whose
items have a kind, a direction and a count. Every declaration must fall into a kind."""
import re

from pycparser import c_ast, c_generator, c_parser

import comments
import tables

SCALARS = {"char", "unsigned char", "int", "unsigned int", "long", "float", "double", "size_t", "int8_t", "uint8_t",
           "int16_t", "uint16_t", "int32_t", "uint32_t", "int64_t", "uint64_t"}
OPENCL = {"cl_mem", "cl_event", "cl_context", "cl_device_id", "cl_command_queue", "cl_platform_id"}
INTEGERS = {"int", "int64_t", "size_t", "uint64_t"}


class Refused(Exception):
    """A declaration that the bindings cannot describe."""


class Reader:
    def __init__(self, text, sources):
        """`text` is preprocessed; `sources` maps a path in its line markers to (name, library,
        text of the header)."""
        self.generator = c_generator.CGenerator()
        self.sources = sources
        self.headers = {name: comments.Header(source) for name, _, source in sources.values()}
        self.libraries = {name: library for name, library, _ in sources.values()}
        self.used, self.problems = set(), []
        self.functions, self.structs, self.enums, self.handles, self.callbacks = [], [], [], [], []
        self.tree = c_parser.CParser().parse(text, "headers")
        self._names()
        for node in self.tree.ext:
            if self._header(node):
                self._read(node)
        if not self.problems:
            self._finish()
        if self.problems:
            raise SystemExit("\n".join(self.problems))

    # --- names ---------------------------------------------------------------------------------

    def _header(self, node):
        """Returns the name of the public header that has a declaration; None for other files."""
        found = self.sources.get(node.coord.file) if node.coord else None
        return found[0] if found else None

    def _names(self):
        self.names = {}  # name of a type: struct, handle, enum, callback
        self.tags = {}   # tag of a struct or enum: name of the type
        defined = {n.type.type.name for n in self.tree.ext
                   if isinstance(n, c_ast.Typedef) and isinstance(n.type, c_ast.TypeDecl)
                   and isinstance(n.type.type, c_ast.Struct) and n.type.type.decls}
        for node in self.tree.ext:
            if not isinstance(node, c_ast.Typedef):
                continue
            inner = node.type
            if isinstance(inner, c_ast.PtrDecl) and isinstance(inner.type, c_ast.FuncDecl):
                self.names[node.name] = "callback"
            elif isinstance(inner, c_ast.TypeDecl) and isinstance(inner.type, c_ast.Struct):
                self.tags[inner.type.name] = node.name
                self.names[node.name] = "struct" if inner.type.name in defined else "handle"
            elif isinstance(inner, c_ast.TypeDecl) and isinstance(inner.type, c_ast.Enum):
                self.tags[inner.type.name] = node.name
                self.names[node.name] = "enum"
            elif isinstance(inner, c_ast.PtrDecl) and node.name in OPENCL:
                self.tags[inner.type.type.name] = node.name

    def _where(self, node):
        return f"{self._header(node)}:{node.coord.line}"

    def _doc(self, node, ends=";", group=False):
        return self.headers[self._header(node)].doc(node.coord.line, ends, group)

    # --- items ---------------------------------------------------------------------------------

    def _chain(self, node):
        """Returns the layers of a type from outside in, its base node, and whether the base is
        const. A layer is ("pointer", is const itself) or ("array", length)."""
        layers = []
        while not isinstance(node, c_ast.TypeDecl):
            if isinstance(node, c_ast.PtrDecl):
                if isinstance(node.type, c_ast.FuncDecl):
                    return layers, node.type, False
                layers.append(("pointer", "const" in node.quals))
            elif isinstance(node, c_ast.ArrayDecl):
                layers.append(("array", self._number(node.dim)))
            else:
                raise Refused("an unexpected declarator")
            node = node.type
        return layers, node.type, "const" in node.quals

    def _number(self, node):
        if isinstance(node, c_ast.Constant):
            return int(node.value, 0)
        if isinstance(node, c_ast.BinaryOp):
            left, right = self._number(node.left), self._number(node.right)
            return {"+": left + right, "-": left - right, "*": left * right}[node.op]
        if isinstance(node, c_ast.ID):
            for enum in self.enums:
                for value in enum["values"]:
                    if value["name"] == node.name and value["value"] is not None:
                        return value["value"]
        raise Refused("a length that is no number")

    def _base(self, node):
        """Returns the kind of a base type, and its name."""
        if isinstance(node, c_ast.FuncDecl):
            return "callback", None
        if isinstance(node, (c_ast.Struct, c_ast.Enum)):
            name = self.tags.get(node.name)
            if name in OPENCL:
                return "opencl object", name
            if not name:
                raise Refused(f"struct {node.name} is declared nowhere")
            return self.names[name], name
        name = " ".join(node.names)
        if name in self.names:
            return self.names[name], name
        if name in OPENCL:
            return "opencl", name
        if name == "MPI_Comm":
            return "mpi", name
        if name in SCALARS:
            return "scalar", name
        if name == "void":
            return "void", name
        raise Refused(f"the type {name} is unknown")

    def item(self, node, name, where="parameter"):
        """Describes a parameter, a result (without name) or a member."""
        result = where == "result"
        layers, base_node, const = self._chain(node)
        kind, base = self._base(base_node)
        item = {"name": name, "c": self._c(node, name), "kind": kind, "type": base, "depth": 0, "const": const,
                "direction": "in", "count": None}
        if kind == "callback":
            if base is None:
                item.update(self._signature(base_node))
            if layers:
                raise Refused("a pointer to a callback")
            return item
        arrays = [length for what, length in layers if what == "array"]
        if arrays:
            if len(arrays) > 1 or layers[0][0] != "array":
                raise Refused("an array of this shape")
            item["count"] = arrays[0]
            if where == "parameter":  # it is a pointer
                layers[0], arrays = ("pointer", False), []
        pointers = [is_const for what, is_const in layers if what == "pointer"]
        own = 1 if kind in ("handle", "opencl object") or (kind == "void" and pointers) else 0
        if kind == "opencl object":
            item["kind"] = "opencl"
        if kind == "void" and pointers:
            item["kind"] = "user" if name and (name == "user" or name.endswith("_user")) else "memory"
        if base == "char":
            if not pointers and arrays:
                item["kind"] = "text"
            elif pointers:
                own = 1
                item["kind"] = "string" if const or len(pointers) == 2 else "text"
        if len(pointers) < own:
            raise Refused(f"{base} by value")
        depth = len(pointers) - own
        if item["kind"] in ("scalar", "enum") and depth > 2 or depth > 2:
            raise Refused("too many pointers")
        item["depth"] = depth
        if depth and not result:
            # The outermost pointer's target is written unless it is const.
            target_const = pointers[1] if len(pointers) > 1 else const
            item["direction"] = "in" if target_const else "out"
        elif item["kind"] in ("memory", "text") and not result and pointers and not const:
            item["direction"] = "out"
        if depth == 0 and own == 0:
            item["const"] = False
        return item

    def _c(self, node, name):
        return self.generator.visit(c_ast.Decl(name, [], [], [], [], node, None, None)) if name else \
            self.generator.visit(node)

    def _signature(self, function):
        """Returns the result and the parameters of a function."""
        result = self.item(function.type, None, "result")
        if result["kind"] == "enum" and result["type"] == "clt_status":
            result["kind"] = "status"
        params = []
        for param in function.args.params if function.args else []:
            if isinstance(param, c_ast.EllipsisParam):
                raise Refused("a variable number of arguments")
            if param.name is None:
                continue  # (void)
            params.append(self.item(param.type, param.name))
        return {"returns": result, "params": params}

    # --- counts --------------------------------------------------------------------------------

    def _told(self, key, item):
        """Takes the number of elements from the table. Returns whether it has it."""
        words = tables.LENGTHS.get(key)
        if words is None:
            return False
        self.used.add(key)
        item["count"] = "?" if words.startswith("?") else words
        if words.startswith("?"):
            item["count_doc"] = words[1:]
        return True

    def _counts(self, node, items, doc):
        for index, item in enumerate(items):
            try:
                self._count(node.name, items, index, item["doc"] if doc is None else doc)
            except Refused as refused:
                self.problems.append(f"{self._where(node)}: {node.name}: {refused}")

    def _count(self, owner, items, index, doc):
        """Finds how many elements a pointer has."""
        item = items[index]
        key = (owner, item["name"])
        if key in tables.SINGLE or key in tables.WRITTEN_ONE:
            self.used.add(key)
            return
        if self._told(key, item):
            return
        if item["count"] is not None or item["kind"] in ("user", "callback"):
            return
        following = items[index + 1]["name"] if index + 1 < len(items) else None
        before = items[index - 1]["name"] if index else None
        if item["kind"] == "memory" and item["depth"] == 0:
            if following == "bytes":
                item["count"] = "bytes"
            return
        if item["kind"] == "text":
            item["count"] = next((n for n in (following, before) if n == "room"), None)
            if not item["count"]:
                raise Refused(f"{item['name']}: no `room` says how many bytes it has")
            return
        if not item["depth"]:
            return
        name = item["name"]
        counts = {f"n_{name}", f"{name}_count", f"{name[:-1]}_count", f"{name}_pairs"}
        if name.endswith("_list"):
            counts.add(f"{name[:-5]}_count")
        for other in items:
            if other["name"] in counts:
                item["count"] = other["name"]
                return
        if following in ("count", "layers", "n") and not name.endswith("options"):
            item["count"] = following
            return
        if before == "rank" or (before == "count" and item["kind"] == "scalar" and item["direction"] == "in"):
            item["count"] = before
            return
        if item["direction"] == "out" and (f"*{name}" in doc or item["kind"] in ("handle", "string", "struct",
                                                                                "opencl", "memory")):
            return
        if item["direction"] == "out" and name in tables.ALWAYS_ONE:
            return
        if item["kind"] == "struct" and item["depth"] == 1:
            return
        raise Refused(f"{name}: neither the declaration nor a row of tables.py says how many elements it has")

    def _owned(self, item):
        if item["direction"] != "out" or not item["depth"]:
            return
        if item["kind"] == "handle":
            item["owned"] = item["type"] not in tables.OWNERS and not item["const"]
        elif item["kind"] == "string" or item["depth"] == 2:
            item["owned"] = not item["const"]
        elif item["kind"] == "opencl":
            item["owned"] = True

    @staticmethod
    def _pointer(item):
        return item["depth"] or item["kind"] in ("string", "handle", "opencl", "memory", "callback")

    @staticmethod
    def _nullable(item, doc):
        """Whether the doc comment says that a parameter may be NULL."""
        text, name = " ".join(doc.split()), item["name"]
        word = rf"[`*]*\b{re.escape(name)}\b`?"
        if re.search(rf"{word} (?:is not NULL|(?:is |\[[^]]*\] )?(?:\(?may be NULL|\(?NULL\b|or NULL))", text):
            return True
        every = r"(?:Outputs|Results|Any output) may be NULL" if item["direction"] == "out" \
            else r"Either argument may be NULL" if item["kind"] == "string" else None
        return bool(every and re.search(every, text))

    # --- declarations --------------------------------------------------------------------------

    def _read(self, node):
        try:
            if isinstance(node, c_ast.Decl) and isinstance(node.type, c_ast.FuncDecl):
                self._read_function(node)
            elif isinstance(node, c_ast.Typedef):
                self._read_typedef(node)
            elif isinstance(node, c_ast.Decl) and isinstance(node.type, c_ast.Enum):
                self._read_enum(None, node.type, node)
            elif not (isinstance(node, c_ast.Decl) and isinstance(node.type, c_ast.Struct) and not node.type.decls):
                raise Refused("neither a function nor a type")
        except Refused as refused:
            self.problems.append(f"{self._where(node)}: {getattr(node, 'name', None) or 'a declaration'}: {refused}")

    def _common(self, node, doc):
        header = self._header(node)
        return {"header": header, "doc": doc}

    def _read_function(self, node):
        doc = self._doc(node, group=True)
        described = self._signature(node.type)
        self._counts(node, described["params"], doc)
        self._told((node.name, "returns"), described["returns"])
        for item in described["params"]:
            self._owned(item)
            if self._pointer(item):
                item["nullable"] = self._nullable(item, doc)
        header = self.headers[self._header(node)]
        first = header.first_line(node.coord.line)
        deprecated = any("CLT_DEPRECATED" in line for line in header.code[first:node.coord.line + 1])
        self.functions.append({"name": node.name, **described, "deprecated": deprecated,
                               "library": self.libraries[self._header(node)],
                               "unstable": self._header(node) == "cltrain/unstable.h", **self._common(node, doc)})

    def _read_typedef(self, node):
        kind = self.names.get(node.name)
        if kind == "callback":
            self.callbacks.append({"name": node.name, **self._signature(node.type.type),
                                   **self._common(node, self._doc(node))})
        elif kind == "enum":
            self._read_enum(node.name, node.type.type, node)
        elif kind == "handle":
            self.handles.append({"name": node.name, **self._common(node, self._doc(node))})
        elif kind == "struct":
            self._read_struct(node)
        else:
            raise Refused("a typedef of another kind")

    def _read_enum(self, name, enum, node):
        # The name of a typedef stands behind the enum; its own place is where it begins.
        values = []
        for value in enum.values.enumerators:
            number = None
            try:
                number = self._number(value.value) if value.value else (values[-1]["value"] + 1 if values else 0)
            except (Refused, TypeError):
                pass  # the compiled program tells
            # Rows of a list macro have the macro's line and no comment of their own.
            # Neither have those of an enum in one line.
            line = self.headers[self._header(node)].code[value.coord.line]
            alone = value.name in line and line.strip().startswith(value.name)
            doc = self._doc(value, ",}\n") if alone else ""
            values.append({"name": value.name, "value": number, "doc": doc})
        place = enum if enum.coord and self._header(enum) else node
        self.enums.append({"name": name, "values": values, **self._common(node, self._doc(place, "{"))})

    def _flat(self, struct):
        """Yields the members of a struct, with those of unions without a name."""
        for member in struct.decls:
            if isinstance(member.type, c_ast.Union) and not member.name:
                yield from member.type.decls
            else:
                yield member

    def _read_struct(self, node):
        struct = node.type.type
        members = []
        for member in self._flat(struct):
            if not member.name or member.bitsize:
                raise Refused("a member without a name, or a bit-field")
            try:
                item = self.item(member.type, member.name, "member")
            except Refused as refused:
                raise Refused(f"{member.name}: {refused}") from refused
            item["direction"] = "in"
            item["doc"] = self._doc(member)
            members.append(item)
        self._counts(node, members, None)
        doc = self._doc(struct, "{")
        self.structs.append({"name": node.name, "members": members, **self._common(node, doc)})

    # --- what joins them -------------------------------------------------------------------------

    def _finish(self):
        names = {function["name"] for function in self.functions}
        for struct in self.structs:
            struct["struct_size"] = struct["members"][0]["name"] == "struct_size"
            init = struct["name"] + "_init"
            struct["init"] = init if init in names else None
            struct["destroy"] = self._freeing(struct["name"])[0]  # of structs that the library makes
            if struct["struct_size"] and not struct["init"]:
                self.problems.append(f"{struct['header']}: {struct['name']} has struct_size, but there is no {init}")
        for handle in self.handles:
            handle["owner"] = tables.OWNERS.get(handle["name"])
            handle["destroy"], handle["destroy_array"] = self._freeing(handle["name"])
            handle["outlived_by"] = tables.OUTLIVED_BY.get(handle["name"], [])
            if not handle["owner"] and not handle["destroy"]:
                self.problems.append(f"{handle['header']}: nothing frees {handle['name']}, and tables.py "
                                     "names no owner")
        # A struct that has struct_size and is written by another function than its init is read too.
        sized = {struct["name"] for struct in self.structs if struct["struct_size"]}
        for function in self.functions:
            for item in function["params"]:
                if item["kind"] == "struct" and item["direction"] == "out" and item["depth"] == 1 \
                        and item["type"] in sized and function["name"] != item["type"] + "_init":
                    item["direction"] = "inout"
        known = {handle["name"] for handle in self.handles} | {struct["name"] for struct in self.structs}
        for name in [*tables.OWNERS, *tables.OUTLIVED_BY, *sum(tables.OUTLIVED_BY.values(), [])]:
            if name not in known:
                self.problems.append(f"tables.py: no header declares {name}")
        for key in [*tables.LENGTHS, *tables.SINGLE, *tables.WRITTEN_ONE]:
            if key not in self.used:
                self.problems.append(f"tables.py: the row {key} matches nothing")

    def _freeing(self, handle):
        """Returns the functions that free a handle, and an array of them."""
        one, several = [], None
        for function in self.functions:
            params = function["params"]
            if function["returns"]["kind"] != "void" or not params or params[0]["type"] != handle \
                    or not function["name"].endswith(tables.FREEING):
                continue
            if len(params) == 1 and params[0]["depth"] == (params[0]["kind"] == "struct"):
                one.append(function["name"])
            elif len(params) == 2 and params[0]["depth"] == 1:
                several = function["name"]
        # clt_loader_stop interrupts, and clt_loader_free frees.
        return next((name for name in one if not name.endswith("_stop")), one[0] if one else None), several
