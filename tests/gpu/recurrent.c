/* Recurrent layers, and the state that is carried from batch to batch. */
#include "gpu/plans.h"

/* With many units, and with a number of units that float4 does not fit. */
void plan_recurrent(const clt_caps *caps)
{
    for (int gates = 3; gates <= 4; gates++)
        for (int odd = 0; odd < 2; odd++) {
            const int64_t H = odd ? 33 : 256, I = odd ? 7 : 128;
            clt_value *x[3], *y = NULL, *h_n, *c_n;
            clt_recurrent_options o;
            clt_graph *g;
            OK(clt_graph_create(&g));
            x[0] = clt_input(g, "x0", CLT_F32, 3, (int64_t[]){CLT_BATCH, 3, I});
            x[1] = clt_input(g, "x1", CLT_F32, 2, (int64_t[]){gates * H, I});
            x[2] = clt_input(g, "x2", CLT_F32, 2, (int64_t[]){gates * H, H});
            clt_value *all = clt_input(g, "all", CLT_F32, 2, (int64_t[]){64, H});
            clt_recurrent_options_init(&o);
            o.reverse = odd;
            o.h0 = clt_batch_rows(clt_detach(all));
            o.lengths = clt_input(g, "lengths", CLT_I32, 1, (int64_t[]){CLT_BATCH});
            if (gates == 4)
                OK(clt_lstm(x[0], x[1], x[2], NULL, NULL, &o, &y, &h_n, &c_n));
            else
                OK(clt_gru(x[0], x[1], x[2], NULL, NULL, &o, &y, &h_n));
            clt_output(clt_batch_rows_put(all, clt_detach(h_n)), "next");
            plan_layer(g, y, x, 3, caps);
        }
}
