"""Types for the structs of C: one with C's layout, and one for programs, and what converts them."""
import api as description
from tables import HAND_STRUCTS, IN_OUT, LEFT_OUT_MEMBERS, RENAMED
from writer import Source, WIDE, from_c, scalar, to_c

# Counts of arrays that programs set themselves, because the arrays may be left out.
KEPT_COUNTS = {("clt_sync_report", "replicas")}


def native(name):
    """Returns the name of a type in Fortran."""
    return RENAMED.get(name, name)


def guarded(owner, name):
    """Returns the further argument of clt_reals and clt_longs for an array whose length only C knows."""
    return f", {description.GUARDED[owner, name]}" if (owner, name) in description.GUARDED else ""


def is_handle(item):
    """Returns whether an item is one handle."""
    return item["kind"] == "handle" and item["depth"] == 0


def dropped(struct):
    """Returns the members that arrays of programs tell: their counts and ranks."""
    names = {m["count"] for m in struct["members"]
             if isinstance(m["count"], str) and m["count"] != "?" and m["kind"] != "memory"}
    names = {n for n in names if (struct["name"], n) not in KEPT_COUNTS}
    if any(is_dims(m, struct) for m in struct["members"]):
        names.add("rank")
    return names


def is_dims(member, struct):
    """Returns whether a member has the dimensions of something, of which `rank` are used."""
    return member["name"] in ("dims", "shape") and isinstance(member["count"], int) and \
        any(m["name"] == "rank" for m in struct["members"])


def is_array(member):
    """Returns whether a member points to an array whose length the struct knows."""
    return member["depth"] == 1 and member["count"] is not None


def c_member(m):
    """Returns the declaration of a member with C's layout."""
    kind, name = m["kind"], m["name"]
    size = f"({m['count']})" if isinstance(m["count"], int) else ""
    if m["depth"] == 0 and kind in ("scalar", "enum"):
        return f"{scalar(m, 1)} :: {name}{size}"
    if kind == "text":
        return f"character(c_char) :: {name}{size}"
    if kind == "struct" and m["depth"] == 0:
        return f"type(c_{m['type']}) :: {name}"
    if kind == "callback":
        return f"type(c_funptr) :: {name}"
    return f"type(c_ptr) :: {name}{size}"


def emit_layout(out, struct):
    """Writes the type with C's layout."""
    out.open(f"type, bind(c) :: c_{struct['name']}")
    for m in struct["members"]:
        out.put(c_member(m))
    out.close("end type")
    out.put("")


def native_member(m, struct, api):
    """Returns the declaration of a member for programs; None if they do not have it."""
    kind, name = m["kind"], m["name"]
    size = f"({m['count']})" if isinstance(m["count"], int) else ""
    if name in dropped(struct):
        return None
    if is_dims(m, struct):
        return f"integer(c_int64_t), allocatable :: {name}(:)"
    if kind in ("scalar", "enum"):
        if m["depth"] == 0:
            return f"{scalar(m)} :: {name}{size} = 0"
        return f"{scalar(m)}, allocatable :: {name}(:)"
    if kind == "text":
        return f"character({m['count']}) :: {name} = ''"
    if kind == "string":
        return f"character(:), allocatable :: {name}" if m["depth"] == 0 else None
    if is_handle(m):
        return f"type({m['type']}) :: {name}{size}"
    if kind == "handle":
        return f"type({m['type']}), allocatable :: {name}(:)"
    if kind == "struct":
        if m["depth"] == 0:
            return f"type({native(m['type'])}) :: {name}"
        return f"type({native(m['type'])}), allocatable :: {name}" + ("(:)" if is_array(m) else "")
    if kind == "callback":
        return f"procedure({struct['name']}_{name}), pointer, nopass :: {name} => null()"
    if kind == "user":
        return f"class(*), pointer :: {name} => null()"
    return f"type(c_ptr) :: {name} = c_null_ptr"


def emit_native(out, struct, api):
    """Writes the type for programs."""
    out.note(struct["doc"])
    out.open(f"type :: {native(struct['name'])}")
    for m in struct["members"]:
        line = native_member(m, struct, api)
        if line:
            for text in m.get("doc", "").splitlines():
                out.put("! " + text)
            out.put(line)
    out.close("end type")
    out.put("")


