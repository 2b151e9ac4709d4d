! Graphs: shapes, dimensions, permutations and slices count as in Fortran. Outputs are compared with what
! Fortran's intrinsics compute.
program graphs
  use, intrinsic :: iso_c_binding
  use checks
  implicit none
  integer, parameter :: f = 4, n = 3
  real(4), parameter :: tolerance = 1e-5
  type(clt_device), allocatable :: devices(:)
  type(clt_graph) :: graph
  type(clt_store) :: store
  type(clt_predictor) :: predictor
  type(clt_predictor_options) :: options
  type(clt_value) :: x, w, y, parts(2), c(2), results(4)
  real(4) :: data(f, n), weight(f, 2), out(f, n), two(2, n), three(f, 2, n), one(1, n), cut(2, n), wide(6, n)
  integer(c_int64_t), allocatable :: dims(:)
  character(:), allocatable :: name
  character(200) :: message
  integer :: i, j, stat, dtype

  do i = 1, n
    do j = 1, f
      data(j, i) = real(j) / 3 - real(i * i) / 5
    end do
  end do
  weight = reshape([(real(i) / 7, i = 1, 2 * f)], [f, 2])
  call open_devices(devices)
  call clt_graph_create(graph)
  x = clt_input(graph, 'x', CLT_F32, [f, CLT_BATCH])
  w = clt_parameter(graph, 'w', [f, 2], clt_init(CLT_INIT_UNIFORM, 0.5d0, 0d0))
  call expect(clt_value_dim(x, 1) == f .and. clt_value_dim(x, 2) == -1, 'dimension 1 is the fastest')
  y = clt_output(clt_linear(x, w), 'linear')
  y = clt_output(clt_softmax(x, 1), 'softmax')
  y = clt_output(clt_reduce_sum(x, [1], 1), 'sum')
  y = clt_output(clt_slice(x, [2_c_int64_t, 1_c_int64_t], [3_c_int64_t, CLT_TO_END]), 'slice')
  y = clt_output(clt_pad(x, [2, 0], [0, 0], 9d0), 'pad')
  c = [x, clt_scale(x, 2d0)]
  y = clt_output(clt_stack(c, 2), 'stack')
  y = clt_output(clt_concat([clt_slice(x, [3_c_int64_t, 1_c_int64_t], [4_c_int64_t, CLT_TO_END]), x], 1), 'concat')
  call clt_chunk(x, 1, parts)
  y = clt_output(clt_mul(parts(2), parts(1)), 'chunks')
  call clt_apply_text(graph, 'leaky_relu', [x], 'slope=0.5', results)
  y = clt_output(results(1), 'by_name')
  y = clt_output(clt_add(x, clt_constant(graph, [real(8) :: 1, 2, 3, 4])), 'constant')
  y = clt_transpose(clt_stack(c, 1), [2, 1, 3])
  call expect(all([(clt_value_dim(y, i), i = 1, 3)] == [f, 2, -1]), 'a permutation')
  y = clt_output(y, 'transpose')
  call clt_graph_status(graph, stat, message)
  call expect(stat == 0, 'the graph is right: ' // message)

  call clt_store_create(graph, devices, 1, store)
  call clt_store_set_array(store, 'w', weight)
  call clt_predictor_options_init(options)
  options%batch = 8
  call clt_predictor_create(graph, store, options, predictor)
  call run('linear', two)
  call near(two, matmul(transpose(weight), data), 'linear is weight^T x')
  call run('softmax', out)
  call near(out, exp(data) / spread(sum(exp(data), 1), 1, f), 'softmax over dimension 1')
  call run('sum', one)
  call near(one, reshape(sum(data, 1), [1, n]), 'a sum over dimension 1')
  call run('slice', cut)
  call near(cut, data(2:3, :), 'a slice, first to last')
  call run('pad', wide)
  call near(wide(3:6, :), data, 'padding before dimension 1')
  call expect(all(wide(1:2, :) == 9), 'the padding')
  call run('concat', wide)
  call near(wide, reshape([([data(3:4, i), data(:, i)], i = 1, n)], [6, n]), 'concatenated along dimension 1')
  call run('chunks', cut)
  call near(cut, data(3:4, :) * data(1:2, :), 'halves along dimension 1')
  call run('by_name', out)
  call near(out, merge(data, data / 2, data > 0), 'an operator by name')
  call run('constant', out)
  call near(out, data + spread([1., 2., 3., 4.], 2, n), 'a constant of real(8)')
  call clt_predictor_run(predictor, 'x', data, 'stack', three)
  call expect(all(three(:, 1, :) == data) .and. all(three(:, 2, :) == 2 * data), 'stacked as dimension 2')
  call clt_predictor_run(predictor, 'x', data, 'transpose', three)
  call expect(all(three(:, 1, :) == data) .and. all(three(:, 2, :) == 2 * data), 'transposed back')

  call clt_store_describe(store, 0, name=name, dtype=dtype, dims=dims)
  call expect(name == 'w' .and. dtype == CLT_F32 .and. all(dims == [f, 2]), 'a parameter is described')
  call refused()
  call finish()

contains

  subroutine run(name, to)
    character(*), intent(in) :: name
    real(4), intent(inout) :: to(:, :)
    call clt_predictor_run(predictor, 'x', data, name, to)
  end subroutine

  subroutine near(found, wanted, text)
    real(4), intent(in) :: found(:, :), wanted(:, :)
    character(*), intent(in) :: text
    call expect(all(shape(found) == shape(wanted)), text // ': shape')
    call expect(maxval(abs(found - wanted)) < tolerance, text)
  end subroutine

  ! A wrong operand is named by the graph's status. A builder gives no value then.
  subroutine refused()
    type(clt_graph) :: wrong
    type(clt_value) :: a, b
    call clt_graph_create(wrong)
    a = clt_input(wrong, 'a', CLT_F32, [5, CLT_BATCH])
    b = clt_linear(a, clt_parameter(wrong, 'w', [4, 2], clt_init(CLT_INIT_ZERO, 0d0, 0d0)))
    call expect(clt_value_rank(b) == 0, 'no value')
    call clt_graph_status(wrong, stat, message)
    call expect_failure(stat, message, 'linear')
    b = clt_transpose(a, [1])
    call expect(clt_value_rank(b) == 0, 'a permutation of too few numbers gives no value')
    call clt_chunk(a, 1, parts, stat, message)
    call expect(stat /= 0, '5 in two halves')
  end subroutine
end program
