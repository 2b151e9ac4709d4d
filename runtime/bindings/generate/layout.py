"""The compiled program that prints sizes, offsets and values, and what joins its output to the parsed
headers."""

HEAD = """/* Written by runtime/bindings/generate/layout.py: prints sizes, offsets and values as JSON. */
#include <stddef.h>
#include <stdio.h>

"""
BODY = """
static int rows;
static void begin(const char *name)
{
    printf("%s\\"%s\\": ", rows++ ? ",\\n" : "", name);
}
static void put_int(const char *name, long long value)
{
    begin(name);
    printf("{\\"kind\\": \\"int\\", \\"value\\": %lld}", value);
}
static void put_real(const char *name, double value)
{
    begin(name);
    printf("{\\"kind\\": \\"real\\", \\"value\\": %.17g}", value);
}
static void put_text(const char *name, const char *value)
{
    begin(name);
    printf("{\\"kind\\": \\"string\\", \\"value\\": \\"%s\\"}", value); /* macros have plain texts */
}
#define PUT(x) _Generic((x), char *: put_text, double: put_real, float: put_real, default: put_int)(#x, x)

int main(void)
{
    printf("{");
"""


def program(parsed):
    lines = [HEAD] + [f"#include <{row['name']}>\n" for row in parsed["headers"]] + [BODY]
    for struct in parsed["structs"]:
        name = struct["name"]
        lines.append(f'    put_int("sizeof {name}", (long long)sizeof({name}));\n')
        lines.append(f'    put_int("alignof {name}", (long long)_Alignof({name}));\n')
        for member in struct["members"]:
            field = member["name"]
            lines.append(f'    put_int("{name}.{field}", (long long)offsetof({name}, {field}));\n')
            lines.append(f'    put_int("sizeof {name}.{field}", (long long)sizeof((({name} *)0)->{field}));\n')
    for enum in parsed["enums"]:
        if enum["name"]:
            lines.append(f'    put_int("sizeof {enum["name"]}", (long long)sizeof({enum["name"]}));\n')
            lines.append(f'    put_int("signed {enum["name"]}", (double)({enum["name"]})-1 < 0);\n')
        for value in enum["values"]:
            lines.append(f"    PUT({value['name']});\n")
    lines += [f"    PUT({row['name']});\n" for row in parsed["constants"]]
    return "".join(lines) + '    printf("}\\n");\n    return 0;\n}\n'


def join(parsed, measured):
    for struct in parsed["structs"]:
        name = struct["name"]
        struct["size"] = measured[f"sizeof {name}"]["value"]
        struct["align"] = measured[f"alignof {name}"]["value"]
        for member in struct["members"]:
            member["offset"] = measured[f"{name}.{member['name']}"]["value"]
            member["size"] = measured[f"sizeof {name}.{member['name']}"]["value"]
    for enum in parsed["enums"]:
        enum["size"], enum["c_type"] = 4, "int"
        if enum["name"]:
            enum["size"] = measured[f"sizeof {enum['name']}"]["value"]
            enum["c_type"] = "int" if measured[f"signed {enum['name']}"]["value"] else "unsigned int"
        for value in enum["values"]:
            value["value"] = measured[value["name"]]["value"]
    for row in parsed["constants"]:
        row.update(measured[row["name"]])
