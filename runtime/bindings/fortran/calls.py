"""Procedures for the functions of C: what each argument becomes, and the statements around the call."""
import callbacks
import tables
from structs import guarded, is_handle, native, size_of
from writer import WIDE, from_c, scalar, to_c

STRONG, WEAK, CONSTANT = "strong", "weak", "constant"


def hold(item, api):
    """Returns how a handle is held: by a count, weakly by its graph, or not at all."""
    if item["type"] == "clt_value":
        return WEAK
    owner = api.handle[item["type"]]["owner"] if item["type"] in api.handle else None
    return CONSTANT if owner == "library" else STRONG


def renamed(params):
    """Calls the handle of a new object by what it is, where C says `out`."""
    taken = {p["name"] for p in params}
    return [{**p, "name": p["type"][4:]} if p["name"] == "out" and p["kind"] == "handle" and
            p["type"][4:] not in taken else p for p in params]


class Call:
    """One function on its way to Fortran."""

    def __init__(self, function, api):
        self.f, self.api = function, api
        self.name = function["name"]
        self.params = renamed(function["params"])
        self.dummies = []  # (name, declaration, wide or not, optional or not)
        self.locals = ["integer(c_int) :: status_", "type(c_ptr) :: kept_"]
        self.before, self.after, self.args = [], [], []
        self.made = None
        self.callbacks = []
        self.graphs = [p for p in self.params if is_handle(p) and p["type"] == "clt_graph"]
        self.operands = [p for p in self.params if p["kind"] == "handle" and p["type"] == "clt_value"
                         and p["direction"] == "in"]
        self.strong = any(is_handle(p) and hold(p, api) == STRONG for p in self.params) or \
            any(p["kind"] == "handle" and p["depth"] == 1 and hold(p, api) == STRONG for p in self.params)
        # A callback may destroy what the call uses, which then lives until the call ends.
        self.runs = any(p["kind"] == "struct" and any(m["kind"] == "callback" for m in api.struct[p["type"]]["members"])
                        for p in self.params) and not any(p.get("owned") for p in self.params)
        self.dropped = self.find_dropped()
        for p in self.params:
            self.add(p)
        self.result()
        for keeper, kept in tables.KEEPERS.get(self.name, []):
            self.after.append((False, f"if (present({kept})) call clt_f_need({keeper}%id, {kept}%id)"))

    def optional(self, p):
        return tables.optional(self.f, p, self.api)

    def find_dropped(self):
        """Counts, ranks and sizes that arrays of the program tell."""
        names = {}
        for p in self.params:
            count = p["count"]
            if isinstance(count, str) and count != "?" and p["kind"] not in ("text",):
                needed = p["direction"] == "in" and not self.optional(p)
                outputs = p["kind"] == "handle" and p["direction"] == "out"
                if p["kind"] == "memory" or needed or outputs:
                    names.setdefault(count, p["name"])
            if p["kind"] == "text":
                names[count] = None
            if p["count"] == "?" and "MAX_RANK" in p.get("count_doc", ""):
                names["rank"] = p["name"]
        return names

    def dummy(self, p, declaration, wide=False, optional=None):
        optional = self.optional(p) if optional is None else optional
        if optional:
            left, right = declaration.split(" :: ")
            declaration = f"{left}, optional :: {right}"
        self.dummies.append((p["name"], declaration, wide, optional))
        return optional

    def owner(self):
        """Returns the number of the slot that owns values."""
        if self.graphs:
            return f"{self.graphs[0]['name']}%id"
        p = self.operands[0]
        return f"{p['name']}(1)%id" if p["count"] else f"{p['name']}%id"

    def rank(self, extra=0):
        p = self.operands[0]
        text = f"clt_rank(p_{p['name']}(1))" if False else f"clt_rank({p['name']}{'(1)' if p['count'] else ''})"
        return text + (f" + {extra}_c_int" if extra else "")

    def add(self, p):
        name, kind = p["name"], p["kind"]
        if (self.name, name) in tables.FIXED:
            self.args.append(tables.FIXED[(self.name, name)])
        elif name in self.dropped and kind in ("scalar",):
            self.count(p)
        elif is_handle(p):
            self.handle(p)
        else:
            getattr(self, "add_" + kind)(p)

    def count(self, p):
        name, array = p["name"], self.dropped[p["name"]]
        if p["direction"] == "out":
            self.locals.append(f"{scalar(p, 1)}, target :: o_{name}")
            self.before.append(f"o_{name} = 0")
            self.args.append(f"c_loc(o_{name})")
            return
        if array is None:
            self.args.append(f"{4096}_{'c_size_t' if p['type'] == 'size_t' else 'c_int64_t'}")
            return
        source = next(q for q in self.params if q["name"] == array)
        if source["kind"] == "memory":
            self.args.append(f"b_{array}")
            return
        kind = {"int": "c_int", "size_t": "c_size_t"}.get(p["type"], "c_int64_t")
        self.args.append(f"size({array}, kind={kind})")

    def add_scalar(self, p):
        name = p["name"]
        wide = p["type"] in WIDE
        if p["depth"] == 0 and p["count"] is None:
            self.dummy(p, f"{scalar(p)}, intent(in) :: {name}", wide)
            axis = name in tables.AXES and p["kind"] == "scalar" and self.operands
            self.args.append(f"{self.rank(tables.MORE_AXES.get(self.name, 0))} - {name}" if axis
                             else to_c(p, name))
        elif p["direction"] == "in" and isinstance(p["count"], int):
            self.dummy(p, f"{scalar(p)}, intent(in) :: {name}({p['count']})")
            self.array_in(p, name)
        elif p["direction"] == "in":
            self.dummy(p, f"{scalar(p)}, intent(in) :: {name}(:)", wide)
            self.array_in(p, self.converted(p))
        elif p["count"] is None:
            self.scalar_out(p)
        elif p["count"] == "?" and "MAX_RANK" in p.get("count_doc", ""):
            self.shape_out(p)
        else:
            self.array_out(p)

    add_enum = add_scalar

    def converted(self, p):
        """Returns the numbers of an array as C counts them."""
        name = p["name"]
        if name in tables.SHAPES or name in ("stop", "step"):
            return f"clt_reversed({name})"
        if name == "start":
            return "clt_reversed(start) - 1"
        if name == "permutation":
            return "clt_axes_permuted(permutation)"
        if name in tables.AXES:
            return f"{self.rank()} - {name}"
        return name

    def array_in(self, p, value):
        name = p["name"]
        keep = "clt_longs" if p["type"] in WIDE else "clt_reals" if p["type"] == "double" else "clt_ints"
        present = f"if (present({name})) " if self.optional(p) else ""
        self.locals.append(f"type(c_ptr) :: p_{name}")
        self.before.append(f"p_{name} = c_null_ptr")
        if p["count"] == "?" and p.get("count_doc") == "the rank of x":
            self.before.append(f"{present}call clt_need_rank(size({name}), {self.rank()}, name_, '{name}', status_)")
        elif p["count"] == "?":
            self.before.append(f"if (status_ == 0{' .and. present(' + name + ')' if present else ''}) "
                               f"call clt_need_size(size({name}), int({tables.SIZES[(self.name, name)]}, "
                               f"c_int64_t), name_, '{name}', status_)")
        elif isinstance(p["count"], str) and self.dropped.get(p["count"]) != name:
            first = self.dropped.get(p["count"])
            want = f"size({first}, kind=c_int64_t)" if first else f"int({p['count']}, c_int64_t)"
            self.before.append(f"{present}call clt_need_size(size({name}), {want}, name_, '{name}', status_)")
        self.before.append(f"{present}p_{name} = {keep}({value}, kept_{guarded(self.name, name)})")
        self.args.append(f"p_{name}")

    def scalar_out(self, p):
        name = p["name"]
        optional = self.dummy(p, f"{scalar(p)}, intent(out) :: {name}")
        self.locals.append(f"{scalar(p, 1)}, target :: o_{name}")
        self.before.append(f"o_{name} = 0")
        if optional: # C may do less if nobody wants the number
            self.locals.append(f"type(c_ptr) :: p_{name}")
            self.before += [f"p_{name} = c_null_ptr", f"if (present({name})) p_{name} = c_loc(o_{name})"]
            self.args.append(f"p_{name}")
        else:
            self.args.append(f"c_loc(o_{name})")
        self.after.append((True, f"{'if (present(' + name + ')) ' if optional else ''}{name} = {from_c(p, 'o_' + name)}"))

    def shape_out(self, p):
        name = p["name"]
        optional = self.dummy(p, f"{scalar(p)}, allocatable, intent(out) :: {name}(:)")
        self.locals.append(f"{scalar(p, 1)}, target :: o_{name}(8)")
        self.before.append(f"o_{name} = 0")
        self.args.append(f"c_loc(o_{name})")
        present = f"if (present({name})) " if optional else ""
        self.after.append((False, f"{present}{name} = clt_reversed(o_{name}(1:o_rank))"))

    def array_out(self, p):
        name = p["name"]
        self.dummy(p, f"{scalar(p)}, intent(inout) :: {name}(:)")
        self.locals.append(f"{scalar(p, 1)}, allocatable, target :: o_{name}(:)")
        size = tables.SIZES[(self.name, name)] if p["count"] == "?" else p["count"]
        self.before.append(f"if (status_ == 0) call clt_need_size(size({name}), int({size}, c_int64_t), name_, "
                           f"'{name}', status_)")
        self.before.append(f"o_{name} = {name}")
        self.args.append(f"c_loc(o_{name})")
        self.after.append((False, f"{name} = o_{name}"))

    def add_string(self, p):
        name = p["name"]
        if p["direction"] == "in" and p["depth"] == 0:
            self.dummy(p, f"character(*), intent(in) :: {name}")
            self.locals.append(f"type(c_ptr) :: p_{name}")
            self.before.append(f"p_{name} = clt_chars({name}, kept_, name_, '{name}', status_)")
            self.args.append(f"p_{name}")
            return
        if p["direction"] == "in":
            raise ValueError(f"{self.name}: an array of texts")
        optional = self.dummy(p, f"character(:), allocatable, intent(out) :: {name}")
        self.locals.append(f"type(c_ptr), target :: o_{name}")
        self.before.append(f"o_{name} = c_null_ptr")
        self.args.append(f"c_loc(o_{name})")
        present = f"if (present({name})) " if optional else ""
        self.after.append((True, f"{present}{name} = clt_text(o_{name})"))
        if p.get("owned"):
            self.after.append((True, f"call clt_f_free(o_{name})"))

    def add_text(self, p):
        name = p["name"]
        self.dummy(p, f"character(:), allocatable, intent(out) :: {name}")
        self.locals.append(f"type(c_ptr) :: p_{name}")
        self.before.append(f"p_{name} = clt_room(kept_, 4096_c_size_t)")
        self.args.append(f"p_{name}")
        self.after.append((True, f"{name} = clt_text(p_{name})"))

    def handle(self, p):
        name, way = p["name"], hold(p, self.api)
        optional = self.dummy(p, f"type({p['type']}), intent(in) :: {name}")
        self.locals.append(f"type(c_ptr) :: p_{name}")
        if way == WEAK and self.f["returns"]["kind"] == "status" and not optional:
            self.before.append(f"p_{name} = clt_value_in({name}, name_, '{name}', status_)")
        elif way == WEAK:
            self.before.append(f"p_{name} = clt_weak({name})")
        elif way == CONSTANT:
            self.before.append(f"p_{name} = {name}%object")
        else:
            self.before.append(f"p_{name} = c_null_ptr")
            present = f"if (present({name})) " if optional else ""
            self.before.append(f"{present}p_{name} = clt_in({name}, name_, '{name}', status_)")
            if self.runs:
                self.before.append(f"{present}call clt_f_push_need(kept_, {name}%id)")
        self.args.append(f"p_{name}")

    def add_handle(self, p):
        name, way = p["name"], hold(p, self.api)
        if p["direction"] == "in":
            self.dummy(p, f"type({p['type']}), intent(in) :: {name}(:)")
            self.args.append(f"p_{name}")
            self.locals.append(f"type(c_ptr) :: p_{name}")
            self.before.append(f"p_{name} = clt_weak_all({name}, kept_)" if way == WEAK else
                               f"p_{name} = clt_in_all({name}, name_, '{name}', kept_, status_)")
        elif p["depth"] == 2:
            self.handles_out(p)
        elif p["count"] is not None:
            self.values_out(p)
        elif way == WEAK:
            optional = self.dummy(p, f"type({p['type']}), intent(out) :: {name}")
            self.locals.append(f"type(c_ptr), target :: o_{name}")
            self.before.append(f"o_{name} = c_null_ptr")
            self.args.append(f"c_loc(o_{name})")
            self.after.append((True, f"{'if (present(' + name + ')) ' if optional else ''}"
                               f"{name} = clt_value(o_{name}, {self.owner()})"))
        else:
            self.dummy(p, f"type({p['type']}), intent(inout) :: {name}")
            self.locals.append(f"type(c_ptr), target :: o_{name}")
            self.before.append(f"o_{name} = c_null_ptr")
            self.args.append(f"c_loc(o_{name})")
            self.own(p["type"], name, f"o_{name}")

    def own(self, kind, name, value):
        """Makes the handle of a new object, which needs the objects that must outlive it."""
        self.made = name
        for q in [q for q in self.params if q["direction"] == "in"]:
            if is_handle(q) and q["type"] in self.api.handle[kind]["outlived_by"]:
                self.before.append(f"call clt_f_push_need(kept_, {q['name']}%id)")
            elif q["kind"] == "handle" and q["type"] in self.api.handle[kind]["outlived_by"]:
                self.before += [f"do i_ = 1, size({q['name']})",
                                f"  call clt_f_push_need(kept_, {q['name']}(i_)%id)", "end do"]
                self.locals.append("integer :: i_")
        self.after.append((False, f"call clt_own({name}, {value}, "
                           f"c_funloc(c_{self.api.handle[kind]['destroy']}), kept_, status_)"))
        if self.name in tables.NUMBERS:
            self.after.append((False, f"call clt_f_set_number({name}%id, {tables.NUMBERS[self.name]})"))

    def handles_out(self, p):
        """An array of handles, whose objects are closed together."""
        name, count, close = p["name"], p["count"], self.api.handle[p["type"]]["destroy_array"]
        self.dummy(p, f"type({p['type']}), allocatable, intent(inout) :: {name}(:)")
        self.locals += [f"type(c_ptr), target :: o_{name}", f"type(c_ptr), pointer :: list_{name}(:)",
                        "integer(c_int64_t) :: id_", "integer :: i_"]
        self.before.append(f"o_{name} = c_null_ptr")
        self.args.append(f"c_loc(o_{name})")
        self.after.append((False, f"id_ = clt_f_own(o_{name}, o_{count}, c_null_funptr, c_funloc(c_{close}))"))
        self.after.append((False, "if (id_ == 0) status_ = 2"))
        self.after += [(False, line) for line in (
            f"if (allocated({name})) deallocate ({name})", f"allocate ({name}(o_{count}))",
            f"call c_f_pointer(o_{name}, list_{name}, [int(o_{count})])",
            f"do i_ = 1, int(o_{count})", f"  call clt_adopt({name}(i_), list_{name}(i_), id_)", "end do")]

    def values_out(self, p):
        name = p["name"]
        size = self.api_constant(p)
        self.dummy(p, f"type({p['type']}), intent(out) :: {name}({size or ':'})")
        self.locals += [f"type(c_ptr) :: p_{name}", f"type(c_ptr), pointer :: list_{name}(:)", "integer :: i_"]
        first = self.dropped.get(p["count"]) if not size else None
        if first and first != name:
            self.before.append(f"if (status_ == 0 .and. size({name}) /= size({first})) "
                               f"status_ = clt_refuse(name_, '{name} and {first} have different sizes')")
        self.before += [f"p_{name} = clt_room(kept_, int(max(size({name}), 1), c_size_t) * c_sizeof(c_null_ptr))",
                        f"call c_f_pointer(p_{name}, list_{name}, [size({name})])"]
        self.args.append(f"p_{name}")
        self.after += [(True, f"do i_ = 1, size({name})"),
                       (True, f"  {name}(i_) = clt_value(list_{name}(i_), {self.owner()})"), (True, "end do")]

    def api_constant(self, p):
        return next((row["value"] for row in self.api.constants if row["name"] == p.get("count_doc")), None) \
            if p["count"] == "?" else None

    def add_struct(self, p):
        name, kind = p["name"], p["type"]
        if kind == "clt_array" and p["count"] is not None and not self.optional(p):
            raise ValueError(f"{self.name}: {name} is several arrays")
        if kind == "clt_array":
            intent = "inout" if name == "to" else "in"
            optional = self.dummy(p, f"type(*), dimension(..), intent({intent}) :: {name}")
            self.locals.append(f"type(c_ptr) :: p_{name}")
            lines = [f"p_{name} = clt_room(kept_, clt_f_array_bytes())",
                     f"if (status_ == 0) status_ = clt_f_array(name_ // c_null_char, "
                     f"'{name}' // c_null_char, {name}, p_{name})"]
            self.before += ([f"p_{name} = c_null_ptr", f"if (present({name})) then"] + ["  " + line for line in lines] +
                            ["end if"]) if optional else lines
            self.args.append(f"p_{name}")
        elif p["depth"] == 0 and isinstance(p["count"], int):
            self.structs_out(p)
        elif p["depth"] == 0:
            self.dummy(p, f"type({native(kind)}), intent(in) :: {name}")
            self.locals.append(f"type(c_{kind}) :: c_{name}")
            self.before.append(f"call fill_{kind}({name}, c_{name}, kept_, name_, status_)")
            self.args.append(f"c_{name}")
        elif p["direction"] == "in" and p["count"] is None:
            self.struct_in(p)
        elif p["depth"] == 2 and p["direction"] == "out":
            self.struct_found(p)
        elif p["direction"] == "in" or p["depth"] > 1:
            raise ValueError(f"{self.name}: {name} is no single struct")
        else:
            self.struct_out(p)

    def struct_in(self, p):
        name, kind = p["name"], p["type"]
        optional = self.dummy(p, f"type({native(kind)}), intent(in) :: {name}")
        self.locals += [f"type(c_ptr) :: p_{name}", f"type(c_{kind}), pointer :: c_{name}"]
        self.before += [f"p_{name} = clt_room(kept_, {size_of(p)})", f"call c_f_pointer(p_{name}, c_{name})"]
        fill = f"call fill_{kind}({name}, c_{name}, kept_, name_, status_)"
        if optional:
            self.before += [f"if (present({name})) then", f"  {fill}", "else",
                            f"  call c_{self.api.struct[kind]['init']}(p_{name})", "end if"]
        else:
            self.before.append(fill)
        self.args.append(f"p_{name}")

    def struct_out(self, p):
        name, kind = p["name"], p["type"]
        init = self.api.struct[kind]["init"]
        both = (self.name, name) in tables.IN_OUT
        self.dummy(p, f"type({native(kind)}), intent(inout) :: {name}", optional=False)
        self.locals += [f"type(c_ptr) :: p_{name}", f"type(c_{kind}), pointer :: c_{name}"]
        self.before += [f"p_{name} = clt_room(kept_, {size_of(p)})", f"call c_f_pointer(p_{name}, c_{name})"]
        if both:
            self.before.append(f"call fill_{kind}({name}, c_{name}, kept_, name_, status_)")
        elif init:
            self.before.append(f"call c_{init}(p_{name})")
        self.args.append(f"p_{name}")
        owner = self.owner() if self.graphs or self.operands else "0_c_int64_t"
        self.after.append((False, f"call read_{kind}(c_{name}, {name}, {owner})"))

    def struct_found(self, p):
        """A struct in memory of the library."""
        name, kind = p["name"], p["type"]
        self.dummy(p, f"type({native(kind)}), intent(inout) :: {name}", optional=False)
        self.locals += [f"type(c_ptr), target :: o_{name}", f"type(c_{kind}), pointer :: c_{name}"]
        self.before.append(f"o_{name} = c_null_ptr")
        self.args.append(f"c_loc(o_{name})")
        self.after += [(False, f"call c_f_pointer(o_{name}, c_{name})"),
                       (False, f"call read_{kind}(c_{name}, {name}, 0_c_int64_t)")]

    def structs_out(self, p):
        name, kind, count = p["name"], p["type"], p["count"]
        self.dummy(p, f"type({native(kind)}), intent(inout) :: {name}({count})", optional=False)
        self.locals += [f"type(c_{kind}), target :: c_{name}({count})", "integer :: i_"]
        self.args.append(f"c_loc(c_{name})")
        self.after += [(False, f"do i_ = 1, {count}"),
                       (False, f"  call read_{kind}(c_{name}(i_), {name}(i_), 0_c_int64_t)"), (False, "end do")]

    def add_memory(self, p):
        name = p["name"]
        if p["depth"] or not isinstance(p["count"], str):
            raise ValueError(f"{self.name}: memory without a size")
        self.dummy(p, f"type(*), dimension(..), intent({'in' if p['const'] else 'inout'}) :: {name}")
        self.locals += [f"type(c_ptr) :: p_{name}", f"integer(c_size_t) :: b_{name}"]
        self.before.append(f"if (status_ == 0) status_ = clt_f_memory(name_ // c_null_char, '{name}' // "
                           f"c_null_char, {name}, p_{name}, b_{name})")
        self.args.append(f"p_{name}")

    def add_opencl(self, p):
        name = p["name"]
        if p["depth"] == 0:
            optional = self.dummy(p, f"type(c_ptr), intent(in) :: {name}")
            self.locals.append(f"type(c_ptr) :: p_{name}")
            self.before.append(f"p_{name} = c_null_ptr")
            self.before.append(f"{'if (present(' + name + ')) ' if optional else ''}p_{name} = {name}")
            self.args.append(f"p_{name}")
            return
        self.dummy(p, f"type(c_ptr), intent(out) :: {name}")
        self.locals += [f"type(c_ptr), target :: o_{name}", f"type(c_ptr) :: p_{name}"]
        self.before += [f"o_{name} = c_null_ptr", f"p_{name} = c_null_ptr",
                        f"if (present({name})) p_{name} = c_loc(o_{name})"]
        self.args.append(f"p_{name}")
        self.after.append((True, f"if (present({name})) {name} = o_{name}"))

    def add_callback(self, p):
        name = p["name"]
        row = callbacks.signature(p, self.api)
        self.callbacks.append((name, f"{self.name}_{name}", row))
        optional = self.dummy(p, f"procedure({self.name}_{name}) :: {name}")
        self.locals += [f"type({self.name}_calls), pointer :: calls_", "type(c_funptr) :: f_" + name]
        self.before += [f"f_{name} = c_null_funptr", "allocate (calls_)", "calls_%user => clt_nobody",
                        f"call clt_f_push(kept_, c_loc(calls_), c_funloc(free_{self.name}_calls))"]
        lines = [f"f_{name} = c_funloc({self.name}_{name}_t)", f"calls_%{name} => {name}"]
        self.before += [f"if (present({name})) then"] + ["  " + line for line in lines] + ["end if"] \
            if optional else lines
        self.args.append(f"f_{name}")

    def add_user(self, p):
        name = p["name"]
        self.dummy(p, f"class(*), target, intent(in) :: {name}", optional=True)
        self.before.append(f"if (present({name})) calls_%user => {name}")
        self.args.append("c_loc(calls_)")

    def result(self):
        """Says what the procedure is: a subroutine, or a function of some type."""
        r = self.f["returns"]
        kind = r["kind"]
        self.type = self.value = self.empty = None
        if kind in ("scalar", "enum") and r["depth"] == 0:
            self.type, self.value, self.empty = scalar(r), from_c(r, "r_"), "0"
            self.locals.append(f"{scalar(r, 1)} :: r_")
        elif kind == "string":
            self.type, self.value, self.empty = "character(:), allocatable", "clt_text(r_)", "''"
            self.locals.append("type(c_ptr) :: r_")
        elif kind == "opencl":
            self.type, self.value, self.empty = "type(c_ptr)", "r_", "c_null_ptr"
            self.locals.append("type(c_ptr) :: r_")
        elif kind == "handle" and hold(r, self.api) != STRONG:
            owner = self.owner() if hold(r, self.api) == WEAK else "0_c_int64_t"
            self.type, self.empty = f"type({r['type']})", None
            self.value = f"{r['type']}(r_, {owner})"
            self.locals.append("type(c_ptr) :: r_")
        elif kind == "handle":
            name = r["type"][4:]
            self.dummies.append((name, f"type({r['type']}), intent(inout) :: {name}", False, False))
            self.locals.append("type(c_ptr) :: r_")
            self.before.append(f"call clt_f_push_need(kept_, {self.params[0]['name']}%id)")
            self.made = name
            self.after.append((False, f"call clt_own({name}, r_, c_null_funptr, kept_, status_)"))
        elif kind == "struct":
            self.type, self.value, self.empty = f"type({native(r['type'])})", None, None
            self.locals += ["type(c_ptr) :: r_", f"type(c_{r['type']}), pointer :: c_r_"]
            self.after += [(False, "if (c_associated(r_)) then"), (False, "  call c_f_pointer(r_, c_r_)"),
                           (False, f"  call read_{r['type']}(c_r_, result_, 0_c_int64_t)"), (False, "end if")]
        elif kind not in ("status", "void"):
            raise ValueError(f"{self.name}: a result of kind {kind}")
        self.fails = kind in ("status", "void") or self.strong
        if self.type and self.operands and not kind == "status" and hold_value(r):
            self.fails = False

    def emit(self, out):
        """Writes the procedure, and one for default integers if it takes long ones."""
        wide = any(d[2] for d in self.dummies)
        specific = self.name + "_l" if wide else self.name
        self.emit_specific(out, specific)
        if wide:
            self.emit_default(out, specific)
        return [specific, self.name + "_i"] if wide else None

    def head(self, name):
        names = [d[0] for d in self.dummies] + (["stat", "errmsg"] if self.fails else [])
        if self.type:
            return f"function {name}({', '.join(names)}) result(result_)"
        return f"subroutine {name}({', '.join(names)})"

    def declare_end(self, out):
        if self.fails:
            out.put("integer, intent(out), optional :: stat", "character(*), intent(inout), optional :: errmsg")
        if self.type:
            out.put(f"{self.type} :: result_")

    def emit_specific(self, out, name):
        out.open(self.head(name))
        out.put(*[d[1] for d in self.dummies])
        self.declare_end(out)
        out.put(f"character(*), parameter :: name_ = '{self.name}'")
        out.put(*dict.fromkeys(self.locals))
        out.put("kept_ = c_null_ptr", "status_ = 0")
        if self.empty:
            out.put(f"result_ = {self.empty}")
        out.put(*[line if self.fails or " = clt_chars(" not in line else line.replace(", status_)", ")")
                  for line in self.before])
        call = f"c_{self.name}({', '.join(self.args)})"
        kind = self.f["returns"]["kind"]
        # Only builders of values take NULL for values.
        guard = [f"c_associated(p_{p['name']})" for p in self.operands if not p["count"] and not self.optional(p)
                 and not hold_value(self.f["returns"]) and kind not in ("status",)]
        out.put("if (" + " .and. ".join(["status_ == 0"] + guard) + ") then")
        out.put("  " + {"void": f"call {call}", "status": f"status_ = {call}"}.get(kind, f"r_ = {call}"))
        if self.value:
            out.put(f"  result_ = {self.value}")
        out.put("end if")
        out.put(*[line for always, line in self.after if always])
        if any(not always for always, _ in self.after):
            out.put("if (status_ == 0) then", *["  " + line for always, line in self.after if not always], "end if")
        if not self.keeps_forever():
            out.put("call clt_f_hand_over(kept_, 0_c_int64_t)")
        if self.fails and self.name == "clt_error_set":
            out.put("! The status is the program's own, which this call only passes on.",
                    "if (present(stat)) call clt_report(status_, stat, errmsg)")
        elif self.fails:
            out.put("call clt_report(status_, stat, errmsg)")
        out.close("end function" if self.type else "end subroutine")
        out.put("")

    def keeps_forever(self):
        """The log's callback belongs to the process."""
        return bool(self.callbacks) and not self.made

    def emit_default(self, out, specific):
        """Writes the form for default integers."""
        out.open(self.head(self.name + "_i"))
        late = []
        arguments = []
        for name, declaration, wide, optional in self.dummies:
            out.put(declaration.replace("integer(c_int64_t)", "integer(c_int)") if wide else declaration)
            keyword = f"{name}=" if any(d[3] for d in self.dummies) else ""
            if wide and optional:
                late.append(name)
                arguments.append(f"{keyword}long_{name}")
            else:
                arguments.append(f"{keyword}" + (f"int({name}, c_int64_t)" if wide else name))
        self.declare_end(out)
        for name in late:
            shape = "(:)" if "(:)" in next(d[1] for d in self.dummies if d[0] == name) else ""
            out.put(f"integer(c_int64_t), allocatable :: long_{name}{shape}")
        for name in late:
            if "(:)" in next(d[1] for d in self.dummies if d[0] == name):
                out.put(f"if (present({name})) allocate (long_{name}(size({name})))")
            out.put(f"if (present({name})) long_{name} = int({name}, c_int64_t)")
        if self.fails:
            arguments += ["stat=stat", "errmsg=errmsg"]
        call = f"{specific}({', '.join(arguments)})"
        out.put(f"result_ = {call}" if self.type else f"call {call}")
        out.close("end function" if self.type else "end subroutine")
        out.put("")


def hold_value(item):
    return item["kind"] == "handle" and item["type"] == "clt_value"


def emit_destroy(out, function, handle):
    """Writes the function that destroys an object."""
    name = function["params"][0]["name"]
    out.open(f"subroutine {function['name']}({name}, stat, errmsg)")
    out.put(f"type({handle}), intent(in) :: {name}", "integer, intent(out), optional :: stat",
            "character(*), intent(inout), optional :: errmsg",
            f"call clt_destroy({name}, '{function['name']}', '{name}', stat, errmsg)")
    out.close("end subroutine")
    out.put("")


def emit_destroy_array(out, function, handle):
    """The same for an array of handles, which have one slot."""
    name = function["params"][0]["name"]
    out.open(f"subroutine {function['name']}({name}, stat, errmsg)")
    out.put(f"type({handle}), intent(in) :: {name}(:)", "integer, intent(out), optional :: stat",
            "character(*), intent(inout), optional :: errmsg", "if (present(stat)) stat = 0",
            f"if (size({name}) > 0) call clt_destroy({name}(1), '{function['name']}', '{name}', stat, errmsg)")
    out.close("end subroutine")
    out.put("")
