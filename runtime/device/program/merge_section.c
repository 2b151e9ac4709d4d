#include "device/program/merge_section.h"

#include <ctype.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/hash.h"
#include "device/program/program.h"
#include "device/program/source_tokens.h"

/* What is known of a name in the text. */
enum {
    IS_GLOBAL = 1,    /* a function, type or constant of the file */
    IS_MACRO = 2,     /* of the file or of the options */
    MAKES_KERNEL = 4, /* a macro with `kernel` in its text */
    IS_KERNEL = 8,
    READS_PLACE = 16, /* another function that asks for the work-item's place */
    IS_FOREIGN = 32,  /* a word of OpenCL C, or a name of core/builtins.clh */
    IS_ASKED = 64     /* the file asks whether a macro of the name is defined */
};

typedef struct name {
    const char *at; /* NULL: a free place of the table */
    size_t length;
    int traits;
    const char *defined; /* the name in the head of its function, in the text */
} name;

enum { PLACES = 1 << 14, MOST_NAMES = PLACES / 2 };

/* Names point into texts that must outlive the table. */
typedef struct names {
    name *all; /* a hash table of PLACES */
    int count;
    bool full;
} names;

static name *find(names *n, const char *at, size_t length)
{
    static name none;
    size_t i = (size_t)clt_hash(at, length, 0) % PLACES;
    while (n->all[i].at && (n->all[i].length != length || memcmp(n->all[i].at, at, length)))
        i = (i + 1) % PLACES;
    if (!n->all[i].at) {
        n->full = n->full || n->count == MOST_NAMES;
        if (n->full)
            return &none;
        n->all[i] = (name){at, length, 0, NULL};
        n->count++;
    }
    return &n->all[i];
}

static bool is(const char *at, size_t length, const char *word)
{
    return length == strlen(word) && !memcmp(at, word, length);
}

static bool begins_name(char c)
{
    return isalpha((unsigned char)c) || c == '_';
}

/* Where the reader of a text is. */
typedef struct reader {
    names *n;
    int word;           /* number of the word in a directive; 0: no directive */
    bool defines;       /* the directive is #define */
    bool asks;          /* whether a macro of the next name is defined */
    name *macro;        /* that it defines */
    int braces, parens; /* outside of directives */
    name *function;     /* whose head or body this is */
    bool makes_kernel;  /* the head has `kernel` */
    bool makes_type, makes_enum, calls_macro;
    name *last;  /* name of the head that was read last */
    char before; /* first character of the token before */
    bool tags;   /* the token before is struct, union or enum */
    bool begun;  /* the head has a word */
} reader;

static void read_directive(reader *r, const char *at, size_t length)
{
    r->word++;
    if (r->word == 2)
        r->defines = is(at, length, "define");
    if (!begins_name(*at))
        return;
    name *found = find(r->n, at, length);
    if (r->asks)
        found->traits |= IS_ASKED;
    r->asks = is(at, length, "defined") || is(at, length, "ifdef") || is(at, length, "ifndef");
    if (r->word == 3 && r->defines) {
        r->macro = found;
        found->traits |= IS_MACRO;
    } else if (r->word > 2) {
        if (r->macro && is(at, length, "kernel"))
            r->macro->traits |= MAKES_KERNEL;
    }
}

/* A file defines names with macros too, as their arguments. */
static bool is_macro_argument(const reader *r, char after)
{
    return r->calls_macro && r->parens && (r->before == '(' || r->before == ',') &&
           (after == ',' || after == ')');
}

/* A head's first name before a parenthesis is the function's, and the last name of a typedef the
 * type's. */
