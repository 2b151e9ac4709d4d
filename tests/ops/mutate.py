#!/usr/bin/env python3
"""Mutation check: plants one bug at a time in the kernels of a build (baseline/plant.py), and fails
if a test passes.

    mutate.py SOURCE BUILD [WORD]
    mutate.py --texts SOURCE        only checks that the kernels have the texts to replace

SOURCE is the tree's root, BUILD a Ninja build folder of it with its tests built. WORD selects the bugs whose
description contains it. The tests run on CLT_TEST_DEVICES (default: the CPU). Bugs that only read or write outside of
a buffer run on Oclgrind; without Oclgrind they are left out, with a message. An unchanged copy must pass.
"""

import os
import pathlib
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "baseline"))
import plant  # noqa: E402

# Description, file, text, replacement, the test that must fail (of tests/ops, or FOLDER/TEST).
# "outside": only Oclgrind sees the bug.
NONE = "nothing"
BUGS = [
    (NONE, "elementwise/portable/elementwise.cl", "OUT(value)", "OUT(value)", "fuse"),
    ("tail: the last elements are not computed", "elementwise/portable/elementwise.cl",
     "i < (int)(count - at); i++", "i < (int)(count - at) - 1; i++", "activations"),
    ("tail: a vector is stored beyond the end", "elementwise/portable/elementwise.cl",
     "if (at + 16 <= count)", "if (at + 15 <= count)", "activations", "outside"),
    ("stride: an operand that repeats is read on", "elementwise/portable/elementwise.cl",
     "(x##5 ? LOAD16(x) : (float16)(READ(x, 0)))", "LOAD16(x)", "arithmetic"),
    ("stride: the second operand by the first's", "elementwise/portable/elementwise.cl",
     "READ(b, i * b5)", "READ(b, i * a5)", "arithmetic"),
    ("index: the sizes of two dimensions change places", "elementwise/portable/elementwise.cl",
     "DIGIT(5) DIGIT(4) DIGIT(3)", "DIGIT(5) DIGIT(3) DIGIT(4)", "arithmetic"),
    ("off by one: a share of a sum ends early", "reduce/portable/reduce.cl",
     "end = min(at + share, length)", "end = min(at + share, length - 1)", "reduce"),
    ("tail: a sum's last elements behind the vectors are left out", "reduce/portable/reduce.cl",
     "for (; i < run; i++)", "for (; i + 1 < run; i++)", "reduce"),
    ("wrong axis: kept dimensions by the strides of the reduced", "reduce/portable/reduce.cl",
     "i2 * a2 + i3 * a3", "i2 * a2 + i3 * b3", "reduce"),
    ("ties: every equal maximum counts once only", "reduce/portable/reduce.cl",
     "found += GET(IN0, x + i * b3) == y ? 1.0f : 0.0f", "found = 1.0f", "reduce"),
    ("empty batch: the mean over no image", "reduce/portable/reduce.cl",
     "item] = divide ? (length ? total / (float)length : 0.0f) : total",
     "item] = divide ? total / (float)length : total", "reduce"),
    ("stride: a transposed operand is read in the result's order", "shape/portable/move.cl",
     "out[i * y7] = x[i * x7]", "out[i * y7] = x[i]", "shapes"),
    ("offset: operands of concat all at the beginning", "shape/portable/move.cl",
     "out_base + out_offset + to + i0", "out_base + out_offset + i0", "shapes"),
    ("padding: the constant is 0 whatever was asked for", "shape/portable/move.cl",
     "out[i] = (T)bits", "out[i] = (T)0", "shapes"),
    ("rounding: bf16 is cut off", "elementwise/cast.clh",
     "(u + 0x7FFFu + (u >> 16 & 1u)) >> 16", "u >> 16", "cast"),
    ("random numbers: the sample's position is ignored", "elementwise/dropout.clh",
     "(position * sample + at", "(at", "dropout"),
    ("random numbers: a part of a tensor takes those of the first part", "elementwise/dropout.clh",
     "row + lowest + at % run", "row + at % run", "dropout_parts"),
    ("random numbers: two elements in four share theirs", "elementwise/dropout.clh",
     "(k == 0 ? bits.x : bits.y)", "bits.x", "dropout"),
    ("bias: left out", "conv/portable/conv2d.cl", "if (has_bias)", "if (0)", "conv2d"),
    ("bias: of the neighbouring channel", "matmul/portable/matmul.cl",
     "bias[bias_offset + n]", "bias[bias_offset + (n ? n - 1 : n)]", "linear"),
    ("off by one: the last row of the image counts as padding", "conv/portable/conv2d.cl",
     "if (iy < 0 || iy >= H)\n                continue;\n            for (int kx = 0; kx < KW; kx++) {\n"
     "                const int ix = ox * sx",
     "if (iy < 0 || iy >= H - 1)\n                continue;\n            for (int kx = 0; kx < KW; kx++) {\n"
     "                const int ix = ox * sx", "conv2d"),
    ("stride: a gradient is gathered where no window starts", "conv/portable/conv2d.cl",
     "if (ty < 0 || ty != oy * sy || oy >= OH)", "if (ty < 0 || oy >= OH)", "conv2d"),
    ("batch: the weight's gradient misses the last image", "conv/portable/conv2d.cl",
     "for (int b = first; b < end; b++)", "for (int b = first; b < end - 1; b++)", "conv2d"),
    ("padding: counted although it is not to be", "pool/portable/pool2d.cl",
     "count_pad ? all : inside", "all", "avg_pool2d"),
    ("ties: the last of equal maxima wins", "pool/portable/pool2d.cl",
     "value > best || isnan(value)", "value >= best || isnan(value)", "max_pool2d"),
    ("overflow: exponentials without the largest taken off", "norm/portable/softmax.cl",
     "largest = fmax(largest, GET(IN0, x + (long)c * inner));", "largest = 0.0f;", "softmax"),
    ("labels: smoothing in the loss's gradient is lost", "loss/portable/loss.cl",
     "const float others = smoothing / (float)C;", "const float others = 0.0f;", "cross_entropy"),
    ("CPU, exp: the remainder beyond ln 2 is off", "core/batch_blocked/math.clh",
     "-1.42860677e-6f", "-1.42860677e-5f", "activations"),
    ("CPU, tail: elements behind the vectors are all the first", "core/batch_blocked/common.clh",
     "l < count ? from[l] : fill", "l < count ? from[0] : fill", "activations"),
    ("CPU, rows: lanes beyond the row's end count", "core/batch_blocked/common.clh",
     "l < count ? from[l] : fill", "l < count ? from[l] : 0.0f", "softmax"),
    ("CPU, reduction: a NaN in a lane is passed over", "reduce/cpu/reduce.clh",
     "(a) < (b) | (b) != (b)", "(a) < (b)", "reduce"),
    ("CPU, reduction: what is behind the last vector counts", "reduce/cpu/reduce.clh",
     "#define NEUTRAL (-INFINITY)", "#define NEUTRAL INFINITY", "reduce"),
    ("CPU, reduction: runs are forgotten when their results are put aside", "reduce/cpu/reduce.cl",
     "all[o] = JOIN(all[o], block[o]);", "all[o] = block[o];", "reduce"),
    ("CPU, reduction: a share of a sum ends early", "reduce/cpu/reduce.cl",
     "min((part + 1) * size, length)", "min((part + 1) * size, length - 1)", "reduce"),
    ("CPU, reduction: the rows behind the last eight are left out", "reduce/cpu/columns.cl",
     "for (; i < run; i++)", "for (; i + 1 < run; i++)", "reduce"),
    ("CPU, moves: the elements behind a line's last vector are left out", "shape/cpu/move.cl",
     "if (i < run)", "if (i > run)", "shapes"),
    ("CPU, moves: the last image is not filled", "shape/cpu/move.cl",
     "(end - at) / inner * line", "((end - at) / inner - 1) * line", "shapes"),
    ("CPU, dropout: the elements behind the vectors take the numbers of others", "elementwise/cpu/dropout.cl",
     "(int)(own[k] >> 8)", "(int)(own[k + 1] >> 8)", "dropout"),
    ("CPU, dropout: two numbers of a block change places", "core/batch_blocked/philox.clh",
     "all.even = (x[c] & CLT_HALF) | y[c] << 32", "all.even = (y[c] & CLT_HALF) | x[c] << 32", "dropout"),
    ("dropout of attention: heads share their numbers", "attention/attention.clh",
     "drop_head + (head)) *", "drop_head) *", "attention_masks"),
    ("dropout of attention: a part of the heads takes the numbers of the first part", "attention/attention.clh",
     "drop_heads + drop_head + (head)", "drop_heads + (head)", "attention_masks"),
    ("dropout of attention: a part of the rows takes the numbers of the first part", "attention/attention.clh",
     "drop_row + (t))", "(t))", "attention_masks"),
    ("CPU, dropout of attention: odd rows take the numbers of even ones", "attention/cpu/attention.cl",
     "(c % 2 ? step : 0ul)", "(c % 2 ? 0ul : 0ul)", "attention_masks"),
    ("attention's mask: the last image adds nothing to the gradient", "attention/cpu/attention_mask.cl",
     "z + 1 : images;", "z + 1 : images - 1;", "attention_mask_grad"),
    ("GPU, attention's mask: sums along rows end early", "attention/gpu/attention_mask.cl",
     "(mask_row ? COLUMNS : ROWS", "(mask_row ? COLUMNS - 1 : ROWS", "attention_mask_grad"),
    ("CPU, mse: the last elements are left out", "reduce/cpu/reduce.cl",
     "for (; i < end; i += VW) {", "for (; i + VW <= end; i += VW) {", "mse"),
    ("CPU, columns: the last ones are left out", "norm/cpu/softmax.cl",
     "for (int v = 0; v < width; v += VW)", "for (int v = 0; v + VW <= width; v += VW)", "softmax"),
    ("CPU, transposition: the rest beside the blocks from elsewhere", "shape/cpu/transpose.cl",
     "to[i1] = x[i1];", "to[i1] = x[whole1];", "shapes"),
    ("CPU, index: a dimension is carried one too late", "elementwise/cpu/elementwise.cl",
     "if (++i4 == n4)", "if (++i4 > n4)", "arithmetic"),
    ("blocks: later blocks of the sum replace the earlier", "matmul/cpu/gemm_tile.clh",
     "if (!first)\n            v += clt_load_part", "if (0)\n            v += clt_load_part", "matmul"),
    ("tail: all vectors of the last panel are the first one", "matmul/cpu/gemm.cl",
     "depth + (n - s.c0 - panel)", "depth", "matmul"),
    ("stages: what the tiles had no time to copy is left out", "matmul/cpu/gemm.cl",
     "for (; s.copies && ready.step;", "for (; 0;", "matmul"),
    ("stages: a chunk of all columns, which do not fit", "matmul/cpu/gemm.cl",
     "(pays || !fits)", "pays", "matmul", "outside"),
    ("stages: columns that fit until they are padded", "matmul/cpu/gemm.cl",
     "padded = (j.n1 - j.n0 + NR - 1) / NR * NR", "padded = j.n1 - j.n0", "matmul", "outside"),
    ("stages: a tile copies to the row after", "matmul/cpu/gemm.cl",
     "n % NR + k * NR,", "n % NR + (k + 1) * NR,", "matmul"),
    ("tail: the panel's last column is taken for another", "matmul/cpu/gemm_panels.clh",
     "j < columns ? GET(B_T, b + j) : 0.0f", "j < columns ? GET(B_T, b) : 0.0f", "matmul"),
    ("CPU, convolution: the padding's last column is the image's", "conv/cpu/conv2d.cl",
     "before > 0 ? (before - 1) / b->sx + 1 : 0", "before > 0 ? before / b->sx : 0", "conv2d"),
    ("CPU, convolution: later channels replace the earlier", "conv/cpu/conv2d.cl",
     "first ? from[i] : to[(long)i * step] + from[i]", "from[i]", "conv2d"),
    ("CPU, convolution: results beyond the end of a line are stored", "conv/cpu/conv2d.cl",
     "end = min(i + here, p->columns)", "end = i + here", "conv2d"),
    ("CPU, convolution: a tap of the neighbouring class", "conv/cpu/conv2d.cl",
     "if (x_rest != rx)", "if (0)", "conv2d"),
    ("CPU, convolution: classes that wrap around begin where the others do", "conv/cpu/conv2d.cl",
     "reach_x + (px + at_x) / sx - x0", "reach_x", "conv2d"),
    ("CPU, convolution: classes without taps are not 0", "conv/cpu/conv2d.cl",
     "has_zeros && m < m1", "0 && m < m1", "conv2d"),
    ("CPU, convolution: columns beyond a range count twice", "conv/cpu/conv2d.cl",
     "left + columns,", "OW,", "conv2d"),
    ("CPU, convolution: Inf that no tap reads reaches a weight", "conv/cpu/conv2d.cl",
     "if (finite)", "if (1)", "conv2d"),
    ("CPU, convolution: the weight's gradient of the last band alone", "conv/cpu/conv2d.cl",
     "row_step + j0 + j] += sums[i][j]", "row_step + j0 + j] = sums[i][j]", "conv2d"),
    ("slices: the last one's products are left out", "matmul/cpu/dot.cl",
     "for (int s = 1; s < slices; s++)\n            v += parts", "for (int s = 1; s < slices - 1; s++)\n            v += parts", "matmul"),
    ("tail: the last elements of K are added twice", "matmul/cpu/dot.cl",
     "LANE_NUMBERS >= (veci)(k - at)", "LANE_NUMBERS >= (veci)(0)", "matmul"),
    ("edge: what lies behind a matrix is read with its last row", "matmul/cpu/gemm_panels.clh",
     "(there - width) / ld + 1", "there / ld + 1", "matmul", "outside"),
    ("GPU, edge: rows beyond the last are stored", "matmul/gpu/gemm.cl",
     "if (r < M && c + l < N)", "if (r <= M && c + l < N)", "matmul", "outside"),
    ("GPU, edge: k beyond the end is taken for the last", "matmul/gpu/gemm.cl",
     "to[s] = inside ? v : 0.0f;", "to[s] = v;", "matmul"),
    ("GPU, slices: the last one is left out", "matmul/gpu/gemm.cl",
     "for (int s = 1; s < slices; s++)", "for (int s = 1; s < slices - 1; s++)", "matmul"),
    ("GPU, double buffer: panels are overwritten while they are read", "matmul/gpu/gemm.cl",
     "side ^= 1;", "side ^= 0;", "matmul", "outside"),
    ("GPU, transposition: A by the other one's rule", "matmul/gpu/gemm.cl",
     "DEFINE_COPY(a, A_T, TM, VA, (!TRANS_A))", "DEFINE_COPY(a, A_T, TM, VA, TRANS_A)", "matmul"),
    ("GPU, reduction: a row of work-items is left out", "matmul/gpu/gemm.cl",
     "for (int r = 1; r < ROWS; r++)", "for (int r = 2; r < ROWS; r++)", "linear"),
    ("matrix units: rows of fragments lie four apart", "core/gpu/matrix_unit.clh",
     "((lane) / 4 + (i)*8)", "((lane) / 4 + (i)*4)", "device/matrix_unit"),
    ("matrix units: k from eight on is taken for the first eight", "core/gpu/matrix_unit.clh",
     "return (uint2)(*(local const uint *)p, *(local const uint *)(p + 8))",
     "return (uint2)(*(local const uint *)p, *(local const uint *)(p))", "device/matrix_unit"),
    ("matrix units, edge: k beyond the end counts", "matmul/gpu/gemm_matrix.cl",
     "if (at_k < end)", "if (at_k <= end)", "matmul"),
    ("matrix units, transposition: pairs of k change places", "matmul/gpu/gemm_matrix.cl",
     "even | odd << 16", "odd | even << 16", "matmul"),
    ("matrix units, convolution: the bias' column is empty", "conv/gpu/conv2d_matrix.cl",
     "to[s][j] = ONE(X_T);", "to[s][j] = 0;", "conv2d"),
    ("matrix units, attention: older sums are not scaled", "attention/gpu/attention_matrix.cl",
     "UNIT_GET(sums[n], e) * keep[UNIT_ROW_NUMBER(e)]", "UNIT_GET(sums[n], e)", "attention"),
    ("GPU, tree: the last join is left out", "core/gpu/tree.clh",
     "for (int w = count / 2; w > 0; w /= 2)", "for (int w = count / 2; w > 1; w /= 2)", "reduce"),
    ("GPU, parts: a share of a sum ends early", "reduce/gpu/reduce.cl",
     "const int end = o < count ? min(begin + share, length) : 0;",
     "const int end = o < count ? min(begin + share, length - 1) : 0;", "reduce"),
    ("GPU, index: no carry between two reduced dimensions", "reduce/gpu/reduce.cl", "j2++;", ";", "reduce"),
    ("GPU, rows: the sum so far is not scaled to a larger maximum", "reduce/gpu/rows.clh",
     "all.y = all.y * rescale(all.x, most) +", "all.y = all.y +", "cross_entropy"),
    ("GPU, rows: the lanes' maxima are taken for the row's", "norm/gpu/softmax.cl",
     "kept[i] * (rescale(own, all.x) * inverse)", "kept[i] * inverse", "softmax"),
    ("GPU, labels: smoothing forgets the other classes", "loss/gpu/loss.cl",
     "all.x - tree(s1, sum_of(plain), lid, lane) / (float)C", "all.x", "cross_entropy"),
    ("GPU, total: partial counts of the first group alone", "loss/gpu/total.cl",
     "p < parts; p += GROUP", "p < min(parts, 1); p += GROUP", "cross_entropy"),
    ("GPU, tail: the last element behind the vectors is not stored", "core/gpu/halves.clh",
     "CLT_PUT_##kind(v.z, out + 2);", ";", "arithmetic"),
    ("GPU, move: a vector goes where the first of its row does", "shape/gpu/move.cl",
     "write += i##k * y##k;", "write += k == 7 ? 0 : i##k * y##k;", "shapes"),
    ("GPU, border: its first row is taken from the image", "shape/gpu/move.cl",
     "inside &= (uint)q < (uint)m##k;", "inside &= q < m##k;", "shapes"),
    ("GPU, step: what lies between the places is not zero", "shape/gpu/move.cl",
     "q < m##k && q * s##k == i##k - l##k", "q < m##k", "shapes"),
    ("CPU, cast: ties to f16 go away from zero", "elementwise/cpu/cast.cl",
     "+ 0xFFFu + (held >> 13 & 1u)", "+ 0x1000u", "cast"),
    ("CPU, cast: denormal halves are read as normal ones", "elementwise/cpu/cast.cl",
     "select(normal, small, top == 0u)", "normal", "cast"),
    ("CPU, cast: the last elements behind the vectors are not converted", "elementwise/cpu/cast.cl",
     "for (int l = 0; i + l < size; l++)", "for (int l = 0; i + l + 1 < size; l++)", "cast"),
    ("GPU, cast: the last elements behind the vectors are not converted", "elementwise/gpu/cast.cl",
     "if (left > 1)", "if (left > 2)", "cast"),
    ("GPU, random numbers: images that begin in a block's middle take its first", "elementwise/gpu/dropout.cl",
     "(long)(block * 4 - first)", "(long)((block - (first >> 2)) * 4)", "dropout"),
    ("GPU, samples: a vector's second byte is looked up for the third", "train/gpu/gather.cl",
     "table[at.y], table[at.z]", "table[at.y], table[at.y]", "train/device_data"),
    ("GPU, checksum: the words behind the vectors are left out", "train/gpu/checksum.cl",
     "if (item < count - 4 * whole)", "if (item < count - 4 * whole - 1)", "train/checksum"),
    ("GPU, stride: what repeats along a row is read on", "elementwise/gpu/elementwise.cl",
     "if (V == 1 || REPEAT & bit)", "if (V == 1)", "arithmetic"),
    ("GPU, tile: rows beyond the first tile's are taken from it", "shape/gpu/transpose.cl",
     "const int i1 = (rest - i0 * blocks1) * TILE;", "const int i1 = 0;", "shapes"),
    ("GPU, pool: four windows begin at the first one's column", "pool/gpu/pool2d.cl",
     "r[l * SX + kx * DIL_X - PX - FIRST]", "r[l + kx * DIL_X - PX - FIRST]", "max_pool2d"),
    ("GPU, pool: the gradient of two windows of four changes places", "pool/gpu/pool2d.cl",
     "TAP(v, j) ? g[l] : 0.0f", "TAP(v, j) ? g[l ^ 1] : 0.0f", "max_pool2d"),
    ("GPU, pool: the mean's window ends at the image", "pool/gpu/pool2d.cl",
     "count_pad ? all : inside", "inside", "avg_pool2d"),
    ("indices: one that is no row is read all the same", "index/portable/index.cl",
     "SLICE(at, lowest) < (uint)size\n            ? GET(IN1, x + x_offset + (slice",
     "(int)SLICE(at, lowest) < size\n            ? GET(IN1, x + x_offset + (slice", "embedding", "outside"),
    ("divided classes: a label of another part adds to its logit", "loss/portable/loss.cl",
     "inner) - most : 0.0f;", "inner) - most : 1.0f;", "cross_entropy_parts"),
    ("CPU, divided classes: the target is missing in the gradient", "reduce/cpu/rows.cl",
     "(others + (1.0f - smoothing))),\n                to + own);", "others),\n                to + own);", "cross_entropy_parts"),
    ("GPU, divided classes: labels count from the first class here", "loss/gpu/loss.cl",
     "hit = label - first - c", "hit = label - c", "cross_entropy_parts"),
    ("divided classes: ranks of equal logits count from the first class here", "loss/portable/loss.cl",
     "first + c, at_label, label)", "c, at_label, label)", "correct"),
    ("indices: rows of other parts are wrong ones", "index/place.clh",
     "(GOOD(at, whole) ? 0.0f : NAN)", "NAN", "embedding"),
    ("indices: each part adds what a wrong index adds", "index/place.clh",
     "return lowest == 0 ? 0 : -1;", "return 0;", "embedding"),
    ("chains: a row's later picks count as its first one", "index/cpu/index.cl",
     "next[after] = ~next[after];", "", "embedding_gradient"),
    ("rounding: a row's sum in 16 bits begins without what was there", "index/cpu/index.cl",
     "sums[v] = LOAD_AS(OUT0, out + v * VW);", "sums[v] = (vecf)(0.0f);", "embedding_gradient"),
    ("indices: the row of padding gets a gradient", "index/place.clh",
     "at != padding &&", "at != padding + whole &&", "embedding"),
    ("indices: a part of the rows ends early", "index/cpu/index.cl",
     "end = min(first + rows, size)", "end = min(first + rows, size - 1)", "embedding"),
    ("indices: a line's base is left out", "index/cpu/index.cl", "#define OLD(i) old[i]", "#define OLD(i) 0.0f", "gather"),
    ("GPU, indices: the chain of equal ones ends at the second", "index/gpu/index.cl",
     "after = ~next[next_offset + p];", "after = picks;", "embedding"),
    ("GPU, indices: a pick of padding begins a chain", "index/gpu/index.cl",
     "int first = here >= 0, after", "int first = 1, after", "embedding"),
    ("GPU, groups: an update begins at the bucket's begin", "train/gpu/update.cl",
     "const int i = begin / 4 + (int)get_global_id(0);", "const int i = (int)get_global_id(0);", "train/groups"),
    ("GPU, norm: a group's share ends early", "train/gpu/update.cl",
     "i < count / 4; i += groups * GROUP", "i < count / 8; i += groups * GROUP", "train/optimizer"),
    ("GPU, padding: the image's last column is outside", "conv/gpu/conv2d.cl",
     "(uint)x < (uint)width", "(uint)x < (uint)width - 1", "conv2d"),
    ("GPU, table: an index k one panel too late", "conv/gpu/conv2d.cl",
     "entry(w, k0 + 2 * TK + lid)", "entry(w, k0 + TK + lid)", "conv2d"),
    ("GPU, stride: the second class of pixels meets the first one's taps", "conv/gpu/conv2d.cl",
     "meeting(rx + px, sx, dx_, KW)", "meeting(px, sx, dx_, KW)", "conv2d"),
    ("GPU, slices: of a convolution, the last one is left out", "conv/gpu/conv2d.cl",
     "for (int s = 0; s < slices; s++)\n        sum += *(global const VEC *)(parts + s * count);",
     "for (int s = 0; s < slices - 1; s++)\n        sum += *(global const VEC *)(parts + s * count);", "conv2d"),
    ("GPU, depthwise: a tap meets a row that lies between those it reaches", "conv/gpu/depthwise.cl",
     "t < 0 || t != ky * DY || ky >= KH", "t < 0 || ky >= KH", "depthwise"),
    ("GPU, depthwise: the image's last row is not stored", "conv/gpu/depthwise.cl",
     "if (at.y + j < OH)", "if (at.y + j < OH - 1)", "depthwise"),
    ("GPU, depthwise: a slice begins where the first one does", "conv/gpu/depthwise.cl",
     "(int)((long)all * slice / slices)", "0", "depthwise"),
    ("GPU, bias: its column of ones ends early", "conv/gpu/conv2d.cl",
     "p->y[i] == OUTSIDE && t.w >= 0", "p->y[i] == OUTSIDE && t.w > 0", "conv2d"),
    ("CPU, pool: what lies below the last windows gets no gradient, not 0", "pool/batch_blocked/pool.cl",
     "if (covered_y < ih)", "if (covered_y > ih)", "max_pool2d"),
    ("CPU, pool: what lies right of the last windows gets no gradient, not 0", "pool/batch_blocked/pool.cl",
     "covered_x < iw; y++", "covered_x > iw; y++", "avg_pool2d"),
    ("CPU, pool: windows of ceil mode reach into the next row", "pool/batch_blocked/pool.cl",
     "kx < kw && kx < width; kx++", "kx < kw; kx++", "max_pool2d"),
    ("CPU, Winograd: lanes without an image are summed", "conv/batch_blocked/winograd_weight_grad.cl",
     "l < images[t]; l++", "l < LANES; l++", "kernels/winograd_weight"),
    ("CPU, Winograd: lanes without an image count for the bias", "conv/batch_blocked/winograd_weight_grad.cl",
     "l < images; l++", "l < LANES; l++", "kernels/winograd_weight"),
    ("CPU, Winograd: gradients right of the image are its next row's", "conv/batch_blocked/winograd_weight_grad.cl",
     "edge && (y >= oh || x >= ow)", "edge && y >= oh", "kernels/winograd_weight"),
    ("CPU, Winograd: a strip's sums replace the earlier", "conv/batch_blocked/winograd_weight_grad.cl",
     "if (more) {", "if (more > 1) {", "kernels/winograd_weight"),
    ("CPU, Winograd: the last work-group's sums are left out", "conv/batch_blocked/winograd_weight_grad.cl",
     "p < groups; p++", "p < groups - 1; p++", "kernels/winograd_weight"),
    ("CPU, Winograd: the last column of the image counts as padding", "conv/batch_blocked/winograd.clh",
     "(uint)(ix + j) < (uint)iw", "(uint)(ix + j) < (uint)iw - 1", "conv2d"),
    ("layout: two lanes change places", "shape/batch_blocked/layout.cl",
     "= from[IMAGE(l) + i];", "= from[IMAGE(l ^ 1) + i];", "conv2d"),
]  # fmt: skip


