/* The gradients of attention's masks, against sums over all pairs in double. */
#include "ops/attention/attention_cases.h"

/* Gradients of masks with every kind of broadcasting, of one tile and of several. */
static void test_mask_gradients(void **state)
{
    static const int64_t masks[][4] = {{CLT_BATCH, 2, 7, 35}, {1, 2, 7, 35}, {1, 1, 7, 35},
                                       {CLT_BATCH, 1, 1, 35}, {1, 2, 7, 1},  {1, 1, 1, 1}};
    static const int64_t long_masks[][4] = {
        {1, 2, 70, 83}, {1, 1, 1, 83}, {1, 2, 70, 1}, {CLT_BATCH, 1, 1, 1}};
    const attention_attr attrs[] = {{.form = 0},
                                    {.is_causal = 1, .past = 20},
                                    {.dropout = 0.3, .first_head = 2, .all_heads = 6},
                                    {.scale = 0.4, .is_causal = 1},
                                    {.is_causal = 1, .past = 4, .dropout = 0.1},
                                    {.form = 0}};
    double some[7 * 35];
    (void)state;
    for (int i = 0; i < 7 * 35; i++)
        some[i] = i / 35 == 4 || i % 35 > 30 ? -INFINITY : (double)(float)(i % 7 * 0.1);
    for (size_t i = 0; i < sizeof masks / sizeof *masks; i++) {
        op_case c = HEADS("a mask's gradient", clt_test_oclgrind() ? 2 : 3, 2, 1, 7, 35, 32,
                          i == 2 ? some : NULL, {0});
        mask_operand(&c, masks[i]);
        c.attr = &attrs[i];
        c.trains = attrs[i].dropout > 0;
        c.in[3].gradient = true;
        if (!clt_test_oclgrind() || i == 4)
            attention_check(&c, 1);
    }
    for (size_t i = 0; i < sizeof long_masks / sizeof *long_masks; i++) {
        op_case c = ROWS("a long mask's gradient", 2, 2, 2, 70, 83, 32,
                         {.form = 1, .heads = 2, .is_causal = 1, .past = 5});
        c.in[3] = (op_operand){CLT_F32, .gradient = true};
        mask_operand(&c, long_masks[i]);
        attention_check(&c, 1);
    }
    op_case narrow = HEADS("a mask's gradient, narrow heads", 2, 4, 2, 9, 7, 3, NULL, {.form = 0});
    mask_operand(&narrow, (int64_t[]){1, 4, 9, 7});
    narrow.in[3].gradient = true;
    /* The gradient of the mask only. */
    for (int i = 0; i < 3; i++)
        narrow.in[i].gradient = false;
    attention_check(&narrow, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mask_gradients),
    };
    return cmocka_run_group_tests(tests, op_setup, op_teardown);
}