static void read_head_name(reader *r, const char *at, size_t length, char after)
{
    name *found = find(r->n, at, length);
    r->makes_kernel |= is(at, length, "kernel") || found->traits & MAKES_KERNEL;
    r->makes_type |= is(at, length, "typedef");
    r->makes_enum |= is(at, length, "enum");
    if (r->tags || is_macro_argument(r, after) || (!r->parens && (after == '[' || after == '=')))
        found->traits |= IS_GLOBAL;
    const bool begins = !r->begun;
    r->begun = true;
    if (r->parens || at[0] == '_')
        return;
    r->last = found;
    if (after == '(' && found->traits & IS_MACRO) {
        r->calls_macro = begins;
    } else if (after == '(' && !r->function && !r->makes_type) {
        found->traits |= IS_GLOBAL;
        found->defined = at;
        r->function = found;
    }
}

static void end_head(reader *r)
{
    r->function = NULL;
    r->makes_kernel = r->makes_type = r->makes_enum = r->calls_macro = r->begun = false;
}

/* Branches of #if may open more braces than they close. Files are formatted: only bodies of
 * functions and types begin and end in the first column. */
static void count_braces(reader *r, const char *at)
{
    const bool in_first_column = at[-1] == '\n';
    r->parens += *at == '(' ? 1 : *at == ')' ? -1 : 0;
    r->braces += *at == '{' ? 1 : *at == '}' ? -1 : 0;
    if (in_first_column && *at == '{')
        r->braces = 1;
    if (in_first_column && *at == '}')
        r->braces = 0;
    if (in_first_column && (*at == '{' || *at == '}'))
        r->parens = 0;
}

static void read_code(reader *r, const char *at, size_t length, char after)
{
    const bool word = begins_name(*at);
    if (word && !r->braces)
        read_head_name(r, at, length, after);
    else if (word && r->function &&
             (is(at, length, "get_global_id") || is(at, length, "get_global_size")))
        r->function->traits |= READS_PLACE;
    else if (word && r->makes_enum && r->braces == 1 && (r->before == '{' || r->before == ','))
        find(r->n, at, length)->traits |= IS_GLOBAL;
    if (*at == '{' && !r->braces && r->function && r->makes_kernel)
        r->function->traits |= IS_KERNEL;
    count_braces(r, at);
    if (*at == ';' && !r->braces && r->makes_type && r->last)
        r->last->traits |= IS_GLOBAL;
    const bool ends_call = *at == ')' && !r->parens && r->calls_macro;
    if (!r->braces && (*at == ';' || ends_call || (*at == '}' && !r->makes_type)))
        end_head(r);
    r->before = *at;
    r->tags = is(at, length, "struct") || is(at, length, "union") || is(at, length, "enum");
}

static void read_names(names *n, const char *text)
{
    reader r = {.n = n};
    bool first = true;
    for (const char *at = clt_token_next(text, &first), *next; *at; at = next) {
        const char *end = clt_token_end(at);
        const bool begins_line = first || at == text;
        next = clt_token_next(end, &first);
        if (begins_line) {
            r.word = 0;
            r.macro = NULL;
            r.defines = r.asks = false;
        }
        if ((begins_line && *at == '#') || r.word)
            read_directive(&r, at, (size_t)(end - at));
        else
            read_code(&r, at, (size_t)(end - at), *next);
    }
}

/* Words that builtins.clh does not contain. */
static const char *const words[] = {"auto",
                                    "break",
                                    "case",
                                    "char",
                                    "const",
                                    "constant",
                                    "continue",
                                    "default",
                                    "defined",
                                    "do",
                                    "double",
                                    "else",
                                    "enum",
                                    "extern",
                                    "float",
                                    "for",
                                    "global",
                                    "goto",
                                    "half",
                                    "if",
                                    "inline",
                                    "int",
                                    "kernel",
                                    "local",
                                    "long",
                                    "private",
                                    "register",
                                    "restrict",
                                    "return",
                                    "short",
                                    "signed",
                                    "sizeof",
                                    "static",
                                    "struct",
                                    "switch",
                                    "typedef",
                                    "union",
                                    "unsigned",
                                    "void",
                                    "volatile",
                                    "while",
                                    "bool",
                                    "size_t",
                                    "aligned",
                                    "unroll",
                                    "OPENCL",
                                    "EXTENSION",
                                    "enable",
                                    "FP_CONTRACT",
                                    "ON",
                                    "OFF",
                                    "DEFAULT",
                                    "pragma",
                                    "define",
                                    "undef",
                                    "include",
                                    "line",
                                    "ifdef",
                                    "ifndef",
                                    "elif",
                                    "endif",
                                    "error",
                                    "reqd_work_group_size",
                                    "intel_vec_len_hint",
                                    "vec_type_hint",
                                    "always_inline",
                                    "noinline",
                                    "opencl_unroll_hint",
                                    "NULL",
                                    "true",
                                    "false"};

