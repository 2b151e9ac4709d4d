/* Writes docs/operators.md from the schema of operators: operators_page >docs/operators.md. The
 * test check.operators compares the page. */
#include <stdio.h>
#include <string.h>

#include <cltrain/cltrain.h>

static const char introduction[] =
    "# Operators\n"
    "\n"
    "`operators_page`, a program of the tests, writes this page from the schema of the operators. "
    "Programs read the\n"
    "schema by `<cltrain/operators.h>`, and add operators by name with `clt_apply` and "
    "`clt_apply_text`. Model files\n"
    "take the same operators and attributes; see [models](models.md).\n"
    "\n"
    "Operands and results are written as `name dims`:\n"
    "\n"
    "| dims | meaning |\n"
    "|---|---|\n"
    "| a letter | a dimension, the same one wherever the letter stands |\n"
    "| `*` | any number of dimensions, which broadcast |\n"
    "| `1` | a dimension of one element |\n"
    "| `?` behind them | the operand may be left out |\n"
    "| `+` behind them | one operand or several |\n"
    "| `!` behind them | if a summed dimension is split, only one part takes the operand |\n"
    "| `i32`, `u8`, `any` | the type, if it is not f32 |\n"
    "\n"
    "If operands and results are split along a dimension, the dimension behaves in one of these "
    "ways. The tables name\n"
    "all that are not parallel, for default attributes.\n"
    "\n"
    "| behaviour | meaning |\n"
    "|---|---|\n"
    "| parallel | parts of the operands give the same parts of the results |\n"
    "| summed | the results of the parts are added |\n"
    "| halo | a part needs neighbouring elements of other parts |\n"
    "| scan | a part needs what the part before it gave |\n"
    "| whole | the dimension cannot be split, or attributes such as an axis decide |\n";

/* A bar would end the column. */
static void put(const char *text)
{
    for (; *text; text++)
        printf(*text == '|' ? "\\|" : "%c", *text);
}

typedef int (*list_function)(const clt_operator *op, int index, clt_operand_schema *out);

static void put_list(const clt_operator *op, list_function list)
{
    clt_operand_schema one;
    for (int i = 0; list(op, i, &one); i++)
        printf("%s`%s %s%s%s%s%s%s`", i ? ", " : "", one.name, one.dims, one.optional ? "?" : "",
               one.once ? "!" : "", one.repeated ? "+" : "", strcmp(one.type, "f32") ? " " : "",
               strcmp(one.type, "f32") ? one.type : "");
}

/* "summed: k; whole: i j". */
static void put_behaviours(const clt_operator *op)
{
    const list_function lists[] = {clt_operator_operand, clt_operator_result};
    char letters[64] = "";
    clt_operand_schema one;
    int said = 0;
    for (int l = 0; l < 2; l++)
        for (int i = 0; lists[l](op, i, &one); i++)
            for (const char *d = one.dims; *d; d++)
                if (*d != '1' && !strchr(letters, *d))
                    letters[strlen(letters)] = *d;
    for (int b = CLT_DIM_SUMMED; b <= CLT_DIM_WHOLE; b++) {
        int begun = 0;
        for (const char *d = letters; *d; d++) {
            if (clt_operator_dim(op, *d) != (clt_dim_behaviour)b)
                continue;
            if (!begun)
                printf("%s%s:", said++ ? "; " : "", clt_dim_behaviour_name((clt_dim_behaviour)b));
            printf(" `%c`", *d);
            begun = 1;
        }
    }
}

static void put_operators(const char *title, int callable)
{
    printf("\n## %s\n\n| operator | operands | results | what it gives | dimensions |\n"
           "|---|---|---|---|---|\n",
           title);
    for (int i = 0; i < clt_operator_count(); i++) {
        const clt_operator *op = clt_operator_at(i);
        if (clt_operator_callable(op) != callable)
            continue;
        printf("| `%s` | ", clt_operator_name(op));
        put_list(op, clt_operator_operand);
        printf(" | ");
        put_list(op, clt_operator_result);
        printf(" | ");
        put(clt_operator_doc(op));
        printf(" | ");
        put_behaviours(op);
        printf(" |\n");
    }
}

static void put_default(const clt_attribute *a)
{
    if (a->required)
        printf("must be given");
    else if (a->list || a->default_value < -1e18)
        printf("none");
    else if (a->kind == CLT_ATTRIBUTE_FLAG)
        printf("%s", a->default_value != 0 ? "true" : "false");
    else if (a->kind == CLT_ATTRIBUTE_CHOICE)
        printf("%s", a->choices[(int)a->default_value]);
    else
        printf("%.10g", a->default_value);
}

static void put_attributes(void)
{
    char text[160];
    printf("\n## Attributes\n\n| operator | attribute | value | default | meaning |\n"
           "|---|---|---|---|---|\n");
    for (int i = 0; i < clt_operator_count(); i++) {
        const clt_operator *op = clt_operator_at(i);
        for (const clt_attribute *a = clt_operator_attributes(op); a->name; a++) {
            if (!clt_operator_callable(op) || a->internal)
                continue;
            printf("| `%s` | `%s` | %s | ", clt_operator_name(op), a->name,
                   clt_attribute_text(a, text, sizeof text));
            put_default(a);
            printf(" | ");
            put(a->doc);
            printf(" |\n");
        }
    }
}

int main(void)
{
    fputs(introduction, stdout);
    put_operators("Operators", 1);
    put_attributes();
    put_operators("Gradients, and what passes make", 0);
    return 0;
}
