"""Shows headers to the generator of api.json: legal ones, whose description is compared, and ones that it must
refuse with the header and the line.

    generate.py ROOT COMPILER
"""
import json
import os
import subprocess
import sys
import tempfile

ROOT, COMPILER = sys.argv[1], sys.argv[2]
SCRIPT = f"{ROOT}/runtime/bindings/generate/describe.py"
HEAD = "/* A header. */\n#include <stddef.h>\n#include <stdint.h>\n#define CLT_API\n"
LEGAL = HEAD + """
/* A thing. */
typedef struct clt_thing clt_thing;

/* Most of all. */
#define CLT_MOST 7

/* Frees it. */
CLT_API void clt_thing_destroy(clt_thing *thing);

/* Settings. */
typedef struct clt_thing_options {
    size_t struct_size;
    int64_t sizes[3]; /* three */
    const double *weights;
    int n_weights; /* of weights */
    void (*on_end)(void *user, int reason);
    void *user;
} clt_thing_options;

/* Sets the defaults. */
CLT_API void clt_thing_options_init(clt_thing_options *options);

/* Makes a thing; *count is how many there are. */
CLT_API int clt_thing_make(const clt_thing_options *options, clt_thing **thing,
                           int *count);
CLT_API int clt_thing_make_again(const clt_thing_options *options, clt_thing **thing,
                                 int *count); /* again */
"""
REFUSED = [
    # (what is added, what the message says)
    ("CLT_API void clt_f(long double x);", "the type long double is unknown"),
    ("CLT_API void clt_f(const int *sizes);", "sizes: neither the declaration nor a row"),
    ("/* Gives some numbers. */\nCLT_API void clt_f(double *numbers);", "numbers: neither the declaration nor a row"),
    ("CLT_API void clt_f(char *where);", "where: no `room` says"),
    ("CLT_API void clt_f(struct clt_nothing *x);", "struct clt_nothing is declared nowhere"),
    ("CLT_API void clt_f(const char *format, ...);", "a variable number of arguments"),
    ("typedef struct clt_open clt_open;\nCLT_API void clt_open_use(clt_open *open);", "nothing frees clt_open"),
    ("typedef struct clt_o {\n    size_t struct_size;\n} clt_o;", "clt_o has struct_size, but there is no clt_o_init"),
    ("typedef struct clt_bits {\n    int a : 3;\n} clt_bits;", "a bit-field"),
    ("typedef union clt_u {\n    int a;\n} clt_u;", "a typedef of another kind"),
    ("extern int clt_number;", "neither a function nor a type"),
]


def describe(text, folder):
    os.makedirs(os.path.join(folder, "cltrain"), exist_ok=True)
    with open(os.path.join(folder, "cltrain/a.h"), "w", encoding="utf-8") as file:
        file.write(text)
    # The rows of tables.py are for the real headers, so this description knows none.
    program = ("import sys; sys.argv[0] = sys.argv[1]; sys.path.insert(0, sys.argv[2]); import tables\n"
               "tables.LENGTHS, tables.OWNERS, tables.OUTLIVED_BY = {}, {}, {}\n"
               "tables.SINGLE, tables.WRITTEN_ONE = set(), set()\n"
               "import describe; describe.main(sys.argv[3:])")
    return subprocess.run([sys.executable, "-B", "-c", program, SCRIPT, os.path.dirname(SCRIPT), "read", folder,
                           "--compiler", COMPILER, "--header", folder, "cltrain/a.h", "cltrain"],
                          capture_output=True, text=True, check=False)


def same(what, found, expected):
    if found != expected:
        sys.exit(f"{what}: {found!r} instead of {expected!r}")


def legal(folder):
    run = describe(LEGAL, folder)
    if run.returncode:
        sys.exit(run.stderr)
    with open(os.path.join(folder, "parsed.json"), encoding="utf-8") as file:
        found = json.load(file)
    thing, = found["handles"]
    same("the handle", (thing["name"], thing["destroy"], thing["doc"]), ("clt_thing", "clt_thing_destroy", "A thing."))
    same("the constant", [(c["name"], c["doc"]) for c in found["constants"]], [("CLT_MOST", "Most of all.")])
    options, = found["structs"]
    same("the struct", (options["struct_size"], options["init"]), (True, "clt_thing_options_init"))
    same("the members", [(m["name"], m["kind"], m["depth"], m["count"], m["doc"]) for m in options["members"]],
         [("struct_size", "scalar", 0, None, ""), ("sizes", "scalar", 0, 3, "three"),
          ("weights", "scalar", 1, "n_weights", ""), ("n_weights", "scalar", 0, None, "of weights"),
          ("on_end", "callback", 0, None, ""), ("user", "user", 0, None, "")])
    same("the callback", [p["name"] for p in options["members"][4]["params"]], ["user", "reason"])
    make, again = found["functions"][2:]
    same("the parameters", [(p["kind"], p["direction"], p["depth"], p.get("owned")) for p in make["params"]],
         [("struct", "in", 1, None), ("handle", "out", 1, True), ("scalar", "out", 1, None)])
    same("the comment", make["doc"], "Makes a thing; *count is how many there are.")
    same("the shared comment", again["doc"], make["doc"] + "\nagain")


def main():
    with tempfile.TemporaryDirectory() as folder:
        legal(folder)
        for added, message in REFUSED:
            run = describe(HEAD + added + "\n", folder)
            if run.returncode == 0 or message not in run.stderr or "cltrain/a.h" not in run.stderr:
                sys.exit(f"{added}\nwas not refused with {message!r}: {run.returncode}\n{run.stderr}")
    print(f"1 header described, {len(REFUSED)} refused")


main()