static bool has_prefix(const name *n)
{
    static const char *const prefixes[] = {"__",  "get_", "convert_", "as_",  "vload", "vstore",
                                           "CLK", "cl_",  "CL_",      "FLT_", "DBL_",  "M_",
                                           "M_E", "M_P",  "atomic_",  "INT_", "UINT_"};
    static const char *const types[] = {"char", "uchar", "short", "ushort", "int", "uint",
                                        "long", "ulong", "float", "double", "half"};
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
        if (!strncmp(n->at, prefixes[i], strlen(prefixes[i])))
            return true;
    size_t letters = n->length;
    while (letters && isdigit((unsigned char)n->at[letters - 1]))
        letters--;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (is(n->at, letters, types[i]))
            return true;
    return false;
}

/* Notes the names that keep their meaning: those of the language. Only marks of names matter, so
 * macro parameters of builtins.clh are harmless: they are short, and no file defines them. */
static clt_status read_foreign(names *n)
{
    const char *text = clt_source_find("core/builtins.clh");
    bool line;
    for (const char *at = clt_token_next(text, &line), *end; *at; at = clt_token_next(end, &line)) {
        end = clt_token_end(at);
        if (begins_name(*at) && end - at > 2)
            find(n, at, (size_t)(end - at))->traits |= IS_FOREIGN;
    }
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        find(n, words[i], strlen(words[i]))->traits |= IS_FOREIGN;
    return CLT_OK;
}

static void note_options(const clt_program_key *key, names *n)
{
    const char *at = key->options ? key->options : "";
    for (; (at = strstr(at, "-D")); at += strcspn(at, " ="))
        at += 2, find(n, at, strcspn(at, " ="))->traits |= IS_MACRO;
}

/* Defines the macros of build options, and of core/one_kernel.clh. */
static void define_options(const clt_program_key *key, const char *text, clt_str *out)
{
    const char *at = key->options ? key->options : "";
    while ((at = strstr(at, "-D"))) {
        at += 2;
        const size_t length = strcspn(at, " "), to_value = strcspn(at, " =");
        clt_str_add(out, "#define %.*s %.*s\n", (int)to_value, at,
                    at[to_value] == '=' ? (int)(length - to_value - 1) : 1,
                    at[to_value] == '=' ? at + to_value + 1 : "1");
        at += length;
    }
    if (clt_has_token(text, "CLT_HAS"))
        clt_str_add(out, "#define CLT_ONE_KERNEL 1\n#define CLT_IS_%s 1\n", key->kernel);
}

/* A name with the traits is renamed by a macro of its own name, which must not answer the file's
 * own question whether there is one. */
static bool is_renamed(const name *n)
{
    return n->at && n->traits & (IS_GLOBAL | IS_KERNEL) &&
           !(n->traits & (IS_MACRO | IS_FOREIGN | IS_ASKED)) && !has_prefix(n);
}