def emit_fill(out, struct, api):
    """Writes fill_NAME, which sets the struct of C from that of a program."""
    name = struct["name"]
    counted = {}
    for m in struct["members"]:
        if is_array(m) and isinstance(m["count"], str) and m["count"] in dropped(struct):
            counted.setdefault(m["count"], []).append(m["name"])
    calls = any(m["kind"] == "callback" for m in struct["members"])
    out.open(f"recursive subroutine fill_{name}(n, c, kept, call, status)")
    out.put(f"type({native(name)}), intent(in) :: n", f"type(c_{name}), intent(inout) :: c",
            "type(c_ptr), intent(inout) :: kept", "character(*), intent(in) :: call",
            "integer(c_int), intent(inout) :: status")
    if calls:
        out.put(f"type({name}_calls), pointer :: calls")
    if any(m["kind"] == "struct" and is_array(m) for m in struct["members"]):
        for m in struct["members"]:
            if m["kind"] == "struct" and is_array(m):
                out.put(f"type(c_{m['type']}), pointer :: list_{m['name']}(:)")
        out.put("integer :: i")
    elif any(m["kind"] == "handle" and isinstance(m["count"], int) for m in struct["members"]):
        out.put("integer :: i")
    if struct["struct_size"] and struct["init"]:
        out.put(f"if (status == 0 .and. n%struct_size == 0) status = clt_refuse(call, "
                f"'the {native(name)} was not set up, call {name}_init first')")
    for m in struct["members"]:
        fill_member(out, m, struct, counted)
    if calls:
        fill_callbacks(out, struct)
    out.close("end subroutine")
    out.put("")


def fill_member(out, m, struct, counted):
    """Returns whether C gets what the program has set."""
    kind, name = m["kind"], m["name"]
    if name in counted:
        first = counted[name][0]
        out.put(f"c%{name} = 0", f"if (allocated(n%{first})) c%{name} = size(n%{first})")
        for other in counted[name][1:]:
            out.put(f"if (allocated(n%{other})) then")
            out.put(f"  if (size(n%{other}) /= c%{name} .and. status == 0) status = clt_refuse(call, "
                    f"'{first} and {other} have different sizes')")
            out.put("end if")
    elif is_dims(m, struct):
        out.put(f"c%rank = 0; c%{name} = 0", f"if (allocated(n%{name})) then",
                f"  if (size(n%{name}) > size(c%{name})) then",
                f"    status = clt_refuse(call, '{name} has too many dimensions')", "  else",
                f"    c%rank = size(n%{name})", f"    c%{name}(1:c%rank) = clt_reversed(n%{name})",
                "  end if", "end if")
    elif name == "rank" and name in dropped(struct):
        pass
    elif kind in ("scalar", "enum") and m["depth"] == 0:
        out.put(f"c%{name} = {to_c(m, 'n%' + name)}")
    elif kind in ("scalar", "enum"):
        keep = "clt_longs" if m["type"] in WIDE else "clt_reals" if m["type"] == "double" else "clt_ints"
        out.put(f"c%{name} = c_null_ptr",
                f"if (allocated(n%{name})) c%{name} = {keep}(n%{name}, kept{guarded(struct['name'], name)})")
    elif kind == "text":
        out.put(f"call clt_need_whole(n%{name}, call, '{name}', status)", f"call clt_spread(n%{name}, c%{name})")
    elif kind == "string" and m["depth"] == 0:
        out.put(f"c%{name} = c_null_ptr",
                f"if (allocated(n%{name})) c%{name} = clt_chars(n%{name}, kept, call, '{name}', status)")
    elif is_handle(m):
        fill_handle(out, m)
    elif kind == "handle":
        out.put(f"c%{name} = c_null_ptr",
                f"if (allocated(n%{name})) c%{name} = clt_in_all(n%{name}, call, '{name}', kept, status)",
                f"if (allocated(n%{name})) call clt_keep_all(n%{name}, kept)")
    elif kind == "struct" and m["depth"] == 0:
        out.put(f"call fill_{m['type']}(n%{name}, c%{name}, kept, call, status)")
    elif kind == "struct" and is_array(m):
        out.put(f"c%{name} = c_null_ptr", f"if (allocated(n%{name})) then",
                f"  c%{name} = clt_room(kept, int(size(n%{name}), c_size_t) * {size_of(m)})",
                f"  call c_f_pointer(c%{name}, list_{name}, [size(n%{name})])",
                f"  do i = 1, size(n%{name})",
                f"    call fill_{m['type']}(n%{name}(i), list_{name}(i), kept, call, status)",
                "  end do", "end if")
    elif kind in ("memory", "opencl") and m["depth"] == 0:
        out.put(f"c%{name} = n%{name}")
    elif kind == "callback":
        out.put(f"c%{name} = c_null_funptr")
    else:
        out.put(f"c%{name} = c_null_ptr")
        return kind == "user"
    return True


