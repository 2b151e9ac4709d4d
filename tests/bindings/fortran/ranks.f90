! Ranks of a split communicator train together, with an integer or with type(MPI_Comm). The rest of the
! program has other work. Run it on 3 ranks: the last one trains with nobody.
program ranks
  use, intrinsic :: iso_c_binding
  use mpi_f08
  use cltrain_mpi
  use checks
  implicit none
  integer, parameter :: n = 32
  type(MPI_Comm) :: team, gone, copy
  type(clt_world) :: world
  character(300) :: message
  integer :: rank, size, members, stat
  real(8) :: both(2)

  call clt_world_open_mpi(MPI_COMM_WORLD, world, stat, message)
  call expect_failure(stat, message, 'call MPI_Init first')
  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Comm_size(MPI_COMM_WORLD, size)
  call MPI_Comm_split(MPI_COMM_WORLD, merge(1, 0, rank < size - 1 .or. size < 3), -rank, team)
  call MPI_Comm_dup(team, gone)
  copy = gone
  call MPI_Comm_free(gone)
  call clt_world_open_mpi(gone, world, stat, message)
  call expect_failure(stat, message, 'the communicator is MPI_COMM_NULL')
  call clt_world_open_mpi(copy, world, stat, message)
  call expect_failure(stat, message, 'freed through another copy')
  call clt_world_open_mpi(copy%MPI_VAL, world, stat, message)
  call expect_failure(stat, message, 'freed through another copy')
  call MPI_Comm_size(team, members)
  call train(.true., both(1))
  call train(.false., both(2))
  call expect(both(1) == both(2), 'an integer and type(MPI_Comm) give the same bits')
  call MPI_Comm_free(team)
  call MPI_Finalize()
  call clt_world_open_mpi(MPI_COMM_WORLD, world, stat, message)
  call expect_failure(stat, message, 'MPI is finalised')
  call finish()

contains

  subroutine train(integers, loss)
    logical, intent(in) :: integers
    real(8), intent(out) :: loss
    type(clt_world) :: world
    type(clt_device), allocatable :: devices(:)
    type(clt_graph) :: graph
    type(clt_store) :: store
    type(clt_trainer) :: trainer
    type(clt_trainer_options) :: options
    type(clt_step_result) :: result
    real(8) :: x(2, n), y(1, n), w(2, 16), least(2, 16), most(2, 16), mean, all
    integer :: step, i, me

    if (integers) then
      call clt_world_open_mpi(team%MPI_VAL, world)
    else
      call clt_world_open_mpi(team, world)
    end if
    call clt_world_set_deadlines_mpi(world, 300d0, 60d0)
    call MPI_Comm_rank(team, me)
    call open_devices(devices)
    call clt_mlp_regressor(2, [16], 1, graph=graph)
    call clt_store_create(graph, devices, 5, store)
    call clt_trainer_options_init(options)
    options%optimizer = CLT_ADAM
    options%lr = 0.01d0
    options%batch = n * members
    options%world = world
    options%comm_timeout = 120
    call clt_trainer_create(graph, store, options, trainer)
    do step = 1, 20
      do i = 1, n
        x(:, i) = [sin(real(i * step + 100 * me, 8)), cos(real(i + step, 8))]
        y(1, i) = x(1, i) - 2 * x(2, i)
      end do
      if (step == 20) then
        mean = 0
        call guess_error(trainer, x, y, mean)
      end if
      call clt_trainer_step(trainer, 'x', x, 'y', y)
    end do
    call clt_trainer_result(trainer, clt_trainer_steps(trainer) - 1, result)
    loss = result%loss
    call expect(result%samples == n * members, 'a step has the samples of all ranks')
    call MPI_Allreduce(mean, all, 1, MPI_DOUBLE_PRECISION, MPI_SUM, team)
    call expect(abs(all / members - loss) < 1e-5 * (1 + loss), 'the loss is the mean over all ranks')
    call clt_store_get_array(store, 'fc1.weight', w)
    call MPI_Allreduce(w, least, 32, MPI_DOUBLE_PRECISION, MPI_MIN, team)
    call MPI_Allreduce(w, most, 32, MPI_DOUBLE_PRECISION, MPI_MAX, team)
    call expect(all_equal(least, most), 'all ranks have the same parameters')
    call clt_trainer_finish(trainer)
    call clt_trainer_destroy(trainer)
    call clt_store_destroy(store)
    call clt_world_close(world)
    call clt_world_close(world, stat, message)
    call expect_failure(stat, message, 'clt_world_close: world was destroyed')
  end subroutine

  ! The mean squared error of predictions, computed here.
  subroutine guess_error(trainer, x, y, mean)
    type(clt_trainer), intent(in) :: trainer
    real(8), intent(in) :: x(:, :), y(:, :)
    real(8), intent(out) :: mean
    real(8) :: guess(1, n)
    call clt_predict_arrays(trainer, 'x', x, 'prediction', guess)
    mean = sum((guess - y)**2) / n
  end subroutine

  pure function all_equal(a, b)
    real(8), intent(in) :: a(:, :), b(:, :)
    logical :: all_equal
    all_equal = all(a == b)
  end function
end program
