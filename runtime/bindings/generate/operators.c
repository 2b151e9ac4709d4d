/* Prints the schema of the operators and the meanings of statuses as JSON, for describe.py. */
#include <math.h>
#include <stdio.h>

#include <cltrain/operators.h>
#include <cltrain/status.h>

static void text(const char *name, const char *value, const char *end)
{
    printf("\"%s\": \"", name);
    for (const char *c = value; *c; c++)
        if (*c == '"' || *c == '\\')
            printf("\\%c", *c);
        else if ((unsigned char)*c < ' ')
            printf("\\u%04x", (unsigned)*c);
        else
            putchar(*c);
    printf("\"%s", end);
}

static void flag(const char *name, int value, const char *end)
{
    printf("\"%s\": %s%s", name, value ? "true" : "false", end);
}

/* JSON has no infinity. */
static void number(const char *name, double value, const char *end)
{
    if (isfinite(value))
        printf("\"%s\": %.17g%s", name, value, end);
    else
        printf("\"%s\": null%s", name, end);
}

static void operands(const clt_operator *op, const char *name,
                     int (*get)(const clt_operator *, int, clt_operand_schema *))
{
    clt_operand_schema o;
    printf("\"%s\": [", name);
    for (int i = 0; get(op, i, &o); i++) {
        printf(i ? ", {" : "{");
        text("name", o.name, ", ");
        text("dims", o.dims, ", ");
        text("type", o.type, ", ");
        flag("optional", o.optional, ", ");
        flag("repeated", o.repeated, "}");
    }
    printf("], ");
}

static void attribute(const clt_attribute *a)
{
    static const char *const kinds[] = {"flag", "int", "real", "choice", "type", "text"};
    printf("{");
    text("name", a->name, ", ");
    text("doc", a->doc ? a->doc : "", ", ");
    text("kind", kinds[a->kind], ", ");
    printf("\"count\": %d, \"choices\": [", a->count);
    for (int i = 0; a->choices && a->choices[i]; i++)
        printf("%s\"%s\"", i ? ", " : "", a->choices[i]);
    printf("], ");
    flag("list", a->list, ", ");
    number("least", a->least, ", ");
    number("most", a->most, ", ");
    flag("above", a->above, ", ");
    number("default", a->default_value, ", ");
    flag("required", a->required, ", ");
    flag("internal", a->internal, "}");
}

int main(void)
{
    printf("{\"statuses\": {");
    for (int s = 0;; s++) {
        const char *name = clt_status_name((clt_status)s);
        if (name[0] == 'U' && name[1] == 'N' && name[2] == 'K') /* "UNKNOWN": the end */
            break;
        printf("%s\"CLT_%s\": ", s ? ", " : "", name);
        printf("\"%s\"", clt_status_text((clt_status)s));
    }
    printf("},\n\"operators\": [");
    for (int i = 0; i < clt_operator_count(); i++) {
        const clt_operator *op = clt_operator_at(i);
        printf("%s{", i ? ",\n" : "");
        text("name", clt_operator_name(op), ", ");
        text("doc", clt_operator_doc(op), ", ");
        flag("callable", clt_operator_callable(op), ", ");
        flag("differentiable", clt_operator_differentiable(op), ", ");
        operands(op, "operands", clt_operator_operand);
        operands(op, "results", clt_operator_result);
        printf("\"attributes\": [");
        const clt_attribute *all = clt_operator_attributes(op);
        for (const clt_attribute *a = all; a && a->name; a++) {
            if (a != all)
                printf(", ");
            attribute(a);
        }
        printf("]}");
    }
    printf("]}\n");
    return 0;
}