def size_of(item):
    return f"c_size_of_{item['type']}"


def fill_handle(out, m):
    name = m["name"]
    if m["type"] == "clt_value":
        if isinstance(m["count"], int):
            out.put(f"do i = 1, {m['count']}", f"  c%{name}(i) = clt_weak(n%{name}(i))", "end do")
        else:
            out.put(f"c%{name} = clt_weak(n%{name})")
        return
    out.put(f"c%{name} = c_null_ptr", f"if (n%{name}%id /= 0) then",
            f"  c%{name} = clt_in(n%{name}, call, '{name}', status)",
            f"  call clt_f_push_need(kept, n%{name}%id)", "end if")


def fill_callbacks(out, struct):
    """Writes how C's callbacks reach procedures of the program: `user` points to those."""
    name = struct["name"]
    user = next(m["name"] for m in struct["members"] if m["kind"] == "user")
    rows = [m["name"] for m in struct["members"] if m["kind"] == "callback"]
    out.open("if (" + " .or. ".join(f"associated(n%{row})" for row in rows) + ") then")
    out.put("allocate (calls)", "calls%user => clt_nobody",
            f"if (associated(n%{user})) calls%user => n%{user}",
            "call clt_f_push(kept, c_loc(calls), c_funloc(free_" + name + "_calls))",
            f"c%{user} = c_loc(calls)")
    for row in rows:
        out.put(f"calls%{row} => n%{row}",
                f"if (associated(n%{row})) c%{row} = c_funloc({name}_{row}_t)")
    out.close("end if")


def emit_read(out, struct, api):
    """Writes read_NAME, which sets the struct of a program from that of C. Values that it has belong
    to the graph of the slot `owner`."""
    name = struct["name"]
    out.open(f"recursive subroutine read_{name}(c, n, owner)")
    out.put(f"type(c_{name}), intent(in) :: c", f"type({native(name)}), intent(inout) :: n",
            "integer(c_int64_t), intent(in) :: owner")
    lists = [m for m in struct["members"] if m["depth"] == 1 and m["kind"] in ("scalar", "enum", "struct")
             and not is_handle(m) and m["count"] != "?" and not (m["kind"] == "struct" and is_array(m))]
    for m in lists:
        kind = f"type(c_{m['type']})" if m["kind"] == "struct" else scalar(m, 1)
        out.put(f"{kind}, pointer :: list_{m['name']}" + ("(:)" if m["count"] is not None else ""))
    if any(m["kind"] == "handle" and isinstance(m["count"], int) for m in struct["members"]):
        out.put("integer :: i")
    for m in struct["members"]:
        read_member(out, m, struct)
    out.close("end subroutine")
    out.put("")


def read_member(out, m, struct):
    """Returns whether the program gets what C has set."""
    kind, name = m["kind"], m["name"]
    if is_dims(m, struct):
        out.put(f"n%{name} = clt_reversed(c%{name}(1:c%rank))")
    elif name in dropped(struct) and m["depth"] == 0:
        pass
    elif kind in ("scalar", "enum") and m["depth"] == 0:
        out.put(f"n%{name} = {from_c(m, 'c%' + name)}")
    elif kind in ("scalar", "enum", "struct") and m["depth"] == 1 and not is_handle(m):
        gone = f"if (allocated(n%{name})) deallocate (n%{name})"
        if m["count"] is None and kind == "struct":
            out.put(gone, f"if (c_associated(c%{name})) then", f"  call c_f_pointer(c%{name}, list_{name})",
                    f"  allocate (n%{name})", f"  call read_{m['type']}(list_{name}, n%{name}, owner)",
                    "end if")
        elif m["count"] != "?" and kind != "struct":
            out.put(gone, f"if (c_associated(c%{name})) then",
                    f"  call c_f_pointer(c%{name}, list_{name}, [int(c%{m['count']})])",
                    f"  n%{name} = list_{name}", "end if")
        else:  # the program's own, if it gave the struct
            return False
    elif kind == "text":
        out.put(f"n%{name} = clt_joined(c%{name})")
    elif kind == "string" and m["depth"] == 0:
        out.put(f"if (allocated(n%{name})) deallocate (n%{name})",
                f"if (c_associated(c%{name})) n%{name} = clt_text(c%{name})")
    elif kind == "handle" and m["type"] == "clt_value":
        if isinstance(m["count"], int):
            out.put(f"do i = 1, {m['count']}", f"  n%{name}(i)%object = c%{name}(i)",
                    f"  n%{name}(i)%id = owner", "end do")
        else:
            out.put(f"n%{name}%object = c%{name}", f"n%{name}%id = owner")
    elif kind == "struct" and m["depth"] == 0:
        out.put(f"call read_{m['type']}(c%{name}, n%{name}, owner)")
    elif kind in ("memory", "opencl") and m["depth"] == 0:
        out.put(f"n%{name} = c%{name}")
    else:
        return False
    return True


