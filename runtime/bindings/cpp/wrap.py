"""Wraps one function of C: as a method, a constructor, a static method or a free function. A function that
returns a status has a body with a std::error_code, and one that throws."""
import api
import lists
import structs

# Results that may be NULL without a failure.
MAY_BE_NULL = {"clt_graph_find"}
# Lengths of arrays that are written, by the words of the description.
LENGTHS = {"parts + 1": "static_cast<std::size_t>(parts) + 1"}
# Sizes that are compared at the call: (function, parameter) -> what it must have (0: not known), and the message.
SIZES = {
    ("clt_dataset_set_sample_weights", "weights"):
        ("static_cast<std::size_t>(clt_dataset_count(c()))", "one for each sample of the data set"),
    ("clt_dataset_push", "weights"): ("fields.samples()", "one for each sample of the arrays"),
    ("clt_planner_predict", "use"): ("devices_", "one for each device"),
    ("clt_local_sync", "samples"): ("trainers_", "one for each trainer of this rank"),
    ("clt_trainer_set_weights", "weights"): ("detail::most(one_rank_ ? devices_ : 0, weights.size())", "one for each device"),
}
# Arguments that an object keeps using after the call.
KEPT = {("clt_trainer_set_reservoir", "reservoir")}
KEYWORDS = {"or", "and", "not", "default", "new", "delete", "auto", "operator", "this", "int", "union"}


class Refused(Exception):
    """A function for which there is no rule."""