def test_of(bug):
    """Returns the name of the test that must fail."""
    name = bug[4].replace("/", ".") if "/" in bug[4] else "ops." + bug[4]
    return "oclgrind." + name if len(bug) > 5 else name


def missed(place, bug):
    """Returns None if the bug was caught, otherwise what went wrong."""
    what, file, text, replacement, name = *bug[:4], test_of(bug)
    path = os.path.join(place.root, "clkernels", file)
    sound = pathlib.Path(path).read_text(encoding="utf-8")
    if text not in sound:
        return f"{file} has no \"{text}\""
    place.put(os.path.join("clkernels", file), sound.replace(text, replacement))
    outcome, _, _, output = place.run(name, 600)
    if what == NONE:
        return None if outcome == "pass" else f"{name} fails without a bug: {output}"
    if outcome != "fail":
        return f"{name}: {outcome}"
    reason = [s for s in output.splitlines() if s.startswith(("ERROR: ", "ended by signal")) or
              "nvalid" in s or "difference at offset" in s]
    if not reason:
        return "fails for another reason: " + (output.strip().splitlines() or ["?"])[-1]
    print(f"caught by {name}: {what}\n    {reason[0].strip()[:150]}", flush=True)
    return None


def check_texts(source):
    stale = [bug for bug in BUGS if not (source / "clkernels" / bug[1]).is_file() or
             bug[2] not in (source / "clkernels" / bug[1]).read_text()]  # fmt: skip
    for bug in stale:
        print(f"clkernels/{bug[1]} has no \"{bug[2]}\" (of the bug: {bug[0]}): write what it has in tests/ops/mutate.py")
    print(f"mutations: {len(BUGS) - len(stale)} of {len(BUGS)} fit the kernels")
    sys.exit(1 if stale else 0)


def main():
    if sys.argv[1] == "--texts":
        check_texts(pathlib.Path(sys.argv[2]))
    source, build = map(os.path.abspath, sys.argv[1:3])
    place = plant.Plant(source, build, os.path.join(build, "mutants", "bugs"))
    word = sys.argv[3] if len(sys.argv) > 3 else ""
    lost = caught = 0
    for bug in BUGS:
        if word not in bug[0] and bug[0] != NONE:
            continue
        if test_of(bug) not in place.tests:
            print(f"left out, {test_of(bug)} is not in this build: {bug[0]}")
            continue
        problem = missed(place, bug)
        caught += problem is None and bug[0] != NONE
        lost += problem is not None
        if problem:
            print(f"MISSED: {bug[0]}: {problem}", flush=True)
    print(f"{caught} bugs caught, {lost} missed")
    sys.exit(1 if lost or not caught else 0)


main()