def emit_init(out, struct):
    """Writes NAME_init."""
    name = struct["name"]
    out.note("Fills in the defaults.")
    out.open(f"subroutine {struct['init']}(options)")
    out.put(f"type({native(name)}), intent(out) :: options", f"type(c_{name}), target :: c",
            f"call c_{struct['init']}(c_loc(c))", f"call read_{name}(c, options, 0_c_int64_t)")
    out.close("end subroutine")
    out.put("")


def needed_structs(functions, api):
    """Returns the names of the structs that functions use, with those in them, members first."""
    names = []

    def add(name):
        if name in names or name in HAND_STRUCTS or name not in api.struct:
            return
        for m in api.struct[name]["members"]:
            if m["kind"] == "struct":
                add(m["type"])
            for p in m.get("params", []) if m["kind"] == "callback" else []:
                if p["kind"] == "struct":
                    add(p["type"])
        if name not in names:
            names.append(name)

    for f in functions:
        for item in f["params"] + [f["returns"]]:
            if item["kind"] == "struct":
                add(item["type"])
            elif item["kind"] == "callback" and item["type"] in api.callback:
                for p in api.callback[item["type"]]["params"]:
                    if p["kind"] == "struct":
                        add(p["type"])
    return names


def directions(functions, api):
    """Returns the structs that programs give to functions, and those that they get from C."""
    given, got = set(), set()

    def add(name, names):
        if name not in names and name not in HAND_STRUCTS and name in api.struct:
            names.add(name)
            for m in api.struct[name]["members"]:
                if m["kind"] == "struct":
                    add(m["type"], names)
                for p in m.get("params", []) if m["kind"] == "callback" else []:
                    if p["kind"] == "struct":
                        add(p["type"], got)

    for f in functions:
        for item in f["params"] + [f["returns"]]:
            if item["kind"] == "callback":
                for p in api.callback.get(item["type"], item).get("params", []):
                    if p["kind"] == "struct":
                        add(p["type"], got)
            elif item["kind"] == "struct" and (item["direction"] == "in" and item is not f["returns"] or
                                               (f["name"], item["name"]) in IN_OUT):
                add(item["type"], given)
            elif item["kind"] == "struct" and f["name"] != api.struct[item["type"]]["init"]:
                add(item["type"], got)
    return given, got


def check(functions, api):
    """Raises ValueError if a struct that functions use has a member that Fortran cannot have."""
    for f in functions:
        for p in f["params"]:
            if p["kind"] == "struct" and p["type"] in HAND_STRUCTS - {"clt_array"}:
                raise ValueError(f"takes a {p['type']}; write it by hand")
    for name in needed_structs(functions, api):
        for m in api.struct[name]["members"]:
            plain = m["depth"] == 0 or (m["depth"] == 1 and m["kind"] in ("scalar", "enum", "struct", "handle", "string",
                                                                         "opencl"))
            if not plain or m["kind"] in ("mpi",):
                raise ValueError(f"{name} has {m['c']}")
    given, got = directions(functions, api)
    for name in sorted(given | got):
        struct, out = api.struct[name], Source("")
        for m in struct["members"]:
            if m["name"] in dropped(struct):
                continue
            reaches = native_member(m, struct, api) and (name not in given or fill_member(out, m, struct, {})) \
                and (name not in got or read_member(out, m, struct))
            if not reaches and (name, m["name"]) not in LEFT_OUT_MEMBERS:
                raise ValueError(f"{name} has {m['c']}, which would be lost")