class Wrapper:
    def __init__(self, function, described, options):
        self.f, self.api, self.options = function, described, options
        self.name = function["name"]
        self.params = []   # (type, name, default or None)
        self.args = []     # expressions for C
        self.before, self.after, self.checks = [], [], []
        self.outs = []     # (type, name, expression)
        self.graphs, self.keeps = [], []
        self.owner, self.static, self.constructor = None, "", False
        self.created = None
        self.result_struct = ""
        items = function["params"]
        self.items = {item["name"]: item for item in items}
        first = items[0] if items else None
        self.self_const = False
        if first and first["kind"] == "handle" and first["depth"] == 0 and first["type"] in options.classes \
                and self.name.startswith(first["type"] + "_"):
            self.owner = first["type"]
        self._creator(items)
        for index, item in enumerate(items):
            if index == 0 and self.owner and not self.static and not self.constructor:
                self.args.append("c()")
                self.self_const = True
                if self.created and self.owner in self.outlived_by:
                    self.keeps.append("others_.push_back(p_);")
                if self.owner == "clt_graph":
                    self.graphs.append("shared()")
                continue
            self._param(item)
        if self.name == "clt_trainer_create":
            self.keeps += ["const auto kept_ = std::make_shared<detail::keep>();", "others_.push_back(kept_);"]
        self._result()
        self._defaults()

    # --- where it goes -----------------------------------------------------------------------------

    def _creator(self, items):
        made = [i for i in items if i["direction"] == "out" and i.get("owned") and not i["count"]
                and (i["kind"] == "handle" and i["depth"] == 1
                     or i["kind"] == "struct" and i["type"] in self.options.classes)]
        if self.f["returns"]["kind"] != "status" or not made:
            return
        self.created = made[0]["type"]
        self.outlived_by = self.api.handle.get(self.created, {}).get("outlived_by", [])
        if self.created not in self.options.classes:
            raise Refused(f"it makes a {self.created}")
        if len(made) > 1 or self.owner and self.owner != self.created:
            return
        if self.name.startswith(self.created + "_"):
            self.owner = self.created
            if self.name in (self.created + "_create", self.created + "_create_with"):
                self.constructor = True
            else:
                self.static = "static "

    @property
    def cpp_name(self):
        if self.constructor:
            return api.short(self.owner)
        name = self.name[len(self.owner) + 1:] if self.owner else api.short(self.name)
        return name + "_" if name in KEYWORDS else name

    # --- parameters ------------------------------------------------------------------------------

    def _add(self, kind, name, default=None):
        self.params.append([kind, name, default])

    def _param(self, item):
        name, kind, depth, direction, count = (item[k] for k in ("name", "kind", "depth", "direction", "count"))
        rule = getattr(self, f"_{kind}_{direction}{depth}", None)
        if rule is None:
            raise Refused(f"{name}: no rule for {direction} {kind} of depth {depth}")
        rule(item, name, count)

    def _scalar_in0(self, item, name, count):
        counted = [i for i in self.items.values() if i["count"] == name]
        known = [i for i in counted if i["kind"] in ("scalar", "struct", "handle", "memory", "text", "opencl")
                 and (i["direction"] == "in" or i["kind"] in ("memory", "text"))]
        written = any(i["count"] == name and i["direction"] == "out" and i["kind"] == "scalar" for i in counted)
        for other in counted if written or any(i.get("nullable") for i in counted) else []:
            if other["direction"] == "in":
                self.checks.append((f"{other['name']}.size() && {other['name']}.count<{item['type']}>() != {name}",
                                    f"{other['name']} has another length than {name}"))
            known = []
        if not known:
            self._add(structs.Options.scalar(item), name)
            self.args.append(name)
        elif known[0]["kind"] == "text":
            self.args.append(f"{known[0]['name']}_.size()" if item["type"] == "size_t" else
                             f"static_cast<{item['type']}>({known[0]['name']}_.size())")
        elif known[0]["kind"] == "memory":
            self.args.append(f"{known[0]['name']}.size()")
        else:
            for other in known[1:]:
                self.checks.append((f"{other['name']}.size() != {known[0]['name']}.size() && {other['name']}.size()",
                                    f"{other['name']} and {known[0]['name']} have unlike lengths"))
            self.args.append(f"{known[0]['name']}.template count<{item['type']}>()"
                             if known[0]["kind"] == "handle" else f"{known[0]['name']}.count<{item['type']}>()")

    def _enum_in0(self, item, name, count):
        self._add(item["type"], name)
        self.args.append(name)

    _status_in0 = _enum_in0

    def _scalar_in1(self, item, name, count):
        if count is None:
            self._add(f"std::optional<{structs.Options.scalar(item)}>", name,
                      "std::nullopt" if item["nullable"] else None)
            self.args.append(f"{name} ? &*{name} : nullptr")
            return
        self._add(f"detail::list<{structs.Options.scalar(item)}>", name)
        if (self.name, name) in api.GUARDED:
            self.before.append(f"std::vector<{structs.Options.scalar(item)}> {name}_;")
            self.checks.append((f"!{name}.size()", f"{name} is empty"))
            self.args.append(f"detail::guarded({name}, {api.GUARDED[self.name, name]}, {name}_)")
        else:
            self.args.append(f"{name}.data()")
        if (self.name, name) in SIZES:
            needed, why = SIZES[self.name, name]
            self.before.append(f'if (!ec)\n        ec = detail::check_size("{self.name}: {name}", {name}.size(), '
                               f'{needed}, "{why}");')
        if isinstance(count, int):
            self.checks.append((f"{name}.size() != {count}", f"{name} needs {count} elements"))
        elif count == "?" and item["count_doc"] == "the rank of x":
            empty = f"{name}.size() && " if item.get("nullable") else ""
            self.checks.append((f"{empty}static_cast<int>({name}.size()) != x.rank()",
                                f"{name} needs an element for each dimension of x"))

    def _string_in0(self, item, name, count):
        self._add("const detail::text &", name, "nullptr" if item.get("nullable") else None)
        self.checks.append((f"{name}.cut()", f'detail::cut_text("{self.name}: {name}")', None, None))
        self.args.append(f"{name}.c_str()")

    def _handle_in0(self, item, name, count):
        kind = item["type"]
        if kind == "clt_value":
            self._add("const clt::value &", name, "clt::value()" if item.get("nullable") else None)
            self.args.append(f"{name}.c()")
            self.graphs.append(f"{name}.graph()")
            return
        if kind not in self.options.classes:
            self._add(f"{'const ' if item['const'] else ''}{kind} *", name)
            self.args.append(name)
            return
        cpp = "clt::" + api.short(kind)
        self._add(f"const {cpp} &", name, f"{cpp}()" if item.get("nullable") else None)
        self.args.append(f"{name}.c()")
        if kind == "clt_graph":
            self.graphs.append(f"{name}.shared()")
        if not item.get("nullable"):
            self.checks.append((f"!{name}", None, api.short(kind)))
        if self.created and kind in self.outlived_by:
            self.keeps.append(f"others_.push_back({name}.shared());")
        if (self.name, name) in KEPT:
            self.after.append(f"if (!ec)\n        keep_{name}({name}.shared());")
        if kind == "clt_dataset":
            self.after.append(f"if (ec)\n        {name}.rethrow();")

    def _handle_in1(self, item, name, count):
        if item["type"] == "clt_value":
            self._add("const detail::values &", name)
            self.args.append(f"{name}.data()")
            self.graphs.append(f"{name}.graph()")
            return
        if item["type"] not in self.options.classes:
            raise Refused(f"{name}: an array of {item['type']}")
        self._add(f"const detail::handles<clt::{api.short(item['type'])}> &", name)
        self.args.append(f"{name}.data()")
        self.checks.append((f"!{name}.complete()", None, api.short(item["type"])))
        if self.created and item["type"] in self.outlived_by:
            self.keeps.append(f"{name}.keep_all(others_);")

    def _handle_out1(self, item, name, count):
        if item["type"] == "clt_value":
            if count is not None:
                raise Refused(f"{name}: an array of values that is written")
            self.before.append(f"clt_value *{name}_ = nullptr;")
            self.args.append(f"&{name}_")
            self.outs.append(("clt::value", name, f"clt::value({name}_, graph_)"))
            return
        if item["type"] not in self.options.classes or not item.get("owned"):
            raise Refused(f"{name}: it gives a {item['type']}")
        self.before.append(f"{item['type']} *{name}_ = nullptr;")
        self.args.append(f"&{name}_")
        cpp = "clt::" + api.short(item["type"])
        self.outs.append((cpp, name, f"{cpp}(detail::share({name}_, others_))"))

    def _struct_in0(self, item, name, count):
        self._add(item["type"], name)
        self.args.append(name)

    def _struct_in1(self, item, name, count):
        kind = item["type"]
        cpp = self.options.cpp(kind)
        if count is not None:
            if count == "?":
                raise Refused(f"{name}: an array of unknown length")
            listed = f"detail::list<{cpp if kind in structs.HAND else kind}>"
            self._add("const detail::arrays &" if kind == "clt_array" else listed, name)
            self.args.append(f"{name}.data()")
        elif kind in self.options.names:
            struct = self.api.struct[kind]
            self._add(f"const {cpp} &", name, f"{cpp}()" if struct["init"] else None)
            self.before.append(f"detail::in_{api.short(kind)} {name}_({name});")
            self.before.append(f"if (!ec)\n        ec = {name}_.check();")
            if kind == "clt_step_batch" and self.owner == "clt_trainer":
                self.before.append(f"if (!ec)\n        ec = check({name});")
            elif self.name == "clt_trainer_create":
                self.before.append(f'if (!ec)\n        ec = detail::check_size("trainer_options.weights", '
                                   f'{name}.weights.size(), detail::most(detail::one_rank({name}.world.get()) ? store.device_count() : 0, {name}.weights.size()), "one for each device");')
            elif kind == "clt_cross_entropy_options":
                self.checks.append((f"!{name}.class_weights.empty() && logits.rank() == 2 && "
                                    f"static_cast<std::int64_t>({name}.class_weights.size()) != logits.dim(1)",
                                    f'"cross_entropy_options.class_weights has " + '
                                    f'std::to_string({name}.class_weights.size()) + " elements, but there are " + '
                                    f'std::to_string(logits.dim(1)) + " classes"', None, None))
            self.args.append(f"&{name}_.c")
            self.after.append(f"{name}_.rethrow();")
            if self.created:
                self.keeps.append(f"{name}_.keep_all(others_);")
        elif kind == "clt_array":
            self._add("const clt::array &", name)
            self.args.append(f"&{name}")
            if name == "to":
                self.checks.append((f"!{name}.writable()", "the array is const, and the call writes to it"))
        elif kind == "clt_world":
            self._add(f"const {kind} *", name, "nullptr" if item.get("nullable") else None)
            self.args.append(name)
        else:
            self._add(f"const {kind} &", name)
            self.args.append(f"&{name}")

    def _struct_out1(self, item, name, count):
        kind = item["type"]
        if kind == "clt_world":
            raise Refused(f"{name}: a world")
        if isinstance(count, int):
            self.before.append(f"std::array<{kind}, {count}> {name}_{{}};")
            self.args.append(f"{name}_.data()")
            self.outs.append((f"std::array<{kind}, {count}>", name, f"{name}_"))
            return
        if count is not None:
            raise Refused(f"{name}: an array of structs that is written")
        self.before.append(f"{kind} {name}_{{}};")
        init = self.api.struct[kind]["init"]
        if init:
            self.before.append(f"{init}(&{name}_);")
        self.args.append(f"&{name}_")
        if kind in self.options.names:
            self.outs.append((self.options.cpp(kind), name, f"{self.options.cpp(kind)}({name}_)"))
        else:
            self.outs.append((kind, name, f"{name}_"))

    _struct_inout1 = _struct_out1

    def _struct_out2(self, item, name, count):
        if item["type"] in self.options.classes and count is None:
            return self._handle_out1(item, name, count)
        if item.get("owned") or count is not None:
            raise Refused(f"{name}: an array of structs that C owns or makes")
        self.before.append(f"const {item['type']} *{name}_ = nullptr;")
        self.args.append(f"&{name}_")
        self.outs.append((f"const {item['type']} *", name, f"{name}_"))

    def _scalar_out1(self, item, name, count):
        kind = structs.Options.scalar(item)
        if count is None:
            if name == "rank" and any(i.get("count_doc", "").endswith("MAX_RANK") for i in self.items.values()):
                self.before.append("int rank_ = 0;")
                self.args.append("&rank_")
                return
            self.before.append(f"{kind} {name}_{{}};")
            self.args.append(f"&{name}_")
            self.outs.append((kind, name, f"{name}_"))
            return
        if count == "?" and item["count_doc"].endswith("MAX_RANK"):
            self.before.append(f"std::vector<{kind}> {name}_({item['count_doc']});")
            self.args.append(f"{name}_.data()")
            self.after.append(f"{name}_.resize(static_cast<std::size_t>(rank_ > 0 ? rank_ : 0));")
        elif count == "?" and item["count_doc"] == "losses, then metrics" and "trainer" in self.items:
            self.before.append(f"std::vector<double> {name}_(static_cast<std::size_t>(trainer.means_count()));")
            self.args.append(f"{name}_.data()")
        elif count in self.items or (count == "?" and item["count_doc"] in LENGTHS):
            length = LENGTHS[item["count_doc"]] if count == "?" else f"static_cast<std::size_t>({count})"
            bound = count if count in self.items else "parts"
            self.checks.append((f"{bound} < 0", f"{bound} is negative"))
            self.before.append(f"std::vector<{kind}> {name}_(ec ? 0 : {length});")
            self.args.append(f"{name}_.data()")
        else:
            raise Refused(f"{name}: an array that is written, with a length in words")
        self.outs.append((f"std::vector<{kind}>", name, f"std::move({name}_)"))

    def _enum_out1(self, item, name, count):
        self.before.append(f"{item['type']} {name}_{{}};")
        self.args.append(f"&{name}_")
        self.outs.append((item["type"], name, f"{name}_"))

    def _string_out1(self, item, name, count):
        self.before.append(f"{'const ' if item['const'] else ''}char *{name}_ = nullptr;")
        self.args.append(f"&{name}_")
        call = "take_string" if item.get("owned") else "string_of"
        self.outs.append(("std::string", name, f"detail::{call}({name}_)"))

    def _text_out0(self, item, name, count):
        self.before.append(f"std::string {name}_(4096, '\\0');")
        self.args.append(f"&{name}_[0]")
        self.after.append(f"{name}_.resize(std::strlen({name}_.c_str()));")
        self.outs.append(("std::string", name, f"std::move({name}_)"))

    def _memory_in0(self, item, name, count):
        if count != "bytes":
            raise Refused(f"{name}: memory without a size")
        self._add("const detail::bytes_in &", name)
        self.args.append(f"{name}.data()")

    def _memory_out0(self, item, name, count):
        if count != "bytes":
            raise Refused(f"{name}: memory without a size")
        self._add("const detail::bytes_out &", name)
        self.args.append(f"{name}.data()")

    def _memory_out1(self, item, name, count):
        self.before.append(f"const void *{name}_ = nullptr;")
        self.args.append(f"&{name}_")
        self.outs.append(("const void *", name, f"{name}_"))

    def _opencl_in0(self, item, name, count):
        self._add(f"detail::cl_object<struct _{item['type']}>", name, "nullptr" if item.get("nullable") else None)
        self.args.append(f"{name}.get()")

    def _opencl_out1(self, item, name, count):
        self._add("detail::event_out", name, "nullptr")
        self.args.append(f"{name}.get()")

    # --- results -----------------------------------------------------------------------------------

    def _result(self):
        returned = self.f["returns"]
        self.status = returned["kind"] == "status"
        kind, depth = returned["kind"], returned["depth"]
        if self.status:
            if self.constructor:
                self.type = ""
            elif not self.outs:
                self.type = "void"
            elif len(self.outs) == 1:
                self.type = self.outs[0][0]
            else:
                self.type = api.short(self.name) + "_result"
                members = "".join(f"    {kind} {name}{{}};\n" for kind, name, _ in self.outs)
                self.result_struct = f"/* What {self.name} gives. */\nstruct {self.type} {{\n{members}}};\n"
            return
        self.builder = kind == "handle" and returned["type"] == "clt_value"
        if self.builder:
            self.type, self.convert = "clt::value", None
        elif kind == "string" and depth == 0:
            self.type, self.convert = "std::string", "detail::string_of({})"
        elif kind in ("scalar", "enum", "void") and depth == 0:
            self.type, self.convert = structs.Options.scalar(returned), "{}"
        elif kind in ("handle", "struct", "memory", "opencl") and depth <= 1:
            self.type, self.convert = returned["c"], "{}"
            if kind == "opencl":
                self.type = f"struct _{returned['type']} *"
        else:
            raise Refused(f"it returns {returned['c']}")
        if kind == "enum" and returned["type"] == "clt_status":
            raise Refused("it returns a status that is no failure")
        if self.outs:
            if kind == "void" and len(self.outs) == 1 and not self.builder:
                self.type = self.outs[0][0]
                return
            raise Refused("it returns something, and writes something")

    def _defaults(self):
        """Only the last parameters may have defaults."""
        for param in self.params[::-1]:
            if param[2] is None:
                break
        trailing = True
        for param in self.params[::-1]:
            trailing = trailing and param[2] is not None
            if not trailing:
                param[2] = None

    # --- text ----------------------------------------------------------------------------------------

    def _signature(self, defaults, code):
        params = [f"{kind}{'' if kind.endswith(('&', '*')) else ' '}{name}"
                  + (f" = {default}" if defaults and default else "")
                  for kind, name, default in self.params]
        if code:
            params.append("std::error_code &ec")
        return ", ".join(params)

    @property
    def const(self):
        return " const" if self.owner and not self.static and not self.constructor else ""

    def declarations(self):
        indent = "    " if self.owner else ""
        kind = f"{self.type} " if self.type else ""
        if kind.endswith("* "):
            kind = kind[:-1]
        head = f"{indent}{self.static}{kind}{self.cpp_name}"
        if not self.status:
            return f"{head}({self._signature(True, False)}){self.const};\n"
        if self.constructor:
            required = [p for p in self.params if p[2] is None]
            if not required:
                self.options.creates.setdefault(self.owner, []).append("default")
        return (f"#if CLT_EXCEPTIONS\n{head}({self._signature(True, False)}){self.const};\n#endif\n"
                f"{head}({self._signature(False, True)}){self.const};\n")

    def _definition_head(self, code):
        scope = f"{api.short(self.owner)}::" if self.owner else ""
        kind = f"{self.type} " if self.type else ""
        if kind.endswith("* "):
            kind = kind[:-1]
        return f"inline {kind}{scope}{self.cpp_name}({self._signature(False, code)}){self.const}"

    def _why(self, check):
        """Returns the message of a check: (condition, text), (.., None, handle) or (.., expression, None, None)."""
        if len(check) == 2:
            return f'"{self.name}: {check[1]}"'
        return f'detail::empty_handle("{check[2]}")' if len(check) == 3 else check[1]

    def _own_check(self):
        return self.self_const

    def _held(self):
        """A callback may reset or move a handle. What the call uses lives until it returns."""
        runs = any(item["kind"] == "struct" and
                   any(m["kind"] == "callback" for m in self.api.struct[item["type"]]["members"])
                   for item in self.items.values())
        if not runs or self.created:
            return []
        names = [("p_", "p_")] if self.self_const else []
        names += [(name, f"{name}.shared()") for kind, name, _ in self.params
                  if kind.startswith("const clt::") and self.items[name]["kind"] == "handle" and
                  self.items[name]["type"] in self.options.classes]
        return [f"const auto held_{name} = {shared};" for name, shared in names]

    def definitions(self):
        if self.status:
            return self._with_status()
        lines = []
        empty = f"return {self.type}();" if self.type != "void" else "return;"
        if self.type.endswith("*"):
            empty = "return nullptr;"
        checks = ([("!p_", None, api.short(self.owner))] if self.self_const else []) + self.checks
        for check in checks:
            text = self._why(check)
            lines.append(f"if ({check[0]}) {{\n        detail::refuse({text});\n        {empty}\n    }}")
        before = [line for line in self.before if "ec = " not in line]
        lines += before
        after = [line for line in self.after if not line.startswith("if (ec)")]
        call = f"{self.name}({', '.join(self.args)})"
        if self.builder:
            graph = f"detail::graph_of({{{', '.join(self.graphs)}}})"
            checked = [line for line in self.before if "ec = " in line]
            if self.name in MAY_BE_NULL:
                lines.append(f"return clt::value({call}, {graph});")
            elif checked or after:
                lines.append(f"clt_value *made_ = {call};")
                lines += after + [f'return detail::built(made_, {graph}, "{self.name}");']
            else:
                lines.append(f'return detail::built({call}, {graph}, "{self.name}");')
        elif self.outs:
            lines += [call + ";", *after, f"return {self.outs[0][2]};"]
        elif self.type == "void":
            lines += [call + ";", *after]
        else:
            lines.append(f"return {self.convert.format(call)};")
        return f"{self._definition_head(False)}\n{{\n" + "".join(f"    {line}\n" for line in lines) + "}\n"

    def _with_status(self):
        lines = ["ec.clear();"]
        checks = ([("!p_", None, api.short(self.owner))] if self.self_const else []) + self.checks
        for check in checks:
            text = self._why(check)
            lines.append(f"if (!ec && ({check[0]}))\n        ec = detail::fail(CLT_INVALID_ARGUMENT, {text});")
        lines += self._held()
        lines += self.before
        if self.outs and self.outs[-1][0] == "clt::value":
            lines.append(f"const std::shared_ptr<clt_graph> graph_ = detail::graph_of({{{', '.join(self.graphs)}}});")
        lines.append(f"if (!ec)\n        ec = make_error_code({self.name}({', '.join(self.args)}));")
        lines += self.after
        makes = any("others_" in expression for _, _, expression in self.outs)
        if makes:
            lines += ["detail::keep others_;", *self.keeps]
        if self.constructor:
            lines.append(f"p_ = detail::share({self.outs[0][1]}_, std::move(others_));")
            if self.name in lists.AFTER:
                lines += [f"if (!ec)\n        {line}" for line in lists.AFTER[self.name]]
        elif len(self.outs) == 1:
            expression = self.outs[0][2]
            lines.append(f"return {expression[10:-1] if expression.startswith('std::move(') else expression};")
        elif self.outs:
            lines.append("return {" + ", ".join(expression for _, _, expression in self.outs) + "};")
        body = f"{self._definition_head(True)}\n{{\n" + "".join(f"    {line}\n" for line in lines) + "}\n"
        names = ", ".join([name for _, name, _ in self.params] + ["ec"])
        if self.owner and not self.static:
            call = f"this->{self.cpp_name}"
        else:
            call = f"{api.short(self.owner) if self.owner else 'clt'}::{self.cpp_name}"
        if self.constructor:
            thrower = f"    std::error_code ec;\n    *this = {self.cpp_name}({names});\n    detail::raise(ec);\n"
        elif self.type == "void":
            thrower = f"    std::error_code ec;\n    {call}({names});\n    detail::raise(ec);\n"
        else:
            thrower = (f"    std::error_code ec;\n    {self.type} result = "
                       f"{call}({names});\n    detail::raise(ec);\n    return result;\n")
        return body + f"#if CLT_EXCEPTIONS\n{self._definition_head(False)}\n{{\n{thrower}}}\n#endif\n"