static void rename_all(const names *n, int number, clt_str *out)
{
    for (int i = 0; i < PLACES; i++) {
        const name *a = &n->all[i];
        const int length = (int)a->length;
        if (!is_renamed(a))
            continue;
        if (a->traits & (IS_KERNEL | READS_PLACE))
            clt_str_add(out, "#define %.*s(...) %.*s_m%d(%s, __VA_ARGS__)\n", length, a->at, length,
                        a->at, number,
                        a->traits & IS_KERNEL ? "CLT_MERGE_PARAMETERS" : CLT_MERGE_PLACE);
        else
            clt_str_add(out, "#define %.*s %.*s_m%d\n", length, a->at, length, a->at, number);
    }
}

/* Returns the function whose head comes next in the text and that is no kernel but reads the
 * place. Its own head may not be replaced by the macro of its calls. */
static const name *next_head(const names *n, const char *at)
{
    const name *next = NULL;
    for (int i = 0; i < PLACES; i++) {
        const name *a = &n->all[i];
        if ((a->traits & (IS_KERNEL | READS_PLACE)) == READS_PLACE && a->defined >= at &&
            (!next || a->defined < next->defined))
            next = a;
    }
    return next;
}

static void add_text(const names *n, const char *at, int number, clt_str *out)
{
    for (const name *f; (f = next_head(n, at)); at = strchr(f->defined, '(') + 1)
        clt_str_add(out, "%.*s%.*s_m%d(CLT_MERGE_PARAMETERS, ", (int)(f->defined - at), at,
                    (int)f->length, f->at, number);
    clt_str_add(out, "%s", at);
}

/* Some drivers' built-in functions are macros. */
static bool is_replaced(const name *n)
{
    return (n->traits & (IS_MACRO | IS_FOREIGN)) == (IS_MACRO | IS_FOREIGN);
}

static void save_replaced(const names *n, clt_str *out)
{
    for (int i = 0; i < PLACES; i++)
        if (is_replaced(&n->all[i]))
            clt_str_add(out, "#pragma push_macro(\"%.*s\")\n", (int)n->all[i].length, n->all[i].at);
}

static void forget_all(const clt_program_key *key, const names *n, clt_str *out)
{
    for (int i = 0; i < PLACES; i++)
        if (is_replaced(&n->all[i]))
            clt_str_add(out, "#pragma pop_macro(\"%.*s\")\n", (int)n->all[i].length, n->all[i].at);
        else if (n->all[i].at && (is_renamed(&n->all[i]) || n->all[i].traits & IS_MACRO))
            clt_str_add(out, "#undef %.*s\n", (int)n->all[i].length, n->all[i].at);
    clt_str_add(out, "#undef CLT_ONE_KERNEL\n#undef CLT_IS_%s\n", key->kernel);
}

clt_status clt_merge_section(const clt_program_key *key, int number, clt_str *out)
{
    clt_str text = {0};
    names n = {.all = clt_calloc(PLACES, sizeof(name))};
    clt_status status = n.all ? clt_source_resolve(key->file, NULL, &text) : CLT_OUT_OF_MEMORY;
    CLT_NEXT(status, read_foreign(&n));
    if (status == CLT_OK) {
        note_options(key, &n);
        read_names(&n, text.text);
        save_replaced(&n, out);
        define_options(key, text.text, out);
        find(&n, key->kernel, strlen(key->kernel))->traits |= IS_KERNEL;
        if (n.full)
            status = clt_fail(CLT_INTERNAL, "kernel file %s has too many names", key->file);
    }
    if (status == CLT_OK) {
        rename_all(&n, number, out);
        add_text(&n, text.text, number, out);
        clt_str_add(out, "#line 1 \"merged\"\n");
        forget_all(key, &n, out);
        if (clt_has_token(text.text, "FP_CONTRACT"))
            clt_str_add(out, "#pragma OPENCL FP_CONTRACT DEFAULT\n");
    }
    clt_str_free(&text);
    clt_free(n.all);
    return status == CLT_OK && out->failed ? CLT_OUT_OF_MEMORY : status;
}
